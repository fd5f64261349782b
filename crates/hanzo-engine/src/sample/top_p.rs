//! Nucleus sampling (Holtzman et al. 2019): keeps the most likely tokens whose probabilities reach `p` together.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static TOP_P: SamplerKind =
    SamplerKind { name: "top_p", aliases: &["nucleus"], changes_logits: false, is_on, apply };

/// The histogram has this many bins for a step of 1 in the logit.
const BINS_PER_UNIT: f64 = 32.0;
/// Its last bin begins at a probability of e^-32 times the largest.
const N_BINS: usize = 1024;
/// More than sums of probabilities differ by in different orders.
const SLACK: f64 = 1e-9;

fn is_on(params: &SamplingParams) -> bool {
    params.top_p < 1.0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let p = f64::from(context.params.top_p);
    let (mut probabilities, sum) = candidates.weights();
    probabilities.iter_mut().for_each(|weight| *weight /= sum);
    let max = f64::from(candidates.best().logit);
    candidates.keep_best(n_enough(candidates, &probabilities, p + SLACK));
    let mut passed = 0.0;
    let enough = candidates.items().iter().position(|c| {
        passed += (f64::from(c.logit) - max).exp() / sum;
        passed >= p
    });
    if let Some(last) = enough {
        candidates.keep_best(last + 1);
    }
}

/// How many of the best are enough for a probability, rounded up to whole bins of a histogram: only those are sorted.
fn n_enough(candidates: &Candidates, probabilities: &[f64], wanted: f64) -> usize {
    let max = f64::from(candidates.best().logit);
    let mut bins = [(0, 0.0); N_BINS];
    for (candidate, probability) in candidates.items().iter().zip(probabilities) {
        // A conversion of floats saturates.
        let bin = ((max - f64::from(candidate.logit)) * BINS_PER_UNIT) as usize;
        let (count, share) = &mut bins[bin.min(N_BINS - 1)];
        *count += 1;
        *share += probability;
    }
    let (mut n, mut passed) = (0, 0.0);
    for (count, share) in bins {
        n += count;
        passed += share;
        if passed >= wanted {
            break;
        }
    }
    n
}
