//! The nearest point of an i-quant's lattice, exactly, for weighted squares.
//!
//! A point has eight coordinates of three levels or four of eight. What a point costs is a sum over its coordinates, so
//! the cost of half a point is one entry of a small table, and the cost of a point is the sum of two. Points are ordered
//! by their first half: a first half whose cost with the cheapest second half, on the lattice or not, is no better than
//! the best point so far is passed over with all its points. A search starts from the point that a similar scale gave,
//! so that little is left to look at.

/// Points of `DIM` coordinates in the order of the search.
pub(crate) struct Lattice<const DIM: usize, const POINTS: usize> {
    /// Where the points of each first half start.
    starts: [u16; 257],
    /// The indices of first and second half of each point, and its place in `grid`.
    points: [([u8; 2], u16); POINTS],
    /// The points in the order of the format.
    grid: &'static [[i8; DIM]; POINTS],
}

/// How many rows and columns of a half's table are in use: the index of a half has two bits for each of four coordinates
/// with three levels (up to 10 in a pair), or four bits for each of two with eight.
const fn used(dim: usize) -> usize {
    if dim == 8 { 11 } else { 8 }
}

/// The costs of half a point: index `16·row + column` costs the sum of two entries; infinity for what is no level.
#[derive(Clone, Copy)]
struct Half {
    rows: [f32; 16],
    columns: [f32; 16],
}

impl Half {
    #[inline(always)]
    fn cost(&self, index: u8) -> f32 {
        self.rows[usize::from(index >> 4)] + self.columns[usize::from(index & 15)]
    }
}

/// The least of numbers; infinity if there are none.
#[inline(always)]
fn least(values: &[f32; 16]) -> f32 {
    values.iter().fold(f32::INFINITY, |a, &b| if b < a { b } else { a })
}

/// `DIM` weights, and weights times values.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a, const DIM: usize> {
    pub(crate) weights: &'a [f32; DIM],
    pub(crate) weighted: &'a [f32; DIM],
}

impl<const DIM: usize> Target<'_, DIM> {
    /// The costs of the two halves of a point: weight · (scale · level)² − 2 · weight · value · scale · level.
    #[inline(always)]
    fn halves(self, levels: &[f32; 8], scale: f32) -> [Half; 2] {
        if DIM == 8 { self.halves_of_eight(levels, scale) } else { self.halves_of_four(levels, scale) }
    }

    #[inline(always)]
    fn halves_of_eight(self, levels: &[f32; 8], scale: f32) -> [Half; 2] {
        let mut costs = [[0.0; 8]; 3];
        for (costs, level) in costs.iter_mut().zip(levels) {
            let level = scale * level;
            let terms = self.weights.iter().zip(self.weighted);
            for (cost, (weight, weighted)) in costs.iter_mut().zip(terms) {
                *cost = level * (level * weight - 2.0 * weighted);
            }
        }
        let mut pairs = [[f32::INFINITY; 16]; 4];
        for (k, pair) in pairs.iter_mut().enumerate() {
            for high in 0..3 {
                for low in 0..3 {
                    pair[4 * high + low] = costs[low][2 * k] + costs[high][2 * k + 1];
                }
            }
        }
        [Half { rows: pairs[1], columns: pairs[0] }, Half { rows: pairs[3], columns: pairs[2] }]
    }

    #[inline(always)]
    fn halves_of_four(self, levels: &[f32; 8], scale: f32) -> [Half; 2] {
        let mut costs = [[f32::INFINITY; 16]; 4];
        for (i, costs) in costs.iter_mut().enumerate() {
            for (cost, level) in costs.iter_mut().zip(levels) {
                let level = scale * level;
                *cost = level * (level * self.weights[i] - 2.0 * self.weighted[i]);
            }
        }
        [Half { rows: costs[1], columns: costs[0] }, Half { rows: costs[3], columns: costs[2] }]
    }
}

impl<const DIM: usize, const POINTS: usize> Lattice<DIM, POINTS> {
    /// The lattice of a grid and its packed form.
    pub(crate) const fn new(packed: &[u16; POINTS], grid: &'static [[i8; DIM]; POINTS]) -> Self {
        let mut starts = [0; 257];
        let mut i = 0;
        while i < POINTS {
            starts[(packed[i] & 255) as usize + 1] += 1;
            i += 1;
        }
        i = 0;
        while i < 256 {
            starts[i + 1] += starts[i];
            i += 1;
        }
        let mut ends = starts;
        let mut points = [([0; 2], 0); POINTS];
        i = 0;
        while i < POINTS {
            let halves = packed[i].to_le_bytes();
            points[ends[halves[0] as usize] as usize] = (halves, i as u16);
            ends[halves[0] as usize] += 1;
            i += 1;
        }
        Self { starts, points, grid }
    }

    /// The place of the point in the format's grid, and its coordinates.
    #[inline(always)]
    pub(crate) fn point(&self, place: u16) -> (u16, [i8; DIM]) {
        let index = self.points[usize::from(place)].1;
        (index, self.grid[usize::from(index)])
    }

    /// The point of least cost and that cost (less the squares of the values). `start` is the place of a point, any: the
    /// search goes from there.
    #[inline(always)]
    pub(crate) fn nearest(
        &self,
        target: Target<'_, DIM>,
        levels: &[f32; 8],
        scale: f32,
        start: u16,
    ) -> (u16, f32) {
        let [first, second] = target.halves(levels, scale);
        let mut seconds = [0.0; 256];
        for (row, seconds) in seconds.as_chunks_mut::<16>().0[..used(DIM)].iter_mut().enumerate() {
            for (cost, column) in seconds.iter_mut().zip(&second.columns) {
                *cost = second.rows[row] + column;
            }
        }
        let second_min = least(&second.rows) + least(&second.columns);
        let row_min = least(&first.columns) + second_min;
        let halves = self.points[usize::from(start)].0;
        let mut best = (start, first.cost(halves[0]) + seconds[usize::from(halves[1])]);
        for row in 0..used(DIM) {
            if first.rows[row] + row_min >= best.1 {
                continue;
            }
            for column in 0..used(DIM) {
                let cost = first.rows[row] + first.columns[column];
                if cost + second_min < best.1 {
                    let index = 16 * row + column;
                    let (from, to) = (self.starts[index], self.starts[index + 1]);
                    for place in from..to {
                        let second = self.points[usize::from(place)].0[1];
                        let cost = cost + seconds[usize::from(second)];
                        if cost < best.1 {
                            best = (place, cost);
                        }
                    }
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grids::{self, packed};

    /// Marsaglia's xorshift64; numbers from −1 to 1.
    fn uniform(state: &mut u64) -> f32 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Compares with a look at every point.
    fn check<const DIM: usize, const POINTS: usize>(
        lattice: &Lattice<DIM, POINTS>,
        levels: &[f32; 8],
        step: f32,
    ) {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for round in 0..500 {
            let values: [f32; DIM] = std::array::from_fn(|_| uniform(&mut state));
            let weights: [f32; DIM] = std::array::from_fn(|_| uniform(&mut state).powi(2));
            let weighted: [f32; DIM] = std::array::from_fn(|i| values[i] * weights[i]);
            let scale = 0.01 * (1 + round % 30) as f32;
            let cost = |point: &[i8; DIM]| -> f32 {
                let level = |i: usize| scale * (f32::from(point[i]) + step);
                (0..DIM).map(|i| weights[i] * (values[i] - level(i)).powi(2)).sum()
            };
            let least = lattice.grid.iter().map(&cost).fold(f32::INFINITY, f32::min);
            let target = Target { weights: &weights, weighted: &weighted };
            let (place, _) = lattice.nearest(target, levels, scale, (round * 7919 % POINTS) as u16);
            let (index, point) = lattice.point(place);
            assert_eq!(point, lattice.grid[usize::from(index)]);
            let ours = cost(&point);
            assert!(ours <= least + 1e-5 * (1.0 + least), "{ours} against {least}");
        }
    }

    #[test]
    fn the_nearest_point_is_the_nearest_of_all() {
        static IQ2_S: Lattice<8, 1024> = Lattice::new(&packed::IQ2_S, &grids::IQ2_S);
        check(&IQ2_S, &[8.0, 25.0, 43.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.0);
        static IQ1: Lattice<8, 2048> = Lattice::new(&packed::IQ1, &grids::IQ1);
        check(&IQ1, &[-7.0, 1.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1.0);
        static IQ3_S: Lattice<4, 512> = Lattice::new(&packed::IQ3_S, &grids::IQ3_S);
        check(&IQ3_S, &[1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0], 0.0);
        static IQ3_XXS: Lattice<4, 256> = Lattice::new(&packed::IQ3_XXS, &grids::IQ3_XXS);
        check(&IQ3_XXS, &[4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0], 0.0);
    }

    #[test]
    fn values_that_are_no_numbers_give_some_point() {
        static IQ2_S: Lattice<8, 1024> = Lattice::new(&packed::IQ2_S, &grids::IQ2_S);
        let levels = [8.0, 25.0, 43.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        for odd in [f32::NAN, f32::INFINITY, f32::MAX] {
            let target = Target { weights: &[1.0; 8], weighted: &[odd; 8] };
            assert!(IQ2_S.nearest(target, &levels, 0.1, 5).0 < 1024);
            assert!(IQ2_S.nearest(target, &levels, f32::NAN, 5).0 < 1024);
        }
    }
}
