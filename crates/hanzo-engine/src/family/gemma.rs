//! Gemma 1: wide heads, scaled embeddings, norm weights stored less 1 in Hugging Face files.

use hanzo_ml::backend::Activation;

use super::{
    Facts, Family, Fields, Flavour,
    common::{self, Defaults},
    fields::key,
};
use crate::{
    Result,
    spec::{DecoderSpec, Ffn},
};

pub(super) const DEFAULTS: Defaults =
    Defaults { head_dim: Some(256), activation: Activation::GeluTanh, ..Defaults::LLAMA };

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    refuse_bidirectional(&facts.fields)?;
    let mut spec = common::decoder(facts, &DEFAULTS)?;
    for layer in &mut spec.layers {
        // Published files say "gelu" and mean its tanh form.
        if let Ffn::Dense { activation: activation @ Activation::GeluErf, .. } = &mut layer.ffn {
            *activation = Activation::GeluTanh;
        }
    }
    spec.embedding_scale = embedding_scale(&facts.fields, spec.hidden_size)?;
    Ok(spec)
}

/// Refuses the variants for embeddings, in which every position sees the whole text.
pub(super) fn refuse_bidirectional(fields: &Fields<'_>) -> Result<()> {
    let field = "use_bidirectional_attention";
    if fields.opt_bool(key("", field))?.unwrap_or(false) {
        return Err(fields.error(format!("{field} is not supported")));
    }
    Ok(())
}

/// The square root of the hidden size. `transformers` rounds it to the model's type, llama.cpp does not.
pub(super) fn embedding_scale(fields: &Fields<'_>, hidden_size: usize) -> Result<f32> {
    let scale = (hidden_size as f32).sqrt();
    if fields.flavour() == Flavour::Gguf {
        return Ok(scale);
    }
    let dtype = fields.opt_str(key("", "dtype"))?.or(fields.opt_str(key("", "torch_dtype"))?);
    Ok(match dtype.as_deref() {
        Some("bfloat16") => round_to_bf16(scale),
        _ => scale,
    })
}

fn round_to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    f32::from_bits(rounded & 0xffff_0000)
}

pub(super) const FAMILY: Family = Family {
    name: "gemma",
    gguf: &["gemma"],
    hf: &["gemma"],
    spec,
    names: &[],
    norm_offset: 1.0,
    write: |_, _| {},
    harmless: &["attention_bias"],
};
