//! IQ2_XXS, IQ2_XS, IQ2_S: eight magnitudes from a lattice of 256, 512 or 1024 points, and eight signs.
//!
//! The scale is `d · (1/2 + s) / 4` with four bits of `s`.

use super::{
    Field, Group,
    bits::{bytes, f16_at, map, u16_at, u32_at, with_signs, word},
    layout::{Quant, fields},
};
use crate::grids::{self, EVEN_SIGNS};

#[inline(always)]
fn scale(block: &[u8], bits: u8) -> f32 {
    f16_at(block, 0) * (0.5 + f32::from(bits)) * 0.25
}

pub(crate) struct Iq2Xxs;

impl Quant for Iq2Xxs {
    const NAME: &'static str = "IQ2_XXS";
    const GGML_TYPE: u32 = 16;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64)]);
    const SCALE_GROUP: usize = 32;
    const NEEDS_IMPORTANCE: bool = true;

    /// Eight bytes a group: four points, then four sign indices of seven bits and the scale in the top four.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let points: &[u8; 4] = bytes(block, 2 + 8 * group);
        let bits = u32_at(block, 6 + 8 * group);
        let signs = map(&[0, 7, 14, 21], |shift: u32| EVEN_SIGNS[(bits >> shift & 127) as usize]);
        let quants = with_signs(map(points, |p| word(&grids::IQ2_XXS[usize::from(p)])), &signs);
        Group::symmetric(quants, [scale(block, (bits >> 28) as u8); 2])
    }
}

pub(crate) struct Iq2Xs;

impl Quant for Iq2Xs {
    const NAME: &'static str = "IQ2_XS";
    const GGML_TYPE: u32 = 17;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 64), ("scales", 8)]);
    const SCALE_GROUP: usize = 16;
    const NEEDS_IMPORTANCE: bool = true;

    /// A word a point: nine bits of index, seven of sign index.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let words = map(&[0, 1, 2, 3], |k| usize::from(u16_at(block, 2 + 8 * group + 2 * k)));
        let signs = map(&words, |w| EVEN_SIGNS[w >> 9 & 127]);
        let quants = with_signs(map(&words, |w| word(&grids::IQ2_XS[w & 511])), &signs);
        let scales = block[66 + group];
        Group::symmetric(quants, [scale(block, scales & 15), scale(block, scales >> 4)])
    }
}

pub(crate) struct Iq2S;

impl Quant for Iq2S {
    const NAME: &'static str = "IQ2_S";
    const GGML_TYPE: u32 = 22;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 32), ("signs", 32), ("qh", 8), ("scales", 8)]);
    const SCALE_GROUP: usize = 16;

    /// A byte of `qh` a group: two high bits for each of four points. The signs are free.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low: &[u8; 4] = bytes(block, 2 + 4 * group);
        let high = usize::from(block[66 + group]);
        let point = |k: usize| word(&grids::IQ2_S[usize::from(low[k]) | (high >> (2 * k) & 3) << 8]);
        let quants = with_signs([point(0), point(1), point(2), point(3)], bytes(block, 34 + 4 * group));
        let scales = block[74 + group];
        Group::symmetric(quants, [scale(block, scales & 15), scale(block, scales >> 4)])
    }
}
