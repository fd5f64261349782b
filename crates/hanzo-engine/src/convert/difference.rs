//! What differs between the spec of a folder and that of the GGUF file made of it.
//!
//! Not differences: which elements form a rotated pair (rows move), how a stretched rotation is written (its frequencies
//! count), and whether the factor on embeddings is rounded to the type of the weights, which GGUF readers never do.

use std::fmt::Debug;

use crate::{
    rope::RopeSpec,
    spec::{AttentionSpec, DecoderSpec, LayerSpec},
};

/// Numbers that went through f32 may differ by this share.
const ROUNDING: f32 = 1e-5;
/// The share by which bfloat16 rounds.
const BF16_ROUNDING: f32 = 1.0 / 256.0;

/// The first thing that differs, as a sentence.
pub(super) fn between(a: &DecoderSpec, b: &DecoderSpec) -> Option<String> {
    let plain = [
        unequal("vocabulary", &a.vocab_size, &b.vocab_size),
        unequal("hidden size", &a.hidden_size, &b.hidden_size),
        unequal("context", &a.context_length, &b.context_length),
        unequal("layers", &a.layers.len(), &b.layers.len()),
        unequal("final softcap", &a.final_softcap, &b.final_softcap),
        apart("embedding scale", a.embedding_scale, b.embedding_scale, BF16_ROUNDING),
        apart("norm epsilon", a.norm_eps, b.norm_eps, ROUNDING),
    ];
    if let Some(what) = plain.into_iter().flatten().next() {
        return Some(what);
    }
    let layers = a.layers.iter().zip(&b.layers).enumerate();
    let mut layers = layers.filter_map(|(i, (x, y))| Some((i, layer((a, x), (b, y))?)));
    layers.next().map(|(i, what)| format!("layer {i}: {what}"))
}

fn unequal<T: PartialEq + Debug>(what: &str, a: &T, b: &T) -> Option<String> {
    (a != b).then(|| format!("{what} {a:?} would become {b:?}"))
}

fn apart(what: &str, a: f32, b: f32, share: f32) -> Option<String> {
    ((a - b).abs() > share * a.abs()).then(|| format!("{what} {a} would become {b}"))
}

fn layer((a, x): (&DecoderSpec, &LayerSpec), (b, y): (&DecoderSpec, &LayerSpec)) -> Option<String> {
    unequal("norm after attention", &x.post_mixer_norm, &y.post_mixer_norm)
        .or_else(|| unequal("norm after feed-forward", &x.post_ffn_norm, &y.post_ffn_norm))
        .or_else(|| unequal("feed-forward", &x.ffn, &y.ffn))
        .or_else(|| attention(x.attention(), y.attention()))
        .or_else(|| {
            let rope = |spec: &DecoderSpec, layer: &LayerSpec| {
                layer.attention().rope.and_then(|i| spec.ropes.get(i).cloned())
            };
            rotation(rope(a, x), rope(b, y), a.context_length)
        })
}

fn attention(a: &AttentionSpec, b: &AttentionSpec) -> Option<String> {
    // No field is forgotten: this pattern would not compile.
    let AttentionSpec { n_heads, n_kv_heads, head_dim, scale, rope: _, window, softcap, qk_norm } = a;
    unequal("heads", n_heads, &b.n_heads)
        .or_else(|| unequal("key/value heads", n_kv_heads, &b.n_kv_heads))
        .or_else(|| unequal("head width", head_dim, &b.head_dim))
        .or_else(|| apart("attention scale", *scale, b.scale, ROUNDING))
        .or_else(|| unequal("attention window", window, &b.window))
        .or_else(|| unequal("attention softcap", softcap, &b.softcap))
        .or_else(|| unequal("norm of query and key", qk_norm, &b.qk_norm))
}

fn rotation(a: Option<RopeSpec>, b: Option<RopeSpec>, context: usize) -> Option<String> {
    let (a, b) = match (a, b) {
        (None, None) => return None,
        (Some(a), Some(b)) => (a, b),
        _ => return Some("its rotation would come or go".to_owned()),
    };
    let differ = || Some(format!("rotation {:?} would become {:?}", a.scaling, b.scaling));
    // Some scalings have other frequencies for short sequences.
    for context in [1, context] {
        let (Ok(x), Ok(y)) = (a.table(context), b.table(context)) else { return differ() };
        let near = |(x, y): (&f32, &f32)| (x - y).abs() <= ROUNDING * x.abs();
        let same = x.inv_freq.len() == y.inv_freq.len()
            && x.inv_freq.iter().zip(&y.inv_freq).all(near)
            && near((&x.magnitude, &y.magnitude))
            && x.axis == y.axis;
        if !same || a.dims != b.dims {
            return differ();
        }
    }
    None
}
