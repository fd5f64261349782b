//! RoPE parameters as GGUF and both spellings of config.json write them.

use super::{
    Facts, Fields, Flavour, Slot,
    common::Defaults,
    fields::{Key, key},
    written::Keys,
};
use crate::{
    Result,
    rope::{RopeScaling, RopeSpec, longrope_magnitude, yarn_magnitude},
};

const THETA: Key = key("rope.freq_base", "rope_theta");
const DIMS: Key = key("rope.dimension_count", "");
const KIND: Key = key("rope.scaling.type", "rope_type");
const OLD_KIND: Key = key("", "type");
const FACTOR: Key = key("rope.scaling.factor", "factor");
const OLD_FACTOR: Key = key("rope.scale_linear", "");
const ORIGINAL: Key = key("rope.scaling.original_context_length", "original_max_position_embeddings");
const CONTEXT: Key = key("context_length", "max_position_embeddings");
const PARTIAL: Key = key("", "partial_rotary_factor");
const BETA_FAST: Key = key("rope.scaling.yarn_beta_fast", "beta_fast");
const BETA_SLOW: Key = key("rope.scaling.yarn_beta_slow", "beta_slow");
/// YaRN's own values of its ramp's ends.
const YARN_BETA_FAST: f64 = 32.0;
const YARN_BETA_SLOW: f64 = 1.0;
/// In config.json the whole factor on cosine and sine, in GGUF a factor on the derived one.
const ATTENTION: Key = key("rope.scaling.attn_factor", "attention_factor");

/// The rotation of a model, or of its layers of one type where config.json has one rotation a type.
pub(crate) fn rope(
    facts: &Facts<'_>,
    layer_type: Option<&'static str>,
    head_dim: usize,
    defaults: &Defaults,
) -> Result<RopeSpec> {
    let fields = &facts.fields;
    let pairing = defaults.pairing(fields.flavour());
    let (theta, dims, scaling) = match fields.flavour() {
        Flavour::Gguf => {
            let theta = fields.opt_f64(THETA)?.unwrap_or(defaults.rope_theta);
            let dims = fields.opt_usize(DIMS)?.unwrap_or(head_dim);
            (theta, dims, gguf_scaling(facts, dims)?)
        }
        Flavour::Config => config_rope(fields, layer_type, head_dim, defaults)?,
    };
    Ok(RopeSpec { pairing, dims, theta, scaling, sections: Vec::new() })
}

/// Writes the keys that [`rope`] reads. A scaling that no key can say is left out; Llama 3.1's is a tensor.
pub(crate) fn write(rope: &RopeSpec, keys: &mut Keys) {
    keys.number(THETA, rope.theta);
    keys.count(DIMS, rope.dims);
    match rope.scaling {
        RopeScaling::Linear { factor } => {
            keys.text(KIND, "linear");
            keys.number(FACTOR, factor);
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude, .. } => {
            keys.text(KIND, "yarn");
            keys.number(FACTOR, factor);
            keys.count(ORIGINAL, original_context);
            if beta_fast != YARN_BETA_FAST {
                keys.number(BETA_FAST, beta_fast);
            }
            if beta_slow != YARN_BETA_SLOW {
                keys.number(BETA_SLOW, beta_slow);
            }
            let own = magnitude / yarn_magnitude(factor, 1.0);
            if (own - 1.0).abs() > 1e-6 {
                keys.number(ATTENTION, own);
            }
        }
        RopeScaling::None
        | RopeScaling::Llama3 { .. }
        | RopeScaling::LongRope { .. }
        | RopeScaling::Divisors(_) => {}
    }
}

/// The name of the tensor that holds divisors.
pub(crate) fn divisors_name() -> &'static str {
    super::names::BASE.iter().find(|n| n.slot == Slot::RopeDivisors).map_or("", |n| n.gguf)
}

fn gguf_scaling(facts: &Facts<'_>, dims: usize) -> Result<RopeScaling> {
    let fields = &facts.fields;
    if let Some(divisors) = divisors(facts, dims / 2)? {
        return Ok(RopeScaling::Divisors(divisors));
    }
    let factor = fields.opt_f64(FACTOR)?.or(fields.opt_f64(OLD_FACTOR)?);
    let original = fields.opt_usize(ORIGINAL)?;
    match fields.opt_str(KIND)?.as_deref() {
        Some("none") => Ok(RopeScaling::None),
        Some("linear") | None => Ok(factor
            .filter(|&f| f != 1.0 && f != 0.0)
            .map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor })),
        Some("yarn") => {
            let factor = factor.ok_or_else(|| fields.error(format!("{} is missing", fields.name(FACTOR))))?;
            let own = fields.opt_f64(ATTENTION)?.unwrap_or(1.0);
            yarn(
                fields,
                factor,
                original.map_or_else(|| fields.usize(CONTEXT), Ok)?,
                own * yarn_magnitude(factor, 1.0),
                true,
            )
        }
        Some(other) => Err(fields.error(format!("{} {other} is not supported", fields.name(KIND)))),
    }
}

/// The divisors that converters of Llama 3.1 and later write as a tensor.
fn divisors(facts: &Facts<'_>, pairs: usize) -> Result<Option<Vec<f32>>> {
    let name = divisors_name();
    let Some(info) = facts.tensors.info(name) else { return Ok(None) };
    // Before it is read: this is the one tensor that metadata alone do not bound.
    if info.shape != [pairs] {
        return Err(facts.fields.error(format!("tensor {name} has shape {:?}, not [{pairs}]", info.shape)));
    }
    Ok(Some(facts.tensors.tensor(name)?.to_f32()))
}

fn config_rope(
    fields: &Fields<'_>,
    layer_type: Option<&'static str>,
    head_dim: usize,
    defaults: &Defaults,
) -> Result<(f64, usize, RopeScaling)> {
    let outer_theta = fields.opt_f64(THETA)?;
    let outer_partial = fields.opt_f64(PARTIAL)?;
    // The older spelling wins where a file has both.
    let old = fields.object("rope_scaling")?.filter(|old| !old.is_empty());
    let mut parameters = match old {
        Some(old) => Some(old),
        None => fields.object("rope_parameters")?,
    };
    if let (Some(outer), Some(layer_type)) = (&parameters, layer_type)
        && let Some(own) = outer.object(layer_type)?
    {
        parameters = Some(own);
    }
    let Some(parameters) = parameters else {
        return Ok((
            outer_theta.unwrap_or(defaults.rope_theta),
            rotated(fields, outer_partial, head_dim)?,
            RopeScaling::None,
        ));
    };
    let theta = parameters.opt_f64(THETA)?.or(outer_theta).unwrap_or(defaults.rope_theta);
    let dims = rotated(fields, parameters.opt_f64(PARTIAL)?.or(outer_partial), head_dim)?;
    let scaling = config_scaling(fields, &parameters)?;
    parameters.finish(&["sliding_attention", "full_attention"])?;
    Ok((theta, dims, scaling))
}

fn rotated(fields: &Fields<'_>, partial: Option<f64>, head_dim: usize) -> Result<usize> {
    match partial {
        None => Ok(head_dim),
        Some(part) if part > 0.0 && part <= 1.0 => Ok((head_dim as f64 * part) as usize),
        Some(part) => Err(fields.error(format!("partial_rotary_factor {part} is not within 0 to 1"))),
    }
}

fn config_scaling(fields: &Fields<'_>, p: &Fields<'_>) -> Result<RopeScaling> {
    let kind = p.opt_str(KIND)?;
    let old_kind = p.opt_str(OLD_KIND)?;
    let kind = kind.or(old_kind);
    let Some(kind) = kind.filter(|kind| kind != "default") else { return Ok(RopeScaling::None) };
    let context = fields.usize(CONTEXT)?;
    let own_original = p.opt_usize(ORIGINAL)?;
    let original_context = fields.opt_usize(ORIGINAL)?.or(own_original).unwrap_or(context);
    match kind.as_str() {
        "linear" => Ok(RopeScaling::Linear { factor: p.f64(FACTOR)? }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: p.f64(FACTOR)?,
            low_freq_factor: p.f64(key("", "low_freq_factor"))?,
            high_freq_factor: p.f64(key("", "high_freq_factor"))?,
            original_context,
        }),
        "yarn" => {
            let factor = p.opt_f64(FACTOR)?.unwrap_or(context as f64 / original_context as f64);
            let mscale = p.opt_f64(key("", "mscale"))?;
            let all_dim = p.opt_f64(key("", "mscale_all_dim"))?;
            let derived = match (mscale, all_dim) {
                (Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                    yarn_magnitude(factor, m) / yarn_magnitude(factor, all)
                }
                _ => yarn_magnitude(factor, 1.0),
            };
            let magnitude = p.opt_f64(ATTENTION)?.unwrap_or(derived);
            let truncate = p.opt_bool(key("", "truncate"))?.unwrap_or(true);
            yarn(p, factor, original_context, magnitude, truncate)
        }
        "longrope" | "su" => longrope(p, context, original_context),
        "dynamic" => Err(fields.error(
            "rope_type dynamic is not supported: it turns every position by the length of the whole sequence, \
             which no cache can keep",
        )),
        other => Err(fields.error(format!("rope_type {other} is not supported"))),
    }
}

fn yarn(
    fields: &Fields<'_>,
    factor: f64,
    original_context: usize,
    magnitude: f64,
    truncate: bool,
) -> Result<RopeScaling> {
    // Zero stands for the default.
    let beta = |key| Ok::<_, crate::Error>(fields.opt_f64(key)?.filter(|&b| b != 0.0));
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: beta(BETA_FAST)?.unwrap_or(YARN_BETA_FAST),
        beta_slow: beta(BETA_SLOW)?.unwrap_or(YARN_BETA_SLOW),
        magnitude,
        truncate,
    })
}

fn longrope(p: &Fields<'_>, context: usize, original_context: usize) -> Result<RopeScaling> {
    let list = |name: &'static str| -> Result<Vec<f32>> {
        let values = p.value(name).and_then(|v| v.as_array());
        let values = values.ok_or_else(|| p.error(format!("{name} is missing or not a list")))?;
        let number = |v: &serde_json::Value| v.as_f64().map(|v| v as f32);
        let numbers: Option<Vec<f32>> = values.iter().map(number).collect();
        numbers.ok_or_else(|| p.error(format!("{name} is not a list of numbers")))
    };
    let factor = p.opt_f64(FACTOR)?.unwrap_or(context as f64 / original_context as f64);
    let magnitude = match p.opt_f64(ATTENTION)? {
        Some(own) => own,
        None => longrope_magnitude(factor, original_context),
    };
    Ok(RopeScaling::LongRope {
        short: list("short_factor")?,
        long: list("long_factor")?,
        original_context,
        magnitude,
    })
}
