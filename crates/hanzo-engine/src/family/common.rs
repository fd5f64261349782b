//! The decoder that most families start from: pre-norm layers of grouped attention and a gated network.

use hanzo_ml::backend::{Activation, RopePairing};

use super::{
    Facts, Fields, Flavour,
    fields::{Key, key},
    rotation,
    written::Keys,
};
use crate::{
    Result,
    spec::{AttentionSpec, DecoderSpec, Ffn, LayerSpec, Mixer},
};

const LAYERS: Key = key("block_count", "num_hidden_layers");
const HIDDEN: Key = key("embedding_length", "hidden_size");
const CONTEXT: Key = key("context_length", "max_position_embeddings");
const HEADS: Key = key("attention.head_count", "num_attention_heads");
const KV_HEADS: Key = key("attention.head_count_kv", "num_key_value_heads");
const HEAD_DIM: Key = key("attention.key_length", "head_dim");
const VALUE_DIM: Key = key("attention.value_length", "");
const FFN: Key = key("feed_forward_length", "intermediate_size");
const EPS: Key = key("attention.layer_norm_rms_epsilon", "rms_norm_eps");
const VOCAB: Key = key("vocab_size", "vocab_size");
const WINDOW: Key = key("attention.sliding_window", "sliding_window");

/// What a family assumes when a config.json is silent.
pub(crate) struct Defaults {
    /// How files of the family lay rotated pairs in GGUF; config.json families all use halves.
    pub gguf_pairing: RopePairing,
    /// Added to the mean of squares in norms.
    pub norm_eps: f64,
    /// Base of the rotation.
    pub rope_theta: f64,
    /// Elements of a head; `None` is hidden size over heads.
    pub head_dim: Option<usize>,
    /// The gate's function.
    pub activation: Activation,
}

impl Defaults {
    /// The values of the Llama family and its descendants.
    pub(crate) const LLAMA: Self = Self {
        gguf_pairing: RopePairing::Half,
        norm_eps: 1e-6,
        rope_theta: 10_000.0,
        head_dim: None,
        activation: Activation::Silu,
    };

    /// The layout of rotated pairs in files of this flavour.
    pub(crate) fn pairing(&self, flavour: Flavour) -> RopePairing {
        match flavour {
            Flavour::Gguf => self.gguf_pairing,
            Flavour::Config => RopePairing::Half,
        }
    }
}

/// Reads what all families share. Every layer is alike; the family then changes what differs.
pub(crate) fn decoder(facts: &Facts<'_>, defaults: &Defaults) -> Result<DecoderSpec> {
    let fields = &facts.fields;
    let hidden_size = fields.usize(HIDDEN)?;
    let n_heads = fields.usize(HEADS)?;
    let n_kv_heads = fields.opt_usize(KV_HEADS)?.unwrap_or(n_heads);
    let derived = || hidden_size.checked_div(n_heads).filter(|d| d * n_heads == hidden_size);
    let head_dim = match fields.opt_usize(HEAD_DIM)?.or(defaults.head_dim).or_else(derived) {
        Some(head_dim) => head_dim,
        None => {
            let what = format!("{hidden_size} hidden elements are not a multiple of {n_heads} heads");
            return Err(fields.error(format!("{} is missing, and {what}", fields.name(HEAD_DIM))));
        }
    };
    if let Some(value_dim) = fields.opt_usize(VALUE_DIM)?.filter(|&v| v != head_dim) {
        return Err(fields.error(format!("value heads of {value_dim} beside key heads of {head_dim}")));
    }
    if let Some(vocab) = fields.opt_usize(VOCAB)?.filter(|&v| v != facts.vocab_size) {
        let rows = facts.vocab_size;
        return Err(
            fields.error(format!("{} is {vocab}, but the embedding has {rows} rows", fields.name(VOCAB)))
        );
    }
    let rope = rotation::rope(facts, None, head_dim, defaults)?;
    let layer = LayerSpec {
        mixer: Mixer::Attention(AttentionSpec {
            n_heads,
            n_kv_heads,
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            rope: Some(0),
            window: None,
            softcap: None,
            qk_norm: false,
        }),
        post_mixer_norm: false,
        ffn: Ffn::Dense { width: fields.usize(FFN)?, activation: activation(fields, defaults.activation)? },
        post_ffn_norm: false,
    };
    Ok(DecoderSpec {
        vocab_size: facts.vocab_size,
        hidden_size,
        context_length: fields.usize(CONTEXT)?,
        embedding_scale: 1.0,
        layers: vec![layer; bounded_layers(fields)?],
        norm_eps: norm_eps(fields, defaults)?,
        ropes: vec![rope],
        final_softcap: None,
    })
}

/// Writes the keys that [`decoder`] reads, from the first layer; who reads them back sees whether all are alike.
pub(crate) fn write(spec: &DecoderSpec, config: &Fields<'_>, keys: &mut Keys) -> Result<()> {
    keys.count(LAYERS, spec.layers.len());
    keys.count(CONTEXT, spec.context_length);
    keys.count(HIDDEN, spec.hidden_size);
    keys.count(VOCAB, spec.vocab_size);
    keys.number(EPS, spec.norm_eps.into());
    let Some(first) = spec.layers.first() else { return Ok(()) };
    let attention = first.attention();
    keys.count(HEADS, attention.n_heads);
    keys.count(KV_HEADS, attention.n_kv_heads);
    keys.count(HEAD_DIM, attention.head_dim);
    keys.count(VALUE_DIM, attention.head_dim);
    let dense = spec.layers.iter().find_map(|layer| match layer.ffn {
        Ffn::Dense { width, .. } => Some(width),
        Ffn::Moe { .. } => None,
    });
    if let Some(width) = dense.map_or_else(|| config.opt_usize(FFN), |width| Ok(Some(width)))? {
        keys.count(FFN, width);
    }
    if let Some(window) = spec.layers.iter().find_map(|layer| layer.attention().window) {
        keys.count(WINDOW, window);
    }
    Ok(())
}

/// Added to the mean of squares in norms; only a config.json may be silent about it.
fn norm_eps(fields: &Fields<'_>, defaults: &Defaults) -> Result<f32> {
    let eps = match fields.flavour() {
        Flavour::Gguf => fields.f64(EPS)?,
        Flavour::Config => fields.opt_f64(EPS)?.unwrap_or(defaults.norm_eps),
    };
    Ok(eps as f32)
}

/// The layer count, bounded before anything is allocated by it.
fn bounded_layers(fields: &Fields<'_>) -> Result<usize> {
    const MAX: usize = 4096;
    let n = fields.usize(LAYERS)?;
    if n == 0 || n > MAX {
        return Err(fields.error(format!("{} is {n}, not within 1 to {MAX}", fields.name(LAYERS))));
    }
    Ok(n)
}

/// The gate's function as config.json names it; GGUF files do not.
fn activation(fields: &Fields<'_>, default: Activation) -> Result<Activation> {
    // `hidden_activation`, where a file has it, is what the model was trained with.
    let own = fields.opt_str(key("", "hidden_activation"))?;
    let old = fields.opt_str(key("", "hidden_act"))?;
    match own.or(old).as_deref() {
        None => Ok(default),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu") => Ok(Activation::GeluErf),
        Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_fast") => Ok(Activation::GeluTanh),
        Some(other) => Err(fields.error(format!("hidden_act {other} is not supported"))),
    }
}

/// The attention window, where there is one.
pub(crate) fn window(fields: &Fields<'_>) -> Result<Option<usize>> {
    fields.opt_usize(WINDOW)
}

/// The attention window of families whose config.json means `default` when it is silent; null is no window.
pub(crate) fn window_or(fields: &Fields<'_>, default: usize) -> Result<Option<usize>> {
    let silent = fields.flavour() == Flavour::Config && !fields.has("sliding_window");
    if silent { Ok(Some(default)) } else { window(fields) }
}

/// For each layer whether it has a window, as `layer_types` of a config.json says.
pub(crate) fn windowed_layers(fields: &Fields<'_>, n_layers: usize) -> Result<Option<Vec<bool>>> {
    let Some(value) = fields.value("layer_types") else { return Ok(None) };
    let types = value.as_array().filter(|types| types.len() == n_layers);
    let types =
        types.ok_or_else(|| fields.error(format!("layer_types is not a list of {n_layers} names")))?;
    let windowed = types.iter().map(|t| match t.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(fields.error(format!("layer_types has {t}, which is not supported"))),
    });
    windowed.collect::<Result<_>>().map(Some)
}

/// Gives a window to the layers that `windowed` chooses.
pub(crate) fn set_windows(spec: &mut DecoderSpec, window: Option<usize>, windowed: impl Fn(usize) -> bool) {
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        layer.attention_mut().window = window.filter(|_| windowed(i));
    }
}

/// Says that query and key heads are normed in every layer.
pub(crate) fn set_qk_norm(spec: &mut DecoderSpec) {
    for layer in &mut spec.layers {
        layer.attention_mut().qk_norm = true;
    }
}
