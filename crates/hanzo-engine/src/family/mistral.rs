//! Mistral 7B, Nemo and Small: Llama with a head width of its own and, in the first one, a window on every layer.

use super::{
    Facts, Family,
    common::{self},
    llama,
};
use crate::{Result, spec::DecoderSpec};

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let mut spec = common::decoder(facts, &llama::DEFAULTS)?;
    let window = common::window_or(&facts.fields, 4096)?;
    let windowed = common::windowed_layers(&facts.fields, spec.layers.len())?;
    common::set_windows(&mut spec, window, |i| windowed.as_ref().is_none_or(|w| w[i]));
    Ok(spec)
}

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    // Converters call it llama.
    gguf: &[],
    hf: &["mistral"],
    spec,
    names: &[],
    norm_offset: 0.0,
    write: |_, _| {},
    harmless: &[],
};
