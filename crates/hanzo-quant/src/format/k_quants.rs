//! Q2_K to Q6_K: super-blocks of 256 in which the scales of 8 or 16 groups are themselves quantised.
//!
//! Source: ggml's `ggml-common.h` and `ggml-quants.c` (the k-quants of llama.cpp pull request 1684).

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, f16_at, map, put_f16},
    layout::{EncodeBlock, Quant, encode, fields},
    search::{Effort, Integers, Run},
    super_block::{Codes, SuperBlock},
};
use crate::lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words};

/// The two bits of each element in Q2_K and Q3_K: 32 bytes serve four groups.
#[inline(always)]
fn two_bits(block: &[u8], at: usize, group: usize) -> [u8; GROUP] {
    let shift = 2 * (group % 4);
    map(bytes(block, at + group / 4 * 32), |byte: u8| byte >> shift & 3)
}

/// The low four bits of each element in Q4_K and Q5_K: 32 bytes serve two groups.
#[inline(always)]
fn four_bits(block: &[u8], at: usize, group: usize) -> [u8; GROUP] {
    let shift = 4 * (group % 2);
    map(bytes(block, at + group / 2 * 32), |byte: u8| byte >> shift & 15)
}

/// The 6-bit scale and minimum of a group of Q4_K and Q5_K from the 12 bytes at 4. Groups 0 to 3 lie in the low six
/// bits of bytes 0 to 3 and 4 to 7; of groups 4 to 7 the low nibbles are in bytes 8 to 11, the high pairs above the
/// first four groups' bits.
#[inline(always)]
fn scale_and_minimum(block: &[u8], group: usize) -> (f32, f32) {
    let packed: &[u8; 12] = bytes(block, 4);
    let first = (packed[group % 4], packed[4 + group % 4]);
    let (scale, minimum) = if group < 4 {
        (first.0 & 63, first.1 & 63)
    } else {
        let low = packed[8 + group % 4];
        (low & 15 | first.0 >> 6 << 4, low >> 4 | first.1 >> 6 << 4)
    };
    (f16_at(block, 0) * f32::from(scale), f16_at(block, 2) * f32::from(minimum))
}

/// [`four_bits`] of eight rows.
#[inline(always)]
fn four_bit_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize, group: usize) -> [L::U; 8] {
    let (first, shift) = (at + group / 2 * 32, 4 * (group as u32 % 2));
    words!(|i| l.bits(block.word(first + 4 * i), shift, 15))
}

/// [`two_bits`] of eight rows.
#[inline(always)]
fn two_bit_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize, group: usize) -> [L::U; 8] {
    let (first, shift) = (at + group / 4 * 32, 2 * (group as u32 % 4));
    words!(|i| l.bits(block.word(first + 4 * i), shift, 3))
}

/// [`scale_and_minimum`] of eight rows.
#[inline(always)]
fn lane_scale_and_minimum<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> (L::F, L::F) {
    let byte = 8 * (group as u32 % 4);
    let first = (block.word(4), block.word(8));
    let (scale, minimum) = if group < 4 {
        (l.bits_at(first.0, byte, 63), l.bits_at(first.1, byte, 63))
    } else {
        let low = block.word(12);
        let high = (l.bits_at(first.0, byte + 6, 3), l.bits_at(first.1, byte + 6, 3));
        (
            l.or(l.bits_at(low, byte, 15), l.shl(high.0, 4)),
            l.or(l.bits_at(low, byte + 4, 15), l.shl(high.1, 4)),
        )
    };
    (block.f16_times(0, scale), block.f16_times(2, minimum))
}

/// The inverse of [`two_bits`] for a whole block: takes the low two bits of each code.
#[inline(always)]
fn put_two_bits(codes: &[u8; 256], packed: &mut [u8]) {
    for (half, packed) in packed.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        for (i, packed) in packed.iter_mut().enumerate() {
            let pair = |k: usize| (codes[128 * half + GROUP * k + i] & 3) << (2 * k);
            *packed = pair(0) | pair(1) | pair(2) | pair(3);
        }
    }
}

/// The inverse of [`four_bits`] for a whole block: takes the low four bits of each code.
#[inline(always)]
fn put_four_bits(codes: &[u8; 256], packed: &mut [u8]) {
    for (pair, packed) in packed.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        for (i, packed) in packed.iter_mut().enumerate() {
            *packed = codes[64 * pair + i] & 15 | codes[64 * pair + GROUP + i] << 4;
        }
    }
}

/// Bit `bit` of each code; that of group `g` becomes bit `g` of 32 bytes.
#[inline(always)]
fn put_high_bit(codes: &[u8; 256], bit: u32, packed: &mut [u8]) {
    for (i, packed) in packed.iter_mut().enumerate() {
        *packed = (0..8).fold(0, |byte, g| byte | (codes[GROUP * g + i] >> bit & 1) << g);
    }
}

/// The inverse of [`scale_and_minimum`] for a whole block.
#[inline(always)]
fn put_scales_and_minima(block: &mut [u8], fitted: &SuperBlock<8>) {
    put_f16(block, 0, fitted.d);
    put_f16(block, 2, fitted.dmin);
    let (scales, minima) = (map(&fitted.scales, |s| s as u8), map(&fitted.minima, |m| m as u8));
    for g in 0..4 {
        block[4 + g] = scales[g] | (scales[g + 4] >> 4) << 6;
        block[8 + g] = minima[g] | (minima[g + 4] >> 4) << 6;
        block[12 + g] = scales[g + 4] & 15 | minima[g + 4] << 4;
    }
}

pub(crate) struct Q2K;

impl Quant for Q2K {
    const NAME: &'static str = "Q2_K";
    const GGML_TYPE: u32 = 10;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("scales", 16), ("qs", 64), ("d", 2), ("dmin", 2)]);
    const SCALE_GROUP: usize = 16;
    const SYMMETRIC: bool = false;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
        let packed: &[u8; 2] = bytes(block, 2 * group);
        Group {
            quants: map(&two_bits(block, 16, group), |q| q as i8),
            scales: map(packed, |p| d * f32::from(p & 15)),
            minima: map(packed, |p| dmin * f32::from(p >> 4)),
        }
    }
}

impl EightRows for Q2K {
    const OFFSET: u8 = 0;
    const MAX: u8 = 3;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (codes, byte) = (block.word(group / 2 * 4), 16 * (group as u32 % 2));
        let codes = words!(4, |i| l.bits_at(codes, byte + 4 * i as u32, 15));
        LaneGroup {
            quants: two_bit_words(l, block, 16, group),
            signs: None,
            scales: [block.f16_times(80, codes[0]), block.f16_times(80, codes[2])],
            minima: Some([block.f16_times(82, codes[1]), block.f16_times(82, codes[3])]),
        }
    }
}

impl EncodeBlock for Q2K {
    const ELEMS: usize = 256;
    const BYTES: usize = 84;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const CODES: Codes = Codes { scales: (0.0, 15.0), minimum_max: 15.0 };
        const EFFORT: Effort = Effort { reach: (-0.5, 1.5), n_trials: 8, n_rounds: 3 };
        let fitted =
            SuperBlock::<16>::fit::<16>(Run::new(values, weights), Integers(0.0, 3.0), CODES, EFFORT);
        for (packed, (scale, minimum)) in block.iter_mut().zip(fitted.scales.iter().zip(&fitted.minima)) {
            *packed = *scale as u8 | (*minimum as u8) << 4;
        }
        put_two_bits(&map(&fitted.quants, |q| q as u8), &mut block[16..80]);
        put_f16(block, 80, fitted.d);
        put_f16(block, 82, fitted.dmin);
    }
}

/// The search of Q3_K and Q6_K. Where all values count the same, the best scale spans them nearly, and neighbouring codes
/// make up for the rest; where they do not, the farthest value may be one that hardly counts.
#[inline(always)]
fn symmetric_effort(weights: Option<&[f32]>) -> Effort {
    match weights {
        None => Effort { reach: (-0.5, 0.5), n_trials: 3, n_rounds: 1 },
        Some(_) => Effort { reach: (-1.0, 1.0), n_trials: 8, n_rounds: 2 },
    }
}

pub(crate) struct Q3K;

impl Quant for Q3K {
    const NAME: &'static str = "Q3_K";
    const GGML_TYPE: u32 = 11;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("hmask", 32), ("qs", 64), ("scales", 12), ("d", 2)]);
    const SCALE_GROUP: usize = 16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// Bit `group` of `hmask` set means that 4 is *not* subtracted. Of the 16 scales of six bits (less 32), the low
    /// nibbles fill bytes 0 to 7 (scales 0 to 7 in the low halves), the high pairs bytes 8 to 11.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low = two_bits(block, 32, group);
        let high: &[u8; GROUP] = bytes(block, 0);
        let mut quants = [0; GROUP];
        for i in 0..GROUP {
            quants[i] = (low[i] | (high[i] >> group & 1) << 2) as i8 - 4;
        }
        let packed: &[u8; 12] = bytes(block, 96);
        let d = f16_at(block, 108);
        let scale = |idx: usize| {
            let low = packed[idx % 8] >> (4 * (idx / 8)) & 15;
            let high = packed[8 + idx % 4] >> (2 * (idx / 4)) & 3;
            d * f32::from((low | high << 4) as i8 - 32)
        };
        Group::symmetric(quants, [scale(2 * group), scale(2 * group + 1)])
    }
}

impl EightRows for Q3K {
    const OFFSET: u8 = 4;
    const MAX: u8 = 7;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let low = two_bit_words(l, block, 32, group);
        let quants = words!(|i| l.or(low[i], l.shl(l.bits(block.word(4 * i), group as u32, 1), 2)));
        let scales = words!(2, |half| {
            let idx = 2 * group + half;
            let byte = 8 * (idx as u32 % 4);
            let low = l.bits_at(block.word(96 + idx % 8 / 4 * 4), byte + 4 * (idx as u32 / 8), 15);
            let high = l.bits_at(block.word(104), byte + 2 * (idx as u32 / 4), 3);
            block.f16_times(108, l.sub(l.or(low, l.shl(high, 4)), l.splat(32)))
        });
        LaneGroup { quants, signs: None, scales, minima: None }
    }
}

impl EncodeBlock for Q3K {
    const ELEMS: usize = 256;
    const BYTES: usize = 110;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const CODES: Codes = Codes { scales: (-32.0, 31.0), minimum_max: 0.0 };
        let fitted = SuperBlock::<16>::fit::<16>(
            Run::new(values, weights),
            Integers(-4.0, 3.0),
            CODES,
            symmetric_effort(weights),
        );
        let codes = map(&fitted.quants, |q| (q + 4.0) as u8);
        put_high_bit(&codes, 2, &mut block[..32]);
        put_two_bits(&codes, &mut block[32..96]);
        let scales = map(&fitted.scales, |s| (s + 32.0) as u8);
        for i in 0..8 {
            block[96 + i] = scales[i] & 15 | scales[i + 8] << 4;
        }
        for i in 0..4 {
            block[104 + i] = (0..4).fold(0, |byte, k| byte | (scales[4 * k + i] >> 4) << (2 * k));
        }
        put_f16(block, 108, fitted.d);
    }
}

pub(crate) struct Q4K;

impl Quant for Q4K {
    const NAME: &'static str = "Q4_K";
    const GGML_TYPE: u32 = 12;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let (scale, minimum) = scale_and_minimum(block, group);
        Group {
            quants: map(&four_bits(block, 16, group), |q| q as i8),
            scales: [scale; 2],
            minima: [minimum; 2],
        }
    }
}

impl EightRows for Q4K {
    const OFFSET: u8 = 0;
    const MAX: u8 = 15;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (scale, minimum) = lane_scale_and_minimum(l, block, group);
        let quants = four_bit_words(l, block, 16, group);
        LaneGroup { quants, signs: None, scales: [scale; 2], minima: Some([minimum; 2]) }
    }
}

impl EncodeBlock for Q4K {
    const ELEMS: usize = 256;
    const BYTES: usize = 144;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const EFFORT: Effort = Effort { reach: (-1.0, 1.5), n_trials: 10, n_rounds: 2 };
        let fitted =
            SuperBlock::<8>::fit::<32>(Run::new(values, weights), Integers(0.0, 15.0), SIX_BITS, EFFORT);
        put_scales_and_minima(block, &fitted);
        put_four_bits(&map(&fitted.quants, |q| q as u8), &mut block[16..]);
    }
}

/// Scales and minima of Q4_K and Q5_K.
const SIX_BITS: Codes = Codes { scales: (0.0, 63.0), minimum_max: 63.0 };

pub(crate) struct Q5K;

impl Quant for Q5K {
    const NAME: &'static str = "Q5_K";
    const GGML_TYPE: u32 = 13;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] =
        &fields([("d", 2), ("dmin", 2), ("scales", 12), ("qh", 32), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let (scale, minimum) = scale_and_minimum(block, group);
        let low = four_bits(block, 48, group);
        let high: &[u8; GROUP] = bytes(block, 16);
        let mut quants = [0; GROUP];
        for i in 0..GROUP {
            quants[i] = (low[i] | (high[i] >> group & 1) << 4) as i8;
        }
        Group { quants, scales: [scale; 2], minima: [minimum; 2] }
    }
}

impl EightRows for Q5K {
    const OFFSET: u8 = 0;
    const MAX: u8 = 31;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (scale, minimum) = lane_scale_and_minimum(l, block, group);
        let low = four_bit_words(l, block, 48, group);
        let quants = words!(|i| l.or(low[i], l.shl(l.bits(block.word(16 + 4 * i), group as u32, 1), 4)));
        LaneGroup { quants, signs: None, scales: [scale; 2], minima: Some([minimum; 2]) }
    }
}

impl EncodeBlock for Q5K {
    const ELEMS: usize = 256;
    const BYTES: usize = 176;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const EFFORT: Effort = Effort { reach: (-1.0, 1.5), n_trials: 10, n_rounds: 2 };
        let fitted =
            SuperBlock::<8>::fit::<32>(Run::new(values, weights), Integers(0.0, 31.0), SIX_BITS, EFFORT);
        put_scales_and_minima(block, &fitted);
        let codes = map(&fitted.quants, |q| q as u8);
        put_high_bit(&codes, 4, &mut block[16..48]);
        put_four_bits(&codes, &mut block[48..]);
    }
}

pub(crate) struct Q6K;

impl Quant for Q6K {
    const NAME: &'static str = "Q6_K";
    const GGML_TYPE: u32 = 14;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("ql", 128), ("qh", 64), ("scales", 16), ("d", 2)]);
    const SCALE_GROUP: usize = 16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// Each half of 128 elements has 64 bytes of nibbles (groups 0 and 1 low, 2 and 3 high) and 32 bytes of pairs.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let (half, quarter) = (group / 4, group % 4);
        let low: &[u8; GROUP] = bytes(block, half * 64 + quarter % 2 * 32);
        let high: &[u8; GROUP] = bytes(block, 128 + half * 32);
        let (low_shift, high_shift) = (4 * (quarter / 2), 2 * quarter);
        let mut quants = [0; GROUP];
        for i in 0..GROUP {
            quants[i] = (low[i] >> low_shift & 15 | (high[i] >> high_shift & 3) << 4) as i8 - 32;
        }
        let d = f16_at(block, 208);
        let scales: &[u8; 2] = bytes(block, 192 + 2 * group);
        Group::symmetric(quants, map(scales, |s| d * f32::from(s as i8)))
    }
}

impl EightRows for Q6K {
    const OFFSET: u8 = 32;
    const MAX: u8 = 63;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let (half, quarter) = (group / 4, group % 4);
        let (low, high) = (half * 64 + quarter % 2 * 32, 128 + half * 32);
        let quants = words!(|i| {
            let low = l.bits(block.word(low + 4 * i), 4 * (quarter as u32 / 2), 15);
            l.or(low, l.shl(l.bits(block.word(high + 4 * i), 2 * quarter as u32, 3), 4))
        });
        let (codes, sign) = (block.word(192 + group / 2 * 4), l.splat(0x80));
        let scales = words!(2, |half| {
            let signed = l.sub(l.xor(l.byte(codes, 2 * (group % 2) + half), sign), sign);
            block.f16_times(208, signed)
        });
        LaneGroup { quants, signs: None, scales, minima: None }
    }
}

impl EncodeBlock for Q6K {
    const ELEMS: usize = 256;
    const BYTES: usize = 210;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const CODES: Codes = Codes { scales: (-128.0, 127.0), minimum_max: 0.0 };
        let fitted = SuperBlock::<16>::fit::<16>(
            Run::new(values, weights),
            Integers(-32.0, 31.0),
            CODES,
            symmetric_effort(weights),
        );
        let codes = map(&fitted.quants, |q| (q + 32.0) as u8);
        for half in 0..2 {
            let codes = &codes[128 * half..];
            for i in 0..64 {
                block[64 * half + i] = codes[i] & 15 | codes[64 + i] << 4;
            }
            for i in 0..32 {
                let pair = |k: usize| codes[GROUP * k + i] >> 4 << (2 * k);
                block[128 + 32 * half + i] = pair(0) | pair(1) | pair(2) | pair(3);
            }
        }
        block[192..208].copy_from_slice(&map(&fitted.scales, |s| s as i8 as u8));
        put_f16(block, 208, fitted.d);
    }
}
