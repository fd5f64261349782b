//! Gemma 3 (text): normed query and key heads, five windowed layers to a full one, a rotation for each kind.

use hanzo_ml::backend::Activation;

use super::{
    Facts, Family, Fields, Flavour,
    common::{self, Defaults},
    fields::{Key, key},
    gemma, gemma2, names, rotation,
    written::Keys,
};
use crate::{
    Result,
    rope::{RopeScaling, RopeSpec},
    spec::DecoderSpec,
};

/// Layers of the 27B, whose GGUF files do not hold its attention scale.
const LAYERS_27B: usize = 62;
/// One layer of so many sees everything.
const PATTERN: usize = 6;
const LOCAL_THETA: Key = key("rope.freq_base_swa", "rope_local_base_freq");
const FULL_THETA: f64 = 1_000_000.0;
const WINDOW_THETA: f64 = 10_000.0;
const DEFAULTS: Defaults = Defaults {
    head_dim: Some(256),
    activation: Activation::GeluTanh,
    rope_theta: FULL_THETA,
    ..Defaults::LLAMA
};

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let fields = &facts.fields;
    gemma::refuse_bidirectional(fields)?;
    let mut spec = common::decoder(facts, &DEFAULTS)?;
    spec.embedding_scale = gemma::embedding_scale(fields, spec.hidden_size)?;
    gemma2::set_sandwich(&mut spec);
    gemma2::set_scale(&mut spec, fields, LAYERS_27B)?;
    common::set_qk_norm(&mut spec);
    spec.final_softcap = fields.opt_f64(gemma2::FINAL_SOFTCAP)?.map(|cap| cap as f32);
    let window = common::window_or(fields, 4096)?;
    let mut windowed = windowed_layers(fields, spec.layers.len())?;
    if fields.flavour() == Flavour::Gguf && window.is_none() {
        // Models of this shape without windows exist; all their layers turn as full ones do.
        windowed.fill(false);
    }
    common::set_windows(&mut spec, window, |i| windowed[i]);
    spec.ropes = ropes(facts, spec.layers[0].attention().head_dim)?;
    for (layer, windowed) in spec.layers.iter_mut().zip(windowed) {
        layer.attention_mut().rope = Some(usize::from(windowed));
    }
    Ok(spec)
}

fn windowed_layers(fields: &Fields<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let listed = common::windowed_layers(fields, n_layers)?;
    let listed = listed.or(fields.opt_bools(key("attention.sliding_window_pattern", ""))?);
    // GGUF files have a list or a number under one key.
    let own = match fields.flavour() {
        Flavour::Gguf if listed.is_some() => None,
        _ => fields.opt_usize(key("attention.sliding_window_pattern", "sliding_window_pattern"))?,
    };
    let saved = fields.opt_usize(key("", "_sliding_window_pattern"))?;
    if let Some(listed) = listed {
        return if listed.len() == n_layers {
            Ok(listed)
        } else {
            Err(fields
                .error(format!("the window pattern has {} entries for {n_layers} layers", listed.len())))
        };
    }
    let pattern = own.or(saved).unwrap_or(PATTERN);
    if pattern == 0 {
        return Err(fields.error("sliding_window_pattern is 0"));
    }
    Ok((0..n_layers).map(|i| !(i + 1).is_multiple_of(pattern)).collect())
}

fn write(spec: &DecoderSpec, keys: &mut Keys) {
    gemma2::write_final_softcap(spec, keys);
    if let [_, windowed] = spec.ropes.as_slice() {
        keys.number(LOCAL_THETA, windowed.theta);
    }
}

/// The rotation of full layers, then that of windowed ones, which no scaling touches.
fn ropes(facts: &Facts<'_>, head_dim: usize) -> Result<Vec<RopeSpec>> {
    let fields = &facts.fields;
    let full = rotation::rope(facts, Some("full_attention"), head_dim, &DEFAULTS)?;
    let local = fields.opt_f64(LOCAL_THETA)?.unwrap_or(WINDOW_THETA);
    let windowed = match fields.flavour() {
        Flavour::Config if fields.value("rope_parameters").is_some() => {
            let defaults = Defaults { rope_theta: local, ..DEFAULTS };
            rotation::rope(facts, Some("sliding_attention"), head_dim, &defaults)?
        }
        _ => RopeSpec { theta: local, scaling: RopeScaling::None, ..full.clone() },
    };
    Ok(vec![full, windowed])
}

pub(super) const FAMILY: Family = Family {
    name: "gemma3",
    gguf: &["gemma3"],
    hf: &["gemma3_text"],
    spec,
    names: names::SANDWICH,
    norm_offset: 1.0,
    write,
    // The attention's softcap is a field of Gemma 2 that this family's own code does not read.
    harmless: &["attention_bias", "attn_logit_softcapping", "cache_implementation"],
};
