//! Blocks of 256 whose groups have an odd scale of a few bits and points of a lattice: the search of IQ1, IQ2 and IQ3.
//!
//! A group's best scale is sought among a few, each refined by least squares from the points that it chose. Scales become
//! codes in a unit that suits them all; the codes' neighbours are tried with their own points, and the unit is fitted to
//! what came of it. Points are always the nearest of all, so the only approximation is in the scales.

use super::{
    bits::as_half,
    lattice::{Lattice, Target},
    search::Run,
};

/// What a group may choose from.
pub(crate) struct Codebook<const DIM: usize, const POINTS: usize> {
    pub(crate) lattice: &'static Lattice<DIM, POINTS>,
    /// The levels of a coordinate.
    pub(crate) levels: [f32; 8],
    /// How far all coordinates may be shifted, up or down; zero for formats without shifts.
    pub(crate) shift: f32,
    /// Whether each point has a shift of its own, not the group one for all.
    pub(crate) own_shifts: bool,
    /// The highest code of a scale: the scale is the unit times `2·code + 1`.
    pub(crate) code_max: f32,
    /// The unit over the half float of the block, a power of two.
    pub(crate) unit_of_d: f32,
    /// The scales to try, in units of the root of the group's weighted mean square.
    pub(crate) scales: &'static [f32],
}

/// Points for a group of up to 32 values, and the sums that least squares asks for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Points {
    /// Places in the order of the lattice.
    places: [u16; 8],
    /// A bit a point: set if it is shifted down.
    pub(crate) downs: u8,
    /// Sum of weight · value · quant.
    qx: f32,
    /// Sum of weight · quant².
    qq: f32,
}

impl Points {
    /// The place of point `k` in the grid of the format.
    #[inline(always)]
    pub(crate) fn index<const DIM: usize, const N: usize>(&self, lattice: &Lattice<DIM, N>, k: usize) -> u16 {
        lattice.point(self.places[k]).0
    }

    /// The best scale for these points.
    #[inline(always)]
    fn scale(&self) -> f32 {
        if self.qq > 0.0 { self.qx / self.qq } else { 0.0 }
    }

    /// The weighted error at a scale, less the squares of the values.
    #[inline(always)]
    fn cost(&self, scale: f32) -> f32 {
        scale * (scale * self.qq - 2.0 * self.qx)
    }
}

/// `N` weights that share a scale, and weights times values.
#[derive(Clone, Copy)]
struct Part<'a, const N: usize> {
    weights: &'a [f32; N],
    weighted: &'a [f32; N],
}

impl<const DIM: usize, const POINTS: usize> Codebook<DIM, POINTS> {
    /// The levels shifted up (0) or down (1).
    #[inline(always)]
    fn shifted(&self, down: usize) -> [f32; 8] {
        let shift = if down == 0 { self.shift } else { -self.shift };
        let mut levels = self.levels;
        for level in &mut levels {
            *level += shift;
        }
        levels
    }

    /// The points nearest to a group at a scale; with the shifts of `from` if they are settled.
    #[inline(always)]
    fn nearest<const N: usize>(&self, part: Part<'_, N>, scale: f32, from: &Points, settled: bool) -> Points {
        let mut places = [[0; 8]; 2];
        let mut costs = [[f32::INFINITY; 8]; 2];
        let n_shifts = if self.shift == 0.0 { 1 } else { 2 };
        let weights = part.weights.as_chunks::<DIM>().0;
        let weighted = part.weighted.as_chunks::<DIM>().0;
        for down in 0..n_shifts {
            let levels = self.shifted(down);
            for k in 0..N / DIM {
                if settled && usize::from(from.downs >> k & 1) != down {
                    continue;
                }
                let target = Target { weights: &weights[k], weighted: &weighted[k] };
                (places[down][k], costs[down][k]) =
                    self.lattice.nearest(target, &levels, scale, from.places[k]);
            }
        }
        let mut points = Points { places: places[0], ..Points::default() };
        if n_shifts == 2 {
            let total = |costs: &[f32; 8]| costs[..N / DIM].iter().sum::<f32>();
            let all_down = total(&costs[1]) < total(&costs[0]);
            for k in 0..N / DIM {
                let down = if self.own_shifts { costs[1][k] < costs[0][k] } else { all_down };
                points.downs |= u8::from(down) << k;
                points.places[k] = places[usize::from(down)][k];
            }
        }
        let mut sums = [[0.0; DIM]; 2];
        for k in 0..N / DIM {
            let shift = if points.downs >> k & 1 == 0 { self.shift } else { -self.shift };
            let (_, point) = self.lattice.point(points.places[k]);
            for i in 0..DIM {
                let quant = f32::from(point[i]) + shift;
                sums[0][i] += weighted[k][i] * quant;
                sums[1][i] += weights[k][i] * quant * quant;
            }
        }
        points.qx = sums[0].iter().sum();
        points.qq = sums[1].iter().sum();
        points
    }

    /// Points of a group and the scale that suits them best; zero for zeros.
    #[inline(always)]
    fn fit<const N: usize>(&self, part: Part<'_, N>, root_mean_square: f32) -> (f32, Points) {
        let mut best = (0.0, Points::default());
        let mut points = Points::default();
        for factor in self.scales {
            points = self.nearest(part, root_mean_square * factor, &points, false);
            let gain = points.scale() * points.qx;
            if gain > best.0 {
                best = (gain, points);
            }
        }
        (best.1.scale(), best.1)
    }
}

/// 256 values with their signs set apart.
pub(crate) struct Magnitudes {
    values: [f32; 256],
    weights: [f32; 256],
    weighted: [f32; 256],
    /// A bit for each of eight values: set if it is negative.
    pub(crate) signs: [u8; 32],
}

impl Magnitudes {
    /// The values as they are, for points that have signs.
    #[inline(always)]
    pub(crate) fn signed(values: &[f32], weights: Option<&[f32]>) -> Self {
        let run = Run::<256>::new(values, weights);
        let mut target =
            Self { values: *run.values, weights: *run.weights, weighted: [0.0; 256], signs: [0; 32] };
        for i in 0..256 {
            target.weighted[i] = target.weights[i] * target.values[i];
        }
        target
    }

    /// Magnitudes with any signs.
    #[inline(always)]
    pub(crate) fn any(values: &[f32], weights: Option<&[f32]>) -> Self {
        let mut target = Self::signed(values, weights);
        for (signs, values) in target.signs.iter_mut().zip(target.values.as_chunks::<8>().0) {
            for (i, value) in values.iter().enumerate() {
                *signs |= u8::from(*value < 0.0) << i;
            }
        }
        for i in 0..256 {
            target.values[i] = target.values[i].abs();
            target.weighted[i] = target.weighted[i].abs();
        }
        target
    }

    /// Magnitudes with an even number of minus signs in each eight. Where it is odd, the value for which that matters
    /// least gets the other sign and a negative magnitude.
    #[inline(always)]
    pub(crate) fn even(values: &[f32], weights: Option<&[f32]>) -> Self {
        let mut target = Self::any(values, weights);
        for (k, signs) in target.signs.iter_mut().enumerate() {
            if signs.count_ones() % 2 == 1 {
                let weighted = &mut target.weighted[8 * k..][..8];
                let mut least = 0;
                for i in 1..8 {
                    if weighted[i] < weighted[least] {
                        least = i;
                    }
                }
                weighted[least] = -weighted[least];
                target.values[8 * k + least] = -target.values[8 * k + least];
                *signs ^= 1 << least;
            }
        }
        target
    }
}

/// A block of 256 in `GROUPS` groups: `value = unit · (2·code + 1) · quant`.
pub(crate) struct LatticeBlock<const GROUPS: usize> {
    /// The block's half float.
    pub(crate) d: f32,
    unit: f32,
    /// Codes of the scales.
    pub(crate) codes: [f32; GROUPS],
    /// Points of the groups.
    pub(crate) points: [Points; GROUPS],
}

impl<const GROUPS: usize> LatticeBlock<GROUPS> {
    /// The block nearest to 256 values in groups of `N`.
    #[inline(always)]
    pub(crate) fn fit<const N: usize, const DIM: usize, const POINTS: usize>(
        target: &Magnitudes,
        book: &Codebook<DIM, POINTS>,
    ) -> Self {
        const { assert!(N * GROUPS == 256) };
        let Magnitudes { values, weights, weighted, .. } = target;
        let (all_weights, all_weighted) = (weights.as_chunks::<N>().0, weighted.as_chunks::<N>().0);
        let mut scales = [0.0; GROUPS];
        let mut block = Self { d: 0.0, unit: 0.0, codes: [0.0; GROUPS], points: [Points::default(); GROUPS] };
        for (g, values) in values.as_chunks::<N>().0.iter().enumerate() {
            let part = Part { weights: &all_weights[g], weighted: &all_weighted[g] };
            let square: f32 = values.iter().zip(part.weighted).map(|(v, w)| v * w).sum();
            let root_mean_square = (square / part.weights.iter().sum::<f32>()).sqrt();
            (scales[g], block.points[g]) = book.fit(part, root_mean_square);
        }
        block.set_unit(book.best_unit(&scales, &block.points), book.unit_of_d);
        for (code, scale) in block.codes.iter_mut().zip(scales) {
            *code = nearest_code(scale, block.unit, book.code_max);
        }
        for _ in 0..2 {
            for g in 0..GROUPS {
                let part = Part { weights: &all_weights[g], weighted: &all_weighted[g] };
                block.settle(g, part, book);
            }
            block.rescale(book.unit_of_d);
        }
        block
    }

    #[inline(always)]
    fn set_unit(&mut self, unit: f32, unit_of_d: f32) {
        self.d = as_half((unit / unit_of_d).min(65504.0));
        self.unit = self.d * unit_of_d;
    }

    /// Finds the points of a group for its code, and for the next code in the direction of the scale that suits them; the
    /// better of the two stays.
    #[inline(always)]
    fn settle<const N: usize, const DIM: usize, const POINTS: usize>(
        &mut self,
        g: usize,
        part: Part<'_, N>,
        book: &Codebook<DIM, POINTS>,
    ) {
        let scale = self.unit * (2.0 * self.codes[g] + 1.0);
        let points = book.nearest(part, scale, &self.points[g], true);
        let cost = points.cost(scale);
        self.points[g] = points;
        let code = self.codes[g] + if points.scale() > scale { 1.0 } else { -1.0 };
        if code >= 0.0 && code <= book.code_max {
            let scale = self.unit * (2.0 * code + 1.0);
            let points = book.nearest(part, scale, &points, true);
            if points.cost(scale) < cost {
                (self.codes[g], self.points[g]) = (code, points);
            }
        }
    }

    /// Fits the unit to codes and points by least squares.
    #[inline(always)]
    fn rescale(&mut self, unit_of_d: f32) {
        let (mut qx, mut qq) = (0.0, 0.0);
        for (code, points) in self.codes.iter().zip(&self.points) {
            let scale = 2.0 * code + 1.0;
            qx += scale * points.qx;
            qq += scale * scale * points.qq;
        }
        if qq > 0.0 {
            self.set_unit((qx / qq).max(0.0), unit_of_d);
        }
    }
}

/// The code of the scale nearest to `scale`.
#[inline(always)]
fn nearest_code(scale: f32, unit: f32, code_max: f32) -> f32 {
    let code = if unit > 0.0 { (0.5 * (scale / unit - 1.0)).round_ties_even() } else { 0.0 };
    code.max(0.0).min(code_max)
}

impl<const DIM: usize, const POINTS: usize> Codebook<DIM, POINTS> {
    /// The unit in whose odd multiples the scales cost least: of those that give the largest scale about the highest code.
    #[inline(always)]
    fn best_unit<const GROUPS: usize>(&self, scales: &[f32; GROUPS], points: &[Points; GROUPS]) -> f32 {
        let largest = scales.iter().fold(0f32, |a, &b| a.max(b));
        let highest = 2.0 * self.code_max + 1.0;
        let mut best = (f32::INFINITY, 0.0);
        for trial in 0..24 {
            let unit = largest / (highest * (0.8 + 0.0125 * trial as f32));
            let mut cost = 0.0;
            for (scale, points) in scales.iter().zip(points) {
                let code = nearest_code(*scale, unit, self.code_max);
                let rest = scale - unit * (2.0 * code + 1.0);
                cost += rest * rest * points.qq;
            }
            if cost < best.0 {
                best = (cost, unit);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::{self, packed};

    static LATTICE: Lattice<8, 1024> = Lattice::new(&packed::IQ2_S, &grids::IQ2_S);
    const BOOK: Codebook<8, 1024> = Codebook {
        lattice: &LATTICE,
        levels: [8.0, 25.0, 43.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        shift: 0.0,
        own_shifts: false,
        code_max: 15.0,
        unit_of_d: 0.125,
        scales: &[0.06, 0.045, 0.03],
    };

    #[test]
    fn the_number_of_minus_signs_is_even_and_the_cheapest_value_pays() {
        let values: [f32; 256] = std::array::from_fn(|i| if i % 8 == 3 { -0.5 } else { (i % 8 + 1) as f32 });
        let mut weights = [1.0; 256];
        weights[14] = 0.01;
        let target = Magnitudes::even(&values, Some(&weights));
        assert_eq!(target.signs[..3], [0, 1 << 3 | 1 << 6, 0]);
        assert_eq!((target.values[3], target.weighted[3]), (-0.5, -0.5));
        assert_eq!((target.values[14], target.weighted[14]), (-7.0, -7.0 * 0.01));
        assert_eq!(Magnitudes::any(&values, None).signs, [1 << 3; 32]);
    }

    #[test]
    fn a_block_of_huge_values_has_a_finite_scale() {
        let target = Magnitudes::any(&[1e15; 256], None);
        assert_eq!(LatticeBlock::<16>::fit::<16, _, _>(&target, &BOOK).d, 65504.0);
        let target = Magnitudes::any(&[0.0; 256], None);
        assert_eq!(LatticeBlock::<16>::fit::<16, _, _>(&target, &BOOK).d, 0.0);
    }

    #[test]
    fn the_unit_suits_all_scales() {
        // Odd multiples of 0.02, the largest not the highest code.
        let scales: [f32; 8] = [0.02, 0.06, 0.1, 0.3, 0.42, 0.5, 0.54, 0.54];
        let points = [Points { qq: 1.0, ..Points::default() }; 8];
        let unit = BOOK.best_unit(&scales, &points);
        let codes = scales.map(|scale| nearest_code(scale, unit, 15.0));
        let worst = scales.iter().zip(codes).map(|(s, c)| (s - unit * (2.0 * c + 1.0)).abs());
        assert!(worst.fold(0.0, f32::max) < 0.003, "{unit}: {codes:?}");
    }
}
