//! Products with weights of any format, dense and of chosen experts, and lookups in them.
//!
//! Quantised weights go to [`super::int8`], unless the options ask for f32; the rest to [`super::float`].

use std::ops::Range;

use super::{
    Activations, Cpu,
    int8::{Meeting, Rows},
};
use crate::{
    QTensor, Result,
    backend::{Buffer, Embed, MatMul, MoeMatMul, Weight, check::check_below},
    parallel::{Grid, Tile},
};

/// Copies the totals of rows `i` to columns `cols` of rows `row(i)` of the output's tile.
pub(super) fn store<const N: usize>(
    tile: &mut Tile<'_, f32>,
    totals: &[[f32; N]],
    cols: Range<usize>,
    row: impl Fn(usize) -> usize,
    bias: Option<&[f32]>,
) {
    let first = tile.cols().start;
    for (i, totals) in totals.iter().enumerate() {
        let out = &mut tile.row(row(i))[cols.start - first..cols.end - first];
        match bias {
            Some(bias) => {
                out.iter_mut().zip(totals).zip(&bias[cols.clone()]).for_each(|((o, t), b)| *o = t + b)
            }
            // A length that is known is two moves, not a call.
            None => match out.first_chunk_mut::<N>() {
                Some(out) => *out = *totals,
                None => out.copy_from_slice(&totals[..out.len()]),
            },
        }
    }
}

impl Cpu {
    /// The weight for integer products, where they are asked for and it has quants.
    fn int8_rows<'a>(&'a self, weight: &Weight, tensor: &'a QTensor) -> Option<Rows<'a>> {
        let wanted = self.options.activations == Activations::Int8;
        let interleaved = self.interleaved.get(weight.id).and_then(Option::as_ref);
        wanted.then(|| Rows::new(tensor, interleaved, self.int8.is_wide())).flatten()
    }

    pub(super) fn matmul_to(&self, out: &Buffer, y: &mut [f32], args: &MatMul<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let rows: Vec<_> = (0..dims.rows).map(|row| (row, row)).collect();
        let meeting = Meeting { matrix: 0, rows: &rows };
        let bias = args.bias.map(|b| self.memory.f32(b)).transpose()?;
        self.multiply(y, (args.x, dims.k), args.weight, &[meeting], bias)
    }

    pub(super) fn moe_matmul_to(&self, out: &Buffer, y: &mut [f32], args: &MoeMatMul<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let ids = self.memory.u32(args.ids)?;
        check_below("moe_matmul", "ids", ids, args.weight.n_experts)?;
        let entries = by_expert(ids);
        let share = if dims.shared { args.n_used } else { 1 };
        let all: Vec<_> = entries.iter().map(|&(_, entry)| (entry, entry / share)).collect();
        let mut rest = &all[..];
        let mut meetings = Vec::new();
        for entries in entries.chunk_by(|a, b| a.0 == b.0) {
            let (rows, later) = rest.split_at(entries.len());
            meetings.push(Meeting { matrix: entries[0].0 as usize, rows });
            rest = later;
        }
        self.multiply(y, (args.x, dims.k), args.weight, &meetings, None)
    }

    /// `y[o] = x[a] · weight[matrix] (+ bias)` for each meeting and `(o, a)` of it; x has rows of `k` elements.
    fn multiply(
        &self,
        y: &mut [f32],
        x: (&Buffer, usize),
        weight: &Weight,
        meetings: &[Meeting<'_>],
        bias: Option<&[f32]>,
    ) -> Result<()> {
        let tensor = self.weights.get(weight)?;
        match self.int8_rows(weight, tensor) {
            Some(rows) => self.multiply_int8(y, x, &rows, meetings, bias),
            None => self.multiply_f32(y, x, (tensor, weight.n), meetings, bias),
        }
    }

    pub(super) fn embed_to(&self, out: &Buffer, y: &mut [f32], args: &Embed<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let table = self.weights.get(args.table)?;
        let ids = self.memory.u32(args.ids)?;
        check_below("embed", "ids", ids, args.table.n)?;
        let format = table.format();
        let row_bytes = dims.dim / format.block_elems * format.block_bytes;
        let grid = Grid { rows: dims.rows, cols: dims.dim, tile_rows: 16, tile_cols: dims.dim.max(1) };
        self.parallel.for_each_tile(
            y,
            grid,
            || (),
            |mut tile, ()| {
                for row in tile.rows() {
                    let to = tile.row(row);
                    let bytes = &table.bytes()[ids[row] as usize * row_bytes..][..row_bytes];
                    (format.decode)(bytes, to);
                    to.iter_mut().for_each(|v| *v *= args.scale);
                }
            },
        );
        Ok(())
    }
}

/// `(expert, entry)` of each chosen expert, sorted.
fn by_expert(ids: &[u32]) -> Vec<(u32, usize)> {
    let mut entries: Vec<(u32, usize)> = ids.iter().copied().zip(0..).collect();
    entries.sort_unstable();
    entries
}
