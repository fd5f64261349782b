//! The search that all encoders with fitted scales share: which scale, offset and quants reconstruct a run of values
//! with the least weighted sum of squares.
//!
//! For given quants the best scale and offset are a linear least-squares problem; for a given scale and offset the
//! best quants are the nearest points of the grid. [`fit`] tries a range of scales around the one that spans the
//! values, alternates the two steps from each, and keeps the best.
//!
//! The weights are an importance of the columns, relative to the block's greatest, or all one. Values that are not
//! finite lose every comparison and end in some block. Sums run in eight lanes, so that they vectorise; everything is
//! inlined into the row encoders.

use std::ops::{Add, AddAssign, Mul, Sub};

use super::bits::{as_half, f16_to_f32, f32_to_f16, map};

/// Eight numbers with the arithmetic of one. Loops over single elements of arrays in arrays do not vectorise reliably;
/// each operation of this type becomes one instruction.
#[derive(Clone, Copy)]
pub(crate) struct Lanes([f32; 8]);

impl Lanes {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; 8])
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut out = self.0;
        for (out, other) in out.iter_mut().zip(other.0) {
            *out = f(*out, other);
        }
        Self(out)
    }

    /// The greater of two numbers, `other` if one is NaN.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    /// The lesser of two numbers, `other` if one is NaN.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (b + f)) + ((c + g) + (d + h))
    }
}

impl Add for Lanes {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl AddAssign for Lanes {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Lanes {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
}

impl Mul for Lanes {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
}

/// The points that quants may take.
pub(crate) trait Grid: Copy {
    /// The points nearest to values in units of the scale; some point for NaN.
    fn nearest(self, values: Lanes) -> Lanes;

    /// The lowest and the highest point.
    fn ends(self) -> (f32, f32);
}

/// The integers from `0` to `1`, both within ±2²².
#[derive(Clone, Copy)]
pub(crate) struct Integers(pub(crate) f32, pub(crate) f32);

impl Grid for Integers {
    #[inline(always)]
    fn nearest(self, values: Lanes) -> Lanes {
        // 1.5·2²³: the sum has no bits below one.
        let magic = Lanes::splat(12_582_912.0);
        let clamped = values.max(Lanes::splat(self.0)).min(Lanes::splat(self.1));
        (clamped + magic) - magic
    }

    #[inline(always)]
    fn ends(self) -> (f32, f32) {
        (self.0, self.1)
    }
}

/// Any ascending points.
#[derive(Clone, Copy)]
pub(crate) struct Levels<const N: usize> {
    points: [f32; N],
    /// What lies half way to the next point.
    middles: [f32; N],
    /// The distance to the next point.
    steps: [f32; N],
}

impl<const N: usize> Levels<N> {
    pub(crate) const fn new(points: &[i8; N]) -> Self {
        let mut levels = Self { points: [0.0; N], middles: [0.0; N], steps: [0.0; N] };
        let mut i = 0;
        while i < N {
            let (low, high) = (points[i] as f32, points[if i + 1 < N { i + 1 } else { i }] as f32);
            levels.points[i] = low;
            levels.middles[i] = (low + high) / 2.0;
            levels.steps[i] = high - low;
            i += 1;
        }
        levels
    }
}

impl<const N: usize> Grid for Levels<N> {
    /// A sum over the middles that the value exceeds: more arithmetic than a search, but it vectorises.
    #[inline(always)]
    fn nearest(self, values: Lanes) -> Lanes {
        let mut points = Lanes::splat(self.points[0]);
        for i in 0..N - 1 {
            let (middle, step) = (self.middles[i], self.steps[i]);
            points += values.zip(values, |v, _| if v > middle { step } else { 0.0 });
        }
        points
    }

    #[inline(always)]
    fn ends(self) -> (f32, f32) {
        (self.points[0], self.points[N - 1])
    }
}

/// Weights of a run where there is no importance.
static EVEN: [f32; 256] = [1.0; 256];

/// A run of values with the weight of the squared error of each.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a, const N: usize> {
    pub(crate) values: &'a [f32; N],
    pub(crate) weights: &'a [f32; N],
}

impl<'a, const N: usize> Run<'a, N> {
    /// The first `N` values and weights. Panics if there are fewer.
    #[inline(always)]
    pub(crate) fn new(values: &'a [f32], weights: Option<&'a [f32]>) -> Self {
        let weights = weights.unwrap_or(&EVEN);
        let enough = "a block has all the values of its format";
        Self { values: values.first_chunk().expect(enough), weights: weights.first_chunk().expect(enough) }
    }

    /// Eight values and their weights at a time.
    #[inline(always)]
    fn lanes(self) -> impl Iterator<Item = (Lanes, Lanes)> {
        let weights = self.weights.as_chunks().0.iter();
        self.values
            .as_chunks()
            .0
            .iter()
            .zip(weights)
            .map(|(values, weights)| (Lanes(*values), Lanes(*weights)))
    }
}

/// `value = scale · quant + offset`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Line {
    pub(crate) scale: f32,
    pub(crate) offset: f32,
}

impl Line {
    #[inline(always)]
    fn inverse(self) -> f32 {
        if self.scale == 0.0 { 0.0 } else { 1.0 / self.scale }
    }

    /// The quants nearest to the values.
    #[inline(always)]
    pub(crate) fn quants<const N: usize>(self, values: &[f32; N], grid: impl Grid) -> [f32; N] {
        let (inverse, offset) = (Lanes::splat(self.inverse()), Lanes::splat(self.offset));
        let mut quants = [0.0; N];
        for (values, quants) in values.as_chunks().0.iter().zip(quants.as_chunks_mut().0) {
            *quants = grid.nearest((Lanes(*values) - offset) * inverse).0;
        }
        quants
    }

    /// The weighted sum of squares that the nearest quants leave.
    #[inline(always)]
    pub(crate) fn error<const N: usize>(self, run: Run<'_, N>, grid: impl Grid) -> f32 {
        let (inverse, offset) = (Lanes::splat(self.inverse()), Lanes::splat(self.offset));
        let scale = Lanes::splat(self.scale);
        let mut error = Lanes::splat(0.0);
        for (values, weights) in run.lanes() {
            let shifted = values - offset;
            let rest = shifted - scale * grid.nearest(shifted * inverse);
            error += weights * rest * rest;
        }
        error.sum()
    }
}

/// The weighted sums over quants and values that least squares asks for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    /// Of the weights alone.
    pub(crate) n: f32,
    pub(crate) q: f32,
    pub(crate) qq: f32,
    pub(crate) x: f32,
    pub(crate) qx: f32,
}

impl Sums {
    #[inline(always)]
    pub(crate) fn of<const N: usize>(line: Line, run: Run<'_, N>, grid: impl Grid) -> Self {
        let (inverse, offset) = (Lanes::splat(line.inverse()), Lanes::splat(line.offset));
        let zero = Lanes::splat(0.0);
        let (mut n, mut q, mut qq, mut x, mut qx) = (zero, zero, zero, zero, zero);
        for (values, weights) in run.lanes() {
            let quants = grid.nearest((values - offset) * inverse);
            let weighted = weights * quants;
            n += weights;
            q += weighted;
            qq += weighted * quants;
            x += weights * values;
            qx += weighted * values;
        }
        Self { n: n.sum(), q: q.sum(), qq: qq.sum(), x: x.sum(), qx: qx.sum() }
    }

    /// The best line with an offset of at most `offset_max`.
    #[inline(always)]
    fn line(self, offset_max: f32) -> Line {
        let determinant = self.n * self.qq - self.q * self.q;
        // Less is rounding: nearly all the weight is on one quant.
        if determinant > 1e-5 * self.n * self.qq {
            let scale = (self.n * self.qx - self.q * self.x) / determinant;
            let offset = (self.x - scale * self.q) / self.n;
            if offset <= offset_max {
                return Line { scale, offset };
            }
        }
        self.through(if offset_max < f32::INFINITY { offset_max } else { 0.0 })
    }

    /// The best line with this offset.
    #[inline(always)]
    fn through(self, offset: f32) -> Line {
        let scale = if self.qq > 0.0 { (self.qx - offset * self.q) / self.qq } else { 0.0 };
        Line { scale, offset }
    }

    /// The squares of the values less the error of a line with these quants.
    #[inline(always)]
    fn gain(self, line: Line) -> f32 {
        let Line { scale, offset } = line;
        scale * (2.0 * (self.qx - offset * self.q) - scale * self.qq)
            + offset * (2.0 * self.x - offset * self.n)
    }
}

/// How far [`fit`] goes.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// By how much of a quant the grid reaches past the extreme value: from, to. The first trial is a reach of zero.
    pub(crate) reach: (f32, f32),
    /// Number of trials.
    pub(crate) n_trials: usize,
    /// Alternations of quants and least squares from each trial.
    pub(crate) n_rounds: usize,
}

impl Effort {
    #[inline(always)]
    fn trial(self, idx: usize) -> f32 {
        let (from, to) = self.reach;
        if idx == 0 { 0.0 } else { from + (to - from) * (idx - 1) as f32 / (self.n_trials - 2).max(1) as f32 }
    }
}

/// By what factor a later trial must be better. Lines of equal merit differ by rounding; of those the first stays, whose
/// scale is likelier a round number.
const BETTER: f32 = 1.0 + 1e-6;

/// The best line through zero; a scale of zero for zeros.
#[inline(always)]
pub(crate) fn fit<const N: usize>(run: Run<'_, N>, grid: impl Grid, effort: Effort) -> Line {
    let (lowest, highest) = extremes(run.values);
    let farthest = if -lowest > highest { lowest } else { highest };
    let mut best = (0.0, Line::default());
    if farthest == 0.0 {
        return best.1;
    }
    let (low, high) = grid.ends();
    for idx in 0..effort.n_trials {
        let reach = effort.trial(idx);
        for end in [low - reach, high + reach] {
            let mut line = Line { scale: farthest / end, offset: 0.0 };
            for _ in 0..effort.n_rounds {
                let sums = Sums::of(line, run, grid);
                line = sums.through(0.0);
                let gain = sums.gain(line);
                if gain > best.0 * BETTER {
                    best = (gain, line);
                }
            }
        }
    }
    best.1
}

/// The best line with an offset of at most `offset_max`, zero or infinity, for a grid that starts at zero.
#[inline(always)]
pub(crate) fn fit_with_offset<const N: usize>(
    run: Run<'_, N>,
    grid: impl Grid,
    offset_max: f32,
    effort: Effort,
) -> Line {
    let (lowest, highest) = extremes(run.values);
    let start = lowest.min(offset_max);
    // Sums of values that start at zero do not cancel.
    let shifted = map(run.values, |v| v - start);
    let shifted = Run { values: &shifted, weights: run.weights };
    let mut best = (0.0, Line::default());
    for idx in 0..effort.n_trials {
        let mut line = Line { scale: (highest - start) / (grid.ends().1 + effort.trial(idx)), offset: 0.0 };
        for _ in 0..effort.n_rounds {
            let sums = Sums::of(line, shifted, grid);
            line = sums.line(offset_max - start);
            let gain = sums.gain(line);
            if gain > best.0 * BETTER {
                best = (gain, line);
            }
        }
    }
    Line { scale: best.1.scale, offset: best.1.offset + start }
}

/// The best of the lines with a half-float scale near that of `line`, and a half-float offset that makes up for what
/// rounding took from the scale.
#[inline(always)]
pub(crate) fn in_halves<const N: usize>(line: Line, run: Run<'_, N>, grid: impl Grid) -> Line {
    let half = f32_to_f16(line.scale);
    let mut best = (f32::INFINITY, Line { scale: f16_to_f32(half), offset: as_half(line.offset) });
    for half in [half, half.wrapping_sub(1), half.wrapping_add(1)] {
        let scale = f16_to_f32(half);
        let sums = Sums::of(Line { scale, ..line }, run, grid);
        let line = Line { scale, offset: as_half((sums.x - scale * sums.q) / sums.n) };
        let error = line.error(run, grid);
        if error < best.0 {
            best = (error, line);
        }
    }
    best.1
}

/// The least and the greatest value; numbers if there is one.
#[inline(always)]
fn extremes<const N: usize>(values: &[f32; N]) -> (f32, f32) {
    let (mut lowest, mut highest) = (Lanes::splat(f32::INFINITY), Lanes::splat(f32::NEG_INFINITY));
    for values in values.as_chunks().0 {
        lowest = Lanes(*values).min(lowest);
        highest = Lanes(*values).max(highest);
    }
    let lowest = lowest.0.iter().fold(f32::INFINITY, |a, &b| a.min(b));
    (lowest, highest.0.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::IQ4_LEVELS;

    const EFFORT: Effort = Effort { reach: (-1.0, 1.5), n_trials: 10, n_rounds: 2 };

    /// Sums of three uniform numbers, near enough to a bell (Marsaglia's xorshift64).
    fn bell<const N: usize>(state: &mut u64) -> [f32; N] {
        let mut uniform = || {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        std::array::from_fn(|_| uniform() + uniform() + uniform())
    }

    /// The least error of a dense scan over scales and offsets.
    fn scanned(run: Run<'_, 16>, grid: impl Grid, scales: [f32; 2], offsets: [f32; 2]) -> f32 {
        let at = |[from, to]: [f32; 2], k: u32| from + (to - from) * k as f32 / 200.0;
        let lines = (0..=200).flat_map(|s| (0..=200).map(move |o| (s, o)));
        let lines = lines.map(|(s, o)| Line { scale: at(scales, s), offset: at(offsets, o) });
        lines.map(|line| line.error(run, grid)).fold(f32::INFINITY, f32::min)
    }

    #[test]
    fn the_search_finds_nearly_what_a_dense_scan_finds() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let (mut ours, mut best) = ([0.0; 3], [0.0; 3]);
        for weighted in [false, true].repeat(20) {
            let values: [f32; 16] = bell(&mut state);
            let weights: [f32; 16] = bell(&mut state).map(|w: f32| if weighted { w.abs() } else { 1.0 });
            let farthest = values.iter().fold(0f32, |a, v| a.max(v.abs()));
            let run = Run { values: &values, weights: &weights };
            let (grid, wide) = (Integers(0.0, 3.0), farthest);
            ours[0] += fit_with_offset(run, grid, 0.0, EFFORT).error(run, grid);
            best[0] += scanned(run, grid, [0.0, wide], [-wide, 0.0]);
            let (grid, wide) = (Integers(-4.0, 3.0), farthest / 2.0);
            ours[1] += fit(run, grid, EFFORT).error(run, grid);
            best[1] += scanned(run, grid, [-wide, wide], [0.0; 2]);
            let (grid, wide) = (Levels::new(&IQ4_LEVELS), farthest / 80.0);
            let effort = Effort { reach: (-24.0, 24.0), ..EFFORT };
            ours[2] += fit(run, grid, effort).error(run, grid);
            best[2] += scanned(run, grid, [-wide, wide], [0.0; 2]);
        }
        for (ours, best) in ours.iter().zip(best) {
            assert!(*ours < 1.1 * best, "{ours} against {best}");
        }
    }

    #[test]
    fn values_on_a_line_are_found_again() {
        let quants: [f32; 32] = std::array::from_fn(|i| (i * 7 % 16) as f32);
        for (scale, offset) in [(0.25, -1.0), (3e-3, 0.0), (1e3, -9e3), (7e-5, -2e-3)] {
            let values = quants.map(|q| scale * q + offset);
            let line = fit_with_offset(Run::<32>::new(&values, None), Integers(0.0, 15.0), 0.0, EFFORT);
            assert!((line.scale / scale - 1.0).abs() < 1e-4, "{} for {scale}", line.scale);
            assert!((line.offset - offset).abs() < 1e-3 * scale, "{} for {offset}", line.offset);
            assert_eq!(line.quants(&values, Integers(0.0, 15.0)), quants);
        }
    }
}
