//! F32, F16, BF16, F64 and the integers: a block is one number. What f32 cannot hold rounds to nearest, ties to even.

use super::{
    Encode, Field, Number,
    bits::{bytes, f16_to_f32, put_f16, u16_at},
    layout::{EncodeBlock, Plain, encode, fields},
};

pub(crate) struct F32;

impl Plain for F32 {
    const NAME: &'static str = "F32";
    const GGML_TYPE: u32 = 0;
    const FIELDS: &'static [Field] = &fields([("value", 4)]);
    const NUMBER: Number = Number::F32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f32::from_le_bytes(*bytes(block, 0))
    }
}

impl EncodeBlock for F32 {
    const ELEMS: usize = 1;
    const BYTES: usize = 4;

    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        block.copy_from_slice(&values[0].to_le_bytes());
    }
}

pub(crate) struct F16;

impl Plain for F16 {
    const NAME: &'static str = "F16";
    const GGML_TYPE: u32 = 1;
    const FIELDS: &'static [Field] = &fields([("value", 2)]);
    const NUMBER: Number = Number::F16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f16_to_f32(u16_at(block, 0))
    }
}

impl EncodeBlock for F16 {
    const ELEMS: usize = 1;
    const BYTES: usize = 2;

    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        put_f16(block, 0, values[0]);
    }
}

pub(crate) struct Bf16;

impl Plain for Bf16 {
    const NAME: &'static str = "BF16";
    const GGML_TYPE: u32 = 30;
    const FIELDS: &'static [Field] = &fields([("value", 2)]);
    const NUMBER: Number = Number::Bf16;
    const ENCODE: Option<Encode> = Some(encode::<Self>);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f32::from_bits(u32::from(u16_at(block, 0)) << 16)
    }
}

impl EncodeBlock for Bf16 {
    const ELEMS: usize = 1;
    const BYTES: usize = 2;

    /// Ties to even; a NaN keeps its high bits and becomes quiet.
    #[inline(always)]
    fn encode_block(values: &[f32], _weights: Option<&[f32]>, block: &mut [u8]) {
        let bits = values[0].to_bits();
        let rounded = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
        let quiet = (bits >> 16) as u16 | 64;
        let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
        block.copy_from_slice(&(if is_nan { quiet } else { rounded }).to_le_bytes());
    }
}

pub(crate) struct F64;

impl Plain for F64 {
    const NAME: &'static str = "F64";
    const GGML_TYPE: u32 = 28;
    const FIELDS: &'static [Field] = &fields([("value", 8)]);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f64::from_le_bytes(*bytes(block, 0)) as f32
    }
}

pub(crate) struct I8;

impl Plain for I8 {
    const NAME: &'static str = "I8";
    const GGML_TYPE: u32 = 24;
    const FIELDS: &'static [Field] = &fields([("value", 1)]);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f32::from(block[0] as i8)
    }
}

pub(crate) struct I16;

impl Plain for I16 {
    const NAME: &'static str = "I16";
    const GGML_TYPE: u32 = 25;
    const FIELDS: &'static [Field] = &fields([("value", 2)]);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        f32::from(u16_at(block, 0) as i16)
    }
}

pub(crate) struct I32;

impl Plain for I32 {
    const NAME: &'static str = "I32";
    const GGML_TYPE: u32 = 26;
    const FIELDS: &'static [Field] = &fields([("value", 4)]);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        i32::from_le_bytes(*bytes(block, 0)) as f32
    }
}

pub(crate) struct I64;

impl Plain for I64 {
    const NAME: &'static str = "I64";
    const GGML_TYPE: u32 = 27;
    const FIELDS: &'static [Field] = &fields([("value", 8)]);

    #[inline(always)]
    fn value(block: &[u8]) -> f32 {
        i64::from_le_bytes(*bytes(block, 0)) as f32
    }
}
