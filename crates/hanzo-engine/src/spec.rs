//! What a decoder is made of, as plain data: one forward pass reads it, a family file writes it.
//!
//! Facts that a tensor's presence settles (biases, tied output) are not here: the loader derives them.

use hanzo_ml::backend::{Activation, RouteKind};

use crate::rope::RopeSpec;

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Rows of the embedding table and of the logits.
    pub vocab_size: usize,
    /// Width of the residual stream, D.
    pub hidden_size: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Factor on the embeddings of tokens.
    pub embedding_scale: f32,
    /// The layers in order.
    pub layers: Vec<LayerSpec>,
    /// Added to the mean of squares in every norm.
    pub norm_eps: f32,
    /// The rotations that layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// `cap · tanh(logits / cap)`.
    pub final_softcap: Option<f32>,
}

/// One layer: norm, mixer, residual, norm, feed-forward, residual.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// What mixes positions.
    pub mixer: Mixer,
    /// Whether the mixer's output is normed before it joins the residual.
    pub post_mixer_norm: bool,
    /// The feed-forward part.
    pub ffn: Ffn,
    /// Whether the feed-forward's output is normed before it joins the residual.
    pub post_ffn_norm: bool,
}

/// What mixes positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention with a key/value cache.
    Attention(AttentionSpec),
}

/// Softmax attention with grouped key/value heads.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads, H; a multiple of K.
    pub n_heads: usize,
    /// Key/value heads, K.
    pub n_kv_heads: usize,
    /// Elements of a head, Hd.
    pub head_dim: usize,
    /// Factor on q · k.
    pub scale: f32,
    /// Index into [`DecoderSpec::ropes`]; `None` is attention without positions.
    pub rope: Option<usize>,
    /// A row sees this many positions, itself included; `None` is all.
    pub window: Option<usize>,
    /// `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Norm of each query and key head before the rotation.
    pub qk_norm: bool,
}

/// The feed-forward part of a layer: `down(activation(gate(x)) · up(x))`.
#[derive(Clone, Debug, PartialEq)]
pub enum Ffn {
    /// One network for every token.
    Dense {
        /// Width of gate and up, F.
        width: usize,
        /// The function on the gate.
        activation: Activation,
    },
    /// A few of many networks per token.
    Moe {
        /// Width of an expert's gate and up.
        width: usize,
        /// The function on the gate.
        activation: Activation,
        /// Experts, E.
        n_experts: usize,
        /// Experts chosen for a token, S.
        n_used: usize,
        /// Router scores to weights.
        route: RouteKind,
    },
}

impl LayerSpec {
    /// The attention of this layer.
    pub fn attention(&self) -> &AttentionSpec {
        let Mixer::Attention(attention) = &self.mixer;
        attention
    }

    /// The attention of this layer, to change it.
    pub fn attention_mut(&mut self) -> &mut AttentionSpec {
        let Mixer::Attention(attention) = &mut self.mixer;
        attention
    }
}

impl DecoderSpec {
    /// Checks the relations that the forward pass relies on.
    ///
    /// # Errors
    /// A sentence that names the value out of range.
    pub fn check(&self) -> Result<(), String> {
        within("vocabulary size", self.vocab_size, 1 << 24)?;
        within("hidden size", self.hidden_size, 1 << 20)?;
        within("layer count", self.layers.len(), 4096)?;
        within("context length", self.context_length, 1 << 28)?;
        positive("norm epsilon", self.norm_eps)?;
        positive("embedding scale", self.embedding_scale)?;
        self.final_softcap.map_or(Ok(()), |cap| positive("final softcap", cap))?;
        self.layers
            .iter()
            .enumerate()
            .try_for_each(|(i, layer)| self.check_layer(layer).map_err(|what| format!("layer {i}: {what}")))
    }

    fn check_layer(&self, layer: &LayerSpec) -> Result<(), String> {
        let a = layer.attention();
        within("head count", a.n_heads, 1 << 14)?;
        within("key/value head count", a.n_kv_heads, a.n_heads)?;
        within("head width", a.head_dim, 1 << 14)?;
        positive("attention scale", a.scale)?;
        a.softcap.map_or(Ok(()), |cap| positive("attention softcap", cap))?;
        if !a.n_heads.is_multiple_of(a.n_kv_heads) {
            return Err(format!(
                "{} heads are not a multiple of {} key/value heads",
                a.n_heads, a.n_kv_heads
            ));
        }
        if let Some(window) = a.window {
            within("attention window", window, 1 << 28)?;
        }
        if let Some(rope) = a.rope {
            let rope = self.ropes.get(rope).ok_or("its rotation is not in the list")?;
            if rope.dims > a.head_dim || !rope.dims.is_multiple_of(2) || rope.dims == 0 {
                return Err(format!("{} rotated elements do not fit a head of {}", rope.dims, a.head_dim));
            }
        }
        match layer.ffn {
            Ffn::Dense { width, .. } => within("feed-forward width", width, 1 << 22),
            Ffn::Moe { width, n_experts, n_used, .. } => {
                within("expert width", width, 1 << 22)?;
                within("expert count", n_experts, 1 << 14)?;
                within("experts used", n_used, n_experts)
            }
        }
    }
}

fn within(what: &str, value: usize, max: usize) -> Result<(), String> {
    if value == 0 || value > max { Err(format!("{what} {value} is not within 1 to {max}")) } else { Ok(()) }
}

fn positive(what: &str, value: f32) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{what} {value} is not positive")) }
}
