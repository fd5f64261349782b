//! Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with a half-float scale and, in the `_1` forms, a half-float offset.
//!
//! The low nibbles hold elements 0 to 15, the high ones 16 to 31; bit `i` of `qh` is the fifth bit of element `i`.

use super::{
    Encode, Field, GROUP, Group,
    bits::{bytes, f16_at, farthest_from_zero, map, nibbles, put_f16, u32_at},
    layout::{EncodeBlock, Quant, encode, fields},
};

pub(crate) struct Q4_0;

impl Quant for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const GGML_TYPE: u32 = 2;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        let quants = map(&nibbles(bytes(block, 2)), |q| q as i8 - 8);
        Group::symmetric(quants, [f16_at(block, 0); 2])
    }
}

impl EncodeBlock for Q4_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 18;

    /// The value farthest from zero becomes −8; the others round half up.
    #[inline(always)]
    fn encode_block(values: &[f32], block: &mut [u8]) {
        let farthest = farthest_from_zero(values);
        let scale = farthest / -8.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let quant = |v: f32| ((v * inverse + 8.5) as u8).min(15);
        put_f16(block, 0, scale);
        for (i, packed) in block[2..].iter_mut().enumerate() {
            *packed = quant(values[i]) | quant(values[i + 16]) << 4;
        }
    }
}

pub(crate) struct Q4_1;

impl Quant for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const GGML_TYPE: u32 = 3;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("m", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group {
            quants: map(&nibbles(bytes(block, 4)), |q| q as i8),
            scales: [f16_at(block, 0); 2],
            minima: [-f16_at(block, 2); 2],
        }
    }
}

/// Nibbles with the bits of `qh` above them.
#[inline(always)]
fn five_bits(packed: &[u8; 16], high: u32) -> [u8; GROUP] {
    let mut quants = nibbles(packed);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= ((high >> i & 1) as u8) << 4;
    }
    quants
}

pub(crate) struct Q5_0;

impl Quant for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const GGML_TYPE: u32 = 6;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qh", 4), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        let quants = map(&five_bits(bytes(block, 6), u32_at(block, 2)), |q| q as i8 - 16);
        Group::symmetric(quants, [f16_at(block, 0); 2])
    }
}

pub(crate) struct Q5_1;

impl Quant for Q5_1 {
    const NAME: &'static str = "Q5_1";
    const GGML_TYPE: u32 = 7;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("m", 2), ("qh", 4), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group {
            quants: map(&five_bits(bytes(block, 8), u32_at(block, 4)), |q| q as i8),
            scales: [f16_at(block, 0); 2],
            minima: [-f16_at(block, 2); 2],
        }
    }
}
