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

use hanzo_quant::{GROUP, PANEL_ELEMS, PANEL_GROUPS};

use super::super::simd::{Kernel, Level, Simd};
use crate::{
    Error, Result,
    parallel::{Grid, Parallel},
};

/// Halves of a block, and the block itself: what a sum may cover.
pub(super) const WHOLE: usize = 2;

/// A block is refined if its scale is more than this many times the mean of its row's blocks.
///
/// Measured in `docs/perf/negatives.md`: larger factors leave the errors of small models, smaller ones only cost time.
const REFINE_ABOVE: f32 = 2.0;

/// A row's blocks that meet one panel.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Stretch {
    /// Four signed quants a word, the first one lowest.
    pub quants: [u32; PANEL_ELEMS / 4],
    /// Scale of each block.
    pub scales: [f32; PANEL_GROUPS],
    /// Scale times the sum of the quants, for each half and the whole ([`WHOLE`]) of each block.
    pub sums: [[f32; 3]; PANEL_GROUPS],
    /// What the quants' sums add to an integer dot product because the weight's quants are shifted, likewise.
    pub corrections: [[i32; 3]; PANEL_GROUPS],
    /// Sum of the quants of each half.
    pub halves: [[i16; 2]; PANEL_GROUPS],
}

impl Stretch {
    const ZERO: Self = Self {
        quants: [0; PANEL_ELEMS / 4],
        scales: [0.0; PANEL_GROUPS],
        sums: [[0.0; 3]; PANEL_GROUPS],
        corrections: [[0; 3]; PANEL_GROUPS],
        halves: [[0; 2]; PANEL_GROUPS],
    };

    /// Quantises one block of the row.
    #[inline(always)]
    fn set_block(&mut self, block: usize, x: &[f32; GROUP]) {
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
        let words = &mut self.quants[block * (GROUP / 4)..][..GROUP / 4];
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
        self.scales[block] = scale;
        self.halves[block] = [halves[0] as i16, halves[1] as i16];
        let whole = halves[0].wrapping_add(halves[1]);
        self.sums[block] = [halves[0], halves[1], whole].map(|sum| scale * sum as f32);
    }

    /// What the quants of a block leave over of its elements.
    fn rest(&self, block: usize, x: &[f32; GROUP]) -> [f32; GROUP] {
        let words = &self.quants[block * (GROUP / 4)..][..GROUP / 4];
        let mut rest = *x;
        for (rest, word) in rest.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            for (rest, q) in rest.iter_mut().zip(word.to_le_bytes()) {
                *rest -= self.scales[block] * f32::from(q as i8);
            }
        }
        rest
    }

    /// Sets the corrections of all blocks.
    fn correct(&mut self, correction: i32) {
        for (to, halves) in self.corrections.iter_mut().zip(&self.halves) {
            let [first, second] = halves.map(|half| correction * i32::from(half));
            *to = [first, second, first + second];
        }
    }
}

/// The blocks of each stretch of one row that are to be refined, as bits. A row with a value that is not finite has none.
fn outliers<'a>(
    stretches: impl Iterator<Item = &'a Stretch> + Clone,
    n_blocks: usize,
) -> impl Iterator<Item = u32> {
    let sum: f32 = stretches.clone().map(|s| s.scales.iter().sum::<f32>()).sum();
    let limit = REFINE_ABOVE * sum / n_blocks as f32;
    stretches.map(move |s| (0..).zip(s.scales).map(|(i, scale)| u32::from(scale > limit) << i).sum())
}

/// What quantising left over of a row's blocks that meet one panel.
pub(super) struct Refinement {
    /// The row of activations.
    pub row: usize,
    /// Bit `i` is set if block `i` is refined; the others are zero.
    pub blocks: u32,
    /// The rest, quantised.
    pub rest: Stretch,
}

/// Rows of activations, quantised.
#[derive(Default)]
pub(super) struct Quantised {
    /// `[stretch][row]`.
    stretches: Vec<Stretch>,
    /// For each stretch, by rising row.
    refinements: Vec<Vec<Refinement>>,
    rows: usize,
    /// What the corrections are for; `None` where they are left from earlier rows.
    correction: Option<i32>,
}

/// Quantises elements from `start` on of some rows.
struct Quantise<'a> {
    x: &'a [f32],
    k: usize,
    start: usize,
    to: &'a mut [Stretch],
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (row, to) in self.x.chunks_exact(self.k).zip(self.to) {
            let row = &row[self.start..row.len().min(self.start + PANEL_ELEMS)];
            for (block, x) in row.as_chunks::<GROUP>().0.iter().enumerate() {
                to.set_block(block, x);
            }
            // Whatever earlier rows left past the row's end.
            to.scales[row.len() / GROUP..].fill(0.0);
        }
    }
}

impl Quantised {
    /// Quantises rows of `k` elements, whole blocks, in place of what was there.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn set(&mut self, parallel: &Parallel, level: Level, x: &[f32], k: usize) -> Result<()> {
        /// Rows that one thread takes at a time.
        const SHARE: usize = 16;
        assert!(k.is_multiple_of(GROUP) && x.len().checked_rem(k) == Some(0), "{} elements by {k}", x.len());
        let rows = x.len() / k;
        let n_stretches = k.div_ceil(PANEL_ELEMS);
        let len = rows.checked_mul(n_stretches);
        let more = len.map(|len| len.saturating_sub(self.stretches.len()));
        let reserved = more.is_some_and(|more| self.stretches.try_reserve_exact(more).is_ok());
        let Some(len) = len.filter(|_| reserved) else {
            return Err(Error::op("matmul", format!("no memory for {rows} rows of {k} activations")));
        };
        self.stretches.resize(len, Stretch::ZERO);
        (self.rows, self.correction) = (rows, None);
        let grid = Grid { rows: n_stretches, cols: rows, tile_rows: n_stretches, tile_cols: SHARE };
        parallel.for_each_tile(
            &mut self.stretches,
            grid,
            || (),
            |mut tile, ()| {
                let cols = tile.cols();
                let x = &x[cols.start * k..cols.end * k];
                for stretch in tile.rows() {
                    level.run(Quantise { x, k, start: stretch * PANEL_ELEMS, to: tile.row(stretch) });
                }
            },
        );
        self.refinements = Self::refine(&self.stretches, x, k);
        Ok(())
    }

    /// The refinements of each stretch.
    fn refine(stretches: &[Stretch], x: &[f32], k: usize) -> Vec<Vec<Refinement>> {
        let rows = x.len() / k;
        let mut refinements: Vec<Vec<Refinement>> = Vec::new();
        refinements.resize_with(k.div_ceil(PANEL_ELEMS), Vec::new);
        for (row, x) in x.chunks_exact(k).enumerate() {
            let of_row = || stretches.iter().skip(row).step_by(rows);
            let found = outliers(of_row(), k / GROUP).zip(of_row());
            for ((blocks, from), (x, to)) in found.zip(x.chunks(PANEL_ELEMS).zip(&mut refinements)) {
                if blocks == 0 {
                    continue;
                }
                let mut rest = Stretch::ZERO;
                for (block, x) in x.as_chunks().0.iter().enumerate() {
                    if blocks & (1 << block) != 0 {
                        rest.set_block(block, &from.rest(block, x));
                    }
                }
                to.push(Refinement { row, blocks, rest });
            }
        }
        refinements
    }

    /// Sets the corrections for weights whose quants are `-correction` more than they should be.
    pub(super) fn correct(&mut self, correction: i32) {
        if self.correction.replace(correction) == Some(correction) {
            return;
        }
        let rests = self.refinements.iter_mut().flatten().map(|r| &mut r.rest);
        self.stretches.iter_mut().chain(rests).for_each(|stretch| stretch.correct(correction));
    }

    /// What was refined of the blocks that meet one panel, by rising row.
    pub(super) fn refinements(&self, idx: usize) -> &[Refinement] {
        &self.refinements[idx]
    }

    /// The blocks of all rows that meet one panel.
    pub(super) fn stretch(&self, idx: usize) -> &[Stretch] {
        &self.stretches[idx * self.rows..][..self.rows]
    }
}
