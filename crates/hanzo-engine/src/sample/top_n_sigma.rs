//! Top-n-sigma (Tang et al. 2024): keeps logits within `n` standard deviations of the largest.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static TOP_N_SIGMA: SamplerKind =
    SamplerKind { name: "top_n_sigma", aliases: &[], changes_logits: false, is_on, apply };

fn is_on(params: &SamplingParams) -> bool {
    params.top_n_sigma > 0.0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let n_sigma = f64::from(context.params.top_n_sigma);
    let n = candidates.items().len() as f64;
    if n < 2.0 {
        return;
    }
    let logits = || candidates.items().iter().map(|c| f64::from(c.logit));
    let mean = logits().sum::<f64>() / n;
    let sigma = (logits().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    let bar = f64::from(candidates.best().logit) - n_sigma * sigma;
    candidates.retain(|c| f64::from(c.logit) >= bar);
}
