//! IQ2_XXS, IQ2_XS, IQ2_S: eight magnitudes from a lattice of 256, 512 or 1024 points, and eight signs.
//!
//! The scale is `d · (1/2 + s) / 4` with four bits of `s`.

use super::{
    Encode, Field, Group,
    bits::{
        bytes, even_sign_words, f16_at, map, put_f16, sign_byte_pairs, u16_at, u32_at, with_even_sign,
        with_signs, word,
    },
    lattice::Lattice,
    lattice_block::{Codebook, LatticeBlock, Magnitudes},
    layout::{EncodeBlock, Quant, encode, fields},
};
use crate::{
    grids::{self, EVEN_SIGNS, IQ2_LEVELS, packed},
    lanes::{
        Blocks, EightRows, FAR, GroupPlaces, LaneGroup, Lanes, PanelFill, group_with_places, with_zeros,
        words,
    },
};

/// The largest quant.
const LARGEST: u8 = IQ2_LEVELS[2] as u8;

const fn book<const POINTS: usize>(lattice: &'static Lattice<8, POINTS>) -> Codebook<8, POINTS> {
    const SCALES: &[f32] = &[0.12, 0.06, 0.049, 0.041, 0.035, 0.03];
    Codebook {
        lattice,
        levels: [8.0, 25.0, 43.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        shift: 0.0,
        own_shifts: false,
        code_max: 15.0,
        unit_of_d: 0.125,
        scales: SCALES,
    }
}

#[inline(always)]
fn scale(block: &[u8], bits: u8) -> f32 {
    f16_at(block, 0) * (0.5 + f32::from(bits)) * 0.25
}

/// [`scale`] of eight rows from twice the bits and one: the same numbers, since every product here is exact.
#[inline(always)]
fn lane_scale<L: Lanes>(l: L, block: Blocks<'_, L>, halves: L::U) -> L::F {
    let eighth = l.mul_f32(block.f16(0), l.bits_to_f32(l.splat(0.125f32.to_bits())));
    l.mul_f32(eighth, l.i32_to_f32(halves))
}

/// The two scales of a group from the nibbles of its byte of the field at `at`.
#[inline(always)]
fn lane_scales<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize, group: usize) -> [L::F; 2] {
    let codes = block.word(at + group / 4 * 4);
    words!(2, |half| {
        let bit = 8 * (group as u32 % 4) + 4 * half as u32;
        let twice = if bit == 0 { l.shl(codes, 1) } else { l.shr(codes, bit.saturating_sub(1)) };
        lane_scale(l, block, l.or(l.and(twice, l.splat(30)), l.splat(1)))
    })
}

/// Four points of eight elements, with signs.
#[inline(always)]
fn lane_group<L: Lanes>(l: L, points: [[L::U; 2]; 4], signs: L::U, scales: [L::F; 2]) -> LaneGroup<L> {
    let quants = words!(|i| points[i / 2][i % 2]);
    LaneGroup { quants, signs: Some(sign_byte_pairs(l, signs)), scales, minima: None }
}

pub(crate) struct Iq2Xxs;

impl Quant for Iq2Xxs {
    const NAME: &'static str = "IQ2_XXS";
    const GGML_TYPE: u32 = 16;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64)]);
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const SCALE_GROUP: usize = 32;
    const NEEDS_IMPORTANCE: bool = true;
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// Eight bytes a group: four points, then four sign indices of seven bits and the scale in the top four.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let points: &[u8; 4] = bytes(block, 2 + 8 * group);
        let bits = u32_at(block, 6 + 8 * group);
        let signs = map(&[0, 7, 14, 21], |shift: u32| EVEN_SIGNS[(bits >> shift & 127) as usize]);
        let quants = with_signs(map(points, |p| word(&grids::IQ2_XXS[usize::from(p)])), &signs);
        Group::symmetric(quants, [scale(block, (bits >> 28) as u8); 2])
    }
}

impl EncodeBlock for Iq2Xxs {
    const ELEMS: usize = 256;
    const BYTES: usize = 66;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        static LATTICE: Lattice<8, 256> = Lattice::new(&packed::IQ2_XXS, &grids::IQ2_XXS);
        let target = Magnitudes::even(values, weights);
        let fitted = LatticeBlock::<8>::fit::<32, _, _>(&target, &book(&LATTICE));
        put_f16(block, 0, fitted.d);
        for (g, out) in block[2..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (points, word) = out.split_at_mut(4);
            let mut bits = (fitted.codes[g] as u32) << 28;
            for (k, point) in points.iter_mut().enumerate() {
                *point = fitted.points[g].index(&LATTICE, k) as u8;
                bits |= u32::from(target.signs[4 * g + k] & 127) << (7 * k);
            }
            word.copy_from_slice(&bits.to_le_bytes());
        }
    }
}

impl EightRows for Iq2Xxs {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;
    const LARGEST: u8 = LARGEST;
    const PAIRS: bool = true;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let bits = block.word(6 + 8 * group);
        let points = l.gather_pairs(&grids::IQ2_XXS, block.bytes(2 + 8 * group));
        let scale = lane_scale(l, block, l.or(l.shr(bits, 27), l.splat(1)));
        lane_group(l, points, even_sign_words(l, bits), [scale; 2])
    }
}

pub(crate) struct Iq2Xs;

impl Quant for Iq2Xs {
    const NAME: &'static str = "IQ2_XS";
    const GGML_TYPE: u32 = 17;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("scales", 8)]);
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const SCALE_GROUP: usize = 16;
    const NEEDS_IMPORTANCE: bool = true;
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A word a point: nine bits of index, seven of sign index.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let words = map(&[0, 1, 2, 3], |k| usize::from(u16_at(block, 2 + 8 * group + 2 * k)));
        let signs = map(&words, |w| EVEN_SIGNS[w >> 9 & 127]);
        let quants = with_signs(map(&words, |w| word(&grids::IQ2_XS[w & 511])), &signs);
        let scales = block[66 + group];
        Group::symmetric(quants, [scale(block, scales & 15), scale(block, scales >> 4)])
    }
}

impl EncodeBlock for Iq2Xs {
    const ELEMS: usize = 256;
    const BYTES: usize = 74;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        static LATTICE: Lattice<8, 512> = Lattice::new(&packed::IQ2_XS, &grids::IQ2_XS);
        let target = Magnitudes::even(values, weights);
        let fitted = LatticeBlock::<16>::fit::<16, _, _>(&target, &book(&LATTICE));
        put_f16(block, 0, fitted.d);
        for (k, out) in block[2..66].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let sign = u16::from(target.signs[k] & 127);
            *out = (fitted.points[k / 2].index(&LATTICE, k % 2) | sign << 9).to_le_bytes();
        }
        put_scales(&fitted.codes, &mut block[66..]);
    }
}

/// Two scales of four bits a byte.
#[inline(always)]
fn put_scales(codes: &[f32; 16], packed: &mut [u8]) {
    for (packed, codes) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
        *packed = codes[0] as u8 | (codes[1] as u8) << 4;
    }
}

impl EightRows for Iq2Xs {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;
    const LARGEST: u8 = LARGEST;
    const PAIRS: bool = true;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (first, second) = (block.word(2 + 8 * group), block.word(6 + 8 * group));
        let points = l.gather_pairs_nine_bits(&grids::IQ2_XS, block.bytes(2 + 8 * group));
        let seven = l.bits(l.bytes_of_halves(first, second, 1), 1, 0x7f);
        lane_group(l, points, with_even_sign(l, seven), lane_scales(l, block, 66, group))
    }
}

pub(crate) struct Iq2S;

impl Quant for Iq2S {
    const NAME: &'static str = "IQ2_S";
    const GGML_TYPE: u32 = 22;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 32), ("signs", 32), ("qh", 8), ("scales", 8)]);
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const SCALE_GROUP: usize = 16;
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A byte of `qh` a group: two high bits for each of four points. The signs are free.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 2 + 4 * group);
        let high = usize::from(block[66 + group]);
        let point = |k: usize| word(&grids::IQ2_S[usize::from(low[k]) | (high >> (2 * k) & 3) << 8]);
        let quants = with_signs([point(0), point(1), point(2), point(3)], bytes(block, 34 + 4 * group));
        let scales = block[74 + group];
        Group::symmetric(quants, [scale(block, scales & 15), scale(block, scales >> 4)])
    }
}

impl EncodeBlock for Iq2S {
    const ELEMS: usize = 256;
    const BYTES: usize = 82;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        static LATTICE: Lattice<8, 1024> = Lattice::new(&packed::IQ2_S, &grids::IQ2_S);
        let target = Magnitudes::any(values, weights);
        let fitted = LatticeBlock::<16>::fit::<16, _, _>(&target, &book(&LATTICE));
        block.fill(0);
        put_f16(block, 0, fitted.d);
        for k in 0..32 {
            let index = fitted.points[k / 2].index(&LATTICE, k % 2);
            block[2 + k] = index as u8;
            block[66 + k / 4] |= ((index >> 8) as u8) << (2 * (k % 4));
        }
        block[34..66].copy_from_slice(&target.signs);
        put_scales(&fitted.codes, &mut block[74..]);
    }
}

/// The order of bits for eight rows, where a sign is a shift away from the top of its byte and the high bits of an index from
/// the byte of its low ones.
///
/// Byte `j` of a group's signs has those of elements `j` of the four points, the first one lowest, and then those of elements
/// `4 + j`. Byte `k` of four groups' high bits has those of points `k`, the first group's lowest.
fn arrange(block: &mut [u8]) {
    for signs in block[34..66].as_chunks_mut::<4>().0 {
        *signs = swapped(swapped(u32::from_le_bytes(*signs), 0x00aa_00aa, 7), 0x0000_cccc, 14).to_le_bytes();
    }
    for high in block[66..74].as_chunks_mut::<4>().0 {
        *high = swapped(swapped(u32::from_le_bytes(*high), 0x00cc_00cc, 6), 0x0000_f0f0, 12).to_le_bytes();
    }
}

/// The bits of the mask and those `by` above them the other way round.
fn swapped(word: u32, mask: u32, by: u32) -> u32 {
    let differs = (word ^ word >> by) & mask;
    word ^ differs ^ differs << by
}

impl EightRows for Iq2S {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;
    const LARGEST: u8 = LARGEST;
    const PAIRS: bool = true;
    const ARRANGE: Option<fn(&mut [u8])> = Some(arrange);

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        group_with_places::<Self, L>(l, block, group)
    }

    #[inline(always)]
    fn put_places<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &mut GroupPlaces) {
        let high = block.word(66 + group / 4 * 4);
        let high = l.bits(high, 2 * (group as u32 % 4), 3);
        l.put_places(block.word(2 + 4 * group), high, &mut places[0]);
    }

    #[inline(always)]
    fn group_at<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &GroupPlaces) -> LaneGroup<L> {
        static POINTS: [[i8; 8]; FAR] = with_zeros(&grids::IQ2_S);
        let points = l.gather_pairs_far(&POINTS, &places[0]);
        let first = block.word(34 + 4 * group);
        let signs = l.join_pair([l.shl(first, 4), first]);
        let signs = words!(|i| l.or(l.shl(signs[i % 2], 3 - i as u32 / 2), l.splat(0x0101_0101)));
        let quants = words!(|i| points[i / 2][i % 2]);
        LaneGroup { quants, signs: Some(signs), scales: lane_scales(l, block, 74, group), minima: None }
    }
}
