//! Rows of activations as signed bytes.
//!
//! A block is 32 elements: `q = round(x / d)` to the nearest integer, ties to even, with `d = amax / 127`. Blocks lie in
//! stretches as long as a panel, all rows of a stretch together, as the products read them.
//!
//! What is not finite stays so: then `d` is not finite, and so is each sum that it enters.
//!
//! A few elements of some rows are hundreds of times larger than the rest (massive activations: Sun, Chen, Kolter and
//! Liu, 2024, arXiv:2402.17762). The block of such an element has so large a step that its error outweighs that of all other
//! blocks together, and small models then lose the thread. So a block whose step is far above its row's average is
//! *refined*: what quantising left over is quantised again and enters the product as one more block, which makes 15 bits of
//! 8. It depends on the row alone, and few blocks need it.

use hanzo_quant::{ActivationRow, GROUP, PANEL_ELEMS, Refinement, Stretch};

use super::super::simd::{Kernel, Level, Simd};
use crate::{
    Error, Result,
    parallel::{Grid, Parallel},
};

/// A block is refined if its scale is more than this many times the mean of its row's blocks.
///
/// Measured in `docs/perf/negatives.md`: larger factors leave the errors of small models, smaller ones only cost time.
const REFINE_ABOVE: f32 = 2.0;

/// Quantises one block of the row.
#[inline(always)]
fn set_block(to: &mut Stretch, block: usize, x: &[f32; GROUP]) {
    // Bit patterns of magnitudes order like the magnitudes; NaN is the largest.
    let mut largest = 0;
    for v in x {
        largest = v.abs().to_bits().max(largest);
    }
    let largest = f32::from_bits(largest);
    let inverse = 127.0 / largest;
    // Zero, not finite, or so small that the inverse overflows.
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    // A block too small to invert is zero; its scale would be as good as zero.
    let scale = if inverse == 0.0 && largest < 1.0 { 0.0 } else { largest / 127.0 };
    // Adding 1.5 · 2²³ leaves the nearest integer in the mantissa.
    const MAGIC: f32 = 12_582_912.0;
    let mut rounded = [0i32; GROUP];
    for (rounded, v) in rounded.iter_mut().zip(x) {
        *rounded = ((v * inverse + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    }
    let words = &mut to.quants[block * (GROUP / 4)..][..GROUP / 4];
    for (word, q) in words.iter_mut().zip(rounded.as_chunks::<4>().0) {
        let byte = |i: usize| (q[i] as u32 & 0xff) << (8 * i);
        *word = byte(0) | byte(1) | byte(2) | byte(3);
    }
    let mut halves = [0i32; 2];
    for (half, q) in halves.iter_mut().zip(rounded.as_chunks::<{ GROUP / 2 }>().0) {
        for q in q {
            *half = half.wrapping_add(*q);
        }
    }
    to.scales[block] = scale;
    let quant_sums = [halves[0], halves[1], halves[0].wrapping_add(halves[1])];
    to.quant_sums[block] = quant_sums;
    to.sums[block] = quant_sums.map(|sum| scale * sum as f32);
}

/// What the quants of a block leave over of its elements.
fn rest(of: &Stretch, block: usize, x: &[f32; GROUP]) -> [f32; GROUP] {
    let words = &of.quants[block * (GROUP / 4)..][..GROUP / 4];
    let mut rest = *x;
    for (rest, word) in rest.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        for (rest, q) in rest.iter_mut().zip(word.to_le_bytes()) {
            *rest -= of.scales[block] * f32::from(q as i8);
        }
    }
    rest
}

/// Sets the corrections of all blocks.
fn correct(stretch: &mut Stretch, correction: i32) {
    for (to, sums) in stretch.corrections.iter_mut().zip(&stretch.quant_sums) {
        *to = sums.map(|sum| sum.wrapping_mul(correction));
    }
}

/// Rows of activations, quantised.
#[derive(Default)]
pub(super) struct Quantised {
    /// `[stretch][row]`, and what is left of more rows before.
    stretches: Vec<Stretch>,
    /// The blocks of each that are refined, as bits.
    chosen: Vec<u32>,
    /// By rising stretch, then by rising row; and what is left of more before.
    refinements: Vec<Refinement>,
    n_refinements: usize,
    rows: usize,
    n_stretches: usize,
    /// What the corrections are for.
    correction: i32,
}

/// Quantises elements from `start` on of some rows.
struct Quantise<'a> {
    x: &'a [f32],
    k: usize,
    start: usize,
    correction: i32,
    to: &'a mut [Stretch],
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (row, to) in self.x.chunks_exact(self.k).zip(self.to) {
            let row = &row[self.start..row.len().min(self.start + PANEL_ELEMS)];
            for (block, x) in row.as_chunks::<GROUP>().0.iter().enumerate() {
                set_block(to, block, x);
            }
            // Whatever earlier rows left past the row's end.
            to.scales[row.len() / GROUP..].fill(0.0);
            correct(to, self.correction);
        }
    }
}

/// Quantises what was left over of chosen blocks; `x` is the row's part that a stretch holds.
struct Refine<'a> {
    x: &'a [f32],
    from: &'a Stretch,
    correction: i32,
    to: &'a mut Refinement,
}

impl Kernel for Refine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.to.rest = Stretch::ZERO;
        for (block, x) in self.x.as_chunks().0.iter().enumerate() {
            if self.to.blocks & (1 << block) != 0 {
                set_block(&mut self.to.rest, block, &rest(self.from, block, x));
            }
        }
        correct(&mut self.to.rest, self.correction);
    }
}

/// Rows that one thread takes at a time.
const SHARE: usize = 16;

impl Quantised {
    /// Quantises rows of `k` elements, whole blocks, in place of what was there, with corrections for weights whose quants
    /// are `-correction` more than they should be.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn set(
        &mut self,
        (parallel, level): (&Parallel, Level),
        x: &[f32],
        k: usize,
        correction: i32,
    ) -> Result<()> {
        assert!(k.is_multiple_of(GROUP) && x.len().checked_rem(k) == Some(0), "{} elements by {k}", x.len());
        let (rows, n_stretches) = (x.len() / k, k.div_ceil(PANEL_ELEMS));
        let len = rows.checked_mul(n_stretches);
        let more = len.map(|len| len.saturating_sub(self.stretches.len()));
        let reserved = more.is_some_and(|more| {
            self.stretches.try_reserve_exact(more).is_ok() && self.chosen.try_reserve_exact(more).is_ok()
        });
        let Some(len) = len.filter(|_| reserved) else {
            return Err(Error::op("matmul", format!("no memory for {rows} rows of {k} activations")));
        };
        if len > self.stretches.len() {
            self.stretches.resize(len, Stretch::ZERO);
            self.chosen.resize(len, 0);
        }
        (self.rows, self.n_stretches, self.correction) = (rows, n_stretches, correction);
        let grid = Grid { rows: n_stretches, cols: rows, tile_rows: n_stretches, tile_cols: SHARE };
        parallel.for_each_tile(
            &mut self.stretches[..len],
            grid,
            || (),
            |mut tile, ()| {
                let cols = tile.cols();
                let x = &x[cols.start * k..cols.end * k];
                for stretch in tile.rows() {
                    let (start, to) = (stretch * PANEL_ELEMS, tile.row(stretch));
                    level.run(Quantise { x, k, start, correction, to });
                }
            },
        );
        self.choose(parallel, k / GROUP);
        self.refine((parallel, level), x, k);
        Ok(())
    }

    /// Finds the blocks that are to be refined. A row with a value that is not finite has none.
    fn choose(&mut self, parallel: &Parallel, n_blocks: usize) {
        let (rows, n_stretches, stretches) = (self.rows, self.n_stretches, &self.stretches);
        parallel.for_each_tile(
            &mut self.chosen[..rows * n_stretches],
            Grid { rows: n_stretches, cols: rows, tile_rows: n_stretches, tile_cols: 8 * SHARE },
            || (),
            |mut tile, ()| {
                for (i, row) in tile.cols().enumerate() {
                    let of_row = || stretches[row..].iter().step_by(rows).take(n_stretches);
                    let sum: f32 = of_row().map(|s| s.scales.iter().sum::<f32>()).sum();
                    let limit = REFINE_ABOVE * sum / n_blocks as f32;
                    for (stretch, from) in of_row().enumerate() {
                        let bits = (0..).zip(from.scales).map(|(i, scale)| u32::from(scale > limit) << i);
                        tile.row(stretch)[i] = bits.sum();
                    }
                }
            },
        );
    }

    /// Quantises again what was left over of the chosen blocks.
    fn refine(&mut self, (parallel, level): (&Parallel, Level), x: &[f32], k: usize) {
        let (rows, correction) = (self.rows, self.correction);
        self.n_refinements = 0;
        for (i, &blocks) in self.chosen[..rows * self.n_stretches].iter().enumerate() {
            if blocks == 0 {
                continue;
            }
            if self.n_refinements == self.refinements.len() {
                self.refinements.push(Refinement { stretch: 0, row: 0, blocks: 0, rest: Stretch::ZERO });
            }
            let to = &mut self.refinements[self.n_refinements];
            (to.stretch, to.row, to.blocks) = (i / rows, i % rows, blocks);
            self.n_refinements += 1;
        }
        let stretches = &self.stretches;
        parallel.for_each_tile(
            &mut self.refinements[..self.n_refinements],
            Grid::line(self.n_refinements, SHARE),
            || (),
            |mut tile, ()| {
                for to in tile.row(0) {
                    let x = &x[to.row * k..][..k];
                    let x = &x[to.stretch * PANEL_ELEMS..k.min((to.stretch + 1) * PANEL_ELEMS)];
                    let from = &stretches[to.stretch * rows + to.row];
                    level.run(Refine { x, from, correction, to });
                }
            },
        );
    }

    /// Sets the corrections for weights whose quants are `-correction` more than they should be.
    pub(super) fn correct(&mut self, parallel: &Parallel, correction: i32) {
        if std::mem::replace(&mut self.correction, correction) == correction {
            return;
        }
        let len = self.rows * self.n_stretches;
        parallel.for_each_tile(
            &mut self.stretches[..len],
            Grid::line(len, 8 * SHARE),
            || (),
            |mut tile, ()| tile.row(0).iter_mut().for_each(|stretch| correct(stretch, correction)),
        );
        for refinement in &mut self.refinements[..self.n_refinements] {
            correct(&mut refinement.rest, correction);
        }
    }

    /// What was refined of the blocks that meet one panel, by rising row.
    pub(super) fn refinements(&self, idx: usize) -> &[Refinement] {
        let all = &self.refinements[..self.n_refinements];
        let first = all.partition_point(|r| r.stretch < idx);
        let len = all[first..].partition_point(|r| r.stretch == idx);
        &all[first..first + len]
    }

    /// One row by itself.
    pub(super) fn row(&self, row: usize) -> ActivationRow<'_> {
        let refinements = &self.refinements[..self.n_refinements];
        ActivationRow { stretches: &self.stretches, n_rows: self.rows, row, refinements }
    }

    /// Some rows side by side: as they lie, if they follow each other, else copies in `gathered`.
    pub(super) fn company<'a>(
        &'a self,
        rows: &[(usize, usize)],
        gathered: &'a mut Vec<Stretch>,
    ) -> Company<'a> {
        let Self { stretches, rows: n_rows, .. } = self;
        let first = rows.first().map_or(0, |row| row.1);
        if (first..).zip(rows).all(|(next, row)| next == row.1) {
            return Company { stretches, n_rows: *n_rows, first, len: rows.len() };
        }
        gathered.clear();
        for of_all in stretches.chunks_exact(*n_rows) {
            gathered.extend(rows.iter().map(|row| of_all[row.1]));
        }
        Company { stretches: gathered, n_rows: rows.len(), first: 0, len: rows.len() }
    }
}

/// Rows of activations that lie side by side, so that their addresses differ by constants.
#[derive(Clone, Copy)]
pub(super) struct Company<'a> {
    /// `[stretch][n_rows]`.
    stretches: &'a [Stretch],
    n_rows: usize,
    /// The first row, and their number.
    first: usize,
    len: usize,
}

impl<'a> Company<'a> {
    /// The blocks of the rows that meet one panel.
    pub(super) fn stretch(&self, idx: usize) -> &'a [Stretch] {
        &self.stretches[idx * self.n_rows + self.first..][..self.len]
    }
}
