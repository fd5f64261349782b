//! Qwen3 with mixture-of-experts layers.

use hanzo_ml::backend::RouteKind;

use super::{
    Facts, Family, Fields, Flavour,
    common::{self, Defaults},
    fields::{Key, key},
    llama,
    written::Keys,
};
use crate::{
    Result,
    spec::{DecoderSpec, Ffn},
};

const EXPERTS: Key = key("expert_count", "num_experts");
const EXPERTS_USED: Key = key("expert_used_count", "num_experts_per_tok");
const WIDTH: Key = key("expert_feed_forward_length", "moe_intermediate_size");
const NORM: Key = key("expert_weights_norm", "norm_topk_prob");

fn spec(facts: &Facts<'_>) -> Result<DecoderSpec> {
    let fields = &facts.fields;
    let mut spec = common::decoder(facts, &Defaults::LLAMA)?;
    set_windows(&mut spec, fields)?;
    common::set_qk_norm(&mut spec);
    let (width, n_experts, n_used) = (fields.usize(WIDTH)?, n_experts(fields)?, fields.usize(EXPERTS_USED)?);
    // GGUF files are silent; config.json's default is false.
    let silent = fields.flavour() == Flavour::Gguf;
    let route = RouteKind::SoftmaxTopK { renormalize: fields.opt_bool(NORM)?.unwrap_or(silent) };
    let sparse = sparse_layers(facts, spec.layers.len())?;
    for (layer, _) in spec.layers.iter_mut().zip(sparse).filter(|(_, sparse)| *sparse) {
        if let Ffn::Dense { activation, .. } = layer.ffn {
            layer.ffn = Ffn::Moe { width, activation, n_experts, n_used, route };
        }
    }
    Ok(spec)
}

fn write(spec: &DecoderSpec, keys: &mut Keys) {
    let experts = spec.layers.iter().find_map(|layer| match layer.ffn {
        Ffn::Moe { width, route, .. } => Some((width, route)),
        Ffn::Dense { .. } => None,
    });
    let Some((width, route)) = experts else { return };
    keys.count(WIDTH, width);
    llama::write_experts(spec, keys);
    if route == (RouteKind::SoftmaxTopK { renormalize: false }) {
        keys.flag(NORM, false);
    }
}

/// Newer files spell it as Mixtral does.
fn n_experts(fields: &Fields<'_>) -> Result<usize> {
    match fields.opt_usize(key("", "num_local_experts"))? {
        Some(n_experts) => Ok(n_experts),
        None => fields.usize(EXPERTS),
    }
}

/// A window on every layer, off unless `use_sliding_window`; unlike in Qwen3 no layer is spared.
fn set_windows(spec: &mut DecoderSpec, fields: &Fields<'_>) -> Result<()> {
    let window = common::window_or(fields, 4096)?;
    let on = fields.opt_bool(key("", "use_sliding_window"))?.unwrap_or(false);
    common::set_windows(spec, window.filter(|_| on), |_| true);
    Ok(())
}

/// Which layers have experts: config.json says it, in GGUF the router's presence does.
fn sparse_layers(facts: &Facts<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let fields = &facts.fields;
    if fields.flavour() == Flavour::Gguf {
        let router = |l| facts.tensors.info(&format!("blk.{l}.ffn_gate_inp.weight")).is_some();
        return Ok((0..n_layers).map(router).collect());
    }
    let step = fields.opt_usize(key("", "decoder_sparse_step"))?.unwrap_or(1);
    let dense = dense_layers(fields)?;
    Ok((0..n_layers).map(|l| !dense.contains(&l) && step > 0 && (l + 1).is_multiple_of(step)).collect())
}

fn dense_layers(fields: &Fields<'_>) -> Result<Vec<usize>> {
    let Some(value) = fields.value("mlp_only_layers") else { return Ok(Vec::new()) };
    let index = |v: &serde_json::Value| v.as_u64().and_then(|v| usize::try_from(v).ok());
    let indices = value.as_array().and_then(|list| list.iter().map(index).collect());
    indices.ok_or_else(|| fields.error(format!("mlp_only_layers is {value}, not a list of layers")))
}

pub(super) const FAMILY: Family = Family {
    name: "qwen3moe",
    gguf: &["qwen3moe"],
    hf: &["qwen3_moe"],
    spec,
    names: &[],
    norm_offset: 0.0,
    write,
    harmless: &["attention_bias", "max_window_layers", "output_router_logits", "router_aux_loss_coef"],
};
