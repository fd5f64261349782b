//! IQ1_S, IQ1_M: eight ternary elements from a lattice of 2048 points, shifted as a whole by ±1/8.
//!
//! The value `dl · (grid ± 1/8)` is `(dl / 8) · (8·grid ± 1)`, exactly: the factor is a power of two and `dl / 8`
//! cannot be subnormal.

use super::{
    Field, GROUP, Group,
    bits::{bytes, f16_at, f16_to_f32, map, u16_at},
    layout::{Quant, fields},
};
use crate::grids;

/// Four points (index and whether the shift is negative) as quants.
#[inline(always)]
fn shifted(points: [(usize, bool); 4]) -> [i8; GROUP] {
    let mut quants = [0; GROUP];
    for (out, (point, negative)) in quants.as_chunks_mut::<8>().0.iter_mut().zip(points) {
        let shift = if negative { -1 } else { 1 };
        *out = map(&grids::IQ1[point & 2047], |q| q + shift);
    }
    quants
}

pub(crate) struct Iq1S;

impl Quant for Iq1S {
    const NAME: &'static str = "IQ1_S";
    const GGML_TYPE: u32 = 19;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 32), ("qh", 16)]);
    const SCALE_GROUP: usize = 32;
    const NEEDS_IMPORTANCE: bool = true;

    /// A word of `qh` a group: three high bits for each of four points, three bits of scale, the sign of the shift.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 2 + 4 * group);
        let high = u16_at(block, 34 + 2 * group);
        let point = |k: usize| (usize::from(low[k]) | usize::from(high >> (3 * k) & 7) << 8, high >> 15 != 0);
        let scale = f16_at(block, 0) * f32::from(2 * (high >> 12 & 7) + 1) * 0.125;
        Group::symmetric(shifted([point(0), point(1), point(2), point(3)]), [scale; 2])
    }
}

pub(crate) struct Iq1M;

impl Quant for Iq1M {
    const NAME: &'static str = "IQ1_M";
    const GGML_TYPE: u32 = 29;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 32), ("qh", 16), ("scales", 8)]);
    const SCALE_GROUP: usize = 16;

    /// A nibble of `qh` a point: three high bits and the sign of the shift. The top nibbles of the four words of
    /// `scales` make the half-float scale, the other bits sixteen scales of three bits.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 4 * group);
        let high = u16_at(block, 32 + 2 * group);
        let point = |k: usize| {
            let nibble = high >> (4 * k);
            (usize::from(low[k]) | usize::from(nibble & 7) << 8, nibble & 8 != 0)
        };
        let words = [u16_at(block, 48), u16_at(block, 50), u16_at(block, 52), u16_at(block, 54)];
        let d = f16_to_f32(words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12);
        let six_bits = u16_at(block, 48 + group / 2 * 2) >> (6 * (group % 2));
        let scale = |bits: u16| d * f32::from(2 * (bits & 7) + 1) * 0.125;
        Group::symmetric(
            shifted([point(0), point(1), point(2), point(3)]),
            [scale(six_bits), scale(six_bits >> 3)],
        )
    }
}
