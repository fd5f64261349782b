//! IQ3_XXS, IQ3_S: four magnitudes from a lattice of 256 or 512 points, and a sign each.

use super::{
    Encode, Field, Group,
    bits::{bytes, even_sign_words, f16_at, map, put_f16, sign_bytes, u32_at, with_signs},
    lattice::Lattice,
    lattice_block::{Codebook, LatticeBlock, Magnitudes},
    layout::{EncodeBlock, Quant, encode, fields},
};
use crate::{
    grids::{self, EVEN_SIGNS, IQ3_S_LEVELS, IQ3_XXS_LEVELS, packed},
    lanes::{
        Blocks, EightRows, FAR, GroupPlaces, LaneGroup, Lanes, PanelFill, Points, group_with_places, words,
    },
};

/// Two points of four magnitudes as a little-endian word.
#[inline(always)]
fn pair(first: [i8; 4], second: [i8; 4]) -> u64 {
    let half = |point: [i8; 4]| u64::from(u32::from_le_bytes(map(&point, |byte| byte as u8)));
    half(first) | half(second) << 32
}

pub(crate) struct Iq3Xxs;

impl Quant for Iq3Xxs {
    const NAME: &'static str = "IQ3_XXS";
    const GGML_TYPE: u32 = 18;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("scales_and_signs", 32)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A word of `scales_and_signs` a group: four sign indices of seven bits, the scale in the top four.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let points: &[u8; 8] = bytes(block, 2 + 8 * group);
        let word = u32_at(block, 66 + 4 * group);
        let signs = map(&[0, 7, 14, 21], |shift: u32| EVEN_SIGNS[(word >> shift & 127) as usize]);
        let point = |k: usize| grids::IQ3_XXS[usize::from(points[k])];
        let words = map(&[0, 2, 4, 6], |k| pair(point(k), point(k + 1)));
        let quants = with_signs(words, &signs);
        let scale = f16_at(block, 0) * (0.5 + (word >> 28) as f32) * 0.5;
        Group::symmetric(quants, [scale; 2])
    }
}

impl EncodeBlock for Iq3Xxs {
    const ELEMS: usize = 256;
    const BYTES: usize = 98;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        static LATTICE: Lattice<4, 256> = Lattice::new(&packed::IQ3_XXS, &grids::IQ3_XXS);
        const BOOK: Codebook<4, 256> = Codebook {
            lattice: &LATTICE,
            levels: [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0],
            shift: 0.0,
            own_shifts: false,
            code_max: 15.0,
            unit_of_d: 0.25,
            scales: &[0.055, 0.047, 0.041, 0.036, 0.031],
        };
        let target = Magnitudes::even(values, weights);
        let fitted = LatticeBlock::<8>::fit::<32, _, _>(&target, &BOOK);
        put_f16(block, 0, fitted.d);
        let (points, words) = block[2..].split_at_mut(64);
        for (k, point) in points.iter_mut().enumerate() {
            *point = fitted.points[k / 8].index(&LATTICE, k % 8) as u8;
        }
        for (g, word) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut bits = (fitted.codes[g] as u32) << 28;
            for (k, signs) in target.signs[4 * g..][..4].iter().enumerate() {
                bits |= u32::from(signs & 127) << (7 * k);
            }
            *word = bits.to_le_bytes();
        }
    }
}

impl EightRows for Iq3Xxs {
    const OFFSET: u8 = IQ3_XXS_LEVELS[7] as u8;
    const MAX: u8 = 2 * Self::OFFSET;
    const LARGEST: u8 = Self::OFFSET;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        static POINTS: Points<256> = Points::new(&grids::IQ3_XXS);
        let bits = block.word(66 + 4 * group);
        let points = words!(2, |half| l.gather(&POINTS, block.bytes(2 + 8 * group + 4 * half)));
        let signs = sign_bytes(l, even_sign_words(l, bits));
        // Exact, like the product of the scalar decoder.
        let quarter = l.mul_f32(block.f16(0), l.bits_to_f32(l.splat(0.25f32.to_bits())));
        let scale = l.mul_f32(quarter, l.i32_to_f32(l.or(l.shr(bits, 27), l.splat(1))));
        let quants = words!(|i| points[i / 4][i % 4]);
        LaneGroup { quants, signs: Some(signs), scales: [scale; 2], minima: None }
    }
}

pub(crate) struct Iq3S;

impl Quant for Iq3S {
    const NAME: &'static str = "IQ3_S";
    const GGML_TYPE: u32 = 21;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("qh", 8), ("signs", 32), ("scales", 4)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A byte of `qh` a group: the ninth bit of each of eight points. The signs are free.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 8] = bytes(block, 2 + 8 * group);
        let high = usize::from(block[66 + group]);
        let point = |k: usize| grids::IQ3_S[usize::from(low[k]) | (high >> k & 1) << 8];
        let words = map(&[0, 2, 4, 6], |k| pair(point(k), point(k + 1)));
        let bits = block[106 + group / 2] >> (4 * (group % 2)) & 15;
        let scale = f16_at(block, 0) * f32::from(1 + 2 * bits);
        Group::symmetric(with_signs(words, bytes(block, 74 + 4 * group)), [scale; 2])
    }
}

impl EncodeBlock for Iq3S {
    const ELEMS: usize = 256;
    const BYTES: usize = 110;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        static LATTICE: Lattice<4, 512> = Lattice::new(&packed::IQ3_S, &grids::IQ3_S);
        const BOOK: Codebook<4, 512> = Codebook {
            lattice: &LATTICE,
            levels: [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0],
            shift: 0.0,
            own_shifts: false,
            code_max: 15.0,
            unit_of_d: 1.0,
            scales: &[1.0, 0.21, 0.18, 0.155, 0.135, 0.115],
        };
        let target = Magnitudes::any(values, weights);
        let fitted = LatticeBlock::<8>::fit::<32, _, _>(&target, &BOOK);
        block.fill(0);
        put_f16(block, 0, fitted.d);
        for k in 0..64 {
            let index = fitted.points[k / 8].index(&LATTICE, k % 8);
            block[2 + k] = index as u8;
            block[66 + k / 8] |= ((index >> 8) as u8) << (k % 8);
        }
        block[74..106].copy_from_slice(&target.signs);
        for (g, code) in fitted.codes.iter().enumerate() {
            block[106 + g / 2] |= (*code as u8) << (4 * (g % 2));
        }
    }
}

impl EightRows for Iq3S {
    const OFFSET: u8 = IQ3_S_LEVELS[7] as u8;
    const MAX: u8 = 2 * Self::OFFSET;
    const LARGEST: u8 = Self::OFFSET;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        group_with_places::<Self, L>(l, block, group)
    }

    #[inline(always)]
    fn put_places<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &mut GroupPlaces) {
        let high = l.spread_byte(block.word(66 + group / 4 * 4), group % 4);
        words!(2, |half| {
            let bits = l.splat(0x0804_0201 << (4 * half));
            let ninth = l.and(l.eq_u8(l.and(high, bits), bits), l.splat(0x0101_0101));
            l.put_places(block.word(2 + 8 * group + 4 * half), ninth, &mut places[half]);
        });
    }

    #[inline(always)]
    fn group_at<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize, places: &GroupPlaces) -> LaneGroup<L> {
        static POINTS: Points<FAR> = Points::new(&grids::IQ3_S);
        let points = words!(2, |half| l.gather_far(&POINTS, &places[half]));
        let (quants, signs) = (words!(|i| points[i / 4][i % 4]), sign_bytes(l, block.word(74 + 4 * group)));
        let odd = l.or(l.shl(l.bits_at(block.word(106), 4 * group as u32, 15), 1), l.splat(1));
        let scale = l.mul_f32(block.f16(0), l.i32_to_f32(odd));
        LaneGroup { quants, signs: Some(signs), scales: [scale; 2], minima: None }
    }
}
