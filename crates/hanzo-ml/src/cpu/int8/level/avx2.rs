//! AVX2 and FMA: `vpmaddubsw` multiplies bytes and adds pairs to 16 bits, which must not overflow.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

mod tile;

use std::arch::x86_64::{
    __m256, __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setzero_si256, _mm256_sign_epi8, _mm256_storeu_ps, _mm256_xor_si256,
};

use hanzo_quant::{LANES, Panel, Stretch};

use super::{Int8, Int8Kernel};
use crate::cpu::int8::COLUMNS;

/// x86-64 with AVX2 and FMA.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    pub(super) fn run(self, kernel: impl Int8Kernel) {
        // SAFETY: an `Avx2` exists only where `detect` found both features.
        unsafe { run(self, kernel) }
    }
}

#[target_feature(enable = "avx2,fma")]
fn run(level: Avx2, kernel: impl Int8Kernel) {
    kernel.run::<Avx2, 2, 4>(level);
}

// SAFETY of every `unsafe` block in this implementation: an `Avx2` exists only where `Avx2::detect` found the features
// that the intrinsics need, and loads and stores go through references to as many numbers as they touch.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Int8 for Avx2 {
    type Q = __m256i;
    type A = __m256i;
    type S = __m256i;
    type I = __m256i;
    type F = __m256;

    const GROUPS: usize = 1;
    const WIDE_SUMS: bool = false;
    const SIGNED: bool = true;
    const FEW_REGISTERS: bool = true;
    const PAIRS: usize = 2;

    #[inline(always)]
    fn tile<const ADDS: usize, const HALVES: bool, const MINIMA: bool, const C: usize>(
        self,
        panels: &[Panel; 2],
        n_groups: usize,
        x: &[Stretch; C],
        totals: &mut [[f32; COLUMNS]],
    ) -> bool {
        match (x.as_chunks().0, totals.as_chunks_mut().0) {
            ([x], [totals]) => unsafe { tile::tile::<ADDS, HALVES, MINIMA>(panels, n_groups, x, totals) },
            _ => false,
        }
    }

    #[inline(always)]
    fn quants(self, panels: &[Panel], word: usize) -> __m256i {
        let words: &[u32; LANES] = &panels[0].quants[word];
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn activations(self, word: u32) -> __m256i {
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn zero(self) -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn add_product(self, s: __m256i, q: __m256i, a: __m256i) -> __m256i {
        unsafe { _mm256_add_epi16(s, _mm256_maddubs_epi16(q, a)) }
    }

    #[inline(always)]
    fn widen(self, s: __m256i) -> __m256i {
        unsafe { _mm256_madd_epi16(s, _mm256_set1_epi16(1)) }
    }

    /// The magnitude of `q − 128` (at most 128) times `a` with its sign: a pair's sum is at most 2 · 128 · 127.
    #[inline(always)]
    fn add_wide_product(self, i: __m256i, q: __m256i, a: __m256i) -> __m256i {
        unsafe {
            let signed = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(a, signed));
            _mm256_add_epi32(i, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m256i {
        unsafe { _mm256_set1_epi32(x) }
    }

    #[inline(always)]
    fn add_i32(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn to_f32(self, i: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(i) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> __m256 {
        unsafe { _mm256_loadu_ps(of(&panels[0]).as_ptr()) }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        unsafe { _mm256_loadu_ps(x[..LANES].as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m256, out: &mut [f32]) {
        unsafe { _mm256_storeu_ps(out[..LANES].as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn fnma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
}
