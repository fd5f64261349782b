//! TQ1_0, TQ2_0: elements of −1, 0, 1 (and 2 in malformed TQ2_0) with one half-float scale per 256.

use super::{
    Field, GROUP, Group,
    bits::{bytes, f16_at, map},
    layout::{Quant, fields},
};

pub(crate) struct Tq1_0;

/// Trit `idx` of a byte that holds `ceil(t · 256 / 243)` of a five-digit ternary number `t`, first digit highest:
/// multiplying by 3ⁱᵈˣ modulo 256 brings the digit to the top, times 3 over 256 reads it.
#[inline(always)]
fn trit(byte: u8, idx: usize) -> i8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    ((u16::from(byte.wrapping_mul(POWERS[idx])) * 3) >> 8) as i8 - 1
}

impl Quant for Tq1_0 {
    const NAME: &'static str = "TQ1_0";
    const GGML_TYPE: u32 = 34;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 48), ("qh", 4), ("d", 2)]);
    const SCALE_GROUP: usize = 256;

    /// Five trits of bytes 0 to 31 make groups 0 to 4; five of bytes 32 to 47 and four of `qh` make the rest.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let mut quants = [0; GROUP];
        if group < 5 {
            let packed: &[u8; GROUP] = bytes(block, 0);
            quants = map(packed, |byte| trit(byte, group));
        } else {
            let packed: &[u8; 16] = bytes(block, 32);
            let last: &[u8; 4] = bytes(block, 48);
            let first_idx = 2 * (group - 5);
            for i in 0..16 {
                quants[i] = trit(packed[i], first_idx);
                quants[i + 16] =
                    if group < 7 { trit(packed[i], first_idx + 1) } else { trit(last[i % 4], i / 4) };
            }
        }
        Group::symmetric(quants, [f16_at(block, 52); 2])
    }
}

pub(crate) struct Tq2_0;

impl Quant for Tq2_0 {
    const NAME: &'static str = "TQ2_0";
    const GGML_TYPE: u32 = 35;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("qs", 64), ("d", 2)]);
    const SCALE_GROUP: usize = 256;

    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let packed: &[u8; GROUP] = bytes(block, group / 4 * 32);
        let shift = 2 * (group % 4);
        Group::symmetric(map(packed, |byte| (byte >> shift & 3) as i8 - 1), [f16_at(block, 64); 2])
    }
}
