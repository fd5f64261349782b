//! Top-k (Fan et al. 2018): keeps the `k` most likely tokens; of equal ones those with smaller ids.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static TOP_K: SamplerKind =
    SamplerKind { name: "top_k", aliases: &[], changes_logits: false, is_on, apply };

fn is_on(params: &SamplingParams) -> bool {
    params.top_k > 0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    candidates.keep_best(context.params.top_k);
}
