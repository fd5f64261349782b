//! Nucleus sampling (Holtzman et al. 2019): keeps the most likely tokens whose probabilities reach `p` together.

use super::{Context, SamplerKind, candidates::Candidates};

pub(super) static TOP_P: SamplerKind =
    SamplerKind { name: "top_p", aliases: &["nucleus"], changes_logits: false, apply };

/// How many are sorted first; a nucleus is mostly small.
const N_FIRST: usize = 256;

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let p = f64::from(context.params.top_p);
    if p >= 1.0 {
        return;
    }
    let n = candidates.items().len();
    let max = f64::from(candidates.best().logit);
    let (_, sum) = candidates.weights();
    let mut n_sorted = N_FIRST.min(n);
    loop {
        let mut passed = 0.0;
        let best = candidates.best_of(n_sorted);
        let enough = best.iter().position(|c| {
            passed += (f64::from(c.logit) - max).exp() / sum;
            passed >= p
        });
        if let Some(last) = enough {
            return candidates.keep_best(last + 1);
        }
        if n_sorted == n {
            return candidates.sort();
        }
        n_sorted = n_sorted.saturating_mul(16).min(n);
    }
}
