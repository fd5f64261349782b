//! Min-p (Nguyen et al. 2024): keeps the tokens that are at least `p` times as likely as the most likely one.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static MIN_P: SamplerKind =
    SamplerKind { name: "min_p", aliases: &[], changes_logits: false, is_on, apply };

fn is_on(params: &SamplingParams) -> bool {
    params.min_p > 0.0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let p = f64::from(context.params.min_p);
    let bar = f64::from(candidates.best().logit) + p.ln();
    candidates.retain(|c| f64::from(c.logit) >= bar);
}
