//! Q2_K to Q6_K: super-blocks of 256 in which the scales of 8 or 16 groups are themselves quantised.
//!
//! Source: ggml's `ggml-common.h` and `ggml-quants.c` (the k-quants of llama.cpp pull request 1684).

use super::{
    Field, GROUP, Group,
    bits::{bytes, f16_at, map},
    layout::{Quant, fields},
};

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

pub(crate) struct Q2K;

impl Quant for Q2K {
    const NAME: &'static str = "Q2_K";
    const GGML_TYPE: u32 = 10;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("scales", 16), ("qs", 64), ("d", 2), ("dmin", 2)]);
    const SCALE_GROUP: usize = 16;
    const SYMMETRIC: bool = false;

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

pub(crate) struct Q3K;

impl Quant for Q3K {
    const NAME: &'static str = "Q3_K";
    const GGML_TYPE: u32 = 11;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("hmask", 32), ("qs", 64), ("scales", 12), ("d", 2)]);
    const SCALE_GROUP: usize = 16;

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

pub(crate) struct Q4K;

impl Quant for Q4K {
    const NAME: &'static str = "Q4_K";
    const GGML_TYPE: u32 = 12;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;

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

pub(crate) struct Q5K;

impl Quant for Q5K {
    const NAME: &'static str = "Q5_K";
    const GGML_TYPE: u32 = 13;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] =
        &fields([("d", 2), ("dmin", 2), ("scales", 12), ("qh", 32), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;

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

pub(crate) struct Q6K;

impl Quant for Q6K {
    const NAME: &'static str = "Q6_K";
    const GGML_TYPE: u32 = 14;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("ql", 128), ("qh", 64), ("scales", 16), ("d", 2)]);
    const SCALE_GROUP: usize = 16;

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
