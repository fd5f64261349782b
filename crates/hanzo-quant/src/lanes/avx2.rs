//! The lanes of AVX2, FMA and F16C.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadu_si64, _mm_loadu_si128,
    _mm_packus_epi32, _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi8, _mm256_add_epi16, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi8, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_fnmadd_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_mulhi_epu16,
    _mm256_mullo_epi16, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_shuffle_epi8,
    _mm256_shuffle_ps, _mm256_sign_epi8, _mm256_sll_epi32, _mm256_srl_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_epi8, _mm256_sub_epi32, _mm256_xor_ps, _mm256_xor_si256,
};

use super::{Job, LANES, Lanes};

/// x86-64 with AVX2, FMA and F16C.
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

impl Avx2 {
    /// Indices modulo a table's length, a power of two.
    #[inline(always)]
    fn places(self, table_len: usize, idx: __m256i) -> [u32; LANES] {
        assert!(table_len.is_power_of_two(), "a table of {table_len} entries");
        let mut places = [0; LANES];
        self.store(self.and(idx, self.splat(table_len as u32 - 1)), &mut places);
        places
    }
}

// SAFETY of every `unsafe` block in this implementation: an `Avx2` exists only in `run_avx2`, where the processor has
// the features that the intrinsics need; loads and stores go through references to as many bytes as they touch; an
// unchecked index comes from `places`, which makes each less than the table's length.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Lanes for Avx2 {
    type U = __m256i;
    type F = __m256;

    const UNROLLS: bool = true;
    const WIDE_SUMS: bool = false;
    const SIGNED: bool = true;

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
    fn mul_high_u16(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mulhi_epu16(a, b) }
    }

    #[inline(always)]
    fn spread_byte(self, a: __m256i, byte: usize) -> __m256i {
        // Bytes 0, 4, 8 and 12 of a half of the vector are the lowest of its words.
        let lowest = [0u64, 0x0404_0404 << 32, 0x0808_0808, 0x0c0c_0c0c << 32];
        let low = (lowest[0] | lowest[1]) + byte as u64 * 0x0101_0101_0101_0101;
        let high = (lowest[2] | lowest[3]) + byte as u64 * 0x0101_0101_0101_0101;
        unsafe {
            _mm256_shuffle_epi8(a, _mm256_setr_epi64x(low as i64, high as i64, low as i64, high as i64))
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: __m256i) -> __m256i {
        unsafe {
            let table: __m128i = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes)
        }
    }

    /// Loads of single entries: eight of them with what puts them together take less than the instruction that gathers.
    #[inline(always)]
    fn gather(self, table: &[[i8; 4]], idx: __m256i) -> __m256i {
        let places = self.places(table.len(), idx);
        // Each place is below the table's length.
        unsafe {
            let word =
                |lane: usize| i32::from_le_bytes(table.get_unchecked(places[lane] as usize).map(|b| b as u8));
            _mm256_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7))
        }
    }

    #[inline(always)]
    fn gather_pair(self, table: &[[i8; 8]], idx: __m256i) -> (__m256i, __m256i) {
        let places = self.places(table.len(), idx);
        // Each place is below the table's length.
        unsafe {
            let entry =
                |lane: usize| i64::from_le_bytes(table.get_unchecked(places[lane] as usize).map(|b| b as u8));
            // Rows 0 1 4 5 and 2 3 6 7, so that words of the two interleave to rows in order.
            let a = _mm256_castsi256_ps(_mm256_setr_epi64x(entry(0), entry(1), entry(4), entry(5)));
            let b = _mm256_castsi256_ps(_mm256_setr_epi64x(entry(2), entry(3), entry(6), entry(7)));
            let (first, second) = (_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
            (_mm256_castps_si256(first), _mm256_castps_si256(second))
        }
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

    #[inline(always)]
    fn splat_f32(self, x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn add_f32(self, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn fma_f32(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn fnma_f32(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add_products(self, sum: __m256i, q: __m256i, a: __m256i) -> __m256i {
        unsafe { _mm256_add_epi16(sum, _mm256_maddubs_epi16(q, a)) }
    }

    #[inline(always)]
    fn widen(self, sum: __m256i) -> __m256i {
        unsafe { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) }
    }

    /// The magnitude of `q − 128` (at most 128) times `a` with its sign: a pair's sum is at most 2 · 128 · 127.
    #[inline(always)]
    fn add_wide_products(self, sum: __m256i, q: __m256i, a: __m256i) -> __m256i {
        unsafe {
            let signed = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(a, signed));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
