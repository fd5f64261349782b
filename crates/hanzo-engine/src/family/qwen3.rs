//! Qwen3: Qwen2 without biases and with normed query and key heads.

use super::{
    Facts, Family,
    common::{self, Defaults},
    qwen2,
};
use crate::{Result, spec::DecoderSpec};

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let mut spec = common::decoder(facts, &DEFAULTS)?;
    qwen2::set_windows(&mut spec, &facts.fields)?;
    common::set_qk_norm(&mut spec);
    Ok(spec)
}

const DEFAULTS: Defaults = Defaults { head_dim: Some(128), ..Defaults::LLAMA };

pub(super) const FAMILY: Family = Family {
    name: "qwen3",
    gguf: &["qwen3"],
    hf: &["qwen3"],
    spec,
    names: &[],
    norm_offset: 0.0,
    write: |_, _| {},
    harmless: &["attention_bias"],
};
