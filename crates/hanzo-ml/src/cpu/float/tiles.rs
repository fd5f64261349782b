//! Many rows of activations: rows of the weight become a panel of f32, and tiles of 3 × 4 sums multiply it.

use std::ops::Range;

use hanzo_quant::Number;

use super::{
    super::{
        dot::{K_BLOCK, SIDE, STRETCH, dots, dots_paired},
        prefetch::{LINE_BYTES, prefetch_line},
        simd::{Kernel, LANES, Lanes, Pairs, Simd},
    },
    Columns,
    number::{Bf16, F16, F32, Plain},
    packed::{Packed, Piece},
};

/// A stretch of four rows of the weight side by side: `[k][row]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Quad([[Lanes; SIDE]; STRETCH]);

impl Quad {
    pub const ZERO: Self = Self([[[0.0; LANES]; SIDE]; STRETCH]);
}

/// Quads that stay in the L1 cache (16 KiB) while groups of activations pass.
const QUADS: usize = 2;

/// Vectors of the next piece of activations that the product with a quad asks for: half of them.
const AHEAD: usize = Piece::VECTORS / QUADS;

/// How many rows of the weight are on their way from memory while one is decoded.
const ROWS_AHEAD: usize = 4;

/// Groups of activations (96 KiB, in the L2 cache) that pass before the next quads.
const GROUPS: usize = 16;

/// `totals[i · width + c] = x[i] · columns[c]` for the rows of a meeting; columns past the end are meaningless.
pub(super) struct Tiles<'a> {
    pub columns: Columns<'a>,
    pub number: Option<Number>,
    pub x: &'a Packed,
    /// Those of the meeting.
    pub groups: Range<usize>,
    pub panel: &'a mut [Quad],
    /// Zeros.
    pub totals: &'a mut [f32],
    pub width: usize,
}

impl Kernel for Tiles<'_> {
    type Output = ();

    const PAIRS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.multiply(s, Apart(s));
    }

    #[inline(always)]
    fn run_pairs<P: Pairs>(self, p: P) {
        self.multiply(p.narrow(), Together(p));
    }
}

/// How a group of activations meets quads.
trait Meet: Copy {
    /// Adds the products of `M` rows of activations with the rows of the quads; `totals` begins with that of the first.
    fn add<const M: usize>(self, x: &[[Lanes; M]], quads: &[Quad; QUADS], totals: &mut [f32], width: usize);
}

/// One quad after the other.
#[derive(Clone, Copy)]
struct Apart<S>(S);

impl<S: Simd> Meet for Apart<S> {
    #[inline(always)]
    fn add<const M: usize>(self, x: &[[Lanes; M]], quads: &[Quad; QUADS], totals: &mut [f32], width: usize) {
        for (q, quad) in quads.iter().enumerate() {
            let sums = dots::<S, M>(self.0, x, &quad.0[..x.len()], Piece::VECTORS + q * AHEAD);
            add_to::<M>(totals, width, q, &sums);
        }
    }
}

/// Both at once.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no other level has pairs"))]
#[derive(Clone, Copy)]
struct Together<P>(P);

impl<P: Pairs> Meet for Together<P> {
    #[inline(always)]
    fn add<const M: usize>(self, x: &[[Lanes; M]], quads: &[Quad; QUADS], totals: &mut [f32], width: usize) {
        let w = [&quads[0].0[..x.len()], &quads[1].0[..x.len()]];
        let sums = dots_paired::<P, M>(self.0, x, w, Piece::VECTORS);
        for (q, sums) in sums.iter().enumerate() {
            add_to::<M>(totals, width, q, sums);
        }
    }
}

/// Adds the sums of `M` rows with quad `q`.
#[inline(always)]
fn add_to<const M: usize>(totals: &mut [f32], width: usize, q: usize, sums: &[[f32; SIDE]; M]) {
    for (m, sums) in sums.iter().enumerate() {
        let totals = &mut totals[m * width + q * SIDE..][..SIDE];
        for n in 0..SIDE {
            totals[n] += sums[n];
        }
    }
}

impl Tiles<'_> {
    #[inline(always)]
    fn multiply<S: Simd, T: Meet>(mut self, s: S, tile: T) {
        let k_all = self.columns.k();
        let n_quads = self.columns.n.next_multiple_of(QUADS * SIDE) / SIDE;
        for (stretch, k) in (0..k_all).step_by(K_BLOCK).enumerate() {
            let len = K_BLOCK.min(k_all - k);
            for column in 0..self.columns.n {
                self.fill(s, column, k, len);
            }
            let len = len.div_ceil(LANES);
            for first in self.groups.clone().step_by(GROUPS) {
                let groups = first..self.groups.end.min(first + GROUPS);
                for (i, quads) in self.panel[..n_quads].as_chunks().0.iter().enumerate() {
                    for (group, piece) in self.x.stretch(stretch, groups.clone()) {
                        let totals = &mut self.totals[group.first * self.width + i * QUADS * SIDE..];
                        match group.n {
                            3 => tile.add::<3>(&piece.rows()[..len], quads, totals, self.width),
                            _ => tile.add::<2>(&piece.rows()[..len], quads, totals, self.width),
                        }
                    }
                }
            }
        }
    }

    /// Decodes elements `k..k + len` of a row of the weight into the panel, filled up with zeros to whole vectors.
    #[inline(always)]
    fn fill<S: Simd>(&mut self, s: S, column: usize, k: usize, len: usize) {
        if column + ROWS_AHEAD < self.columns.n {
            let ahead = self.columns.stretch(column + ROWS_AHEAD, k, len);
            for byte in ahead.iter().step_by(LINE_BYTES) {
                prefetch_line(byte);
            }
        }
        let bytes = self.columns.stretch(column, k, len);
        let (quad, place) = (&mut self.panel[column / SIDE].0, column % SIDE);
        match self.number {
            Some(Number::F32) => convert::<S, F32>(s, bytes, quad, place),
            Some(Number::F16) => convert::<S, F16>(s, bytes, quad, place),
            Some(Number::Bf16) => convert::<S, Bf16>(s, bytes, quad, place),
            Some(Number::Other) | None => {
                let mut values = [0.0; K_BLOCK];
                (self.columns.weight.format().decode)(bytes, &mut values[..len]);
                let vectors = values[..len.next_multiple_of(LANES)].as_chunks().0;
                quad.iter_mut().zip(vectors).for_each(|(to, vector)| to[place] = *vector);
            }
        }
    }
}

#[inline(always)]
fn convert<S: Simd, T: Plain>(s: S, bytes: &[u8], quad: &mut [[Lanes; SIDE]; STRETCH], place: usize) {
    let (eights, rest) = T::eights(bytes);
    for (to, eight) in quad.iter_mut().zip(eights) {
        s.store(T::load(s, eight), &mut to[place]);
    }
    if let (false, Some(to)) = (rest.is_empty(), quad.get_mut(eights.len())) {
        s.store(T::load_rest(s, rest), &mut to[place]);
    }
}
