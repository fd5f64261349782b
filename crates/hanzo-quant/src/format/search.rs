//! The search that all encoders with fitted scales share: which scale, offset and quants reconstruct a run of values
//! with the least sum of squares.
//!
//! For given quants the best scale and offset are a linear least-squares problem; for a given scale and offset the
//! best quants are the nearest points of the grid. [`fit`] tries a range of scales around the one that spans the
//! values, alternates the two steps from each, and keeps the best. [`SuperBlock::fit`] does so for each group of a
//! block of 256, quantises the scales and minima, tries their neighbours, and fits the block's own two scales to what
//! came of it.
//!
//! The error is the plain sum of squares, without weights. Values that are not finite lose every comparison and end in
//! some block. Sums run in eight lanes, so that they vectorise; everything is inlined into the row encoders.

use std::ops::{Add, AddAssign, Mul, Sub};

use super::bits::as_half;

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

    /// The sum of squares that the nearest quants leave.
    #[inline(always)]
    pub(crate) fn error<const N: usize>(self, values: &[f32; N], grid: impl Grid) -> f32 {
        let (inverse, offset) = (Lanes::splat(self.inverse()), Lanes::splat(self.offset));
        let scale = Lanes::splat(self.scale);
        let mut error = Lanes::splat(0.0);
        for values in values.as_chunks().0 {
            let shifted = Lanes(*values) - offset;
            let rest = shifted - scale * grid.nearest(shifted * inverse);
            error += rest * rest;
        }
        error.sum()
    }
}

/// The sums over quants and values that least squares asks for.
#[derive(Clone, Copy, Default)]
struct Sums {
    n: f32,
    q: f32,
    qq: f32,
    x: f32,
    qx: f32,
}

impl Sums {
    #[inline(always)]
    fn of<const N: usize>(line: Line, values: &[f32; N], grid: impl Grid) -> Self {
        let (inverse, offset) = (Lanes::splat(line.inverse()), Lanes::splat(line.offset));
        let zero = Lanes::splat(0.0);
        let (mut q, mut qq, mut x, mut qx) = (zero, zero, zero, zero);
        for values in values.as_chunks().0 {
            let values = Lanes(*values);
            let quants = grid.nearest((values - offset) * inverse);
            q += quants;
            qq += quants * quants;
            x += values;
            qx += quants * values;
        }
        Self { n: N as f32, q: q.sum(), qq: qq.sum(), x: x.sum(), qx: qx.sum() }
    }

    /// The best line with an offset of at most `offset_max`.
    #[inline(always)]
    fn line(self, offset_max: f32) -> Line {
        let determinant = self.n * self.qq - self.q * self.q;
        if determinant > 0.0 {
            let scale = (self.n * self.qx - self.q * self.x) / determinant;
            let offset = (self.x - scale * self.q) / self.n;
            if offset <= offset_max {
                return Line { scale, offset };
            }
        }
        self.through(offset_max)
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
pub(crate) fn fit<const N: usize>(values: &[f32; N], grid: impl Grid, effort: Effort) -> Line {
    let (lowest, highest) = extremes(values);
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
                let sums = Sums::of(line, values, grid);
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

/// The best line with an offset that is not positive, for a grid that starts at zero.
#[inline(always)]
pub(crate) fn fit_with_offset<const N: usize>(values: &[f32; N], grid: impl Grid, effort: Effort) -> Line {
    let (lowest, highest) = extremes(values);
    let start = lowest.min(0.0);
    // Sums of values that start at zero do not cancel.
    let mut shifted = [0.0; N];
    for i in 0..N {
        shifted[i] = values[i] - start;
    }
    let mut best = (0.0, Line::default());
    for idx in 0..effort.n_trials {
        let mut line = Line { scale: (highest - start) / (grid.ends().1 + effort.trial(idx)), offset: 0.0 };
        for _ in 0..effort.n_rounds {
            let sums = Sums::of(line, &shifted, grid);
            line = sums.line(-start);
            let gain = sums.gain(line);
            if gain > best.0 * BETTER {
                best = (gain, line);
            }
        }
    }
    Line { scale: best.1.scale, offset: best.1.offset + start }
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

/// The codes that the scales and minima of groups may take in a super-block.
#[derive(Clone, Copy)]
pub(crate) struct Codes {
    /// Lowest and highest scale; the lowest is zero where there are minima.
    pub(crate) scales: (f32, f32),
    /// The highest minimum; zero if the format has none.
    pub(crate) minimum_max: f32,
}

/// A block of 256 in `GROUPS` groups: `value = d · scale · quant − dmin · minimum`.
pub(crate) struct SuperBlock<const GROUPS: usize> {
    /// The scale of the scales, a half float.
    pub(crate) d: f32,
    /// The scale of the minima, a half float; zero if the format has none.
    pub(crate) dmin: f32,
    /// Codes of the scales.
    pub(crate) scales: [f32; GROUPS],
    /// Codes of the minima.
    pub(crate) minima: [f32; GROUPS],
    /// Points of the grid.
    pub(crate) quants: [f32; 256],
}

impl<const GROUPS: usize> SuperBlock<GROUPS> {
    /// The block nearest to 256 values in groups of `N`.
    #[inline(always)]
    pub(crate) fn fit<const N: usize>(values: &[f32], grid: impl Grid, codes: Codes, effort: Effort) -> Self {
        const { assert!(N * GROUPS == 256) };
        let groups: &[[f32; N]] = values.as_chunks().0;
        let mut lines = [Line::default(); GROUPS];
        for (line, values) in lines.iter_mut().zip(groups) {
            *line = if codes.minimum_max > 0.0 {
                fit_with_offset(values, grid, effort)
            } else {
                fit(values, grid, effort)
            };
        }
        let mut block = Self::of_lines(&lines, codes);
        block.settle(groups, grid, codes);
        block.rescale(groups, grid);
        block.settle(groups, grid, codes);
        for (g, values) in groups.iter().enumerate() {
            let quants = block.line(block.scales[g], block.minima[g]).quants(values, grid);
            block.quants[N * g..][..N].copy_from_slice(&quants);
        }
        block
    }

    /// Codes by rounding: the largest scale and the largest minimum get the outermost codes.
    #[inline(always)]
    fn of_lines(lines: &[Line; GROUPS], codes: Codes) -> Self {
        let (mut scale, mut minimum) = (0f32, 0f32);
        for line in lines {
            scale = if line.scale.abs() > scale.abs() { line.scale } else { scale };
            minimum = minimum.max(-line.offset);
        }
        let (low, high) = codes.scales;
        let d = as_half(scale / if low < 0.0 { low } else { high });
        let dmin = if codes.minimum_max > 0.0 { as_half(minimum / codes.minimum_max) } else { 0.0 };
        let mut block = Self { d, dmin, scales: [0.0; GROUPS], minima: [0.0; GROUPS], quants: [0.0; 256] };
        for (g, line) in lines.iter().enumerate() {
            let ratio =
                |value: f32, unit: f32| if unit == 0.0 { 0.0 } else { (value / unit).round_ties_even() };
            block.scales[g] = ratio(line.scale, d).max(low).min(high);
            block.minima[g] = ratio(-line.offset, dmin).max(0.0).min(codes.minimum_max);
        }
        block
    }

    /// The line of a group for given codes.
    #[inline(always)]
    fn line(&self, scale: f32, minimum: f32) -> Line {
        Line { scale: self.d * scale, offset: -(self.dmin * minimum) }
    }

    /// Moves each group's codes to the best of their neighbours.
    #[inline(always)]
    fn settle<const N: usize>(&mut self, groups: &[[f32; N]], grid: impl Grid, codes: Codes) {
        for (g, values) in groups.iter().enumerate() {
            let (scale, minimum) = (self.scales[g], self.minima[g]);
            let mut least = self.line(scale, minimum).error(values, grid);
            for scale in [scale - 1.0, scale, scale + 1.0] {
                for minimum in [minimum - 1.0, minimum, minimum + 1.0] {
                    let in_range = scale >= codes.scales.0
                        && scale <= codes.scales.1
                        && minimum >= 0.0
                        && minimum <= codes.minimum_max;
                    if !in_range {
                        continue;
                    }
                    let error = self.line(scale, minimum).error(values, grid);
                    if error < least {
                        least = error;
                        (self.scales[g], self.minima[g]) = (scale, minimum);
                    }
                }
            }
        }
    }

    /// Fits `d` and `dmin` to the block's codes and quants by least squares, where that lowers the error.
    #[inline(always)]
    fn rescale<const N: usize>(&mut self, groups: &[[f32; N]], grid: impl Grid) {
        let (mut ss, mut sm, mut mm, mut sx, mut mx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (g, values) in groups.iter().enumerate() {
            let (scale, minimum) = (self.scales[g], self.minima[g]);
            let sums = Sums::of(self.line(scale, minimum), values, grid);
            ss += scale * scale * sums.qq;
            sm += scale * minimum * sums.q;
            mm += minimum * minimum * sums.n;
            sx += scale * sums.qx;
            mx += minimum * sums.x;
        }
        let determinant = ss * mm - sm * sm;
        let (d, dmin) = if mm == 0.0 && ss > 0.0 {
            (sx / ss, self.dmin)
        } else if determinant > 0.0 {
            ((sx * mm - mx * sm) / determinant, (sx * sm - mx * ss) / determinant)
        } else {
            return;
        };
        let old = (self.d, self.dmin, self.error(groups, grid));
        (self.d, self.dmin) = (as_half(d), as_half(dmin).max(0.0));
        let is_better = self.error(groups, grid) < old.2;
        if !is_better {
            (self.d, self.dmin, _) = old;
        }
    }

    #[inline(always)]
    fn error<const N: usize>(&self, groups: &[[f32; N]], grid: impl Grid) -> f32 {
        let mut error = 0.0;
        for (g, values) in groups.iter().enumerate() {
            error += self.line(self.scales[g], self.minima[g]).error(values, grid);
        }
        error
    }
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
    fn scanned(values: &[f32; 16], grid: impl Grid, scales: [f32; 2], offsets: [f32; 2]) -> f32 {
        let at = |[from, to]: [f32; 2], k: u32| from + (to - from) * k as f32 / 200.0;
        let lines = (0..=200).flat_map(|s| (0..=200).map(move |o| (s, o)));
        let lines = lines.map(|(s, o)| Line { scale: at(scales, s), offset: at(offsets, o) });
        lines.map(|line| line.error(values, grid)).fold(f32::INFINITY, f32::min)
    }

    #[test]
    fn the_search_finds_nearly_what_a_dense_scan_finds() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let (mut ours, mut best) = ([0.0; 3], [0.0; 3]);
        for _ in 0..20 {
            let values: [f32; 16] = bell(&mut state);
            let farthest = values.iter().fold(0f32, |a, v| a.max(v.abs()));
            let (grid, wide) = (Integers(0.0, 3.0), farthest);
            ours[0] += fit_with_offset(&values, grid, EFFORT).error(&values, grid);
            best[0] += scanned(&values, grid, [0.0, wide], [-wide, 0.0]);
            let (grid, wide) = (Integers(-4.0, 3.0), farthest / 2.0);
            ours[1] += fit(&values, grid, EFFORT).error(&values, grid);
            best[1] += scanned(&values, grid, [-wide, wide], [0.0; 2]);
            let (grid, wide) = (Levels::new(&IQ4_LEVELS), farthest / 80.0);
            let effort = Effort { reach: (-24.0, 24.0), ..EFFORT };
            ours[2] += fit(&values, grid, effort).error(&values, grid);
            best[2] += scanned(&values, grid, [-wide, wide], [0.0; 2]);
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
            let line = fit_with_offset(&values, Integers(0.0, 15.0), EFFORT);
            assert!((line.scale / scale - 1.0).abs() < 1e-4, "{} for {scale}", line.scale);
            assert!((line.offset - offset).abs() < 1e-3 * scale, "{} for {offset}", line.offset);
            assert_eq!(line.quants(&values, Integers(0.0, 15.0)), quants);
        }
    }

    #[test]
    fn rescaling_finds_the_scales_of_a_block() {
        let grid = Integers(0.0, 3.0);
        for (d, dmin) in [(0.5, 0.25), (0.5, 0.0)] {
            let scales: [f32; 16] = std::array::from_fn(|g| (g % 15 + 1) as f32);
            let minima: [f32; 16] =
                std::array::from_fn(|g| if dmin > 0.0 { (g * 5 % 16) as f32 } else { 0.0 });
            let value = |g: usize, i: usize| d * scales[g] * ((i * 7 + g) % 4) as f32 - dmin * minima[g];
            let groups: [[f32; 16]; 16] = std::array::from_fn(|g| std::array::from_fn(|i| value(g, i)));
            // Near enough that the quants are the right ones.
            let mut block = SuperBlock { d: d * 1.05, dmin: dmin * 0.97, scales, minima, quants: [0.0; 256] };
            block.rescale(&groups, grid);
            assert_eq!((block.d, block.dmin), (d, dmin));
            assert_eq!(block.error(&groups, grid), 0.0);
        }
    }
}
