//! What a tensor does, told by its GGUF name; and which tensors are left as they are.
//!
//! Source: llama.cpp's `llama-quant.cpp` (`tensor_get_category`, `tensor_allows_quantization`).

use hanzo_quant::Part;

pub(super) const OUTPUT: &str = "output.weight";
const EMBEDDING: &str = "token_embd.weight";
const LAYER_EMBEDDING: &str = "per_layer_token_embd.weight";

/// Names of parts, tried in order.
const PARTS: &[(&str, Part)] = &[
    ("attn_qkv.weight", Part::Value),
    ("attn_kv_b.weight", Part::Value),
    ("attn_v.weight", Part::Value),
    ("attn_k.weight", Part::Key),
    ("attn_q.weight", Part::Query),
    ("attn_output.weight", Part::AttentionOut),
    ("ffn_up", Part::Up),
    ("ffn_gate", Part::Gate),
    ("ffn_down", Part::Down),
];

/// What marks tensors that are small, or that a coarser format would harm more than it saves: norms, routers, positions,
/// convolutions, patches of pictures, codebooks of sound.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// Kept under exactly these names.
const KEPT_WHOLE: &[&str] = &["position_embd.weight", "token_types.weight"];

/// What a tensor does. `tied`: whether the embedding is the output matrix too.
pub(super) fn part(name: &str, tied: bool) -> Part {
    if name == OUTPUT || (tied && is_embedding(name)) {
        return Part::Output;
    }
    if is_embedding(name) {
        return Part::Embedding;
    }
    PARTS.iter().find(|(marks, _)| name.contains(marks)).map_or(Part::Other, |&(_, part)| part)
}

/// Whether a tensor is the table of tokens or of tokens per layer.
pub(super) fn is_embedding(name: &str) -> bool {
    name == EMBEDDING || is_layer_embedding(name)
}

/// Whether a tensor is the table of tokens per layer.
pub(super) fn is_layer_embedding(name: &str) -> bool {
    name == LAYER_EMBEDDING
}

/// Whether a tensor keeps its format whatever the model is quantised as.
pub(super) fn is_kept(name: &str, shape: &[usize]) -> bool {
    // Dimensions of one element at the outside count for nothing.
    let n_dims = shape.len() - shape.iter().take_while(|&&dim| dim == 1).count().min(shape.len() - 1);
    n_dims < 2
        || !name.ends_with("weight")
        || KEPT_WHOLE.contains(&name)
        || KEPT.iter().any(|marks| name.contains(marks))
}

/// The layer in a name like `blk.7.attn_q.weight`.
pub(super) fn layer(name: &str) -> Option<usize> {
    let (digits, _) = name.strip_prefix("blk.")?.split_once('.')?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_parts() {
        assert_eq!(part("token_embd.weight", true), Part::Output);
        assert_eq!(part("token_embd.weight", false), Part::Embedding);
        assert_eq!(part("blk.0.ffn_gate_up_exps.weight", false), Part::Gate);
        assert_eq!(part("blk.0.attn_q_a.weight", false), Part::Other);
        assert_eq!((layer("blk.12.x"), layer("blk.x.y"), layer("a.1.b")), (Some(12), None, None));
    }

    #[test]
    fn vectors_norms_and_biases_are_kept() {
        assert!(is_kept("blk.0.attn_norm.weight", &[8, 8]));
        assert!(is_kept("blk.0.attn_q.bias", &[8, 8]));
        assert!(is_kept("blk.0.attn_q.weight", &[8]));
        assert!(is_kept("blk.0.attn_q.weight", &[1, 8]));
        assert!(!is_kept("blk.0.attn_q.weight", &[8, 1]));
        assert!(!is_kept("output.weight", &[8, 8]));
    }
}
