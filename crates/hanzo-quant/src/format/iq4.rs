//! IQ4_NL, IQ4_XS: four bits that choose one of 16 unevenly spaced levels ([`crate::grids::IQ4_LEVELS`]).

use super::{
    Field, GROUP, Group,
    bits::{bytes, f16_at, map, u16_at},
    layout::{Quant, fields},
};
use crate::grids::IQ4_PAIRS;

/// The levels of 16 low nibbles, then of the 16 high ones.
#[inline(always)]
fn levels(packed: &[u8; 16]) -> [i8; GROUP] {
    let pairs =
        map(packed, |byte| u16::from_le_bytes(map(&IQ4_PAIRS[usize::from(byte)], |level| level as u8)));
    let mut quants = [0; GROUP];
    for i in 0..16 {
        quants[i] = pairs[i] as i8;
        quants[i + 16] = (pairs[i] >> 8) as i8;
    }
    quants
}

pub(crate) struct Iq4Nl;

impl Quant for Iq4Nl {
    const NAME: &'static str = "IQ4_NL";
    const GGML_TYPE: u32 = 20;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(levels(bytes(block, 2)), [f16_at(block, 0); 2])
    }
}

pub(crate) struct Iq4Xs;

impl Quant for Iq4Xs {
    const NAME: &'static str = "IQ4_XS";
    const GGML_TYPE: u32 = 23;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("scales_h", 2), ("scales_l", 4), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;

    /// A scale of six bits, less 32: the low nibble from `scales_l`, the high pair from `scales_h`.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
        let high = (u16_at(block, 2) >> (2 * group) & 3) as u8;
        let scale = f16_at(block, 0) * f32::from((low | high << 4) as i8 - 32);
        Group::symmetric(levels(bytes(block, 8 + 16 * group)), [scale; 2])
    }
}
