//! The number types that a processor converts to f32 itself, eight at a time from a weight's bytes.

use super::super::simd::Simd;

/// A type of plain numbers; a type without values.
pub(super) trait Plain: Send + Sync {
    /// The bytes of eight numbers.
    type Eight: Copy + AsMut<[u8]>;
    /// Those of eight zeros.
    const ZERO: Self::Eight;

    /// The bytes of whole eights, and what is left.
    fn eights(bytes: &[u8]) -> (&[Self::Eight], &[u8]);

    /// The numbers.
    fn load<S: Simd>(s: S, eight: &Self::Eight) -> S::V;

    /// Fewer than eight numbers, filled up with zeros.
    #[inline(always)]
    fn load_rest<S: Simd>(s: S, rest: &[u8]) -> S::V {
        let mut eight = Self::ZERO;
        eight.as_mut()[..rest.len()].copy_from_slice(rest);
        Self::load(s, &eight)
    }
}

pub(super) struct F32;

impl Plain for F32 {
    type Eight = [u8; 32];
    const ZERO: [u8; 32] = [0; 32];

    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 32]], &[u8]) {
        bytes.as_chunks()
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, eight: &[u8; 32]) -> S::V {
        s.load_f32_bytes(eight)
    }
}

pub(super) struct F16;

impl Plain for F16 {
    type Eight = [u8; 16];
    const ZERO: [u8; 16] = [0; 16];

    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 16]], &[u8]) {
        bytes.as_chunks()
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, eight: &[u8; 16]) -> S::V {
        s.load_f16_bytes(eight)
    }
}

pub(super) struct Bf16;

impl Plain for Bf16 {
    type Eight = [u8; 16];
    const ZERO: [u8; 16] = [0; 16];

    #[inline(always)]
    fn eights(bytes: &[u8]) -> (&[[u8; 16]], &[u8]) {
        bytes.as_chunks()
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, eight: &[u8; 16]) -> S::V {
        s.load_bf16_bytes(eight)
    }
}
