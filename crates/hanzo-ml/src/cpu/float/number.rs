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

/// A type of plain numbers of `$bytes` bytes for eight.
macro_rules! plain {
    ($name:ident, $bytes:literal, $load:ident) => {
        pub(super) struct $name;

        impl Plain for $name {
            type Eight = [u8; $bytes];
            const ZERO: Self::Eight = [0; $bytes];

            #[inline(always)]
            fn eights(bytes: &[u8]) -> (&[Self::Eight], &[u8]) {
                bytes.as_chunks()
            }

            #[inline(always)]
            fn load<S: Simd>(s: S, eight: &Self::Eight) -> S::V {
                s.$load(eight)
            }
        }
    };
}

plain!(F32, 32, load_f32_bytes);
plain!(F16, 16, load_f16_bytes);
plain!(Bf16, 16, load_bf16_bytes);
