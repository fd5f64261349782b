//! The tokens that may come next, with their logits.
//!
//! Invariants: there is at least one candidate; every logit is finite. A logit that is NaN or minus infinity has no
//! probability, so its token is no candidate; plus infinity counts as the largest number. Candidates stand in order of their
//! ids or, once sorted, the largest logit first and equal ones by id: the order that a draw walks through.

use std::cmp::Ordering;

use super::philox::{Draws, Purpose};

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub id: u32,
    pub logit: f32,
}

impl Candidate {
    /// Whether it stands before another: a larger logit, or an equal one and a smaller id.
    fn precedes(self, other: Self) -> bool {
        self.logit > other.logit || (self.logit == other.logit && self.id < other.id)
    }

    fn order(&self, other: &Self) -> Ordering {
        if self.precedes(*other) {
            Ordering::Less
        } else if other.precedes(*self) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

/// Room to collect the best, in multiples of how many are wanted.
const COLLECT_FACTOR: usize = 3;
/// The least such room.
const COLLECT_MIN: usize = 256;

/// Logits that are compared at once.
pub(super) const BLOCK: usize = 64;

/// Whether a logit is above the bar; without a branch for each.
#[inline]
pub(super) fn any_above(block: &[f32], bar: f32) -> bool {
    block.iter().fold(false, |any, &logit| any | (logit > bar))
}

/// The tokens that may come next.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    items: Vec<Candidate>,
    /// Best first.
    sorted: bool,
    /// By ascending id.
    by_id: bool,
}

impl Candidates {
    /// Starts anew from the logits of the whole vocabulary.
    pub fn fill(&mut self, logits: &[f32]) {
        self.items.clear();
        (self.sorted, self.by_id) = (false, true);
        let all = (0u32..).zip(logits);
        if logits.iter().fold(true, |finite, logit| finite & logit.is_finite()) {
            // The sum as in `finite`.
            self.items.extend(all.map(|(id, logit)| Candidate { id, logit: logit + 0.0 }));
        } else {
            self.items.extend(all.filter_map(|(id, &logit)| Some(Candidate { id, logit: finite(logit)? })));
        }
        self.ensure_one(Candidate { id: 0, logit: 0.0 });
    }

    /// [`Self::fill`] and [`Self::keep_best`] in one pass that skips what is below the best so far.
    pub fn fill_best(&mut self, logits: &[f32], k: usize) {
        let mut best = Best::new(k.clamp(1, logits.len().max(1)));
        for (first, block) in (0u32..).step_by(BLOCK).zip(logits.chunks(BLOCK)) {
            // Of equal logits the first is the best, so only what is above the bar matters.
            if best.bar.is_none_or(|bar| any_above(block, bar.logit)) {
                for (id, &logit) in (first..).zip(block) {
                    if let Some(logit) = finite(logit) {
                        best.push(Candidate { id, logit });
                    }
                }
            }
        }
        self.items = best.sorted();
        (self.sorted, self.by_id) = (true, false);
        self.ensure_one(Candidate { id: 0, logit: 0.0 });
    }

    pub fn items(&self) -> &[Candidate] {
        &self.items
    }

    /// Gives every candidate a new logit; those that become impossible go.
    pub fn edit(&mut self, mut logit: impl FnMut(Candidate) -> f32) {
        let spare = self.best();
        self.items.retain_mut(|candidate| {
            let new = finite(logit(*candidate));
            candidate.logit = new.unwrap_or(candidate.logit);
            new.is_some()
        });
        self.sorted = false;
        self.ensure_one(spare);
    }

    /// Gives the candidates among some tokens new logits; those that become impossible go.
    pub fn edit_some(&mut self, ids: impl IntoIterator<Item = u32>, mut logit: impl FnMut(Candidate) -> f32) {
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let indices: Vec<usize> = if self.by_id {
            ids.iter().filter_map(|id| self.items.binary_search_by_key(id, |c| c.id).ok()).collect()
        } else {
            (0..self.items.len()).filter(|&i| ids.binary_search(&self.items[i].id).is_ok()).collect()
        };
        let new: Vec<Option<f32>> = indices.iter().map(|&i| finite(logit(self.items[i]))).collect();
        let n_gone = new.iter().filter(|logit| logit.is_none()).count();
        let spare = (n_gone == self.items.len()).then(|| self.best());
        for (&i, new) in indices.iter().zip(&new) {
            // The mark of those that go, for a moment.
            self.items[i].logit = new.unwrap_or(f32::NAN);
        }
        if n_gone > 0 {
            self.items.retain(|c| !c.logit.is_nan());
        }
        self.sorted = false;
        self.items.extend(spare);
    }

    /// Keeps the candidates that a test passes, but always the best one; the order stays.
    pub fn retain(&mut self, mut test: impl FnMut(Candidate) -> bool) {
        let spare = self.best();
        self.items.retain(|&candidate| test(candidate));
        self.ensure_one(spare);
    }

    /// Keeps the candidates at these indices, in their order; none is the best alone.
    pub fn keep(&mut self, mut indices: Vec<usize>) {
        let spare = self.best();
        indices.sort_unstable();
        self.items = indices.iter().filter_map(|&i| self.items.get(i)).copied().collect();
        self.ensure_one(spare);
    }

    /// Keeps the best `k`, sorted; 0 counts as 1.
    pub fn keep_best(&mut self, k: usize) {
        self.items = self.best_of(k.max(1));
        (self.sorted, self.by_id) = (true, false);
    }

    /// Sorts.
    pub fn sort(&mut self) {
        if !self.sorted {
            self.items.sort_unstable_by(Candidate::order);
            (self.sorted, self.by_id) = (true, false);
        }
    }

    /// The best `k`, sorted. One pass over the candidates, which for a small `k` costs little more than reading them.
    pub fn best_of(&self, k: usize) -> Vec<Candidate> {
        let k = k.min(self.items.len());
        if self.sorted || k == 0 {
            return self.items[..k].to_vec();
        }
        let mut best = Best::new(k);
        self.items.iter().for_each(|&candidate| best.push(candidate));
        best.sorted()
    }

    /// The candidate with the largest logit, the first of equal ones.
    pub fn best(&self) -> Candidate {
        let first = self.items.first().copied().unwrap_or(Candidate { id: 0, logit: 0.0 });
        if self.sorted {
            return first;
        }
        self.items.iter().fold(first, |best, &c| if c.precedes(best) { c } else { best })
    }

    /// The weight of each candidate, 1 for the best: its probability is its share of the sum.
    pub fn weights(&self) -> (Vec<f64>, f64) {
        let max = f64::from(self.best().logit);
        let weights: Vec<f64> = self.items.iter().map(|c| (f64::from(c.logit) - max).exp()).collect();
        let sum = weights.iter().sum();
        (weights, sum)
    }

    /// The probability of each candidate.
    pub fn probabilities(&self) -> Vec<f64> {
        let (mut weights, sum) = self.weights();
        weights.iter_mut().for_each(|w| *w /= sum);
        weights
    }

    /// Draws the index of a candidate according to its probability.
    pub fn draw(&self, draws: Draws) -> usize {
        let (weights, sum) = self.weights();
        let target = draws.uniform(Purpose::Token) * sum;
        let mut passed = 0.0;
        let mut last = 0;
        for (idx, weight) in weights.into_iter().enumerate() {
            passed += weight;
            if weight > 0.0 {
                last = idx;
            }
            if passed > target {
                return idx;
            }
        }
        last
    }

    fn ensure_one(&mut self, spare: Candidate) {
        if self.items.is_empty() {
            self.items.push(spare);
        }
    }
}

/// The best `k` of the candidates so far, and some that may not be.
struct Best {
    k: usize,
    room: usize,
    items: Vec<Candidate>,
    /// The worst of the best, from when there were enough.
    bar: Option<Candidate>,
}

impl Best {
    /// For at least one.
    fn new(k: usize) -> Self {
        let room = k.saturating_mul(COLLECT_FACTOR).max(COLLECT_MIN);
        Self { k, room, items: Vec::new(), bar: None }
    }

    #[inline]
    fn push(&mut self, candidate: Candidate) {
        if self.bar.is_some_and(|bar| !candidate.precedes(bar)) {
            return;
        }
        self.items.push(candidate);
        if self.items.len() == self.room {
            self.cut();
            self.bar = self.items.last().copied();
        }
    }

    fn cut(&mut self) {
        if self.items.len() > self.k {
            self.items.select_nth_unstable_by(self.k - 1, Candidate::order);
            self.items.truncate(self.k);
        }
    }

    fn sorted(mut self) -> Vec<Candidate> {
        self.cut();
        self.items.sort_unstable_by(Candidate::order);
        self.items
    }
}

/// The logit as a candidate has it; none where it has no probability.
fn finite(logit: f32) -> Option<f32> {
    if logit.is_nan() || logit == f32::NEG_INFINITY {
        None
    } else {
        // The sum turns -0 into 0, so that equal numbers are equal bits.
        Some(logit.min(f32::MAX) + 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn the_best_are_those_of_a_full_sort() {
        let mut rng = Rng::new(1);
        for n in [1, 2, 255, 256, 257, 1000, 5000] {
            for spread in [1, 7, 100_000] {
                let logits: Vec<f32> = (0..n).map(|_| rng.below(spread) as f32 / 8.0).collect();
                for k in [1, 2, 40, 256, 257, n - 1, n, n + 1] {
                    let mut candidates = Candidates::default();
                    candidates.fill(&logits);
                    let best = candidates.best_of(k);
                    let mut ids: Vec<u32> = (0..n as u32).collect();
                    ids.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
                    ids.truncate(k);
                    assert_eq!(
                        best.iter().map(|c| c.id).collect::<Vec<_>>(),
                        ids,
                        "n {n} k {k} spread {spread}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_best_in_one_pass_are_those_of_two() {
        let mut rng = Rng::new(6);
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX];
        for n in [0, 1, 63, 64, 65, 300, 5000] {
            for spread in [1, 9, 100_000] {
                let logit = |rng: &mut Rng| rng.below(spread) as f32 / 8.0 - 3.0;
                let mut logits: Vec<f32> = (0..n).map(|_| logit(&mut rng)).collect();
                for _ in 0..n / 20 {
                    logits[rng.below(n)] = odd[rng.below(odd.len())];
                }
                for k in [0, 1, 40, 299, n, usize::MAX] {
                    let (mut one, mut two) = (Candidates::default(), Candidates::default());
                    one.fill_best(&logits, k);
                    two.fill(&logits);
                    two.keep_best(k);
                    assert_eq!(one.items(), two.items(), "n {n} k {k} spread {spread}");
                }
            }
        }
    }

    #[test]
    fn odd_logits_are_no_candidates_or_finite() {
        let mut candidates = Candidates::default();
        candidates.fill(&[f32::NAN, f32::NEG_INFINITY, -0.0, f32::INFINITY, f32::MIN]);
        let expected = [(2, 0.0), (3, f32::MAX), (4, f32::MIN)];
        assert_eq!(candidates.items(), expected.map(|(id, logit)| Candidate { id, logit }));
        assert_eq!(candidates.probabilities(), [0.0, 1.0, 0.0]);
        for hopeless in [&[][..], &[f32::NAN], &[f32::NEG_INFINITY; 3]] {
            candidates.fill(hopeless);
            assert_eq!(candidates.items().len(), 1);
            assert_eq!(candidates.draw(Draws { seed: 1, token_idx: 0 }), 0);
        }
    }
}
