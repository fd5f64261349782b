//! MXFP4, NVFP4: FP4 E2M1 elements, doubled to integers ([`crate::grids::FP4_LEVELS`]), with halved float scales.
//!
//! Sources: OCP Microscaling Formats 1.0 for E2M1 and E8M0; ggml for UE4M3 (an E4M3 whose sign bit is ignored).

use super::{
    Field, GROUP, Group,
    bits::{bytes, map, nibbles},
    layout::{Quant, fields},
};

/// Twice the value of an E2M1 code. With `m` the magnitude bits, 0 1 2 3 4 6 8 12 is
/// `m + max(m − 4, 0) + 2·max(m − 6, 0)`: arithmetic instead of a table, so that it vectorises.
#[inline(always)]
fn doubled(code: u8) -> i8 {
    let m = code & 7;
    let magnitude = (m + m.saturating_sub(4) + 2 * m.saturating_sub(6)) as i8;
    if code & 8 == 0 { magnitude } else { -magnitude }
}

pub(crate) struct Mxfp4;

impl Quant for Mxfp4 {
    const NAME: &'static str = "MXFP4";
    const GGML_TYPE: u32 = 39;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("e", 1), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(map(&nibbles(bytes(block, 1)), doubled), [half_of_e8m0(block[0]); 2])
    }
}

/// `2^(exponent − 128)`; the two smallest are subnormal. 255, NaN in the specification, is 2¹²⁷ as in ggml.
#[inline(always)]
fn half_of_e8m0(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

pub(crate) struct Nvfp4;

impl Quant for Nvfp4 {
    const NAME: &'static str = "NVFP4";
    const GGML_TYPE: u32 = 40;
    const ELEMS: usize = 64;
    const FIELDS: &'static [Field] = &fields([("d", 4), ("qs", 32)]);
    const SCALE_GROUP: usize = 16;

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

/// Half the value of a UE4M3 scale; 0x7f, NaN in E4M3, is zero as in ggml (0xff is not).
#[inline(always)]
fn half_of_ue4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(byte >> 3 & 15), u32::from(byte & 7));
    let normal = f32::from_bits((exponent + 127 - 8) << 23 | mantissa << 20);
    let subnormal = mantissa as f32 * f32::from_bits((127 - 10) << 23);
    let value = if exponent == 0 { subnormal } else { normal };
    if byte == 0x7f { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_equals_the_table() {
        for code in 0..16 {
            assert_eq!(doubled(code), crate::grids::FP4_LEVELS[usize::from(code)], "code {code}");
        }
    }
}
