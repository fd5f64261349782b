//! Blocks of 256 whose groups have scales, and perhaps minima, that are themselves quantised: the search of Q2_K to Q6_K and
//! of IQ4_XS.
//!
//! Each group is fitted by itself; its scale and minimum become codes in units of the block's two half floats; the codes'
//! neighbours are tried, and the units are fitted to what came of it by least squares.

use super::{
    bits::as_half,
    search::{Effort, Grid, Line, Run, Sums, fit, fit_with_offset},
};

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
    pub(crate) fn fit<const N: usize>(
        run: Run<'_, 256>,
        grid: impl Grid,
        codes: Codes,
        effort: Effort,
    ) -> Self {
        const { assert!(N * GROUPS == 256) };
        let mut groups = [Run::<N>::new(run.values, None); GROUPS];
        let mut lines = [Line::default(); GROUPS];
        for (g, (line, group)) in lines.iter_mut().zip(&mut groups).enumerate() {
            *group = Run::new(&run.values[N * g..], Some(&run.weights[N * g..]));
            *line = if codes.minimum_max > 0.0 {
                fit_with_offset(*group, grid, 0.0, effort)
            } else {
                fit(*group, grid, effort)
            };
        }
        let mut block = Self::of_lines(&lines, codes);
        block.settle(&groups, grid, codes);
        block.rescale(&groups, grid);
        block.settle(&groups, grid, codes);
        for (g, group) in groups.iter().enumerate() {
            let quants = block.line(block.scales[g], block.minima[g]).quants(group.values, grid);
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
    fn settle<const N: usize>(&mut self, groups: &[Run<'_, N>], grid: impl Grid, codes: Codes) {
        for (g, &run) in groups.iter().enumerate() {
            let (scale, minimum) = (self.scales[g], self.minima[g]);
            let mut least = self.line(scale, minimum).error(run, grid);
            for scale in [scale - 1.0, scale, scale + 1.0] {
                for minimum in [minimum - 1.0, minimum, minimum + 1.0] {
                    let in_range = scale >= codes.scales.0
                        && scale <= codes.scales.1
                        && minimum >= 0.0
                        && minimum <= codes.minimum_max;
                    if !in_range {
                        continue;
                    }
                    let error = self.line(scale, minimum).error(run, grid);
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
    fn rescale<const N: usize>(&mut self, groups: &[Run<'_, N>], grid: impl Grid) {
        let (mut ss, mut sm, mut mm, mut sx, mut mx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (g, &run) in groups.iter().enumerate() {
            let (scale, minimum) = (self.scales[g], self.minima[g]);
            let sums = Sums::of(self.line(scale, minimum), run, grid);
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
    fn error<const N: usize>(&self, groups: &[Run<'_, N>], grid: impl Grid) -> f32 {
        let mut error = 0.0;
        for (g, &run) in groups.iter().enumerate() {
            error += self.line(self.scales[g], self.minima[g]).error(run, grid);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::search::Integers;

    #[test]
    fn rescaling_finds_the_scales_of_a_block() {
        let grid = Integers(0.0, 3.0);
        for (d, dmin) in [(0.5, 0.25), (0.5, 0.0)] {
            let scales: [f32; 16] = std::array::from_fn(|g| (g % 15 + 1) as f32);
            let minima: [f32; 16] =
                std::array::from_fn(|g| if dmin > 0.0 { (g * 5 % 16) as f32 } else { 0.0 });
            let value = |g: usize, i: usize| d * scales[g] * ((i * 7 + g) % 4) as f32 - dmin * minima[g];
            let groups: [[f32; 16]; 16] = std::array::from_fn(|g| std::array::from_fn(|i| value(g, i)));
            let groups = groups.each_ref().map(|values| Run::<16>::new(values, None));
            // Near enough that the quants are the right ones.
            let mut block = SuperBlock { d: d * 1.05, dmin: dmin * 0.97, scales, minima, quants: [0.0; 256] };
            block.rescale(&groups, grid);
            assert_eq!((block.d, block.dmin), (d, dmin));
            assert_eq!(block.error(&groups, grid), 0.0);
        }
    }
}
