//! Q8_0, Q8_1, Q8_K: signed bytes with one scale. Weights come as Q8_0; Q8_1 and Q8_K are the forms that
//! activations take for integer dot products, and carry sums of the quants.

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, f16_at, farthest_from_zero, largest_magnitude, map, put_f16},
    layout::{EncodeBlock, Quant, encode, fields},
};
use crate::lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words};

/// 32 signed bytes.
#[inline(always)]
fn signed(block: &[u8], at: usize) -> [i8; GROUP] {
    map(bytes(block, at), |byte: u8| byte as i8)
}

/// Quants of a block of 32 by the largest magnitude, which becomes ±127; ties round away from zero. Returns the
/// scale before it is rounded to a half float.
#[inline(always)]
fn quantize32(values: &[f32]) -> (f32, [i8; GROUP]) {
    let scale = largest_magnitude(values) / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut quants = [0; GROUP];
    for (quant, value) in quants.iter_mut().zip(values) {
        *quant = nearest_away(value * inverse) as i8;
    }
    (scale, quants)
}

pub(crate) struct Q8_0;

impl Quant for Q8_0 {
    const NAME: &'static str = "Q8_0";
    const GGML_TYPE: u32 = 8;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 32)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(signed(block, 2), [f16_at(block, 0); 2])
    }
}

/// [`signed`] of eight rows, 128 more.
#[inline(always)]
fn unsigned_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize) -> [L::U; 8] {
    words!(|i| l.xor(block.word(at + 4 * i), l.splat(0x8080_8080)))
}

impl EightRows for Q8_0 {
    const OFFSET: u8 = 128;
    const MAX: u8 = 255;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup {
            quants: unsigned_words(l, block, 2),
            signs: None,
            scales: [block.f16(0); 2],
            minima: None,
        }
    }
}

impl EncodeBlock for Q8_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let (scale, quants) = quantize32(values);
        put_f16(block, 0, scale);
        block[2..].copy_from_slice(&map(&quants, |q| q as u8));
    }
}

pub(crate) struct Q8_1;

impl Quant for Q8_1 {
    const NAME: &'static str = "Q8_1";
    const GGML_TYPE: u32 = 9;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("s", 2), ("qs", 32)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(signed(block, 4), [f16_at(block, 0); 2])
    }
}

impl EightRows for Q8_1 {
    const OFFSET: u8 = 128;
    const MAX: u8 = 255;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup {
            quants: unsigned_words(l, block, 4),
            signs: None,
            scales: [block.f16(0); 2],
            minima: None,
        }
    }
}

impl EncodeBlock for Q8_1 {
    const ELEMS: usize = 32;
    const BYTES: usize = 36;

    /// `s` is the sum of the quants times the scale, the scale not yet rounded to half.
    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let (scale, quants) = quantize32(values);
        let sum: i32 = quants.iter().map(|&q| i32::from(q)).sum();
        put_f16(block, 0, scale);
        put_f16(block, 2, sum as f32 * scale);
        block[4..].copy_from_slice(&map(&quants, |q| q as u8));
    }
}

pub(crate) struct Q8K;

impl Quant for Q8K {
    const NAME: &'static str = "Q8_K";
    const GGML_TYPE: u32 = 15;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 4), ("qs", 256), ("bsums", 32)]);
    const SCALE_GROUP: usize = 256;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let scale = f32::from_le_bytes(*bytes(block, 0));
        Group::symmetric(signed(block, 4 + group * GROUP), [scale; 2])
    }
}

impl EightRows for Q8K {
    const OFFSET: u8 = 128;
    const MAX: u8 = 255;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let scale = l.bits_to_f32(block.word(0));
        LaneGroup {
            quants: unsigned_words(l, block, 4 + group * GROUP),
            signs: None,
            scales: [scale; 2],
            minima: None,
        }
    }
}

impl EncodeBlock for Q8K {
    const ELEMS: usize = 256;
    const BYTES: usize = 292;

    /// The value farthest from zero becomes −127, so the scale may be negative; ties round to even. `bsums` are the
    /// sums of 16 quants.
    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let farthest = farthest_from_zero(values);
        block.fill(0);
        if farthest == 0.0 {
            return;
        }
        let inverse = -127.0 / farthest;
        block[..4].copy_from_slice(&(1.0 / inverse).to_le_bytes());
        let (quants, sums) = block[4..].split_at_mut(256);
        for (quant, value) in quants.iter_mut().zip(values) {
            *quant = nearest_even(inverse * value).clamp(-128, 127) as u8;
        }
        for (sum, quants) in sums.as_chunks_mut::<2>().0.iter_mut().zip(quants.as_chunks::<16>().0) {
            *sum = quants.iter().map(|&q| i16::from(q as i8)).sum::<i16>().to_le_bytes();
        }
    }
}

/// The nearest integer of a value within ±2²², ties to even: adding 1.5·2²³ leaves the integer in the mantissa.
#[inline(always)]
fn nearest_even(value: f32) -> i32 {
    let shifted = value + 12_582_912.0;
    (shifted.to_bits() & 0x007f_ffff) as i32 - 0x0040_0000
}

/// The nearest integer of a value within ±2²², ties away from zero. `f32::round` and a saturating cast say the same, but
/// do not vectorise.
#[inline(always)]
fn nearest_away(value: f32) -> i32 {
    let magnitude = value.abs();
    let even = (magnitude + 8_388_608.0) - 8_388_608.0;
    // Exact, since `even` is within a half of `magnitude`; a tie that went down is one too low.
    let away = if magnitude - even == 0.5 { even + 1.0 } else { even };
    nearest_even(away.copysign(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_equals_that_of_the_standard_library() {
        for quarter in -4 * 200..=4 * 200 {
            for step in [-1, 0, 1] {
                let value = quarter as f32 / 4.0;
                let value = f32::from_bits(value.to_bits().wrapping_add_signed(step));
                if value.is_finite() {
                    assert_eq!(nearest_away(value), value.round() as i32, "{value:e}");
                    assert_eq!(nearest_even(value), value.round_ties_even() as i32, "{value:e}");
                }
            }
        }
    }
}
