//! Gemma 2: norms before and after each part, softcaps, every other layer with a window.

use super::{
    Facts, Family, Fields, Flavour,
    common::{self},
    fields::{Key, key},
    gemma, names,
    written::Keys,
};
use crate::{Result, spec::DecoderSpec};

const ATTENTION_SOFTCAP: Key = key("attn_logit_softcapping", "attn_logit_softcapping");
pub(super) const FINAL_SOFTCAP: Key = key("final_logit_softcapping", "final_logit_softcapping");
/// The window of files that name none.
const WINDOW: usize = 4096;
/// Layers of the 27B, whose GGUF files do not hold its attention scale.
const LAYERS_27B: usize = 46;

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let fields = &facts.fields;
    gemma::refuse_bidirectional(fields)?;
    let mut spec = common::decoder(facts, &gemma::DEFAULTS)?;
    spec.embedding_scale = gemma::embedding_scale(fields, spec.hidden_size)?;
    set_sandwich(&mut spec);
    set_scale(&mut spec, fields, LAYERS_27B)?;
    let softcap = softcap(fields, ATTENTION_SOFTCAP, 50.0)?;
    spec.final_softcap = self::softcap(fields, FINAL_SOFTCAP, 30.0)?;
    for layer in &mut spec.layers {
        layer.attention_mut().softcap = softcap;
    }
    let window = match fields.flavour() {
        Flavour::Config => common::window_or(fields, WINDOW)?,
        Flavour::Gguf => common::window(fields)?.or(Some(WINDOW)),
    };
    let windowed = common::windowed_layers(fields, spec.layers.len())?;
    common::set_windows(&mut spec, window, |i| windowed.as_ref().map_or(i % 2 == 0, |w| w[i]));
    Ok(spec)
}

/// A softcap, whose name is the same in both flavours; `default` where the file is silent, null is none.
fn softcap(fields: &Fields<'_>, key: Key, default: f64) -> Result<Option<f32>> {
    let cap = fields.opt_f64(key)?;
    let silent = !fields.has(key.gguf());
    Ok(cap.or(silent.then_some(default)).map(|cap| cap as f32))
}

fn write(spec: &DecoderSpec, keys: &mut Keys) {
    if let Some(cap) = spec.layers.first().and_then(|layer| layer.attention().softcap) {
        keys.number(ATTENTION_SOFTCAP, cap.into());
    }
    write_final_softcap(spec, keys);
}

/// Writes the softcap of logits, where there is one.
pub(super) fn write_final_softcap(spec: &DecoderSpec, keys: &mut Keys) {
    if let Some(cap) = spec.final_softcap {
        keys.number(FINAL_SOFTCAP, cap.into());
    }
}

/// Norms after each part.
pub(super) fn set_sandwich(spec: &mut DecoderSpec) {
    for layer in &mut spec.layers {
        layer.post_mixer_norm = true;
        layer.post_ffn_norm = true;
    }
}

/// The attention scale: `query_pre_attn_scalar^-½`. GGUF files leave it out; there it is the head width but in
/// the 27B, where it is the hidden size over the heads.
pub(super) fn set_scale(spec: &mut DecoderSpec, fields: &Fields<'_>, layers_27b: usize) -> Result<()> {
    let scalar = match fields.flavour() {
        Flavour::Config => fields.opt_f64(key("", "query_pre_attn_scalar"))?,
        Flavour::Gguf if spec.layers.len() == layers_27b => {
            Some(spec.hidden_size as f64 / spec.layers[0].attention().n_heads as f64)
        }
        Flavour::Gguf => None,
    };
    for layer in &mut spec.layers {
        let attention = layer.attention_mut();
        let default = match fields.flavour() {
            Flavour::Config => 256.0,
            Flavour::Gguf => attention.head_dim as f64,
        };
        attention.scale = scalar.unwrap_or(default).powf(-0.5) as f32;
    }
    Ok(())
}

pub(super) const FAMILY: Family = Family {
    name: "gemma2",
    gguf: &["gemma2"],
    hf: &["gemma2"],
    spec,
    names: names::SANDWICH,
    norm_offset: 1.0,
    write,
    harmless: &["attention_bias", "cache_implementation"],
};
