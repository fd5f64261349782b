//! Qwen2 and Qwen2.5: Llama with biases on query, key and value.

use super::{
    Facts, Family, Fields,
    common::{self, Defaults},
    fields::key,
};
use crate::{Result, spec::DecoderSpec};

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let mut spec = common::decoder(facts, &Defaults::LLAMA)?;
    set_windows(&mut spec, &facts.fields)?;
    Ok(spec)
}

/// Qwen's windows: off unless `use_sliding_window`, then from `max_window_layers` on or as `layer_types` says.
pub(super) fn set_windows(spec: &mut DecoderSpec, fields: &Fields<'_>) -> Result<()> {
    let window = common::window_or(fields, 4096)?;
    let on = fields.opt_bool(key("", "use_sliding_window"))?.unwrap_or(false);
    let first = fields.opt_usize(key("", "max_window_layers"))?.unwrap_or(28);
    let windowed = common::windowed_layers(fields, spec.layers.len())?;
    common::set_windows(spec, window.filter(|_| on), |i| windowed.as_ref().map_or(i >= first, |w| w[i]));
    Ok(())
}

pub(super) const FAMILY: Family = Family {
    name: "qwen2",
    gguf: &["qwen2"],
    hf: &["qwen2"],
    spec,
    names: &[],
    norm_offset: 0.0,
    write: |_, _| {},
    harmless: &[],
};
