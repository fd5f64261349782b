//! Rotary position embedding: every scaling behind one constructor.
//!
//! Sources: Su et al. 2021 (arXiv:2104.09864); linear interpolation, Chen et al. 2023 (arXiv:2306.15595); YaRN,
//! Peng et al. 2023 (arXiv:2309.00071); LongRoPE, Ding et al. 2024 (arXiv:2402.13753); the piecewise scaling of
//! Llama 3.1 as its authors released it. The tests compare with `transformers`.

use std::f64::consts::TAU;

use hanzo_ml::backend::RopePairing;

/// One rotation, shared by the layers that refer to it.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which elements form a pair. Files of one model differ in it: conversion to GGUF permutes some families.
    pub pairing: RopePairing,
    /// Elements of a head that are rotated; even.
    pub dims: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// How the frequencies were stretched after training.
    pub scaling: RopeScaling,
    /// Pairs turned by each position axis in order; empty means all by the first.
    pub sections: Vec<usize>,
}

/// How the frequencies were stretched after training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Every frequency divided by the factor.
    Linear {
        /// Times the trained context.
        factor: f64,
    },
    /// Low frequencies divided, high ones kept, a smooth ramp between (Llama 3.1).
    Llama3 {
        /// Times the trained context.
        factor: f64,
        /// Turns over the original context at and below which a frequency is divided.
        low_freq_factor: f64,
        /// Turns over the original context at and above which a frequency is kept.
        high_freq_factor: f64,
        /// Positions of pre-training.
        original_context: usize,
    },
    /// Interpolation by parts with an attention factor.
    Yarn {
        /// Times the trained context.
        factor: f64,
        /// Positions of pre-training.
        original_context: usize,
        /// Rotations over the context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations over the context below which a frequency is divided.
        beta_slow: f64,
        /// Factor on cosine and sine.
        magnitude: f64,
        /// Whether the ramp's ends are rounded to whole pairs.
        truncate: bool,
    },
    /// A divisor per pair, one list for short contexts and one for long.
    LongRope {
        /// Divisors within the original context.
        short: Vec<f32>,
        /// Divisors beyond it.
        long: Vec<f32>,
        /// Positions of pre-training.
        original_context: usize,
        /// Factor on cosine and sine, in both cases.
        magnitude: f64,
    },
    /// A divisor per pair from the model file.
    Divisors(Vec<f32>),
}

/// What [`hanzo_ml::backend::RopeAngles`] needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Radians per position of each pair.
    pub inv_freq: Vec<f32>,
    /// The position axis of each pair.
    pub axis: Vec<u32>,
    /// Factor on cosine and sine.
    pub magnitude: f32,
}

impl RopeSpec {
    /// Pairs that are rotated.
    pub fn pairs(&self) -> usize {
        self.dims / 2
    }

    /// The table for sequences of up to `context` positions.
    ///
    /// # Errors
    /// A sentence that names the parameter out of range.
    pub fn table(&self, context: usize) -> Result<RopeTable, String> {
        self.check()?;
        let plain: Vec<f64> =
            (0..self.pairs()).map(|i| self.theta.powf(-2.0 * i as f64 / self.dims as f64)).collect();
        let (freqs, magnitude) = self.scaled(&plain, context);
        let mut axis: Vec<u32> =
            self.sections.iter().zip(0..).flat_map(|(&n, axis)| std::iter::repeat_n(axis, n)).collect();
        axis.resize(self.pairs(), 0);
        Ok(RopeTable {
            inv_freq: freqs.iter().map(|&f| f as f32).collect(),
            axis,
            magnitude: magnitude as f32,
        })
    }

    /// The divisors that make the same frequencies, where the scaling is one that files hold so (Llama 3.1).
    pub(crate) fn divisors(&self) -> Option<Vec<f32>> {
        let RopeScaling::Llama3 { .. } = self.scaling else { return None };
        let plain: Vec<f64> =
            (0..self.pairs()).map(|i| self.theta.powf(-2.0 * i as f64 / self.dims as f64)).collect();
        let (scaled, _) = self.scaled(&plain, 0);
        Some(plain.iter().zip(scaled).map(|(plain, scaled)| (plain / scaled) as f32).collect())
    }

    fn scaled(&self, plain: &[f64], context: usize) -> (Vec<f64>, f64) {
        let divide = |divisors: &[f32]| plain.iter().zip(divisors).map(|(f, &d)| f / f64::from(d)).collect();
        match &self.scaling {
            RopeScaling::None => (plain.to_vec(), 1.0),
            RopeScaling::Linear { factor } => (plain.iter().map(|f| f / factor).collect(), 1.0),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let ramp = |f: &f64| {
                    let turns = *original_context as f64 * f / TAU;
                    let keep = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    let keep = keep.clamp(0.0, 1.0);
                    f * keep + f / factor * (1.0 - keep)
                };
                (plain.iter().map(ramp).collect(), 1.0)
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude, truncate } => {
                let (low, high) = self.yarn_ends(*original_context, *beta_fast, *beta_slow, *truncate);
                let blend = |(i, f): (usize, &f64)| {
                    let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * divided + f * (1.0 - divided)
                };
                (plain.iter().enumerate().map(blend).collect(), *magnitude)
            }
            RopeScaling::LongRope { short, long, original_context, magnitude } => {
                (divide(if context > *original_context { long } else { short }), *magnitude)
            }
            RopeScaling::Divisors(divisors) => (divide(divisors), 1.0),
        }
    }

    /// The pairs between which YaRN's ramp runs.
    fn yarn_ends(&self, context: usize, beta_fast: f64, beta_slow: f64, truncate: bool) -> (f64, f64) {
        let pair_of =
            |turns: f64| self.dims as f64 * (context as f64 / (turns * TAU)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
        if low == high { (low, high + 0.001) } else { (low, high) }
    }

    fn check(&self) -> Result<(), String> {
        let pairs = self.pairs();
        if !self.theta.is_finite() || self.theta <= 1.0 {
            return Err(format!("rope theta {} is not above 1", self.theta));
        }
        if self.sections.iter().sum::<usize>() > pairs {
            return Err(format!("rope sections {:?} are more than {pairs} pairs", self.sections));
        }
        let factor = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("rope {name} {value} is not positive"))
            }
        };
        let divisors = |list: &[f32]| {
            if list.len() != pairs {
                return Err(format!("{} rope factors for {pairs} pairs", list.len()));
            }
            list.iter().try_for_each(|&d| factor("factor", f64::from(d)))
        };
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor: f } => factor("factor", *f),
            RopeScaling::Llama3 { factor: f, low_freq_factor: low, high_freq_factor: high, .. } => {
                factor("factor", *f)?;
                factor("high_freq_factor − low_freq_factor", high - low)
            }
            RopeScaling::Yarn { factor: f, beta_fast, beta_slow, magnitude, .. } => {
                factor("factor", *f)?;
                factor("beta_fast", *beta_fast)?;
                factor("beta_slow", *beta_slow)?;
                factor("attention factor", *magnitude)
            }
            RopeScaling::LongRope { short, long, magnitude, .. } => {
                divisors(short)?;
                divisors(long)?;
                factor("attention factor", *magnitude)
            }
            RopeScaling::Divisors(list) => divisors(list),
        }
    }
}

/// YaRN's attention factor for a stretch of `factor`, weighted by `mscale`.
pub fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// LongRoPE's attention factor for a stretch of `factor` beyond `original_context`.
pub fn longrope_magnitude(factor: f64, original_context: usize) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_context as f64).ln()).sqrt() }
}
