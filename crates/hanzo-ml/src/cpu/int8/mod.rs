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
//!    What refined blocks of the activations left over is added up apart, in the same way, and joins at the end.
//! 3. The lanes of a vector are rows of the weight, never K: one row of activations and many do the same operations.
//!
//! A thread takes some rows of the weight (columns of the output), unpacks a stretch of K of them into panels that
//! stay in its L1 cache, two for sixteen rows, and multiplies them with every row of activations that needs them (`kernel`). How a vector
//! multiplies is a handful of functions for each instruction set (`level` and its children). A single row of activations
//! needs no panel: the format's own function ([`hanzo_quant::RowProduct`]) multiplies as it unpacks.

mod activations;
mod kernel;
mod level;
mod weights;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError},
};

use hanzo_quant::{Panel, Stretch};

pub(super) use self::{
    level::Int8Level,
    weights::{Interleaved, Rows},
};

use self::{activations::Quantised, kernel::Columns};
use super::{Cpu, matmul};
use crate::{
    Result,
    backend::Buffer,
    parallel::{Grid, Tile},
};

/// Weight rows of the two panels.
pub(super) const COLUMNS: usize = 2 * hanzo_quant::LANES;

/// Tiles that each thread should find at least, so that all end together.
const TILES_PER_THREAD: usize = 8;

/// Most rows of the weight in a tile.
const TILE_MAX: usize = 16 * COLUMNS;

/// What one thread needs beside its operands.
#[derive(Default)]
struct Scratch {
    panels: Vec<[Panel; 2]>,
    blocks: Vec<u8>,
    totals: Vec<[f32; COLUMNS]>,
    rests: Vec<[f32; COLUMNS]>,
    gathered: Vec<Stretch>,
}

thread_local! {
    /// Kept between products, which can be as short as a few microseconds.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The activations of the last product: often several weights meet the same ones.
#[derive(Default)]
pub(super) struct LastActivations(Mutex<Last>);

#[derive(Default)]
struct Last {
    /// The buffer that they are of, its length and that of a row.
    of: Option<(usize, usize, usize)>,
    x: Quantised,
}

impl LastActivations {
    /// Forgets them if they are of this buffer, which is about to change.
    pub(super) fn forget(&mut self, buffer: &Buffer) {
        let last = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        last.of = last.of.filter(|of| of.0 != buffer.id);
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
    /// `y[o] = x[a] · weight[matrix] (+ bias)` for each meeting and `(o, a)` of it; x has rows of `k` elements.
    pub(super) fn multiply_int8(
        &self,
        y: &mut [f32],
        (x, k): (&Buffer, usize),
        weight: &Rows<'_>,
        meetings: &[Meeting<'_>],
        bias: Option<&[f32]>,
    ) -> Result<()> {
        let n = weight.n();
        let Some(rows) = y.len().checked_div(n) else { return Ok(()) };
        let mut last = self.activations.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut *last;
        let of = Some((x.id, x.len(), k));
        let correction = self.int8.correction(weight.range());
        if last.of != of {
            last.of = None;
            last.x.set((&self.parallel, self.level), self.memory.f32(x)?, k, correction)?;
            last.of = of;
        }
        last.x.correct(&self.parallel, correction);
        let x = &last.x;
        let multiplies_rows = self.int8.multiplies_rows() && weight.multiplies_rows();
        let pairs = self.int8.pairs();
        let share = n / (TILES_PER_THREAD * self.parallel.n_threads());
        let unit = if share < pairs * COLUMNS { COLUMNS } else { pairs * COLUMNS };
        let tile_cols = (share / unit * unit).clamp(COLUMNS, TILE_MAX);
        let grid = Grid { rows, cols: n, tile_rows: rows.max(1), tile_cols };
        let most = meetings.iter().map(|m| m.rows.len()).max().unwrap_or(0);
        let work = |mut tile: Tile<'_, f32>, (): &mut ()| {
            SCRATCH.with_borrow_mut(|Scratch { panels, blocks, totals, rests, gathered }| {
                panels.resize(pairs, [Panel::ZERO, Panel::ZERO]);
                if totals.len() < pairs * most {
                    totals.resize(pairs * most, [0.0; COLUMNS]);
                    rests.resize(pairs * most, [0.0; COLUMNS]);
                }
                for meeting in meetings {
                    let n_rows = meeting.rows.len();
                    let company = x.company(meeting.rows, gathered);
                    for first in tile.cols().step_by(pairs * COLUMNS) {
                        let n_pairs = (tile.cols().end - first).div_ceil(COLUMNS).min(pairs);
                        let panels = &mut panels[..n_pairs];
                        let (totals, rests) =
                            (&mut totals[..n_pairs * n_rows], &mut rests[..n_pairs * n_rows]);
                        match meeting.rows {
                            [(_, row)] if multiplies_rows => {
                                weight.multiply_row(meeting.matrix, first, x.row(*row), blocks, totals);
                            }
                            _ => {
                                Columns { weight, first, x, company, meeting, panels, blocks, totals, rests }
                                    .run(self.int8)
                            }
                        }
                        for (pair, totals) in totals.chunks_exact(n_rows.max(1)).enumerate() {
                            let first = first + pair * COLUMNS;
                            let cols = first..(first + COLUMNS).min(tile.cols().end);
                            matmul::store(&mut tile, totals, cols, |i| meeting.rows[i].0, bias);
                        }
                    }
                }
            });
        };
        self.parallel.for_each_tile(y, grid, || (), work);
        Ok(())
    }
}
