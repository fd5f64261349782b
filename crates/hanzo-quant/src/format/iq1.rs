//! IQ1_S, IQ1_M: eight ternary elements from a lattice of 2048 points, shifted as a whole by ±1/8.
//!
//! The value `dl · (grid ± 1/8)` is `(dl / 8) · (8·grid ± 1)`, exactly: the factor is a power of two and `dl / 8`
//! cannot be subnormal.

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, f16_at, f16_to_f32, f32_to_f16, map, put_f16, u16_at},
    lattice::Lattice,
    lattice_block::{Codebook, LatticeBlock, Magnitudes},
    layout::{EncodeBlock, Quant, encode, fields},
};
use crate::{
    grids::{self, IQ1_LEVELS, packed},
    lanes::{Blocks, EightRows, GroupPlaces, LaneGroup, Lanes, PanelFill, group_with_places, words},
};

static LATTICE: Lattice<8, 2048> = Lattice::new(&packed::IQ1, &grids::IQ1);

const BOOK: Codebook<8, 2048> = Codebook {
    lattice: &LATTICE,
    levels: [-8.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    shift: 1.0,
    own_shifts: false,
    code_max: 7.0,
    unit_of_d: 0.125,
    scales: &[0.185, 0.155, 0.13, 0.11],
};

/// The largest quant.
const LARGEST: u8 = IQ1_LEVELS[2] as u8 + 1;

/// Four points (index and whether the shift is negative) as quants.
#[inline(always)]
fn shifted(points: [(usize, bool); 4]) -> [i8; GROUP] {
    let mut quants = [0; GROUP];
    for (out, (point, negative)) in quants.as_chunks_mut::<8>().0.iter_mut().zip(points) {
        let shift = if negative { -1 } else { 1 };
        *out = map(&grids::IQ1[point & 2047], |q| q + shift);
    }
    quants
}

/// [`shifted`] of eight rows in pairs, [`LARGEST`] more. The bytes of `down` are 2 where the shift of a point is negative,
/// else 0.
#[inline(always)]
fn shifted_pairs<L: Lanes>(l: L, points: [[L::U; 2]; 4], down: L::U) -> [L::U; 8] {
    let shift = l.sub_u8(l.splat(u32::from(LARGEST + 1) * 0x0101_0101), down);
    let shifts = words!(4, |k| l.spread_byte_pair(shift, k));
    words!(|i| l.add_u8(points[i / 2][i % 2], shifts[i / 2][i % 2]))
}

/// The two bytes of a group in the field at `at`, in the low half of a word; the other half is anything.
#[inline(always)]
fn high_bits<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize, group: usize) -> L::U {
    l.shr(block.word(at + group / 2 * 4), 16 * (group as u32 % 2))
}

/// Numbers of `bits` bits, four of them one behind the other at the start of a word, to its four bytes.
#[inline(always)]
fn spread_bits<L: Lanes>(l: L, packed: L::U, bits: u32) -> L::U {
    let (two, mask) = ((1 << (2 * bits)) - 1, (1 << bits) - 1);
    let first = l.and(packed, l.splat(two));
    let second = l.and(packed, l.splat(two << (2 * bits)));
    let halves = l.or(first, l.shl(second, 16 - 2 * bits));
    l.and(l.or(halves, l.shl(halves, 8 - bits)), l.splat(mask * 0x0101_0101))
}

/// `d · (2 · bits + 1) / 8` of eight rows.
#[inline(always)]
fn lane_scale<L: Lanes>(l: L, d: L::F, bits: L::U) -> L::F {
    let odd = l.or(l.shl(bits, 1), l.splat(1));
    l.mul_f32(l.mul_f32(d, l.bits_to_f32(l.splat(0.125f32.to_bits()))), l.i32_to_f32(odd))
}

pub(crate) struct Iq1S;

impl Quant for Iq1S {
    const NAME: &'static str = "IQ1_S";
    const GGML_TYPE: u32 = 19;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 32), ("qh", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const NEEDS_IMPORTANCE: bool = true;
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A word of `qh` a group: three high bits for each of four points, three bits of scale, the sign of the shift.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 2 + 4 * group);
        let high = u16_at(block, 34 + 2 * group);
        let point = |k: usize| (usize::from(low[k]) | usize::from(high >> (3 * k) & 7) << 8, high >> 15 != 0);
        let scale = f16_at(block, 0) * f32::from(2 * (high >> 12 & 7) + 1) * 0.125;
        Group::symmetric(shifted([point(0), point(1), point(2), point(3)]), [scale; 2])
    }
}

impl EncodeBlock for Iq1S {
    const ELEMS: usize = 256;
    const BYTES: usize = 50;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let target = Magnitudes::signed(values, weights);
        let fitted = LatticeBlock::<8>::fit::<32, _, _>(&target, &BOOK);
        put_f16(block, 0, fitted.d);
        let (low, high) = block[2..].split_at_mut(32);
        for (g, high) in high.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let points = &fitted.points[g];
            let mut word = (fitted.codes[g] as u16) << 12 | u16::from(points.downs & 1) << 15;
            for k in 0..4 {
                let index = points.index(&LATTICE, k);
                low[4 * g + k] = index as u8;
                word |= (index >> 8) << (3 * k);
            }
            *high = word.to_le_bytes();
        }
    }
}

impl EightRows for Iq1S {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;
    const PAIRS: bool = true;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        group_with_places::<Self, L>(l, block, group)
    }

    #[inline(always)]
    fn put_places<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &mut GroupPlaces) {
        l.put_places(
            block.word(2 + 4 * group),
            spread_bits(l, high_bits(l, block, 34, group), 3),
            &mut places[0],
        );
    }

    #[inline(always)]
    fn group_at<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &GroupPlaces) -> LaneGroup<L> {
        let high = high_bits(l, block, 34, group);
        let points = l.gather_pairs_far(&grids::IQ1, &places[0]);
        let down = l.spread_byte(l.bits_at(high, 14, 2), 0);
        let quants = shifted_pairs(l, points, down);
        let scale = lane_scale(l, block.f16(0), l.bits_at(high, 12, 7));
        LaneGroup { quants, signs: None, scales: [scale; 2], minima: None }
    }
}

pub(crate) struct Iq1M;

impl Quant for Iq1M {
    const NAME: &'static str = "IQ1_M";
    const GGML_TYPE: u32 = 29;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 32), ("qh", 16), ("scales", 8)]);
    const SCALE_GROUP: usize = 16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A nibble of `qh` a point: three high bits and the sign of the shift. The top nibbles of the four words of
    /// `scales` make the half-float scale, the other bits sixteen scales of three bits.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 4 * group);
        let high = u16_at(block, 32 + 2 * group);
        let point = |k: usize| {
            let nibble = high >> (4 * k);
            (usize::from(low[k]) | usize::from(nibble & 7) << 8, nibble & 8 != 0)
        };
        let words = [u16_at(block, 48), u16_at(block, 50), u16_at(block, 52), u16_at(block, 54)];
        let d = f16_to_f32(words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12);
        let six_bits = u16_at(block, 48 + group / 2 * 2) >> (6 * (group % 2));
        let scale = |bits: u16| d * f32::from(2 * (bits & 7) + 1) * 0.125;
        Group::symmetric(
            shifted([point(0), point(1), point(2), point(3)]),
            [scale(six_bits), scale(six_bits >> 3)],
        )
    }
}

impl EncodeBlock for Iq1M {
    const ELEMS: usize = 256;
    const BYTES: usize = 56;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let target = Magnitudes::signed(values, weights);
        let book = Codebook { own_shifts: true, ..BOOK };
        let fitted = LatticeBlock::<16>::fit::<16, _, _>(&target, &book);
        block.fill(0);
        for k in 0..32 {
            let points = &fitted.points[k / 2];
            let index = points.index(&LATTICE, k % 2);
            block[k] = index as u8;
            let nibble = (index >> 8) as u8 | (points.downs >> (k % 2) & 1) << 3;
            block[32 + k / 2] |= nibble << (4 * (k % 2));
        }
        let d = f32_to_f16(fitted.d);
        for (i, word) in block[48..].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let codes = &fitted.codes[4 * i..][..4];
            let scales = codes.iter().rev().fold(0, |word, &code| word << 3 | code as u16);
            *word = ((d >> (4 * i) & 15) << 12 | scales).to_le_bytes();
        }
    }
}

impl EightRows for Iq1M {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;
    const PAIRS: bool = true;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        group_with_places::<Self, L>(l, block, group)
    }

    #[inline(always)]
    fn put_places<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &mut GroupPlaces) {
        let nibbles = spread_bits(l, high_bits(l, block, 32, group), 4);
        l.put_places(block.word(4 * group), nibbles, &mut places[0]);
    }

    #[inline(always)]
    fn group_at<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &GroupPlaces) -> LaneGroup<L> {
        let points = l.gather_pairs_far(&grids::IQ1, &places[0]);
        let nibbles = spread_bits(l, high_bits(l, block, 32, group), 4);
        let quants = shifted_pairs(l, points, l.bits(nibbles, 2, 2));
        let (first, second) = (block.word(48), block.word(52));
        let low_byte = l.or(l.bits_at(first, 12, 15), l.and(l.shr(first, 24), l.splat(0xf0)));
        let high_byte =
            l.or(l.and(l.shr(second, 4), l.splat(0xf00)), l.and(l.shr(second, 16), l.splat(0xf000)));
        let d = l.f16_to_f32(l.or(low_byte, high_byte));
        let at = 16 * (group as u32 / 2 % 2) + 6 * (group as u32 % 2);
        let bits = if group < 4 { first } else { second };
        let scales = words!(2, |half| lane_scale(l, d, l.bits_at(bits, at + 3 * half as u32, 7)));
        LaneGroup { quants, signs: None, scales, minima: None }
    }
}
