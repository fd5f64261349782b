//! The lanes of AVX2 and F16C.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_cvtsi32_si128, _mm_loadu_si64, _mm_loadu_si128, _mm_packus_epi32,
    _mm256_add_epi8, _mm256_add_epi32, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extracti128_si256, _mm256_i32gather_epi32,
    _mm256_loadu_si256, _mm256_mul_ps, _mm256_mullo_epi16, _mm256_mullo_epi32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_shuffle_epi8, _mm256_sll_epi32, _mm256_srl_epi32,
    _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi8, _mm256_sub_epi32, _mm256_xor_ps,
    _mm256_xor_si256,
};

use super::{Job, LANES, Lanes};

/// x86-64 with AVX2 and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// Runs the job with AVX2 where the processor has it.
pub(super) fn run<J: Job>(job: J) -> Result<J::Output, J> {
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the processor has all three features, as asked on the line above.
        return Ok(unsafe { run_avx2(job) });
    }
    Err(job)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<J: Job>(job: J) -> J::Output {
    job.run(Avx2(()))
}

// SAFETY of every `unsafe` block in this implementation: an `Avx2` exists only in `run_avx2`, where the processor has
// the features that the intrinsics need; loads and stores go through references to as many bytes as they touch.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Lanes for Avx2 {
    type U = __m256i;
    type F = __m256;

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> __m256i {
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_u16(self, bytes: &[u8; 16]) -> __m256i {
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_u8(self, bytes: &[u8; 8]) -> __m256i {
        unsafe { _mm256_cvtepu8_epi32(_mm_loadu_si64(bytes.as_ptr())) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn store(self, v: __m256i, out: &mut [u32; LANES]) {
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn store_f32(self, v: __m256, out: &mut [f32; LANES]) {
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn shl(self, a: __m256i, n: u32) -> __m256i {
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn shr(self, a: __m256i, n: u32) -> __m256i {
        unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32)) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi32(a, b) }
    }

    #[inline(always)]
    fn add_u8(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    fn sub_u8(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi8(a, b) }
    }

    #[inline(always)]
    fn eq_u8(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_cmpeq_epi8(a, b) }
    }

    #[inline(always)]
    fn mul_u16(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi16(a, b) }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: __m256i) -> __m256i {
        unsafe {
            let table: __m128i = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes)
        }
    }

    #[inline(always)]
    fn gather(self, table: &[[i8; 4]], idx: __m256i) -> __m256i {
        assert!(table.len().is_power_of_two(), "a table of {} entries", table.len());
        let idx = self.and(idx, self.splat(table.len() as u32 - 1));
        // Each lane's index is below the table's length.
        unsafe { _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), idx) }
    }

    #[inline(always)]
    fn f16_to_f32(self, a: __m256i) -> __m256 {
        // The numbers fit 16 bits, so the saturating pack keeps them.
        unsafe {
            let (low, high) = (_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm256_cvtph_ps(_mm_packus_epi32(low, high))
        }
    }

    #[inline(always)]
    fn i32_to_f32(self, a: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(a) }
    }

    #[inline(always)]
    fn bits_to_f32(self, a: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(a) }
    }

    #[inline(always)]
    fn mul_f32(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn neg_f32(self, a: __m256) -> __m256 {
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }
}
