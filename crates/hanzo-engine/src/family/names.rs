//! Tensor names: the slots of a decoder and what files call them.

/// A place in the decoder that holds a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    TokenEmbedding,
    OutputNorm,
    Output,
    RopeDivisors,
    MixerNorm,
    Query,
    QueryBias,
    QueryNorm,
    Key,
    KeyBias,
    KeyNorm,
    Value,
    ValueBias,
    AttentionOut,
    AttentionOutBias,
    PostMixerNorm,
    FfnNorm,
    Gate,
    GateBias,
    Up,
    UpBias,
    Down,
    DownBias,
    PostFfnNorm,
    Router,
    ExpertGate,
    ExpertUp,
    ExpertDown,
}

impl Slot {
    /// Whether the tensor belongs to no layer.
    pub(crate) fn is_outer(self) -> bool {
        matches!(self, Self::TokenEmbedding | Self::OutputNorm | Self::Output | Self::RopeDivisors)
    }

    /// Whether the tensor is a norm's weight.
    pub(crate) fn is_norm(self) -> bool {
        use Slot::{FfnNorm, KeyNorm, MixerNorm, OutputNorm, PostFfnNorm, PostMixerNorm, QueryNorm};
        matches!(self, OutputNorm | MixerNorm | QueryNorm | KeyNorm | PostMixerNorm | FfnNorm | PostFfnNorm)
    }
}

/// The names of one slot; `{l}` stands for the layer, `{e}` for the expert of tensors to be stacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub slot: Slot,
    pub gguf: &'static str,
    pub hf: &'static str,
}

const fn name(slot: Slot, gguf: &'static str, hf: &'static str) -> Name {
    Name { slot, gguf, hf }
}

/// The names that most families share.
pub(crate) const BASE: &[Name] = &[
    name(Slot::TokenEmbedding, "token_embd.weight", "model.embed_tokens.weight"),
    name(Slot::OutputNorm, "output_norm.weight", "model.norm.weight"),
    name(Slot::Output, "output.weight", "lm_head.weight"),
    name(Slot::RopeDivisors, "rope_freqs.weight", ""),
    name(Slot::MixerNorm, "blk.{l}.attn_norm.weight", "model.layers.{l}.input_layernorm.weight"),
    name(Slot::Query, "blk.{l}.attn_q.weight", "model.layers.{l}.self_attn.q_proj.weight"),
    name(Slot::QueryBias, "blk.{l}.attn_q.bias", "model.layers.{l}.self_attn.q_proj.bias"),
    name(Slot::QueryNorm, "blk.{l}.attn_q_norm.weight", "model.layers.{l}.self_attn.q_norm.weight"),
    name(Slot::Key, "blk.{l}.attn_k.weight", "model.layers.{l}.self_attn.k_proj.weight"),
    name(Slot::KeyBias, "blk.{l}.attn_k.bias", "model.layers.{l}.self_attn.k_proj.bias"),
    name(Slot::KeyNorm, "blk.{l}.attn_k_norm.weight", "model.layers.{l}.self_attn.k_norm.weight"),
    name(Slot::Value, "blk.{l}.attn_v.weight", "model.layers.{l}.self_attn.v_proj.weight"),
    name(Slot::ValueBias, "blk.{l}.attn_v.bias", "model.layers.{l}.self_attn.v_proj.bias"),
    name(Slot::AttentionOut, "blk.{l}.attn_output.weight", "model.layers.{l}.self_attn.o_proj.weight"),
    name(Slot::AttentionOutBias, "blk.{l}.attn_output.bias", "model.layers.{l}.self_attn.o_proj.bias"),
    name(Slot::FfnNorm, "blk.{l}.ffn_norm.weight", "model.layers.{l}.post_attention_layernorm.weight"),
    name(Slot::Gate, "blk.{l}.ffn_gate.weight", "model.layers.{l}.mlp.gate_proj.weight"),
    name(Slot::GateBias, "blk.{l}.ffn_gate.bias", "model.layers.{l}.mlp.gate_proj.bias"),
    name(Slot::Up, "blk.{l}.ffn_up.weight", "model.layers.{l}.mlp.up_proj.weight"),
    name(Slot::UpBias, "blk.{l}.ffn_up.bias", "model.layers.{l}.mlp.up_proj.bias"),
    name(Slot::Down, "blk.{l}.ffn_down.weight", "model.layers.{l}.mlp.down_proj.weight"),
    name(Slot::DownBias, "blk.{l}.ffn_down.bias", "model.layers.{l}.mlp.down_proj.bias"),
    name(Slot::Router, "blk.{l}.ffn_gate_inp.weight", "model.layers.{l}.mlp.gate.weight"),
    name(
        Slot::ExpertGate,
        "blk.{l}.ffn_gate_exps.weight",
        "model.layers.{l}.mlp.experts.{e}.gate_proj.weight",
    ),
    name(Slot::ExpertUp, "blk.{l}.ffn_up_exps.weight", "model.layers.{l}.mlp.experts.{e}.up_proj.weight"),
    name(
        Slot::ExpertDown,
        "blk.{l}.ffn_down_exps.weight",
        "model.layers.{l}.mlp.experts.{e}.down_proj.weight",
    ),
    // Files made before experts were stacked.
    name(Slot::ExpertGate, "blk.{l}.ffn_gate.{e}.weight", ""),
    name(Slot::ExpertUp, "blk.{l}.ffn_up.{e}.weight", ""),
    name(Slot::ExpertDown, "blk.{l}.ffn_down.{e}.weight", ""),
];

/// The norms of families that norm before and after each part.
pub(crate) const SANDWICH: &[Name] = &[
    name(
        Slot::PostMixerNorm,
        "blk.{l}.post_attention_norm.weight",
        "model.layers.{l}.post_attention_layernorm.weight",
    ),
    name(Slot::FfnNorm, "blk.{l}.ffn_norm.weight", "model.layers.{l}.pre_feedforward_layernorm.weight"),
    name(
        Slot::PostFfnNorm,
        "blk.{l}.post_ffw_norm.weight",
        "model.layers.{l}.post_feedforward_layernorm.weight",
    ),
];
