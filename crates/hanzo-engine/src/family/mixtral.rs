//! Mixtral: Mistral with eight experts in every layer, two of them chosen for a token.

use super::{
    Facts, Family, Name, Slot,
    common::{self, Defaults},
    llama,
};
use crate::{Result, spec::DecoderSpec};

const DEFAULTS: Defaults = Defaults { rope_theta: 1_000_000.0, norm_eps: 1e-5, ..llama::DEFAULTS };

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let mut spec = common::decoder(facts, &DEFAULTS)?;
    let window = common::window(&facts.fields)?;
    common::set_windows(&mut spec, window, |_| true);
    llama::set_experts(&mut spec, &facts.fields)?;
    Ok(spec)
}

const fn hf(slot: Slot, hf: &'static str) -> Name {
    Name { slot, gguf: "", hf }
}

const NAMES: &[Name] = &[
    hf(Slot::Router, "model.layers.{l}.block_sparse_moe.gate.weight"),
    hf(Slot::ExpertGate, "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight"),
    hf(Slot::ExpertUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight"),
    hf(Slot::ExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight"),
];

pub(super) const FAMILY: Family = Family {
    name: "mixtral",
    // Converters call it llama.
    gguf: &[],
    hf: &["mixtral"],
    spec,
    names: NAMES,
    norm_offset: 0.0,
    write: llama::write_experts,
    harmless: &["output_router_logits", "router_aux_loss_coef", "router_jitter_noise"],
};
