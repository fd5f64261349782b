//! Penalties for tokens of the last `repeat_last_n`, prompt included.
//!
//! The repetition penalty of CTRL (Keskar et al. 2019), which divides, but multiplies a negative logit, which division would
//! raise; then the frequency penalty for each occurrence and the presence penalty once, as OpenAI's API defines them.

use std::collections::HashMap;

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates, last_n};

pub(super) static PENALTIES: SamplerKind =
    SamplerKind { name: "penalties", aliases: &[], changes_logits: true, is_on, apply };

/// Whether there is anything to do.
pub(super) fn is_on(params: &SamplingParams) -> bool {
    let none =
        params.repeat_penalty == 1.0 && params.frequency_penalty == 0.0 && params.presence_penalty == 0.0;
    params.repeat_last_n > 0 && !none
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let params = context.params;
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for &id in last_n(context.history, params.repeat_last_n) {
        *counts.entry(id).or_default() += 1;
    }
    candidates.edit_some(counts.keys().copied(), |candidate| {
        let count = counts[&candidate.id];
        let factor = params.repeat_penalty;
        let logit = if candidate.logit <= 0.0 { candidate.logit * factor } else { candidate.logit / factor };
        logit - (count as f32 * params.frequency_penalty + params.presence_penalty)
    });
}
