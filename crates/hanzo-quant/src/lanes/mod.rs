//! Eight rows of a weight side by side: the layout that vectors read, and how a format's bits become quants there.
//!
//! A vector's lanes are eight *rows* of a weight. Blocks of eight rows that stand one above the other are interleaved
//! field by field ([`Format::interleave`]): a field whose bytes are a multiple of four as words `[word][row]`, another
//! as `[row]` numbers of its two bytes or one. So byte `at` of the block that starts a word (or a small field) is at
//! `8 · at` of the interleaved block, and nothing is added or lost. A format may put the bits of a block in another order
//! before ([`EightRows::ARRANGE`]). A [`Panel`] is what a product reads: up to 256 elements of eight rows as unsigned bytes,
//! with their scales and minima. A single row of activations is multiplied without one (`row`).
//!
//! # To give a format its fast path
//!
//! Write one function in the format's file, an `impl EightRows for X`, and the line
//! `const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());` in its `impl Quant`. Every integer format
//! of today has both; a new one may begin without: the scalar [`Format::unpack`] then fills its panels, slower.
//!
//! [`EightRows::group`] is `unpack` once more, on words instead of bytes. [`Blocks`] gives the word, half or byte at an
//! offset of the block for all eight rows; [`Lanes`] has the operations; word `i` of the result has elements `4i` to
//! `4i + 3`. Quants are unsigned, that is `OFFSET` more than those of `unpack`, and at most `MAX`: the smaller `MAX`
//! is, the more products the integer kernels can add before they widen (15, 31, 63, 127 are the steps). Scales and
//! minima are the very bits of `unpack`, so the same products in the same order. With a scale for 32 elements only the
//! first of the two is used. `group` is a constant after inlining, so shifts by it cost nothing. Closures do cost: they are
//! compiled without the vector instructions unless they happen to be inlined early; [`words!`] makes arrays.
//! A format whose signs stand apart gives magnitudes and [`LaneGroup::signs`]: a row of activations takes the signs, so
//! that magnitudes up to `LARGEST` are added, and nothing is corrected afterwards; panels get both together. A lattice of
//! points of eight elements gives [`EightRows::PAIRS`]: eight bytes of a row stay side by side, and are joined as sums.
//! A lattice whose indices are put together from several places of a block has [`EightRows::put_places`] and
//! [`EightRows::group_at`], and [`group_with_places`] for its `group`.
//! `tests/lanes.rs` walks the table and compares every function with `unpack` on random bytes.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod points;
mod portable;
mod row;
mod vector;

/// `[word, …]` with `i` from 0 to 7, or the first two or four of them. Not a closure: one that is not inlined would be
/// compiled without the vector instructions.
macro_rules! words {
    (|$i:ident| $word:expr) => {
        words!(@ [0, 1, 2, 3, 4, 5, 6, 7] $i $word)
    };
    (4, |$i:ident| $word:expr) => {
        words!(@ [0, 1, 2, 3] $i $word)
    };
    (2, |$i:ident| $word:expr) => {
        words!(@ [0, 1] $i $word)
    };
    (@ [$($idx:literal),+] $i:ident $word:expr) => {
        [$({
            let $i: usize = $idx;
            $word
        }),+]
    };
}
pub(crate) use words;

use std::marker::PhantomData;

pub(crate) use points::{FAR, GroupPlaces, Places, Points, with_zeros};
pub(crate) use portable::Portable;
pub(crate) use vector::Lanes;

pub use row::{ActivationRow, Refinement, RowProduct, Stretch};
pub use vector::LANES;

use crate::{
    Format, GROUP, Unpack,
    format::layout::{Quant, bytes_of},
};

/// Elements of a row that a panel holds at most: the longest block.
pub const PANEL_ELEMS: usize = 256;

/// Groups of a panel.
pub const PANEL_GROUPS: usize = PANEL_ELEMS / GROUP;

/// Words of a row and group.
const WORDS: usize = GROUP / 4;

/// Up to [`PANEL_ELEMS`] elements of eight rows, as products read them.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Panel {
    /// Unsigned quants: word `k` holds elements `4k` to `4k + 3` of each row, the first one lowest.
    pub quants: [[u32; LANES]; PANEL_ELEMS / 4],
    /// Scale of each group and half. Where 32 elements or more share a scale, only the first half's is set.
    pub scales: [[[f32; LANES]; 2]; PANEL_GROUPS],
    /// Minimum of each group and half, likewise. Not set for symmetric formats.
    pub minima: [[[f32; LANES]; 2]; PANEL_GROUPS],
}

impl Panel {
    /// A panel of zeros.
    pub const ZERO: Self = Self {
        quants: [[0; LANES]; PANEL_ELEMS / 4],
        scales: [[[0.0; LANES]; 2]; PANEL_GROUPS],
        minima: [[[0.0; LANES]; 2]; PANEL_GROUPS],
    };
}

/// Fills a panel from interleaved whole blocks, at most [`PANEL_ELEMS`] elements a row. Panics on another length.
pub type Fill = fn(blocks: &[u8], panel: &mut Panel);

/// How a format's interleaved blocks become panels, or are multiplied without one.
#[derive(Clone, Copy, Debug)]
pub struct PanelFill {
    /// What is added to the quants of [`Format::unpack`] to make them unsigned.
    pub offset: u8,
    /// The largest unsigned quant.
    pub max: u8,
    /// With the widest instructions of this processor.
    pub fill: Fill,
    /// With the target's baseline instructions: the same bits.
    pub fill_baseline: Fill,
    /// The product with one row of activations, without a panel, with the widest instructions.
    pub product: RowProduct,
    /// With the target's baseline instructions: the same bits.
    pub product_baseline: RowProduct,
    /// Puts the bits of a block in the order that interleaved blocks have, where it is another.
    pub arrange: Option<fn(block: &mut [u8])>,
}

impl PanelFill {
    pub(crate) const fn of<T: EightRows>() -> Self {
        Self {
            offset: T::OFFSET,
            max: T::MAX,
            fill: fill::<T>,
            fill_baseline: fill_baseline::<T>,
            product: row::product::<T>,
            product_baseline: row::product_baseline::<T>,
            arrange: T::ARRANGE,
        }
    }
}

/// A format that is decoded eight rows at a time.
pub(crate) trait EightRows: Quant {
    /// What makes the quants unsigned.
    const OFFSET: u8;
    /// The largest unsigned quant.
    const MAX: u8;
    /// The largest quant of [`EightRows::group`]: of magnitudes, if signs stand apart.
    const LARGEST: u8 = Self::MAX;
    /// Whether quants lie in pairs of vectors: first those of rows 0, 1, 4 and 5, words 0 and 1 of each, then of rows 2, 3, 6
    /// and 7, then words 2 and 3.
    const PAIRS: bool = false;
    /// Puts the bits of a block in the order that [`EightRows::group`] reads, if that is not the format's own.
    const ARRANGE: Option<fn(&mut [u8])> = None;

    /// Group `group` of a block of eight rows. Implementations carry `#[inline(always)]`.
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L>;

    /// Stores the indices of a group's points, for a lattice where they are put together from several places of a block of an
    /// even number of groups. A product stores those of the next group before it reads those of this one: what is stored and
    /// loaded at once comes late.
    #[inline(always)]
    fn put_places<L: Lanes>(_l: L, _block: Blocks<'_, L>, _group: usize, _places: &mut GroupPlaces) {}

    /// [`EightRows::group`] with the indices that [`EightRows::put_places`] stored.
    #[inline(always)]
    fn group_at<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, _places: &GroupPlaces) -> LaneGroup<L> {
        Self::group(l, block, group)
    }
}

/// [`EightRows::group`] of a format that stores indices: at once, and loads them again.
#[inline(always)]
pub(crate) fn group_with_places<T: EightRows, L: Lanes>(
    l: L,
    block: Blocks<'_, L>,
    group: usize,
) -> LaneGroup<L> {
    let mut places = [Places::ZERO; 2];
    T::put_places(l, block, group, &mut places);
    T::group_at(l, block, group, &places)
}

/// Group `idx` of a block, whose indices are in their place, after those of the next group were put in theirs: of this block or
/// of the one after it. `sums` are what the groups before came to.
#[inline(always)]
fn group_ahead<T: EightRows, L: Lanes>(
    l: L,
    [block, next]: [Blocks<'_, L>; 2],
    idx: usize,
    places: &mut [GroupPlaces; 2],
    sums: L::F,
) -> LaneGroup<L> {
    let (of, then) = if idx + 1 < T::ELEMS / GROUP { (block, idx + 1) } else { (next, 0) };
    T::put_places(l, of, then, &mut places[(idx + 1) % 2]);
    T::group_at(l, block, idx, l.after(&places[idx % 2], sums))
}

/// [`crate::Group`] for eight rows.
pub(crate) struct LaneGroup<L: Lanes> {
    /// Unsigned quants, or magnitudes.
    pub quants: [L::U; WORDS],
    /// Bytes that are negative where a magnitude is that of a negative quant, and positive elsewhere.
    pub signs: Option<[L::U; WORDS]>,
    /// One scale per 16 quants.
    pub scales: [L::F; 2],
    /// One minimum per 16 quants; nothing for a symmetric format.
    pub minima: Option<[L::F; 2]>,
}

/// One block of each of eight rows, interleaved.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a, L> {
    lanes: L,
    bytes: &'a [u8],
}

impl<'a, L: Lanes> Blocks<'a, L> {
    /// The word at byte `at`, which starts a word of a field.
    #[inline(always)]
    pub(crate) fn word(self, at: usize) -> L::U {
        self.lanes.load(self.part(at))
    }

    /// The bytes of eight rows' word at byte `at`, or of more words from there on.
    #[inline(always)]
    pub(crate) fn bytes<const LEN: usize>(self, at: usize) -> &'a [u8; LEN] {
        self.part(at)
    }

    /// The field of two bytes at byte `at`.
    #[inline(always)]
    pub(crate) fn half(self, at: usize) -> L::U {
        self.lanes.load_u16(self.part(at))
    }

    /// The field of one byte at byte `at`.
    #[inline(always)]
    pub(crate) fn byte(self, at: usize) -> L::U {
        self.lanes.load_u8(self.part(at))
    }

    /// The half float at byte `at`, a field of its own.
    #[inline(always)]
    pub(crate) fn f16(self, at: usize) -> L::F {
        self.lanes.load_f16(self.part(at))
    }

    /// The half float at byte `at` times a whole number.
    #[inline(always)]
    pub(crate) fn f16_times(self, at: usize, factor: L::U) -> L::F {
        self.lanes.mul_f32(self.f16(at), self.lanes.i32_to_f32(factor))
    }

    #[inline(always)]
    fn part<const LEN: usize>(self, at: usize) -> &'a [u8; LEN] {
        self.bytes[LANES * at..].first_chunk().expect("a block has all the bytes of its format")
    }
}

/// Work that is compiled for each instruction set.
trait Job {
    type Output;

    /// Does the work. Implementations carry `#[inline(always)]`.
    fn run<L: Lanes>(self, l: L) -> Self::Output;
}

fn run_widest<J: Job>(job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    let job = match avx2::run(job) {
        Ok(output) => return output,
        Err(job) => job,
    };
    run_portable(job)
}

/// One copy of the plain code, for all its callers.
#[inline(never)]
fn run_portable<J: Job>(job: J) -> J::Output {
    job.run(Portable)
}

/// Unsigned quants of a group, word by word.
#[inline(always)]
fn unsigned<T: EightRows, L: Lanes>(l: L, weight: &LaneGroup<L>) -> [L::U; WORDS] {
    let mut quants = weight.quants;
    if let Some(signs) = weight.signs {
        let offset = l.splat(u32::from(T::OFFSET) * 0x0101_0101);
        quants = words!(|i| l.add_u8(l.sign_u8(quants[i], signs[i]), offset));
    }
    if T::PAIRS {
        let words = words!(4, |k| l.split_pair([quants[2 * k], quants[2 * k + 1]]));
        quants = words!(|i| words[i / 2][i % 2]);
    }
    quants
}

struct FillPanel<'a, T> {
    blocks: &'a [u8],
    panel: &'a mut Panel,
    format: PhantomData<T>,
}

impl<T: EightRows> FillPanel<'_, T> {
    /// Group `idx` of a block whose first group is group `first` of the panel. Gives some of its quants, for which the next group
    /// waits ([`Lanes::after`]).
    #[inline(always)]
    fn group<L: Lanes>(
        &mut self,
        l: L,
        block: Blocks<'_, L>,
        (first, idx): (usize, usize),
        places: &mut [GroupPlaces; 2],
        before: L::U,
    ) -> L::U {
        if idx >= T::ELEMS / GROUP {
            return before;
        }
        let weight = group_ahead::<T, L>(l, [block; 2], idx, places, l.bits_to_f32(before));
        let quants = unsigned::<T, L>(l, &weight);
        let LaneGroup { scales, minima, .. } = weight;
        let group = first + idx;
        for (word, quants) in quants.iter().enumerate() {
            l.store(*quants, &mut self.panel.quants[WORDS * group + word]);
        }
        let n_halves = if T::SCALE_GROUP < GROUP { 2 } else { 1 };
        for half in 0..n_halves {
            l.store_f32(scales[half], &mut self.panel.scales[group][half]);
            if let Some(minima) = minima {
                l.store_f32(minima[half], &mut self.panel.minima[group][half]);
            }
        }
        quants[WORDS - 1]
    }
}

impl<T: EightRows> Job for FillPanel<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        let blocks = self.blocks;
        let groups = T::ELEMS / GROUP;
        let mut places = [[Places::ZERO; 2]; 2];
        let mut before = l.splat(0);
        for (block, bytes) in blocks.chunks_exact(LANES * bytes_of(T::FIELDS)).enumerate() {
            let (block, first) = (Blocks { lanes: l, bytes }, block * groups);
            T::put_places(l, block, 0, &mut places[0]);
            if L::UNROLLS {
                words!(|idx| before = self.group(l, block, (first, idx), &mut places, before));
            } else {
                for idx in 0..groups {
                    before = self.group(l, block, (first, idx), &mut places, before);
                }
            }
        }
    }
}

impl<'a, T: EightRows> FillPanel<'a, T> {
    fn new(blocks: &'a [u8], panel: &'a mut Panel) -> Self {
        const { assert!(T::ELEMS <= PANEL_ELEMS) };
        let bytes = LANES * bytes_of(T::FIELDS);
        assert!(
            blocks.len().is_multiple_of(bytes) && blocks.len() / bytes <= PANEL_ELEMS / T::ELEMS,
            "{} bytes are not at most {PANEL_ELEMS} elements of eight rows",
            blocks.len()
        );
        Self { blocks, panel, format: PhantomData }
    }
}

fn fill<T: EightRows>(blocks: &[u8], panel: &mut Panel) {
    run_widest(FillPanel::<T>::new(blocks, panel));
}

fn fill_baseline<T: EightRows>(blocks: &[u8], panel: &mut Panel) {
    run_portable(FillPanel::<T>::new(blocks, panel));
}

impl Format {
    /// Interleaves blocks of up to eight rows, arranged if the format says so; rows that are missing become zeros. Each row
    /// has the blocks of `out.len() / (8 · block_bytes)`.
    ///
    /// # Panics
    /// If there are more than eight rows, or a row or `out` has another length: bugs of the caller.
    pub fn interleave(&self, rows: &[&[u8]], out: &mut [u8]) {
        let n_blocks = out.len() / (LANES * self.block_bytes);
        assert!(rows.len() <= LANES && out.len() == n_blocks * LANES * self.block_bytes, "{self:?}");
        assert!(rows.iter().all(|row| row.len() == n_blocks * self.block_bytes), "{self:?}");
        if rows.len() < LANES {
            out.fill(0);
        }
        let arrange = self.panel.and_then(|panel| panel.arrange);
        let mut arranged = vec![0; if arrange.is_some() { self.block_bytes } else { 0 }];
        for (block, out) in out.chunks_exact_mut(LANES * self.block_bytes).enumerate() {
            let start = block * self.block_bytes;
            for (lane, row) in rows.iter().enumerate() {
                let mut bytes = &row[start..][..self.block_bytes];
                if let Some(arrange) = arrange {
                    arranged.copy_from_slice(bytes);
                    arrange(&mut arranged);
                    bytes = &arranged;
                }
                let mut at = 0;
                for field in self.fields {
                    let (from, to) =
                        (&bytes[at..][..field.bytes], &mut out[LANES * at..][..LANES * field.bytes]);
                    match field.bytes {
                        n if n.is_multiple_of(4) => scatter::<4>(from, lane, to),
                        n if n.is_multiple_of(2) => scatter::<2>(from, lane, to),
                        _ => scatter::<1>(from, lane, to),
                    }
                    at += field.bytes;
                }
            }
        }
    }

    /// Fills a panel with the scalar decoder: the definition of every [`PanelFill`], with quants that are 128 more than
    /// those of [`Format::unpack`]. Each of up to eight rows has the same whole blocks of at most [`PANEL_ELEMS`]
    /// elements; lanes without a row keep what they had.
    ///
    /// # Panics
    /// On a format of plain numbers, more rows, or rows of another length: bugs of the caller.
    pub fn fill_scalar(&self, rows: &[&[u8]], panel: &mut Panel) {
        let Unpack::Int(unpack) = self.unpack else { panic!("{self:?} has no quants") };
        assert!(rows.len() <= LANES, "{} rows", rows.len());
        for (lane, row) in rows.iter().enumerate() {
            assert!(row.len().is_multiple_of(self.block_bytes), "{self:?}");
            let groups = self.block_elems / GROUP;
            for (block, bytes) in row.chunks_exact(self.block_bytes).enumerate() {
                for g in 0..groups {
                    let (group, at) = (unpack(bytes, g), block * groups + g);
                    for (word, quants) in group.quants.as_chunks::<4>().0.iter().enumerate() {
                        let unsigned = quants.map(|q| (q as u8) ^ 0x80);
                        panel.quants[WORDS * at + word][lane] = u32::from_le_bytes(unsigned);
                    }
                    for half in 0..2 {
                        panel.scales[at][half][lane] = group.scales[half];
                        panel.minima[at][half][lane] = group.minima[half];
                    }
                }
            }
        }
    }
}

/// Copies pieces of `LEN` bytes to places eight pieces apart.
#[inline(always)]
fn scatter<const LEN: usize>(from: &[u8], lane: usize, to: &mut [u8]) {
    for (piece, from) in from.as_chunks::<LEN>().0.iter().enumerate() {
        to[(piece * LANES + lane) * LEN..][..LEN].copy_from_slice(from);
    }
}
