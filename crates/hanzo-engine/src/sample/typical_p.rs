//! Locally typical sampling (Meister et al. 2022): keeps the tokens whose information is nearest to the entropy, until their
//! probabilities exceed `p`.

use super::{Context, SamplerKind, SamplingParams, candidates::Candidates};

pub(super) static TYPICAL_P: SamplerKind = SamplerKind {
    name: "typ_p",
    aliases: &["typ", "typical", "typicalp"],
    changes_logits: false,
    is_on,
    apply,
};

fn is_on(params: &SamplingParams) -> bool {
    params.typical_p < 1.0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let p = f64::from(context.params.typical_p);
    candidates.sort();
    let max = f64::from(candidates.best().logit);
    let (weights, sum) = candidates.weights();
    let probabilities: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    // In the domain of logarithms, so that a probability of 0 has finite information.
    let information: Vec<f64> =
        candidates.items().iter().map(|c| sum.ln() + (max - f64::from(c.logit))).collect();
    let entropy: f64 = probabilities.iter().zip(&information).map(|(p, i)| p * i).sum();
    let distance = |idx: usize| (information[idx] - entropy).abs();
    let mut indices: Vec<usize> = (0..information.len()).collect();
    indices.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    let mut passed = 0.0;
    let enough = indices.iter().position(|&idx| {
        passed += probabilities[idx];
        passed > p
    });
    if let Some(last) = enough {
        indices.truncate(last + 1);
        candidates.keep(indices);
    }
}
