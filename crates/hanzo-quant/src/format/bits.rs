//! Reading the fields of a block: fixed-size slices, little-endian numbers, half floats.
//!
//! Everything here is inlined into the decoders and free of branches on the data, so that whole rows vectorise.

use super::GROUP;

/// The `LEN` bytes from `at`. Panics if the block ends before (a block of the wrong length is a caller's bug).
#[inline(always)]
pub(crate) fn bytes<const LEN: usize>(block: &[u8], at: usize) -> &[u8; LEN] {
    block[at..].first_chunk().expect("a block has all the bytes of its format")
}

/// The little-endian u16 at `at`.
#[inline(always)]
pub(crate) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes(block, at))
}

/// The little-endian u32 at `at`.
#[inline(always)]
pub(crate) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes(block, at))
}

/// The half float at `at`.
#[inline(always)]
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16_at(block, at))
}

/// The value of an IEEE half float, exactly. Selects instead of branches, no subnormal f32 on the way (so that a
/// processor set to flush them gives the same answer), no run-time feature test.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff);
    let sign = u32::from(half & 0x8000) << 16;
    // A subnormal is its integer value times the smallest subnormal, 2⁻²⁴.
    let subnormal = (magnitude as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let normal = (magnitude << 13) + ((127 - 15) << 23);
    let special = (magnitude << 13) | 0x7f80_0000;
    let finite = if magnitude < 0x0400 { subnormal } else { normal };
    f32::from_bits(sign | if magnitude < 0x7c00 { finite } else { special })
}

/// The low nibbles of 16 bytes, then their high nibbles: the order of all 4-bit formats with blocks of 32.
#[inline(always)]
pub(crate) fn nibbles(packed: &[u8; 16]) -> [u8; GROUP] {
    let mut quants = [0; GROUP];
    for i in 0..16 {
        quants[i] = packed[i] & 15;
        quants[i + 16] = packed[i] >> 4;
    }
    quants
}

/// `f` of each element.
#[inline(always)]
pub(crate) fn map32(quants: [u8; GROUP], f: impl Fn(u8) -> i8) -> [i8; GROUP] {
    let mut out = [0; GROUP];
    for i in 0..GROUP {
        out[i] = f(quants[i]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_float_equals_the_half_crate() {
        let mut n_nan = 0;
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#06x}");
            n_nan += u32::from(ours.is_nan());
        }
        assert_eq!(n_nan, 2 * 1023);
    }
}
