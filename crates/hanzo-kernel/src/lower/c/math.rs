//! Built-in functions: those that a prelude has, under the prefix `w_`.

use naga::{Expression, Handle, MathFunction as M};

use super::{Result, Writer, body::Body, unsupported};

impl<'a> Writer<'a> {
    pub(super) fn math(&self, body: &Body<'a>, fun: M, args: &[Handle<Expression>]) -> Result<String> {
        let Some(name) = name(fun) else { return unsupported("function", fun) };
        Ok(format!("w_{name}({})", self.list(body, args)?))
    }
}

fn name(fun: M) -> Option<&'static str> {
    Some(match fun {
        M::Abs => "abs",
        M::Min => "min",
        M::Max => "max",
        M::Clamp => "clamp",
        M::Saturate => "saturate",
        M::Cos => "cos",
        M::Sin => "sin",
        M::Tanh => "tanh",
        M::Ceil => "ceil",
        M::Floor => "floor",
        M::Round => "round",
        M::Fract => "fract",
        M::Trunc => "trunc",
        M::Ldexp => "ldexp",
        M::Exp => "exp",
        M::Exp2 => "exp2",
        M::Log => "log",
        M::Log2 => "log2",
        M::Pow => "pow",
        M::Dot => "dot",
        M::Dot4I8Packed => "dot4_i8",
        M::Dot4U8Packed => "dot4_u8",
        M::Length => "length",
        M::Sign => "sign",
        M::Fma => "fma",
        M::Mix => "mix",
        M::Step => "step",
        M::Sqrt => "sqrt",
        M::InverseSqrt => "rsqrt",
        M::QuantizeToF16 => "quantize_f16",
        M::CountTrailingZeros => "ctz",
        M::CountLeadingZeros => "clz",
        M::CountOneBits => "popcount",
        M::ReverseBits => "reverse_bits",
        M::ExtractBits => "extract_bits",
        M::InsertBits => "insert_bits",
        M::FirstTrailingBit => "first_trailing_bit",
        M::FirstLeadingBit => "first_leading_bit",
        M::Pack2x16float => "pack_2x16_float",
        M::Pack4xI8 => "pack_4x_i8",
        M::Pack4xU8 => "pack_4x_u8",
        M::Pack4xI8Clamp => "pack_4x_i8_clamp",
        M::Pack4xU8Clamp => "pack_4x_u8_clamp",
        M::Unpack2x16float => "unpack_2x16_float",
        M::Unpack4xI8 => "unpack_4x_i8",
        M::Unpack4xU8 => "unpack_4x_u8",
        _ => return None,
    })
}
