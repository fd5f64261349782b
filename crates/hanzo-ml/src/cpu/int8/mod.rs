//! Products in integers: activations quantised to 8 bits, dotted with the quants of any weight format.
//!
//! One driver serves every integer format; what a format adds is one function in `hanzo-quant`
//! ([`hanzo_quant::PanelFill`]). The arithmetic is the same for any number of rows of activations, threads, layout of
//! the weight and company in the batch, so results are the same bits:
//!
//! 1. A row of activations becomes blocks of 32 signed bytes with a scale, once (`activations`).
//! 2. Each output element adds blocks in ascending K: the exact integer sum `i` of the products of a block (or of each
//!    half, where the weight has a scale per 16), then in f32 `acc = fma(i, d_w · d_a, acc)` and, where the weight has
//!    minima, `acc = fma(−m, d_a · Σ a, acc)`.
//!    Then it adds, in the same way, what refined blocks of the activations left over, stretch by stretch.
//! 3. The lanes of a vector are rows of the weight, never K: one row of activations and many do the same operations.
//!
//! A thread takes sixteen rows of the weight (columns of the output), unpacks a stretch of K of them into two panels that
//! stay in its L1 cache, and multiplies them with every row of activations that needs them (`kernel`). How a vector
//! multiplies is a handful of functions for each instruction set (`level` and its children).

mod activations;
mod kernel;
mod level;
mod weights;

#[cfg(test)]
mod tests;

use hanzo_quant::Panel;

pub(super) use self::{
    activations::Quantised,
    level::Int8Level,
    weights::{Interleaved, Rows},
};

use self::kernel::Columns;
use super::{Cpu, matmul};
use crate::{
    Result,
    parallel::{Grid, Tile},
};

/// Weight rows of the two panels.
pub(super) const COLUMNS: usize = 2 * hanzo_quant::LANES;

/// Tiles that each thread should find at least, so that all end together.
const TILES_PER_THREAD: usize = 8;

/// Most rows of the weight in a tile.
const TILE_MAX: usize = 16 * COLUMNS;

/// What one thread needs beside its operands.
struct Scratch {
    panels: Box<[Panel; 2]>,
    blocks: Vec<u8>,
    totals: Vec<[f32; COLUMNS]>,
}

impl Scratch {
    fn new(rows: usize) -> Self {
        let panels = Box::new([Panel::ZERO, Panel::ZERO]);
        Self { panels, blocks: Vec::new(), totals: vec![[0.0; COLUMNS]; rows] }
    }
}

/// Rows of activations that meet one matrix `[N, K]`.
pub(super) struct Meeting<'a> {
    /// Index of the matrix in the weight.
    pub matrix: usize,
    /// `(row of the output, row of the activations)`, by rising row of the activations.
    pub rows: &'a [(usize, usize)],
}

impl Cpu {
    /// The rows of activations as blocks of 8 bits.
    pub(super) fn quantise(&self, x: &[f32], k: usize) -> Result<Quantised> {
        Quantised::new(&self.parallel, self.level, x, k)
    }

    /// `y[o] = x[a] · weight[matrix] (+ bias)` for each meeting and `(o, a)` of it.
    pub(super) fn multiply_int8(
        &self,
        y: &mut [f32],
        x: &mut Quantised,
        weight: &Rows<'_>,
        meetings: &[Meeting<'_>],
        bias: Option<&[f32]>,
    ) {
        let n = weight.n();
        let Some(rows) = y.len().checked_div(n) else { return };
        let most = meetings.iter().map(|m| m.rows.len()).max().unwrap_or(0);
        x.correct(self.int8.correction(weight.range()));
        let x = &*x;
        let share = n / (TILES_PER_THREAD * self.parallel.n_threads());
        let tile_cols = (share / COLUMNS * COLUMNS).clamp(COLUMNS, TILE_MAX);
        let grid = Grid { rows, cols: n, tile_rows: rows.max(1), tile_cols };
        let work = |mut tile: Tile<'_, f32>, scratch: &mut Scratch| {
            for meeting in meetings {
                let Scratch { panels, blocks, totals } = scratch;
                let totals = &mut totals[..meeting.rows.len()];
                for first in tile.cols().step_by(COLUMNS) {
                    Columns { weight, first, x, meeting, panels, blocks, totals }.run(self.int8);
                    let cols = first..(first + COLUMNS).min(tile.cols().end);
                    matmul::store(&mut tile, totals, cols, |i| meeting.rows[i].0, bias);
                }
            }
        };
        self.parallel.for_each_tile(y, grid, || Scratch::new(most), work);
    }
}
