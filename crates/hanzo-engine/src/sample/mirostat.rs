//! Mirostat 1 and 2 (Basu et al. 2020): choose a token so that its surprise stays near a target, in bits.
//!
//! Version 1 estimates the exponent of a Zipf law from the most likely tokens and cuts after `k` of them; version 2 cuts where
//! the surprise exceeds `mu`. Both then move `mu` by the error of what was drawn.

use super::{
    candidates::{Candidate, Candidates},
    philox::Draws,
};

/// Tokens that the exponent is estimated from, as in the paper.
const N_ESTIMATE: usize = 100;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mirostat {
    /// The largest surprise that is let through.
    mu: f64,
    target: f64,
    rate: f64,
}

impl Mirostat {
    /// Starts at twice the target, as the paper does.
    pub fn new(target: f32, rate: f32) -> Self {
        let target = f64::from(target);
        Self { mu: 2.0 * target, target, rate: f64::from(rate) }
    }

    /// Version 1: keeps what may be drawn. `vocab_size` is that of the model.
    pub fn cut_by_rank(&self, candidates: &mut Candidates, vocab_size: usize) {
        let k = self.rank(&candidates.best_of(N_ESTIMATE), vocab_size as f64);
        // A conversion of floats saturates; no number counts as 1.
        candidates.keep_best(k.max(1.0) as usize);
    }

    fn rank(&self, best: &[Candidate], vocab_size: f64) -> f64 {
        let (mut ratios, mut squares) = (0.0, 0.0);
        for (i, pair) in best.windows(2).enumerate() {
            let t = ((i + 2) as f64 / (i + 1) as f64).ln();
            ratios += t * (f64::from(pair[0].logit) - f64::from(pair[1].logit));
            squares += t * t;
        }
        let exponent: f64 = ratios / squares;
        let epsilon = exponent - 1.0;
        ((epsilon * self.mu.exp2()) / (1.0 - vocab_size.powf(-epsilon))).powf(exponent.recip())
    }

    /// Version 2: keeps what may be drawn.
    pub fn cut_by_surprise(&self, candidates: &mut Candidates) {
        let probabilities = candidates.probabilities();
        let surprising = |p: f64| -p.log2() > self.mu;
        candidates.keep((0..probabilities.len()).filter(|&i| !surprising(probabilities[i])).collect());
        candidates.sort();
    }

    /// Draws a token and learns from it.
    pub fn draw(&mut self, candidates: &Candidates, draws: Draws) -> u32 {
        let idx = candidates.draw(draws);
        let surprise = -candidates.probabilities()[idx].log2();
        self.mu -= self.rate * (surprise - self.target);
        candidates.items()[idx].id
    }
}
