//! XTC, "exclude top choices" (by p-e-w, <https://github.com/oobabooga/text-generation-webui/pull/6335>): with a given
//! probability, of the tokens at or above the threshold only the least likely one stays.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates, philox::Purpose};

pub(super) static XTC: SamplerKind =
    SamplerKind { name: "xtc", aliases: &[], changes_logits: false, is_on, apply };

/// Above it two tokens cannot both reach the threshold.
const THRESHOLD_MAX: f32 = 0.5;

fn is_on(params: &SamplingParams) -> bool {
    params.xtc_probability > 0.0 && params.xtc_threshold <= THRESHOLD_MAX
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let params = context.params;
    if candidates.items().len() < 2 {
        return;
    }
    if context.draws.uniform(Purpose::Xtc) >= f64::from(params.xtc_probability) {
        return;
    }
    candidates.sort();
    let threshold = f64::from(params.xtc_threshold);
    let n_top = candidates.probabilities().iter().take_while(|&&p| p >= threshold).count();
    if n_top > 1 {
        candidates.keep((n_top - 1..candidates.items().len()).collect());
    }
}
