//! Temperature: divides the logits. Dynamic temperature (by kalomaze, <https://github.com/ggml-org/llama.cpp/pull/4972>) maps
//! the entropy, as a share of the largest possible, to a temperature within `range` of the given one.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static TEMPERATURE: SamplerKind =
    SamplerKind { name: "temperature", aliases: &["temp"], changes_logits: false, is_on, apply };

fn is_on(_: &SamplingParams) -> bool {
    true
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let params = context.params;
    if params.dynatemp_range <= 0.0 {
        return divide(candidates, params.temp);
    }
    let n = candidates.items().len();
    if n < 2 {
        return;
    }
    candidates.sort();
    let plogp = |p: f64| if p > 0.0 { p * p.ln() } else { 0.0 };
    let entropy = -candidates.probabilities().into_iter().map(plogp).sum::<f64>();
    let share = (entropy / (n as f64).ln()).clamp(0.0, 1.0);
    let (temp, range) = (f64::from(params.temp), f64::from(params.dynatemp_range));
    let coldest = (temp - range).max(0.0);
    let dynamic = coldest + (temp + range - coldest) * share.powf(f64::from(params.dynatemp_exp));
    divide(candidates, dynamic as f32);
}

/// Divides all logits; a temperature of 0 leaves the best candidate.
pub(super) fn divide(candidates: &mut Candidates, temp: f32) {
    if temp <= 0.0 {
        candidates.keep_best(1);
    } else if temp != 1.0 {
        let best = candidates.best().logit;
        // What the division would carry out of range is taken relative to the best, which changes no probability.
        let shift = if (best / temp).is_finite() { 0.0 } else { best };
        candidates.edit(|c| (c.logit - shift) / temp);
    }
}
