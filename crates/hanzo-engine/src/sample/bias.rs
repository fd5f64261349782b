//! Logit bias: adds to the logits of given tokens. Comes before every other sampler; minus infinity bans a token, plus infinity
//! leaves no other a chance.

use super::candidates::Candidates;

/// Adds each bias; several for one token add up.
pub(super) fn apply(candidates: &mut Candidates, biases: &[(u32, f32)]) {
    if biases.is_empty() {
        return;
    }
    let mut biases = biases.to_vec();
    biases.sort_by_key(|&(id, _)| id);
    candidates.edit_some(biases.iter().map(|&(id, _)| id), |candidate| {
        let first = biases.partition_point(|&(id, _)| id < candidate.id);
        let of_token = biases[first..].iter().take_while(|&&(id, _)| id == candidate.id);
        of_token.fold(candidate.logit, |logit, &(_, bias)| logit + bias)
    });
}
