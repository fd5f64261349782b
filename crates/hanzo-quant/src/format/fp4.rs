//! MXFP4, NVFP4: FP4 E2M1 elements, doubled to integers ([`crate::grids::FP4_LEVELS`]), with halved float scales.
//!
//! Sources: OCP Microscaling Formats 1.0 for E2M1 and E8M0; ggml for UE4M3 (an E4M3 whose sign bit is ignored).

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, largest_magnitude, map, nibbles},
    layout::{EncodeBlock, Quant, encode, fields},
    legacy::nibble_words,
    search::Run,
};
use crate::{
    grids::FP4_LEVELS,
    lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words},
};

/// Twice the value of an E2M1 code. With `m` the magnitude bits, 0 1 2 3 4 6 8 12 is
/// `m + max(m − 4, 0) + 2·max(m − 6, 0)`: arithmetic instead of a table, so that it vectorises.
#[inline(always)]
fn doubled(code: u8) -> i8 {
    let m = code & 7;
    let magnitude = (m + m.saturating_sub(4) + 2 * m.saturating_sub(6)) as i8;
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// The largest quant.
const LARGEST: u8 = 12;

/// [`doubled`] of each code, [`LARGEST`] more.
const UNSIGNED: [u8; 16] = {
    let (mut levels, mut code) = ([0; 16], 0);
    while code < 16 {
        levels[code] = (FP4_LEVELS[code] + LARGEST as i8) as u8;
        code += 1;
    }
    levels
};

pub(crate) struct Mxfp4;

impl Quant for Mxfp4 {
    const NAME: &'static str = "MXFP4";
    const GGML_TYPE: u32 = 39;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("e", 1), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(map(&nibbles(bytes(block, 1)), doubled), [half_of_e8m0(block[0]); 2])
    }
}

impl EightRows for Mxfp4 {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        let codes = nibble_words(l, block, 1);
        let quants = words!(|i| l.lookup(&UNSIGNED, codes[i]));
        LaneGroup { quants, signs: None, scales: [lane_half_of_e8m0(l, block.byte(0)); 2], minima: None }
    }
}

impl EncodeBlock for Mxfp4 {
    const ELEMS: usize = 32;
    const BYTES: usize = 17;
    const WEIGHED: bool = true;

    /// The scale of the specification, section 6.3: the largest magnitude's power of two lies on E2M1's own, 4. With
    /// weights its two neighbours are tried.
    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let mut exponent = (largest_magnitude(values).to_bits() >> 23).saturating_sub(2) as u8;
        if weights.is_some() {
            let run = Run::<GROUP>::new(values, weights);
            let mut best = f32::INFINITY;
            for tried in [exponent, exponent.saturating_sub(1), exponent.saturating_add(1)] {
                let error = error(run, half_of_e8m0(tried));
                if error < best {
                    (best, exponent) = (error, tried);
                }
            }
        }
        let scale = half_of_e8m0(exponent);
        block[0] = exponent;
        for i in 0..16 {
            block[1 + i] = code(values[i], scale) | code(values[i + 16], scale) << 4;
        }
    }
}

/// The code of the E2M1 value nearest to `value`, ties to the smaller magnitude; zero is code 0. `scale` is halved, like
/// those of the decoders. A sum over the middles that the magnitude exceeds, which vectorises.
#[inline(always)]
fn code(value: f32, scale: f32) -> u8 {
    let magnitude = value.abs();
    let mut code = 0;
    for middle in [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0] {
        code += u8::from(magnitude > middle * scale);
    }
    code | u8::from(value < 0.0 && code > 0) << 3
}

/// `2^(exponent − 128)`; the two smallest are subnormal. 255, NaN in the specification, is 2¹²⁷ as in ggml.
#[inline(always)]
fn half_of_e8m0(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

/// [`half_of_e8m0`] of eight rows.
#[inline(always)]
fn lane_half_of_e8m0<L: Lanes>(l: L, exponent: L::U) -> L::F {
    // All ones where the exponent is 0 or 1, by the borrow of the difference.
    let small = l.sub(l.splat(0), l.shr(l.sub(exponent, l.splat(2)), 31));
    let subnormal = l.shl(l.add(exponent, l.splat(1)), 21);
    let normal = l.shl(l.sub(exponent, l.splat(1)), 23);
    l.bits_to_f32(l.xor(normal, l.and(l.xor(normal, subnormal), small)))
}

pub(crate) struct Nvfp4;

impl Quant for Nvfp4 {
    const NAME: &'static str = "NVFP4";
    const GGML_TYPE: u32 = 40;
    const ELEMS: usize = 64;
    const FIELDS: &'static [Field] = &fields([("d", 4), ("qs", 32)]);
    const SCALE_GROUP: usize = 16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// Eight bytes per 16 elements: the low nibbles, then the high ones.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let packed: &[u8; 16] = bytes(block, 4 + 16 * group);
        let scales: &[u8; 2] = bytes(block, 2 * group);
        let mut quants = [0; GROUP];
        for i in 0..8 {
            quants[i] = doubled(packed[i] & 15);
            quants[i + 8] = doubled(packed[i] >> 4);
            quants[i + 16] = doubled(packed[i + 8] & 15);
            quants[i + 24] = doubled(packed[i + 8] >> 4);
        }
        Group::symmetric(quants, map(scales, half_of_ue4m3))
    }
}

impl EightRows for Nvfp4 {
    const OFFSET: u8 = LARGEST;
    const MAX: u8 = 2 * LARGEST;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let quants = words!(|i| {
            let packed = block.word(4 + 16 * group + 8 * (i / 4) + 4 * (i % 2));
            l.lookup(&UNSIGNED, l.bits(packed, 4 * (i as u32 / 2 % 2), 15))
        });
        let bytes = block.word(0);
        let invalid = l.eq_u8(bytes, l.splat(0x7f7f_7f7f));
        let bytes = l.and(bytes, l.xor(invalid, l.splat(u32::MAX)));
        let scales = words!(2, |half| lane_half_of_ue4m3(l, l.byte(bytes, 2 * group + half)));
        LaneGroup { quants, signs: None, scales, minima: None }
    }
}

impl EncodeBlock for Nvfp4 {
    const ELEMS: usize = 64;
    const BYTES: usize = 36;
    const WEIGHED: bool = true;

    /// The scale of the least error, from a little less than what makes the largest magnitude E2M1's largest, 6, to what
    /// makes it the next one, 4.
    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        for (group, values) in values.as_chunks::<16>().0.iter().enumerate() {
            let run = Run::<16>::new(values, weights.map(|weights| &weights[16 * group..]));
            let start = nearest_ue4m3(largest_magnitude(values) / 6.0);
            let mut best = (f32::INFINITY, start);
            for scale in start.saturating_sub(2)..=(start + 5).min(UE4M3_LARGEST) {
                let error = error(run, half_of_ue4m3(scale));
                if error < best.0 {
                    best = (error, scale);
                }
            }
            block[group] = best.1;
            let scale = half_of_ue4m3(best.1);
            for i in 0..8 {
                block[4 + 8 * group + i] = code(values[i], scale) | code(values[i + 8], scale) << 4;
            }
        }
    }
}

/// 448, the largest number of E4M3.
const UE4M3_LARGEST: u8 = 0x7e;

/// The UE4M3 code nearest to a number that is not negative, ties up.
#[inline(always)]
fn nearest_ue4m3(value: f32) -> u8 {
    // From 2⁻⁶ on the code is the top of the f32, rounded, with another exponent bias; below it counts 2⁻⁹.
    let normal = ((value.to_bits() + (1 << 19)) >> 20).saturating_sub((127 - 7) << 3);
    let subnormal = (value * 512.0 + 0.5) as u32;
    let nearest = if value < 0.015_625 { subnormal } else { normal };
    nearest.min(u32::from(UE4M3_LARGEST)) as u8
}

/// The weighted sum of squares that values leave at a (halved) scale.
#[inline(always)]
fn error<const N: usize>(run: Run<'_, N>, scale: f32) -> f32 {
    let mut lanes = [0.0; 8];
    for (values, weights) in run.values.as_chunks::<8>().0.iter().zip(run.weights.as_chunks::<8>().0) {
        for i in 0..8 {
            let rest = values[i] - scale * f32::from(doubled(code(values[i], scale)));
            lanes[i] += weights[i] * rest * rest;
        }
    }
    lanes.iter().sum()
}

/// Half the value of a UE4M3 scale; 0x7f, NaN in E4M3, is zero as in ggml (0xff is not).
#[inline(always)]
fn half_of_ue4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
    let normal = f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20);
    let subnormal = mantissa as f32 * f32::from_bits((127 - 10) << 23);
    let value = if exponent == 0 { subnormal } else { normal };
    if byte == 0x7f { 0.0 } else { value }
}

/// [`half_of_ue4m3`] of eight rows, for bytes that are not 0x7f.
#[inline(always)]
fn lane_half_of_ue4m3<L: Lanes>(l: L, byte: L::U) -> L::F {
    let exponent = l.and(l.shr(byte, 3), l.splat(15));
    // 1 where the exponent is not zero: then the significand has one bit more, else it counts like that of exponent 1.
    let normal = l.shr(l.add(exponent, l.splat(15)), 4);
    let significand = l.or(l.and(byte, l.splat(7)), l.shl(normal, 3));
    let power = l.add(l.sub(exponent, normal), l.splat(1 + 127 - 8 - 3));
    l.mul_f32(l.i32_to_f32(significand), l.bits_to_f32(l.shl(power, 23)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_equals_the_table() {
        for code in 0..16 {
            assert_eq!(doubled(code), FP4_LEVELS[usize::from(code)], "code {code}");
        }
    }
}
