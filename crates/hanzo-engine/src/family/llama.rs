//! Llama 1 to 3 and the many models of its shape (SmolLM2, TinyLlama, Yi …); in GGUF also Mistral and Mixtral.
//!
//! GGUF files have query and key rows permuted so that rotated pairs are adjacent.

use hanzo_ml::backend::{RopePairing, RouteKind};

use super::{
    Facts, Family, Fields,
    common::{self, Defaults},
    fields::{Key, key},
    written::Keys,
};
use crate::{
    Result,
    spec::{DecoderSpec, Ffn},
};

pub(super) const DEFAULTS: Defaults = Defaults { gguf_pairing: RopePairing::Adjacent, ..Defaults::LLAMA };

const EXPERTS: Key = key("expert_count", "num_local_experts");
const EXPERTS_USED: Key = key("expert_used_count", "num_experts_per_tok");

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let mut spec = common::decoder(facts, &DEFAULTS)?;
    let window = common::window(&facts.fields)?;
    common::set_windows(&mut spec, window, |_| true);
    set_experts(&mut spec, &facts.fields)?;
    Ok(spec)
}

/// Mixtral's experts, where the file has any: softmax over all, the chosen ones renormalized.
pub(super) fn set_experts(spec: &mut DecoderSpec, fields: &Fields<'_>) -> Result<()> {
    let n_experts = fields.opt_usize(EXPERTS)?.unwrap_or(0);
    let n_used = fields.opt_usize(EXPERTS_USED)?;
    if n_experts == 0 {
        return Ok(());
    }
    let n_used = n_used.ok_or_else(|| fields.error(format!("{} is missing", fields.name(EXPERTS_USED))))?;
    for layer in &mut spec.layers {
        if let Ffn::Dense { width, activation } = layer.ffn {
            let route = RouteKind::SoftmaxTopK { renormalize: true };
            layer.ffn = Ffn::Moe { width, activation, n_experts, n_used, route };
        }
    }
    Ok(())
}

/// Writes what [`set_experts`] reads.
pub(super) fn write_experts(spec: &DecoderSpec, keys: &mut Keys) {
    let experts = spec.layers.iter().find_map(|layer| match layer.ffn {
        Ffn::Moe { n_experts, n_used, .. } => Some((n_experts, n_used)),
        Ffn::Dense { .. } => None,
    });
    if let Some((n_experts, n_used)) = experts {
        keys.count(EXPERTS, n_experts);
        keys.count(EXPERTS_USED, n_used);
    }
}

pub(super) const FAMILY: Family = Family {
    name: "llama",
    gguf: &["llama"],
    hf: &["llama"],
    spec,
    names: &[],
    norm_offset: 0.0,
    write: write_experts,
    // Both say which biases there are; the tensors themselves do too.
    harmless: &["attention_bias", "mlp_bias"],
};
