//! The likelihood of the token that comes next, and means with their errors.

use hanzo_ml::parallel::Parallel;

use super::{Scored, per_row};
use crate::Result;

/// A number and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error; 0 where there are too few values to tell.
    pub error: f64,
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    /// Values so far.
    pub n: usize,
    sum: f64,
    sum_squares: f64,
}

impl Mean {
    /// Takes a value.
    pub fn add(&mut self, x: f64) {
        self.n += 1;
        self.sum += x;
        self.sum_squares += x * x;
    }

    /// The mean and its standard error.
    pub fn estimate(&self) -> Estimate {
        if self.n == 0 {
            return Estimate::default();
        }
        let n = self.n as f64;
        let value = self.sum / n;
        let variance = (self.sum_squares / n - value * value).max(0.0);
        Estimate { value, error: if self.n > 1 { (variance / (n - 1.0)).sqrt() } else { 0.0 } }
    }

    /// The sum of the values.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// The perplexity of which this is the mean negative logarithm: `exp(mean)`, its error to first order.
    pub fn perplexity(&self) -> Estimate {
        let Estimate { value, error } = self.estimate();
        Estimate { value: value.exp(), error: value.exp() * error }
    }
}

/// `−ln p` of the token that came, for each prediction.
///
/// # Errors
/// If a logit is not a finite number.
pub fn surprises(parallel: &Parallel, scored: &Scored<'_>) -> Result<Vec<f64>> {
    per_row(parallel, scored, |_, logits, next| {
        Some(log_sum_exp(logits)? - f64::from(*logits.get(next as usize)?))
    })
}

/// `ln Σ exp(x)`; `None` if a value is not finite.
pub(super) fn log_sum_exp(logits: &[f32]) -> Option<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from((x - max).exp())).sum();
    let norm = f64::from(max) + sum.ln();
    (norm.is_finite() && logits.iter().all(|x| x.is_finite())).then_some(norm)
}
