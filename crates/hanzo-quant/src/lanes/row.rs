//! One row of activations with eight rows of a weight, without a panel between: what decoding one token does.
//!
//! Quants go from the weight's bits to their products in registers, and the bytes of eight rows are read once, from the
//! first to the last. The arithmetic is that of products with panels (`hanzo-ml`'s `cpu::int8`), so one row of activations
//! gives the same bits alone as in company: for each group in ascending order the exact integer sum `i` of its products
//! (or of each half), then in f32 `acc = fma(i, d_w · d_a, acc)` and, where there are minima,
//! `acc = fma(−m, d_a · Σ a, acc)`. What refined blocks left over is added up apart, in the same way, and joins at the end.

use std::marker::PhantomData;

use super::{Blocks, EightRows, Job, LANES, LaneGroup, Lanes, PANEL_ELEMS, PANEL_GROUPS, WORDS, words};
use crate::{GROUP, format::layout::bytes_of};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// How far ahead of the block at hand the weight is asked for. What a processor's own prefetcher sees is fields read here
/// and there.
const AHEAD_BYTES: usize = 4096;

/// A row's blocks of 32 signed bytes that meet one panel.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Stretch {
    /// Four signed quants a word, the first one lowest.
    pub quants: [u32; PANEL_ELEMS / 4],
    /// Scale of each block.
    pub scales: [f32; PANEL_GROUPS],
    /// Scale times the sum of the quants, for each half and the whole ([`Stretch::WHOLE`]) of each block.
    pub sums: [[f32; 3]; PANEL_GROUPS],
    /// The sum of the quants, likewise.
    pub quant_sums: [[i32; 3]; PANEL_GROUPS],
    /// What products with panels add to an integer sum because the weight's quants are shifted, likewise.
    pub corrections: [[i32; 3]; PANEL_GROUPS],
}

impl Stretch {
    /// Halves of a block, and the block itself: what a sum may cover.
    pub const WHOLE: usize = 2;

    /// A stretch of zeros.
    pub const ZERO: Self = Self {
        quants: [0; PANEL_ELEMS / 4],
        scales: [0.0; PANEL_GROUPS],
        sums: [[0.0; 3]; PANEL_GROUPS],
        quant_sums: [[0; 3]; PANEL_GROUPS],
        corrections: [[0; 3]; PANEL_GROUPS],
    };
}

/// What quantising left over of a row's blocks that meet one panel.
pub struct Refinement {
    /// The stretch of the row.
    pub stretch: usize,
    /// The row of activations.
    pub row: usize,
    /// Bit `i` is set if block `i` is refined; the others are zero.
    pub blocks: u32,
    /// The rest, quantised.
    pub rest: Stretch,
}

/// One row of quantised activations among `n_rows`.
#[derive(Clone, Copy)]
pub struct ActivationRow<'a> {
    /// `[stretch][row]`.
    pub stretches: &'a [Stretch],
    /// Rows of a stretch.
    pub n_rows: usize,
    /// Which of them.
    pub row: usize,
    /// By rising stretch.
    pub refinements: &'a [Refinement],
}

/// The product of one row of activations with eight rows of a weight, whose interleaved blocks these are.
///
/// # Panics
/// On blocks that are not whole or more than the activations have.
pub type RowProduct = fn(blocks: &[u8], x: ActivationRow<'_>) -> [f32; LANES];

struct Product<'a, T> {
    blocks: &'a [u8],
    x: ActivationRow<'a>,
    format: PhantomData<T>,
}

/// Sums of a product: of the activations, and of what quantising left over of them.
struct Sums<L: Lanes> {
    main: L::F,
    rest: L::F,
}

impl<T: EightRows> Job for Product<'_, T> {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let ActivationRow { stretches, n_rows, row, refinements } = self.x;
        let (block_bytes, groups) = (LANES * bytes_of(T::FIELDS), T::ELEMS / GROUP);
        let mut refinements = refinements.iter().filter(|r| r.row == row).peekable();
        let mut sums = Sums::<L> { main: l.splat_f32(0.0), rest: l.splat_f32(0.0) };
        for (idx, bytes) in self.blocks.chunks(block_bytes * (PANEL_ELEMS / T::ELEMS)).enumerate() {
            let x = &stretches[idx * n_rows + row];
            let rest = refinements.next_if(|r| r.stretch == idx);
            for (block, bytes) in bytes.chunks_exact(block_bytes).enumerate() {
                for line in (0..block_bytes).step_by(LINE_BYTES) {
                    l.prefetch(bytes.as_ptr().wrapping_add(AHEAD_BYTES + line));
                }
                let (block, first) = (Blocks { lanes: l, bytes }, block * groups);
                if L::UNROLLS {
                    words!(|idx| group::<T, L>(l, block, (first, idx), x, rest, &mut sums));
                } else {
                    (0..groups).for_each(|idx| group::<T, L>(l, block, (first, idx), x, rest, &mut sums));
                }
            }
        }
        let mut out = [0.0; LANES];
        l.store_f32(l.add_f32(sums.main, sums.rest), &mut out);
        out
    }
}

/// Adds group `idx` of a block whose first group is group `first` of the stretch.
#[inline(always)]
fn group<T: EightRows, L: Lanes>(
    l: L,
    block: Blocks<'_, L>,
    (first, idx): (usize, usize),
    x: &Stretch,
    rest: Option<&Refinement>,
    sums: &mut Sums<L>,
) {
    if idx >= T::ELEMS / GROUP {
        return;
    }
    let weight = T::group(l, block, idx);
    let at = (first + idx) % PANEL_GROUPS;
    sums.main = add_group::<T, L>(l, &weight, x, at, sums.main);
    if let Some(refinement) = rest
        && refinement.blocks >> at & 1 != 0
    {
        sums.rest = add_group::<T, L>(l, &weight, &refinement.rest, at, sums.rest);
    }
}

/// Adds the products of a group to `acc`.
#[inline(always)]
fn add_group<T: EightRows, L: Lanes>(
    l: L,
    weight: &LaneGroup<L>,
    x: &Stretch,
    at: usize,
    mut acc: L::F,
) -> L::F {
    let LaneGroup { quants, scales, minima } = weight;
    let Some(words) = x.quants[WORDS * at..].first_chunk::<WORDS>() else { return acc };
    if T::SCALE_GROUP < GROUP {
        for half in 0..2 {
            let start = half * (WORDS / 2);
            let sum = dot::<T, L>(l, &quants[start..start + WORDS / 2], &words[start..start + WORDS / 2]);
            let minimum = minima.map(|minima| minima[half]);
            acc = finish::<T, L>(l, sum, (scales[half], minimum), x, (at, half), acc);
        }
        return acc;
    }
    let minimum = minima.map(|minima| minima[0]);
    finish::<T, L>(l, dot::<T, L>(l, quants, words), (scales[0], minimum), x, (at, Stretch::WHOLE), acc)
}

/// Products of quants up to `max` that a sum of 16 bits holds, for each of its two factors; 0 for quants of 8 bits.
const fn n_products(max: u8) -> usize {
    match max {
        128.. => 0,
        0 => WORDS,
        max => i16::MAX as usize / (2 * 127 * max as usize),
    }
}

/// The exact sum of products, less 128 a quant where the quants have 8 bits and the lanes take them signed.
#[inline(always)]
fn dot<T: EightRows, L: Lanes>(l: L, quants: &[L::U], words: &[u32]) -> L::U {
    let n = const { n_products(T::MAX) };
    let mut sum = l.splat(0);
    if n == 0 {
        for (q, a) in quants.iter().zip(words) {
            sum = l.add_wide_products(sum, *q, l.splat(*a));
        }
        return sum;
    }
    let n = if L::WIDE_SUMS { WORDS } else { n };
    for (quants, words) in quants.chunks(n).zip(words.chunks(n)) {
        let mut short = if L::WIDE_SUMS { sum } else { l.splat(0) };
        for (q, a) in quants.iter().zip(words) {
            short = l.add_products(short, *q, l.splat(*a));
        }
        sum = if L::WIDE_SUMS { short } else { l.add(sum, l.widen(short)) };
    }
    sum
}

/// Scales the sum of a group or of a half of it, which `part` names among the sums of the activations.
#[inline(always)]
fn finish<T: EightRows, L: Lanes>(
    l: L,
    sum: L::U,
    (scale, minimum): (L::F, Option<L::F>),
    x: &Stretch,
    (at, part): (usize, usize),
    acc: L::F,
) -> L::F {
    let subtracted = if T::MAX > 127 && L::SIGNED { 128 } else { 0 };
    let shift = u32::from(T::OFFSET) - subtracted;
    let sum = match shift {
        0 => sum,
        _ => l.sub(sum, l.mul(l.splat(x.quant_sums[at][part] as u32), l.splat(shift))),
    };
    let acc = l.fma_f32(l.i32_to_f32(sum), l.mul_f32(scale, l.splat_f32(x.scales[at])), acc);
    match minimum {
        Some(minimum) => l.fnma_f32(minimum, l.splat_f32(x.sums[at][part]), acc),
        None => acc,
    }
}

impl<'a, T: EightRows> Product<'a, T> {
    fn new(blocks: &'a [u8], x: ActivationRow<'a>) -> Self {
        let bytes = LANES * bytes_of(T::FIELDS);
        assert!(
            blocks.len().is_multiple_of(bytes),
            "{} bytes are not whole blocks of eight rows",
            blocks.len()
        );
        Self { blocks, x, format: PhantomData }
    }
}

pub(super) fn product<T: EightRows>(blocks: &[u8], x: ActivationRow<'_>) -> [f32; LANES] {
    super::run_widest(Product::<T>::new(blocks, x))
}

pub(super) fn product_baseline<T: EightRows>(blocks: &[u8], x: ActivationRow<'_>) -> [f32; LANES] {
    super::run_portable(Product::<T>::new(blocks, x))
}
