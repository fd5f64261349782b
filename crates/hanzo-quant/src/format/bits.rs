//! Reading the fields of a block: fixed-size slices, little-endian numbers, half floats.
//!
//! Everything here is inlined into the decoders, so that they vectorise in both instantiations.

use super::GROUP;
use crate::{
    grids::SIGN_MASKS,
    lanes::{Lanes, words},
};

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

/// The half float at `at`, one scale of a block.
///
/// The branch nearly always goes one way, and its cold call keeps the compiler from vectorising the loop over blocks,
/// which would gather single bytes of eight blocks and take twice the time. Within a block the bytes are contiguous.
#[inline(always)]
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    let half = u16_at(block, at);
    let magnitude = u32::from(half & 0x7fff);
    if magnitude.wrapping_sub(0x0400) < 0x7c00 - 0x0400 {
        f32::from_bits(u32::from(half & 0x8000) << 16 | ((magnitude << 13) + ((127 - 15) << 23)))
    } else {
        unusual_f16(half)
    }
}

/// Subnormals, zero, infinity, NaN.
#[cold]
#[inline(never)]
fn unusual_f16(half: u16) -> f32 {
    f16_to_f32(half)
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

/// The nearest half float, ties to even; infinity from 65520 on, a quiet NaN for NaN. Selects instead of branches.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
    const PAST_LARGEST: u32 = (127 + 16) << 23;
    // A number whose last bit is worth 2⁻²⁴: the sum is rounded to a whole number of smallest subnormals.
    const MAGIC: u32 = (127 - 1) << 23;
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(MAGIC)).to_bits().wrapping_sub(MAGIC);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0x0fff + odd) >> 13;
    let finite = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let rounded = if magnitude < PAST_LARGEST { finite } else { special };
    (rounded | bits >> 16 & 0x8000) as u16
}

/// The value of the nearest half float.
#[inline(always)]
pub(crate) fn as_half(value: f32) -> f32 {
    f16_to_f32(f32_to_f16(value))
}

/// Writes the nearest half float at `at`.
#[inline(always)]
pub(crate) fn put_f16(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f32_to_f16(value).to_le_bytes());
}

/// The largest magnitude; NaN if there is one. An integer maximum, since those of bit patterns commute.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |largest, v| v.abs().to_bits().max(largest)))
}

/// The first value of the largest magnitude.
#[inline(always)]
pub(crate) fn farthest_from_zero(values: &[f32]) -> f32 {
    let largest = largest_magnitude(values);
    values.iter().copied().find(|v| v.abs().to_bits() == largest.to_bits()).unwrap_or(largest)
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

/// `f` of each element. The array's own `map` is not always inlined, and out of line it misses the wider instructions.
#[inline(always)]
pub(crate) fn map<T: Copy, U: Copy + Default, const N: usize>(array: &[T; N], f: impl Fn(T) -> U) -> [U; N] {
    let mut out = [U::default(); N];
    for i in 0..N {
        out[i] = f(array[i]);
    }
    out
}

/// Four words of eight magnitudes (none of them zero) with their sign bytes applied, eight bytes at a time.
#[inline(always)]
pub(crate) fn with_signs(words: [u64; 4], signs: &[u8; 4]) -> [i8; GROUP] {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let mut quants = [0; GROUP];
    for (k, quants) in quants.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mask = word(&SIGN_MASKS[usize::from(signs[k])]);
        // −x is !x + 1 in each byte; no carry leaves a byte since !x is 255 for zero only.
        let signed = (words[k] ^ mask) + (mask & ONES);
        *quants = map(&signed.to_le_bytes(), |byte| byte as i8);
    }
    quants
}

/// Eight bytes as a little-endian word.
#[inline(always)]
pub(crate) fn word(point: &[i8; 8]) -> u64 {
    u64::from_le_bytes(map(point, |byte| byte as u8))
}

/// [`EVEN_SIGNS`](crate::grids::EVEN_SIGNS) of four sign indices of seven bits that lie one behind the other, as the four
/// bytes of a word.
#[inline(always)]
pub(crate) fn even_sign_words<L: Lanes>(l: L, indices: L::U) -> L::U {
    // Two indices to each half of the word, then one to each byte.
    let halves = l.or(l.and(indices, l.splat(0x3fff)), l.shl(l.and(indices, l.splat(0x0fff_c000)), 2));
    let (low, high) = (l.and(halves, l.splat(0x007f_007f)), l.and(halves, l.splat(0x3f80_3f80)));
    with_even_sign(l, l.or(low, l.shl(high, 1)))
}

/// The eighth sign of each byte of seven, by the parity of the two nibbles' difference.
#[inline(always)]
pub(crate) fn with_even_sign<L: Lanes>(l: L, seven: L::U) -> L::U {
    const PARITY: [u8; 16] = [0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0];
    let nibbles = l.and(l.xor(seven, l.shr(seven, 4)), l.splat(0x0f0f_0f0f));
    l.or(seven, l.lookup(&PARITY, nibbles))
}

/// Bytes that are negative where bit `j` of byte `k` of `signs` is set, for element `8k + j`, and positive elsewhere.
#[inline(always)]
pub(crate) fn sign_bytes<L: Lanes>(l: L, signs: L::U) -> [L::U; 8] {
    words!(|i| {
        let bits = if i.is_multiple_of(2) { LOW_BITS } else { HIGH_BITS };
        one_bit_negative(l, l.and(l.spread_byte(signs, i / 2), l.splat(bits)))
    })
}

/// [`sign_bytes`] for quants in pairs.
#[inline(always)]
pub(crate) fn sign_byte_pairs<L: Lanes>(l: L, signs: L::U) -> [L::U; 8] {
    let spread = words!(4, |k| l.spread_byte_pair(signs, k));
    words!(|i| one_bit_negative(l, l.and(spread[i / 2][i % 2], l.splat_pair([LOW_BITS, HIGH_BITS]))))
}

/// A bit of its own for each of eight bytes.
const LOW_BITS: u32 = 0x0804_0201;
const HIGH_BITS: u32 = 0x8040_2010;

/// 127 where a byte has no bit, and what is negative where it has one.
#[inline(always)]
fn one_bit_negative<L: Lanes>(l: L, bit: L::U) -> L::U {
    l.add_u8(bit, l.splat(0x7f7f_7f7f))
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

    #[test]
    fn rounding_to_half_equals_the_half_crate() {
        // Every half float, the middle to its neighbour, and the next f32 on each side of both.
        for bits in 0..=u16::MAX {
            let exact = f16_to_f32(bits).to_bits();
            for step in [0, 0x0fff, 0x1000, 0x1001, 0x1fff] {
                let value = f32::from_bits(exact.wrapping_add(step));
                let (ours, theirs) = (f32_to_f16(value), half::f16::from_f32(value));
                assert!(ours == theirs.to_bits() || value.is_nan() && theirs.is_nan(), "{value:e}");
            }
        }
        // The subnormals' middles lie elsewhere; a stride through all of f32 finds those and the overflow.
        for bits in (0..=u32::MAX).step_by(4093) {
            let value = f32::from_bits(bits);
            let (ours, theirs) = (f32_to_f16(value), half::f16::from_f32(value));
            assert!(ours == theirs.to_bits() || value.is_nan() && theirs.is_nan(), "{value:e}");
        }
        for units in 0..4096 {
            let value = units as f32 * 2f32.powi(-26);
            assert_eq!(f32_to_f16(value), half::f16::from_f32(value).to_bits(), "{value:e}");
        }
    }
}
