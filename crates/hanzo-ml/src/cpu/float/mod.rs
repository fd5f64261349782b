//! Products in f32: with weights of plain numbers, and with quantised ones if the options ask for it.
//!
//! A thread takes some rows of the weight (columns of the output). For many rows of activations, `tiles` turns a stretch of
//! K of them into f32, into a panel in its L2 cache, and multiplies it with the activations that `packed` has laid side
//! by side. For a few, where memory is the bound, `direct` multiplies the bytes of plain numbers as they come; for one
//! and a quantised weight, a row of the weight is decoded stretch by stretch. The order of additions is always that of
//! [`super::dot`].

mod direct;
mod number;
mod packed;
mod tiles;

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError},
};

use hanzo_quant::{Number, Unpack};

use self::{
    direct::{Direct, Lone},
    number::{Bf16, F16, F32, Plain},
    packed::{Meet, Packed},
    tiles::{Quad, Tiles},
};
use super::{
    Cpu,
    dot::{K_BLOCK, SIDE},
    int8::Meeting,
    memory::Aligned,
    simd::{LANES, Lanes},
};
use crate::{
    Error, QTensor, Result,
    backend::Buffer,
    parallel::{Grid, Tile},
};

/// Rows of activations that plain numbers are multiplied with as they come from memory, at most.
const FEW: usize = 3;

/// Rows of the weight in a tile are a multiple of this, which holds whole pairs of [`Quad`]s and whole steps of [`Direct`].
const UNIT: usize = 24;

/// Most rows of the weight in a tile: their panel takes 192 KiB of the L2 cache.
const TILE_MAX: usize = 4 * UNIT;

/// Tiles that each thread should find at least, so that all end together.
const TILES_PER_THREAD: usize = 6;

/// The activations of a product side by side; the memory is kept.
#[derive(Default)]
pub(super) struct Scratch(Mutex<Packed>);

/// What one thread needs beside its operands.
#[derive(Default)]
struct Own {
    panel: Vec<Quad>,
    totals: Vec<f32>,
}

thread_local! {
    /// Kept between products, which can be as short as a few microseconds.
    static OWN: RefCell<Own> = RefCell::default();
}

/// Rows of activations in whole vectors: the buffer itself, or a copy with each row filled up with zeros.
enum Rows<'a> {
    Borrowed(&'a [f32]),
    Padded(Aligned<f32>),
}

impl<'a> Rows<'a> {
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

/// Some rows of a weight's matrix, as bytes.
#[derive(Clone, Copy)]
struct Columns<'a> {
    weight: &'a QTensor,
    /// Those of the rows.
    bytes: &'a [u8],
    row_bytes: usize,
    n: usize,
}

impl<'a> Columns<'a> {
    /// Rows `first..first + n` of the tensor, of all its matrices.
    fn new(weight: &'a QTensor, first: usize, n: usize) -> Self {
        let format = weight.format();
        let row_bytes = weight.row_elems() / format.block_elems * format.block_bytes;
        Self { weight, bytes: &weight.bytes()[first * row_bytes..][..n * row_bytes], row_bytes, n }
    }

    fn k(&self) -> usize {
        self.weight.row_elems()
    }

    fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.row_bytes..][..self.row_bytes]
    }

    /// Elements `k..k + len` of a row, whole blocks.
    fn stretch(&self, row: usize, k: usize, len: usize) -> &'a [u8] {
        let format = self.weight.format();
        let bytes = |elems: usize| elems / format.block_elems * format.block_bytes;
        &self.row(row)[bytes(k)..bytes(k + len)]
    }
}

/// What the numbers of a weight are, if processors convert them.
fn number(weight: &QTensor) -> Option<Number> {
    match weight.format().unpack {
        Unpack::Scalar(number @ (Number::F32 | Number::F16 | Number::Bf16)) => Some(number),
        Unpack::Scalar(Number::Other) | Unpack::Int(_) => None,
    }
}

fn check_format(weight: &QTensor) -> Result<()> {
    let elems = weight.format().block_elems;
    if K_BLOCK.is_multiple_of(elems) {
        return Ok(());
    }
    Err(Error::tensor(weight.name(), format!("blocks of {elems} elements do not divide {K_BLOCK}")))
}

/// A product that is under way: what all tiles read.
struct Product<'a> {
    cpu: &'a Cpu,
    weight: &'a QTensor,
    /// Rows of one matrix of the weight.
    n: usize,
    number: Option<Number>,
    x: &'a [Lanes],
    packed: &'a Packed,
    meetings: &'a [Meeting<'a>],
    bias: Option<&'a [f32]>,
}

impl Cpu {
    /// `y[o] = x[a] · weight[matrix] (+ bias)` for each meeting and `(o, a)` of it; x has rows of `k` elements, a matrix
    /// `n` rows.
    pub(super) fn multiply_f32(
        &self,
        y: &mut [f32],
        (x, k): (&Buffer, usize),
        (weight, n): (&QTensor, usize),
        meetings: &[Meeting<'_>],
        bias: Option<&[f32]>,
    ) -> Result<()> {
        check_format(weight)?;
        let Some(rows) = y.len().checked_div(n) else { return Ok(()) };
        let x = Rows::new(self.memory.f32(x)?, k)?;
        let x = x.vectors();
        let number = number(weight);
        let few = if number.is_some() { FEW } else { 1 };
        let mut packed = self.floats.0.lock().unwrap_or_else(PoisonError::into_inner);
        packed.set(&self.parallel, x, k.div_ceil(LANES), meetings, few)?;
        let product = Product { cpu: self, weight, n, number, x, packed: &packed, meetings, bias };
        let share = n / (TILES_PER_THREAD * self.parallel.n_threads());
        let tile_cols = (share / UNIT * UNIT).clamp(UNIT, TILE_MAX);
        let grid = Grid { rows, cols: n, tile_rows: rows.max(1), tile_cols };
        let work = |tile: Tile<'_, f32>, (): &mut ()| OWN.with_borrow_mut(|own| product.tile(tile, own));
        self.parallel.for_each_tile(y, grid, || (), work);
        Ok(())
    }
}

impl Product<'_> {
    fn tile(&self, mut tile: Tile<'_, f32>, own: &mut Own) {
        let cols = tile.cols();
        let width = cols.len().next_multiple_of(UNIT);
        own.panel.resize(TILE_MAX / SIDE, Quad::ZERO);
        for (meeting, meet) in self.meetings.iter().zip(self.packed.meets()) {
            let rows = meeting.rows;
            own.totals.clear();
            own.totals.resize(rows.len() * width, 0.0);
            let columns = Columns::new(self.weight, meeting.matrix * self.n + cols.start, cols.len());
            let level = self.cpu.level;
            match (meet, self.number) {
                (Meet::Packed(groups), number) => {
                    let (x, panel, totals) = (self.packed, &mut own.panel, &mut own.totals);
                    level.run(Tiles { columns, number, x, groups: groups.clone(), panel, totals, width });
                }
                (Meet::AsTheyAre, Some(Number::F32)) => {
                    self.direct::<F32>(columns, rows, &mut own.totals, width)
                }
                (Meet::AsTheyAre, Some(Number::F16)) => {
                    self.direct::<F16>(columns, rows, &mut own.totals, width)
                }
                (Meet::AsTheyAre, Some(Number::Bf16)) => {
                    self.direct::<Bf16>(columns, rows, &mut own.totals, width)
                }
                (Meet::AsTheyAre, Some(Number::Other) | None) => {
                    if let [(_, row)] = *rows {
                        level.run(Lone { columns, x: self.row(row), totals: &mut own.totals });
                    }
                }
            }
            for ((row, _), totals) in rows.iter().zip(own.totals.chunks_exact(width)) {
                let out = tile.row(*row);
                match self.bias {
                    Some(bias) => {
                        let sums = totals.iter().zip(&bias[cols.clone()]);
                        out.iter_mut().zip(sums).for_each(|(o, (t, b))| *o = t + b);
                    }
                    None => out.copy_from_slice(&totals[..out.len()]),
                }
            }
        }
    }

    fn row(&self, row: usize) -> &[Lanes] {
        let wide = self.weight.row_elems().div_ceil(LANES);
        &self.x[row * wide..][..wide]
    }

    /// The product of at most [`FEW`] rows.
    fn direct<T: Plain>(
        &self,
        columns: Columns<'_>,
        rows: &[(usize, usize)],
        totals: &mut [f32],
        width: usize,
    ) {
        let level = self.cpu.level;
        match *rows {
            [(_, a)] => level.run(Direct::<T, 1, 8>::new(columns, [self.row(a)], totals, width)),
            [(_, a), (_, b)] => {
                level.run(Direct::<T, 2, 6>::new(columns, [a, b].map(|i| self.row(i)), totals, width))
            }
            [(_, a), (_, b), (_, c)] => {
                level.run(Direct::<T, 3, 4>::new(columns, [a, b, c].map(|i| self.row(i)), totals, width))
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use hanzo_quant::Format;

    use super::*;
    use crate::{
        Bytes, DType,
        backend::{Backend, MatMul},
        cpu::{Activations, CpuOptions, int8::Int8Level, simd::Level},
    };

    /// The bits of a product, by one level's instructions.
    fn product(level: Level, weight: &QTensor, x: &[f32]) -> Vec<u32> {
        let activations = Activations::F32;
        let options = CpuOptions { threads: Some(1), activations, ..CpuOptions::default() };
        let mut cpu = Cpu::with_level(options, level, Int8Level::Portable).unwrap();
        let weight = cpu.load(weight).unwrap();
        let from = cpu.alloc(DType::F32, x.len()).unwrap();
        cpu.upload_f32(&from, x).unwrap();
        let mut y = vec![0.0; x.len() / weight.k * weight.n];
        let out = cpu.alloc(DType::F32, y.len()).unwrap();
        cpu.matmul(&out, &MatMul { x: &from, weight: &weight, bias: None }).unwrap();
        cpu.download_f32(&out, &mut y).unwrap();
        y.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn levels_give_the_same_bits_in_any_batch() {
        let (rows, n, k) = (8, 101, 1001);
        let values = |len: usize, step: usize| -> Vec<f32> {
            (0..len).map(|i| ((i * step) % 1009) as f32 / 1009.0 - 0.5).collect()
        };
        let x = values(rows * k, 617);
        for name in ["F32", "F16", "BF16", "Q4_0"] {
            let format = Format::from_name(name).unwrap();
            let k = k / format.block_elems * format.block_elems;
            let x = &x[..rows * k];
            let mut bytes = vec![0; format.bytes_of(n * k).unwrap()];
            format.encode.unwrap()(&values(n * k, 331), None, &mut bytes);
            let weight = QTensor::new("weight", format, vec![n, k], Bytes::owned(bytes)).unwrap();
            // Those that round once, and those that round twice.
            let mut bits = [None, None];
            for level in Level::all() {
                let whole = product(level, &weight, x);
                let alone: Vec<u32> = x.chunks(k).flat_map(|x| product(level, &weight, x)).collect();
                assert!(whole == alone, "{name}, {}: a batch changes the bits", level.name());
                let twice = matches!(level, Level::Portable | Level::PortablePairs);
                let first = bits[usize::from(twice)].get_or_insert_with(|| whole.clone());
                assert!(*first == whole, "{name}, {}: not the bits of another level", level.name());
            }
        }
    }
}
