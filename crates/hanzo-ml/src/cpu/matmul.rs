//! Products with weights of any format, dense and of chosen experts.
//!
//! Quantised weights go to [`super::int8`], unless the options ask for f32. The rest is f32: a thread takes [`COLUMNS`]
//! rows of the weight (columns of the output), decodes a stretch of K of each to f32 into a panel that stays in its L1 cache, and multiplies it with every row of activations that needs it.

use std::ops::Range;

use super::{
    Activations, Cpu,
    dot::{K_BLOCK, dots, dots_apart},
    int8::{Meeting, Rows},
    memory::Aligned,
    simd::{Kernel, LANES, Lanes, Simd},
};
use crate::{
    Error, QTensor, Result,
    backend::{Buffer, Embed, MatMul, MoeMatMul, Weight, check::check_below},
    parallel::{Grid, Tile},
};

/// Weight rows of a panel: what the tiles 1×12, 2×6, 3×4 and 4×3 divide.
const COLUMNS: usize = 12;

/// Rows of activations that meet one half of the panel (12 kB, in the L1 cache) before the other half; a stretch of
/// them (128 kB) stays in the L2 cache.
const ROWS: usize = 64;

/// Vectors of a row of the panel. Two more than it holds, so that the rows fall into different cache sets.
const STRIDE: usize = K_BLOCK / LANES + 2;

type PanelRow = [Lanes; STRIDE];
type Panel = [PanelRow; COLUMNS];

/// Rows of f32 activations in whole vectors: the buffer itself, or a copy with each row filled up with zeros.
enum F32Rows<'a> {
    Borrowed(&'a [f32]),
    Padded(Aligned<f32>),
}

impl<'a> F32Rows<'a> {
    fn new(x: &'a [f32], k: usize) -> Result<Self> {
        if k.is_multiple_of(LANES) {
            return Ok(Self::Borrowed(x));
        }
        let wide = k.next_multiple_of(LANES);
        let mut padded = Aligned::new((x.len() / k).saturating_mul(wide))?;
        for (to, from) in padded.chunks_exact_mut(wide).zip(x.chunks_exact(k)) {
            to[..k].copy_from_slice(from);
        }
        Ok(Self::Padded(padded))
    }

    fn vectors(&self) -> &[Lanes] {
        let x: &[f32] = match self {
            Self::Borrowed(x) => x,
            Self::Padded(x) => x,
        };
        x.as_chunks().0
    }
}

/// What one thread needs beside its operands.
struct Scratch {
    panel: Aligned<f32>,
    totals: Vec<[f32; COLUMNS]>,
}

impl Scratch {
    fn new(rows: usize) -> Self {
        Self { panel: Aligned::zeros(COLUMNS * STRIDE * LANES), totals: vec![[0.0; COLUMNS]; rows] }
    }
}

/// `totals[i][c] = x[row(i)] · weight[first + c]` for `c` below `columns`; the rest of `totals` is meaningless.
struct ColumnTile<'a, R> {
    weight: &'a QTensor,
    first: usize,
    columns: usize,
    x: &'a [Lanes],
    row: R,
    totals: &'a mut [[f32; COLUMNS]],
    panel: &'a mut [f32],
}

impl<R: Fn(usize) -> usize> ColumnTile<'_, R> {
    /// Decodes elements `k..k + len` of each weight row into the panel, filled up with zeros to whole vectors.
    fn decode(panel: &mut [PanelRow], weight: &QTensor, rows: Range<usize>, k: usize, len: usize) {
        let format = weight.format();
        let row_bytes = weight.row_elems() / format.block_elems * format.block_bytes;
        let (skip, take) = (k / format.block_elems, len / format.block_elems);
        for (to, row) in panel.iter_mut().zip(rows) {
            let bytes = &weight.bytes()[row * row_bytes + skip * format.block_bytes..];
            let to = to.as_flattened_mut();
            (format.decode)(&bytes[..take * format.block_bytes], &mut to[..len]);
            to[len..len.next_multiple_of(LANES)].fill(0.0);
        }
    }

    /// Adds the stretch's products of `M` rows from `i` on, `N` columns at a time.
    #[inline(always)]
    fn add_rows<S: Simd, const M: usize, const N: usize>(
        &mut self,
        s: S,
        panel: &Panel,
        columns: Range<usize>,
        at: At,
    ) {
        let wide = self.weight.row_elems().div_ceil(LANES);
        let x: [&[Lanes]; M] =
            std::array::from_fn(|m| &self.x[(self.row)(at.row + m) * wide + at.start..][..at.len]);
        for n in columns.step_by(N) {
            let w: [&[Lanes]; N] = std::array::from_fn(|j| &panel[n + j][..]);
            let sums = dots(s, x, w, at.len);
            for (m, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    self.totals[at.row + m][n + j] += sum;
                }
            }
        }
    }
}

/// A place in the rows of activations: vectors `start..start + len` of rows from `row` on.
#[derive(Clone, Copy)]
struct At {
    row: usize,
    start: usize,
    len: usize,
}

impl<R: Fn(usize) -> usize> ColumnTile<'_, R> {
    /// One row of activations: each row of the weight is read from its first byte to its last, which is how memory is
    /// fast; the rows of the panel are its stretches.
    #[inline(always)]
    fn run_row<S: Simd>(&mut self, s: S, panel: &mut Panel) {
        /// Stretches that are summed at the same time.
        const CHAINS: usize = 4;
        let k_all = self.weight.row_elems();
        let x = &self.x[(self.row)(0) * k_all.div_ceil(LANES)..];
        for column in 0..self.columns {
            let row = self.first + column;
            for first in (0..k_all).step_by(COLUMNS * K_BLOCK) {
                let end = k_all.min(first + COLUMNS * K_BLOCK);
                let len = |k: usize| K_BLOCK.min(end - k);
                for (to, k) in panel.iter_mut().zip((first..end).step_by(K_BLOCK)) {
                    Self::decode(std::slice::from_mut(to), self.weight, row..row + 1, k, len(k));
                }
                let at = |k: usize| &x[k / LANES..];
                let mut w = panel.iter();
                let mut k = first;
                while k + CHAINS * K_BLOCK <= end
                    && let [Some(a), Some(b), Some(c), Some(d)] = [w.next(), w.next(), w.next(), w.next()]
                {
                    let x = [at(k), at(k + K_BLOCK), at(k + 2 * K_BLOCK), at(k + 3 * K_BLOCK)];
                    for sum in dots_apart(s, x, [&a[..], &b[..], &c[..], &d[..]], K_BLOCK / LANES) {
                        self.totals[0][column] += sum;
                    }
                    k += CHAINS * K_BLOCK;
                }
                for (k, w) in (k..end).step_by(K_BLOCK).zip(w) {
                    let [sum] = dots_apart(s, [at(k)], [&w[..]], len(k).div_ceil(LANES));
                    self.totals[0][column] += sum;
                }
            }
        }
    }
}

impl<R: Fn(usize) -> usize> Kernel for ColumnTile<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let k_all = self.weight.row_elems();
        let panel = std::mem::take(&mut self.panel);
        let Some(panel) = panel.as_chunks_mut().0.as_chunks_mut().0.as_chunks_mut().0.first_mut() else {
            return;
        };
        self.totals.fill([0.0; COLUMNS]);
        let rows = self.totals.len();
        if rows == 1 {
            return self.run_row(s, panel);
        }
        for k in (0..k_all).step_by(K_BLOCK) {
            let len = K_BLOCK.min(k_all - k);
            Self::decode(panel, self.weight, self.first..self.first + self.columns, k, len);
            let at = |row: usize| At { row, start: k / LANES, len: len.div_ceil(LANES) };
            let whole = rows / 4 * 4;
            for start in (0..whole).step_by(ROWS) {
                for columns in [0..COLUMNS / 2, COLUMNS / 2..COLUMNS] {
                    for row in (start..whole.min(start + ROWS)).step_by(4) {
                        self.add_rows::<S, 4, 3>(s, panel, columns.clone(), at(row));
                    }
                }
            }
            match rows - whole {
                1 => self.add_rows::<S, 1, 12>(s, panel, 0..COLUMNS, at(whole)),
                2 => self.add_rows::<S, 2, 6>(s, panel, 0..COLUMNS, at(whole)),
                3 => self.add_rows::<S, 3, 4>(s, panel, 0..COLUMNS, at(whole)),
                _ => {}
            }
        }
    }
}

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

fn check_format(weight: &QTensor) -> Result<()> {
    let elems = weight.format().block_elems;
    if K_BLOCK.is_multiple_of(elems) {
        return Ok(());
    }
    Err(Error::tensor(weight.name(), format!("blocks of {elems} elements do not divide {K_BLOCK}")))
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
        let weight = self.weights.get(args.weight)?;
        if let Some(rows) = self.int8_rows(args.weight, weight) {
            let bias = args.bias.map(|b| self.memory.f32(b)).transpose()?;
            let all: Vec<_> = (0..dims.rows).map(|row| (row, row)).collect();
            let meeting = Meeting { matrix: 0, rows: &all };
            return self.multiply_int8(y, (args.x, dims.k), &rows, &[meeting], bias);
        }
        check_format(weight)?;
        let x = F32Rows::new(self.memory.f32(args.x)?, dims.k)?;
        let bias = args.bias.map(|b| self.memory.f32(b)).transpose()?;
        let grid = Grid { rows: dims.rows, cols: dims.n, tile_rows: dims.rows.max(1), tile_cols: COLUMNS };
        self.parallel.for_each_tile(
            y,
            grid,
            || Scratch::new(dims.rows),
            |mut tile, scratch| {
                let cols = tile.cols();
                self.level.run(ColumnTile {
                    weight,
                    first: cols.start,
                    columns: cols.len(),
                    x: x.vectors(),
                    row: |i| i,
                    totals: &mut scratch.totals,
                    panel: &mut scratch.panel,
                });
                store(&mut tile, &scratch.totals, cols, |i| i, bias);
            },
        );
        Ok(())
    }

    pub(super) fn moe_matmul_to(&self, out: &Buffer, y: &mut [f32], args: &MoeMatMul<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let weight = self.weights.get(args.weight)?;
        let ids = self.memory.u32(args.ids)?;
        check_below("moe_matmul", "ids", ids, args.weight.n_experts)?;
        let entries = by_expert(ids);
        let share = if dims.shared { args.n_used } else { 1 };
        if let Some(rows) = self.int8_rows(args.weight, weight) {
            let all: Vec<_> = entries.iter().map(|&(_, entry)| (entry, entry / share)).collect();
            let mut rest = &all[..];
            let mut meetings = Vec::new();
            for entries in entries.chunk_by(|a, b| a.0 == b.0) {
                let (rows, later) = rest.split_at(entries.len());
                meetings.push(Meeting { matrix: entries[0].0 as usize, rows });
                rest = later;
            }
            return self.multiply_int8(y, (args.x, dims.k), &rows, &meetings, None);
        }
        check_format(weight)?;
        let x = F32Rows::new(self.memory.f32(args.x)?, dims.k)?;
        let most = entries.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max().unwrap_or(0);
        let grid = Grid { rows: ids.len(), cols: dims.n, tile_rows: ids.len().max(1), tile_cols: COLUMNS };
        self.parallel.for_each_tile(
            y,
            grid,
            || Scratch::new(most),
            |mut tile, scratch| {
                let cols = tile.cols();
                for entries in entries.chunk_by(|a, b| a.0 == b.0) {
                    let totals = &mut scratch.totals[..entries.len()];
                    self.level.run(ColumnTile {
                        weight,
                        first: entries[0].0 as usize * dims.n + cols.start,
                        columns: cols.len(),
                        x: x.vectors(),
                        row: |i: usize| entries[i].1 / share,
                        totals,
                        panel: &mut scratch.panel,
                    });
                    store(&mut tile, totals, cols.clone(), |i| entries[i].1, None);
                }
            },
        );
        Ok(())
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
