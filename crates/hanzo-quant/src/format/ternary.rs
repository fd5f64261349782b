//! TQ1_0, TQ2_0: elements of −1, 0, 1 (and 2 in malformed TQ2_0) with one half-float scale per 256.

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, f16_at, largest_magnitude, map, put_f16},
    layout::{EncodeBlock, Quant, encode, fields},
};
use crate::lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words};

/// Digits 0, 1, 2 for −1, 0, 1 of a block in units of its largest magnitude, halves away from zero; and that scale.
#[inline(always)]
fn digits(values: &[f32]) -> (f32, [u8; 256]) {
    let scale = largest_magnitude(values);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let values: &[f32; 256] = values.first_chunk().expect("a block has 256 values");
    (scale, map(values, |v| 1 + u8::from(v * inverse >= 0.5) - u8::from(v * inverse <= -0.5)))
}

pub(crate) struct Tq1_0;

/// Powers of three.
const POWERS: [u32; 5] = [1, 3, 9, 27, 81];

/// Trit `idx` of a byte that holds `ceil(t · 256 / 243)` of a five-digit ternary number `t`, first digit highest:
/// multiplying by 3ⁱᵈˣ modulo 256 brings the digit to the top, times 3 over 256 reads it.
#[inline(always)]
fn trit(byte: u8, idx: usize) -> i8 {
    ((u16::from(byte.wrapping_mul(POWERS[idx] as u8)) * 3) >> 8) as i8 - 1
}

/// Trit `idx` of each byte of eight rows, 1 more.
#[inline(always)]
fn trit_words<L: Lanes>(l: L, bytes: L::U, idx: usize) -> L::U {
    // In sixteen bits with the byte on top, three times the number over 65536 is the digit.
    let three = l.splat(0x0003_0003);
    let even = l.mul_high_u16(l.mul_u16(bytes, l.splat(0x0100_0100 * POWERS[idx])), three);
    let top = l.and(bytes, l.splat(0xff00_ff00));
    let odd = l.mul_high_u16(l.mul_u16(top, l.splat(0x0001_0001 * POWERS[idx])), three);
    l.or(even, l.shl(odd, 8))
}

impl Quant for Tq1_0 {
    const NAME: &'static str = "TQ1_0";
    const GGML_TYPE: u32 = 34;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 48), ("qh", 4), ("d", 2)]);
    const SCALE_GROUP: usize = 256;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// Five trits of bytes 0 to 31 make groups 0 to 4; five of bytes 32 to 47 and four of `qh` make the rest.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let mut quants = [0; GROUP];
        if group < 5 {
            let packed: &[u8; GROUP] = bytes(block, 0);
            quants = map(packed, |byte| trit(byte, group));
        } else {
            let packed: &[u8; 16] = bytes(block, 32);
            let last: &[u8; 4] = bytes(block, 48);
            let first_idx = 2 * (group - 5);
            for i in 0..16 {
                quants[i] = trit(packed[i], first_idx);
                quants[i + 16] =
                    if group < 7 { trit(packed[i], first_idx + 1) } else { trit(last[i % 4], i / 4) };
            }
        }
        Group::symmetric(quants, [f16_at(block, 52); 2])
    }
}

impl EightRows for Tq1_0 {
    const OFFSET: u8 = 1;
    const MAX: u8 = 2;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let first = 2 * group.saturating_sub(5);
        let quants = words!(|i| match (group, i / 4) {
            (0..5, _) => trit_words(l, block.word(4 * i), group),
            (7, 1) => trit_words(l, block.word(48), i % 4),
            (_, half) => trit_words(l, block.word(32 + 4 * (i % 4)), first + half),
        });
        LaneGroup { quants, signs: None, scales: [block.f16(52); 2], minima: None }
    }
}

impl EncodeBlock for Tq1_0 {
    const ELEMS: usize = 256;
    const BYTES: usize = 54;

    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let (scale, digits) = digits(values);
        // (first element, bytes, digits a byte); digit `k` of byte `i` is `k · bytes + i` elements on.
        let mut at = 0;
        for (first, n_bytes, n_digits) in [(0, 32, 5), (160, 16, 5), (240, 4, 4)] {
            for i in 0..n_bytes {
                let digit = |k: usize| if k < n_digits { digits[first + k * n_bytes + i] } else { 0 };
                let number = (0..5).fold(0, |number, k| 3 * number + u16::from(digit(k)));
                block[at + i] = (number * 256).div_ceil(243) as u8;
            }
            at += n_bytes;
        }
        put_f16(block, 52, scale);
    }
}

pub(crate) struct Tq2_0;

impl Quant for Tq2_0 {
    const NAME: &'static str = "TQ2_0";
    const GGML_TYPE: u32 = 35;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 64), ("d", 2)]);
    const SCALE_GROUP: usize = 256;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let packed: &[u8; GROUP] = bytes(block, group / 4 * 32);
        let shift = 2 * (group % 4);
        Group::symmetric(map(packed, |byte| (byte >> shift & 3) as i8 - 1), [f16_at(block, 64); 2])
    }
}

impl EightRows for Tq2_0 {
    const OFFSET: u8 = 1;
    const MAX: u8 = 3;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (first, shift) = (group / 4 * 32, 2 * (group as u32 % 4));
        let quants = words!(|i| l.bits(block.word(first + 4 * i), shift, 3));
        LaneGroup { quants, signs: None, scales: [block.f16(64); 2], minima: None }
    }
}

impl EncodeBlock for Tq2_0 {
    const ELEMS: usize = 256;
    const BYTES: usize = 66;

    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let (scale, digits) = digits(values);
        for half in 0..2 {
            for i in 0..32 {
                let digit = |k: usize| digits[128 * half + 32 * k + i] << (2 * k);
                block[32 * half + i] = digit(0) | digit(1) | digit(2) | digit(3);
            }
        }
        put_f16(block, 64, scale);
    }
}
