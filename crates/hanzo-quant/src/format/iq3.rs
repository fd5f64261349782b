//! IQ3_XXS, IQ3_S: four magnitudes from a lattice of 256 or 512 points, and a sign each.

use super::{
    Field, Group,
    bits::{bytes, f16_at, map, u32_at, with_signs},
    layout::{Quant, fields},
};
use crate::grids::{self, EVEN_SIGNS};

/// Two points of four magnitudes as a little-endian word.
#[inline(always)]
fn pair(first: [i8; 4], second: [i8; 4]) -> u64 {
    let half = |point: [i8; 4]| u64::from(u32::from_le_bytes(map(&point, |byte| byte as u8)));
    half(first) | half(second) << 32
}

pub(crate) struct Iq3Xxs;

impl Quant for Iq3Xxs {
    const NAME: &'static str = "IQ3_XXS";
    const GGML_TYPE: u32 = 18;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("scales_and_signs", 32)]);
    const SCALE_GROUP: usize = 32;

    /// A word of `scales_and_signs` a group: four sign indices of seven bits, the scale in the top four.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let points: &[u8; 8] = bytes(block, 2 + 8 * group);
        let word = u32_at(block, 66 + 4 * group);
        let signs = map(&[0, 7, 14, 21], |shift: u32| EVEN_SIGNS[(word >> shift & 127) as usize]);
        let point = |k: usize| grids::IQ3_XXS[usize::from(points[k])];
        let words = map(&[0, 2, 4, 6], |k| pair(point(k), point(k + 1)));
        let quants = with_signs(words, &signs);
        let scale = f16_at(block, 0) * (0.5 + (word >> 28) as f32) * 0.5;
        Group::symmetric(quants, [scale; 2])
    }
}

pub(crate) struct Iq3S;

impl Quant for Iq3S {
    const NAME: &'static str = "IQ3_S";
    const GGML_TYPE: u32 = 21;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("qh", 8), ("signs", 32), ("scales", 4)]);
    const SCALE_GROUP: usize = 32;

    /// A byte of `qh` a group: the ninth bit of each of eight points. The signs are free.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 8] = bytes(block, 2 + 8 * group);
        let high = usize::from(block[66 + group]);
        let point = |k: usize| grids::IQ3_S[usize::from(low[k]) | (high >> k & 1) << 8];
        let words = map(&[0, 2, 4, 6], |k| pair(point(k), point(k + 1)));
        let bits = block[106 + group / 2] >> (4 * (group % 2)) & 15;
        let scale = f16_at(block, 0) * f32::from(1 + 2 * bits);
        Group::symmetric(with_signs(words, bytes(block, 74 + 4 * group)), [scale; 2])
    }
}
