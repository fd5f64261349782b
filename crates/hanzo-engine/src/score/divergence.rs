//! How the predictions of one model differ from those of another that were saved.
//!
//! For each scored token: `KL = Σ p_base · (ln p_base − ln p)` over the tokens that the base gives `exp(−16)` or more, as in
//! llama.cpp's perplexity tool; the probability of the token that came, less that of the base; and whether both models
//! have the same most likely token. Errors of means are standard errors; those of ratios take the correlation of the two
//! models into account, to first order.

use hanzo_ml::parallel::Parallel;

use super::{BaseReader, BaseRow, Estimate, Mean, Scored, likelihood::log_sum_exp, per_row};
use crate::Result;

/// The base's probabilities below this, as logarithm, are not summed: its files do not hold them.
const LOG_P_MIN: f32 = -16.0;

/// What is compared at one place.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    nll: f64,
    nll_base: f64,
    kld: f64,
    p_diff: f64,
    same_top: bool,
}

impl Difference {
    fn of(logits: &[f32], base: &BaseRow<'_>, next: u32) -> Option<Self> {
        let norm = log_sum_exp(logits)?;
        let mut kld = 0.0;
        let (mut top, mut top_base) = ((0, f32::NEG_INFINITY), (0, f32::NEG_INFINITY));
        let mut nll_base = 0.0;
        for (id, (&logit, log_p_base)) in (0u32..).zip(logits.iter().zip(base.log_probs())) {
            if logit > top.1 {
                top = (id, logit);
            }
            if log_p_base > top_base.1 {
                top_base = (id, log_p_base);
            }
            if id == next {
                nll_base = -f64::from(log_p_base);
            }
            if log_p_base > LOG_P_MIN {
                let log_p = f64::from(logit) - norm;
                kld += f64::from(log_p_base.exp()) * (f64::from(log_p_base) - log_p);
            }
        }
        let nll = norm - f64::from(*logits.get(next as usize)?);
        let p_diff = (-nll).exp() - (-nll_base).exp();
        Some(Self { nll, nll_base, kld, p_diff, same_top: top.0 == top_base.0 })
    }
}

/// The comparison so far.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    nll: Mean,
    nll_base: Mean,
    /// Sum of the products of both.
    cross: f64,
    kld: Mean,
    p_diff: Mean,
    p_diff_squared: Mean,
    n_same_top: usize,
    /// Of every scored token, for the percentiles.
    klds: Vec<f32>,
    p_diffs: Vec<f32>,
}

/// The value below which this share of all values is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// In percent; 0 is the minimum, 100 the maximum.
    pub percent: f64,
    /// The value.
    pub value: f64,
}

/// What a comparison says.
#[derive(Clone, Debug)]
pub struct DivergenceSummary {
    /// Scored tokens.
    pub n_tokens: usize,
    /// Perplexity of the model.
    pub ppl: Estimate,
    /// Perplexity of the base.
    pub ppl_base: Estimate,
    /// Correlation of the logarithms of both perplexities, -1 to 1.
    pub correlation: f64,
    /// `ln(ppl / ppl_base)`.
    pub ln_ratio: Estimate,
    /// `ppl / ppl_base`.
    pub ratio: Estimate,
    /// `ppl − ppl_base`.
    pub difference: Estimate,
    /// Mean divergence, in nats.
    pub kld: Estimate,
    /// Percentiles of the divergence, falling.
    pub kld_percentiles: Vec<Percentile>,
    /// Mean change of the probability of the token that came, -1 to 1.
    pub p_diff: Estimate,
    /// Its root mean square.
    pub p_diff_rms: Estimate,
    /// Its percentiles, falling.
    pub p_diff_percentiles: Vec<Percentile>,
    /// Share of tokens where both models have the same most likely token, 0 to 1.
    pub same_top: Estimate,
}

impl Divergence {
    /// Compares a part of a window with the next rows of the base.
    ///
    /// # Errors
    /// If a logit is not a finite number, or the base cannot be read.
    pub fn take(&mut self, parallel: &Parallel, scored: &Scored<'_>, base: &mut BaseReader) -> Result<()> {
        let rows = base.read(scored.next.len())?;
        let differences = per_row(parallel, scored, |i, logits, next| {
            Difference::of(logits, &BaseReader::row(&rows, i, logits.len()), next)
        })?;
        for d in differences {
            self.nll.add(d.nll);
            self.nll_base.add(d.nll_base);
            self.cross += d.nll * d.nll_base;
            self.kld.add(d.kld);
            self.p_diff.add(d.p_diff);
            self.p_diff_squared.add(d.p_diff * d.p_diff);
            self.n_same_top += usize::from(d.same_top);
            self.klds.push(d.kld as f32);
            self.p_diffs.push(d.p_diff as f32);
        }
        Ok(())
    }

    /// Perplexity of the model so far.
    pub fn perplexity(&self) -> Estimate {
        self.nll.perplexity()
    }

    /// Mean divergence so far, in nats.
    pub fn kld(&self) -> Estimate {
        self.kld.estimate()
    }

    /// What the comparison says.
    pub fn summary(&self) -> DivergenceSummary {
        let (nll, nll_base) = (self.nll.estimate(), self.nll_base.estimate());
        let (ppl, ppl_base) = (self.nll.perplexity(), self.nll_base.perplexity());
        let n = self.nll.n as f64;
        let covariance = if self.nll.n > 1 {
            (self.cross / n - self.nll.sum() / n * (self.nll_base.sum() / n)) / (n - 1.0)
        } else {
            0.0
        };
        // Of a difference of correlated numbers.
        let error = |a: f64, b: f64, covariance: f64| (a * a + b * b - 2.0 * covariance).max(0.0).sqrt();
        let ln_ratio = Estimate {
            value: nll.value - nll_base.value,
            error: error(nll.error, nll_base.error, covariance),
        };
        let ratio = ln_ratio.value.exp();
        let mean_square = self.p_diff_squared.estimate();
        let rms = mean_square.value.sqrt();
        let share = self.n_same_top as f64 / n.max(1.0);
        DivergenceSummary {
            n_tokens: self.nll.n,
            ppl,
            ppl_base,
            correlation: if covariance == 0.0 { 0.0 } else { covariance / (nll.error * nll_base.error) },
            ln_ratio,
            ratio: Estimate { value: ratio, error: ratio * ln_ratio.error },
            difference: Estimate {
                value: ppl.value - ppl_base.value,
                error: error(ppl.error, ppl_base.error, ppl.value * ppl_base.value * covariance),
            },
            kld: self.kld.estimate(),
            kld_percentiles: percentiles(
                &self.klds,
                &[100.0, 99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1, 0.0],
            ),
            p_diff: self.p_diff.estimate(),
            p_diff_rms: Estimate {
                value: rms,
                error: if rms > 0.0 { 0.5 / rms * mean_square.error } else { 0.0 },
            },
            p_diff_percentiles: percentiles(
                &self.p_diffs,
                &[100.0, 99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.1, 0.0],
            ),
            same_top: Estimate {
                value: share,
                error: if self.nll.n > 1 { (share * (1.0 - share) / (n - 1.0)).sqrt() } else { 0.0 },
            },
        }
    }
}

/// Percentiles, between two values in proportion.
pub(super) fn percentiles(values: &[f32], percents: &[f64]) -> Vec<Percentile> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let value = |percent: f64| {
        let at = percent / 100.0 * sorted.len().saturating_sub(1) as f64;
        let nth = |i: usize| sorted.get(i.min(sorted.len().saturating_sub(1))).map_or(0.0, |&v| f64::from(v));
        let (below, part) = (at.floor(), at.fract());
        // A place in the list.
        let below = below as usize;
        (1.0 - part) * nth(below) + part * nth(below + 1)
    };
    percents.iter().map(|&percent| Percentile { percent, value: value(percent) }).collect()
}
