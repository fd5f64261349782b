//! One row of activations with eight rows of a weight, without a panel between: what decoding one token does.
//!
//! Quants go from the weight's bits to their products in registers, and the bytes of eight rows are read once, from the
//! first to the last. The arithmetic is that of products with panels (`hanzo-ml`'s `cpu::int8`), so one row of activations
//! gives the same bits alone as in company: for each group in ascending order the exact integer sum `i` of its products
//! (or of each half), then in f32 `acc = fma(i, d_w · d_a, acc)` and, where there are minima,
//! `acc = fma(−m, d_a · Σ a, acc)`. What refined blocks left over is added up apart, in the same way, and joins at the end.

use std::marker::PhantomData;

use super::{
    Blocks, EightRows, GroupPlaces, Job, LANES, LaneGroup, Lanes, PANEL_ELEMS, PANEL_GROUPS, Places, WORDS,
    group_ahead, words,
};
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

impl<T: EightRows> Product<'_, T> {
    const BLOCK_BYTES: usize = LANES * bytes_of(T::FIELDS);
    const GROUPS: usize = T::ELEMS / GROUP;
    const STRETCH_BYTES: usize = Self::BLOCK_BYTES * (PANEL_ELEMS / T::ELEMS);
}

impl<T: EightRows> Job for Product<'_, T> {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let ActivationRow { stretches, n_rows, row, .. } = self.x;
        let mut acc = l.splat_f32(0.0);
        let mut places = [[Places::ZERO; 2]; 2];
        if let Some(bytes) = self.blocks.get(..Self::BLOCK_BYTES) {
            T::put_places(l, Blocks { lanes: l, bytes }, 0, &mut places[0]);
        }
        for (idx, stretch) in self.blocks.chunks(Self::STRETCH_BYTES).enumerate() {
            let x = &stretches[idx * n_rows + row];
            for (block, bytes) in stretch.chunks_exact(Self::BLOCK_BYTES).enumerate() {
                for line in (0..Self::BLOCK_BYTES).step_by(LINE_BYTES) {
                    l.prefetch(bytes.as_ptr().wrapping_add(AHEAD_BYTES + line));
                }
                let after = idx * Self::STRETCH_BYTES + (block + 1) * Self::BLOCK_BYTES;
                let next = self.blocks.get(after..after + Self::BLOCK_BYTES).unwrap_or(bytes);
                let first = block * Self::GROUPS;
                let blocks = [bytes, next].map(|bytes| Blocks { lanes: l, bytes });
                if L::UNROLLS {
                    words!(|idx| acc = add_group_ahead::<T, L>(l, blocks, (first, idx), x, &mut places, acc));
                } else {
                    for idx in 0..Self::GROUPS {
                        acc = add_group_ahead::<T, L>(l, blocks, (first, idx), x, &mut places, acc);
                    }
                }
            }
        }
        let mut out = [0.0; LANES];
        l.store_f32(acc, &mut out);
        out
    }
}

/// The product with what quantising left over of the row. Apart, since it concerns few groups: these are unpacked again, and
/// the others hold nothing in registers for it.
struct Rest<'a, T>(Product<'a, T>);

impl<T: EightRows> Job for Rest<'_, T> {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let mut acc = l.splat_f32(0.0);
        for r in self.0.x.refinements.iter().filter(|r| r.row == self.0.x.row) {
            let bytes = self.0.blocks.get(r.stretch * Product::<T>::STRETCH_BYTES..).unwrap_or_default();
            let blocks = bytes.chunks_exact(Product::<T>::BLOCK_BYTES).take(PANEL_ELEMS / T::ELEMS);
            for (block, bytes) in blocks.enumerate() {
                let (block, first) = (Blocks { lanes: l, bytes }, block * Product::<T>::GROUPS);
                for idx in (0..Product::<T>::GROUPS).filter(|idx| r.blocks >> (first + idx) & 1 != 0) {
                    acc = add_group::<T, L>(l, &T::group(l, block, idx), first + idx, &r.rest, acc);
                }
            }
        }
        let mut out = [0.0; LANES];
        l.store_f32(acc, &mut out);
        out
    }
}

/// Adds the products of group `idx` of a block whose first group is group `first` of the stretch to `acc`.
#[inline(always)]
fn add_group_ahead<T: EightRows, L: Lanes>(
    l: L,
    blocks: [Blocks<'_, L>; 2],
    (first, idx): (usize, usize),
    x: &Stretch,
    places: &mut [GroupPlaces; 2],
    acc: L::F,
) -> L::F {
    if idx >= T::ELEMS / GROUP {
        return acc;
    }
    let weight = group_ahead::<T, L>(l, blocks, idx, places, acc);
    add_group::<T, L>(l, &weight, first + idx, x, acc)
}

/// Adds the products of a group, which is group `at` of the stretch, to `acc`.
#[inline(always)]
fn add_group<T: EightRows, L: Lanes>(
    l: L,
    weight: &LaneGroup<L>,
    at: usize,
    x: &Stretch,
    mut acc: L::F,
) -> L::F {
    let LaneGroup { quants, signs, scales, minima } = weight;
    let at = at % PANEL_GROUPS;
    let Some(words) = x.quants[WORDS * at..].first_chunk::<WORDS>() else { return acc };
    let activations = activations::<T, L>(l, words, signs);
    let n_parts = if T::SCALE_GROUP < GROUP { 2 } else { 1 };
    for part in 0..n_parts {
        let (start, len) = (part * (WORDS / 2), WORDS / n_parts);
        let sum = dot::<T, L>(l, &quants[start..start + len], &activations[start..start + len]);
        let factors = (scales[part], minima.map(|minima| minima[part]));
        let place = (at, if n_parts == 1 { Stretch::WHOLE } else { part });
        acc = finish::<T, L>(l, sum, signs.is_some(), factors, x, place, acc);
    }
    acc
}

/// The activations that each vector of quants meets, with the signs that stand apart from those.
#[inline(always)]
fn activations<T: EightRows, L: Lanes>(
    l: L,
    words: &[u32; WORDS],
    signs: &Option<[L::U; WORDS]>,
) -> [L::U; WORDS] {
    let plain = words!(|i| match T::PAIRS {
        true => l.splat_pair([words[i / 2 * 2], words[i / 2 * 2 + 1]]),
        false => l.splat(words[i]),
    });
    match signs {
        Some(signs) => words!(|i| l.sign_u8(plain[i], signs[i])),
        None => plain,
    }
}

/// Products of quants up to `max` that a sum of 16 bits holds, for each of its two factors; 0 for quants of 8 bits.
const fn n_products(max: u8) -> usize {
    match max {
        128.. => 0,
        0 => WORDS,
        max => i16::MAX as usize / (2 * 127 * max as usize),
    }
}

/// The exact sum of products of each row, less 128 a quant where the quants have 8 bits and the lanes take them signed.
#[inline(always)]
fn dot<T: EightRows, L: Lanes>(l: L, quants: &[L::U], activations: &[L::U]) -> L::U {
    if !T::PAIRS {
        return sum_products::<T, L>(l, quants, activations, 0, 1);
    }
    let [first, second] = l.split_pair(words!(2, |i| sum_products::<T, L>(l, quants, activations, i, 2)));
    l.add(first, second)
}

/// The sum over every `step`-th product from the `first` on.
#[inline(always)]
fn sum_products<T: EightRows, L: Lanes>(
    l: L,
    quants: &[L::U],
    activations: &[L::U],
    first: usize,
    step: usize,
) -> L::U {
    let n = const { n_products(T::LARGEST) };
    let (mut sum, mut short, mut n_short) = (l.splat(0), l.splat(0), 0);
    // A loop by hand: `step_by` is not always inlined.
    let mut i = first;
    while i < quants.len() {
        let (q, a) = (quants[i], activations[i]);
        if n == 0 {
            sum = l.add_wide_products(sum, q, a);
        } else {
            if n_short == n {
                (sum, short, n_short) = (l.add(sum, l.widen(short)), l.splat(0), 0);
            }
            (short, n_short) = (l.add_products(short, q, a), n_short + 1);
        }
        i += step;
    }
    if n == 0 { sum } else { l.add(sum, l.widen(short)) }
}

/// Scales the sum of a group or of a half of it, which `part` names among the sums of the activations.
#[inline(always)]
fn finish<T: EightRows, L: Lanes>(
    l: L,
    sum: L::U,
    signs: bool,
    (scale, minimum): (L::F, Option<L::F>),
    x: &Stretch,
    (at, part): (usize, usize),
    acc: L::F,
) -> L::F {
    let subtracted = if T::LARGEST > 127 && L::SIGNED { 128 } else { 0 };
    let shift = if signs { 0 } else { u32::from(T::OFFSET) - subtracted };
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
    let main = super::run_widest(Product::<T>::new(blocks, x));
    with_rest(main, x, || super::run_widest(Rest(Product::<T>::new(blocks, x))))
}

pub(super) fn product_baseline<T: EightRows>(blocks: &[u8], x: ActivationRow<'_>) -> [f32; LANES] {
    let main = super::run_portable(Product::<T>::new(blocks, x));
    with_rest(main, x, || super::run_portable(Rest(Product::<T>::new(blocks, x))))
}

/// The sums of both products; of a row without refinements the second is zero.
#[inline(always)]
fn with_rest(main: [f32; LANES], x: ActivationRow<'_>, rest: impl FnOnce() -> [f32; LANES]) -> [f32; LANES] {
    let rest = if x.refinements.is_empty() { [0.0; LANES] } else { rest() };
    std::array::from_fn(|i| main[i] + rest[i])
}
