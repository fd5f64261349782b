//! The lanes of AVX2, FMA and F16C.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::{
    arch::{
        asm,
        x86_64::{
            __m128d, __m128i, __m256, __m256i, _MM_HINT_T0, _mm_blend_epi32, _mm_cvtsi32_si128, _mm_load_sd,
            _mm_loadh_pd, _mm_loadu_si32, _mm_loadu_si64, _mm_loadu_si128, _mm_packus_epi32, _mm_prefetch,
            _mm256_abs_epi8, _mm256_add_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps,
            _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_castpd_si256, _mm256_castps_si256,
            _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpeq_epi8,
            _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
            _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_si256,
            _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_mulhi_epu16, _mm256_mullo_epi16,
            _mm256_mullo_epi32, _mm256_or_si256, _mm256_set_m128d, _mm256_set_m128i, _mm256_set1_epi8,
            _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x,
            _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_sign_epi8, _mm256_sll_epi32, _mm256_srl_epi32,
            _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi8, _mm256_sub_epi32, _mm256_unpackhi_epi8,
            _mm256_unpackhi_epi32, _mm256_unpacklo_epi8, _mm256_unpacklo_epi32, _mm256_xor_ps,
            _mm256_xor_si256,
        },
    },
    ptr,
};

use super::{
    GroupPlaces, Job, LANES, Lanes, Places, Points,
    points::{FAR, ROOM},
    words,
};

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

/// Indices of four points of eight rows, each below `N`.
trait Indices<const N: usize>: Copy {
    fn at(self, row: usize, k: usize) -> usize;
}

impl Indices<256> for &[u8; 32] {
    #[inline(always)]
    fn at(self, row: usize, k: usize) -> usize {
        usize::from(self[4 * row + k])
    }
}

/// The lowest nine bits of halves of words, in memory: two words of eight rows each.
#[derive(Clone, Copy)]
struct NineBits<'a>(&'a [u8; 64]);

impl Indices<512> for NineBits<'_> {
    #[inline(always)]
    fn at(self, row: usize, k: usize) -> usize {
        let word = u32::from_le_bytes(self.0.as_chunks().0[LANES * (k / 2) + row]);
        (word >> (16 * (k % 2))) as usize % 512
    }
}

impl Avx2 {
    /// The points at place `k` of four rows from `row` on. Each comes with its neighbours and is blended in where it already is:
    /// no shuffle.
    #[inline(always)]
    fn four_points<const N: usize, P: Indices<N>>(
        self,
        points: &Points<N>,
        places: P,
        row: usize,
        k: usize,
    ) -> __m128i {
        let start: *const i32 = ptr::from_ref(points).cast();
        // SAFETY: an `Avx2` exists only where the processor has AVX2. Indices are below `N`, so that the four words that end or
        // begin with a point lie within `points`, room included.
        unsafe {
            let at = |lane: usize| start.add(ROOM + places.at(row + lane, k) - lane);
            let words = _mm_loadu_si32(at(0).cast());
            let words = _mm_blend_epi32::<2>(words, _mm_loadu_si128(at(1).cast()));
            let words = _mm_blend_epi32::<4>(words, _mm_loadu_si128(at(2).cast()));
            _mm_blend_epi32::<8>(words, _mm_loadu_si128(at(3).cast()))
        }
    }

    /// The points at place `k` of two rows.
    #[inline(always)]
    fn two_points<const N: usize, P: Indices<N>>(
        self,
        points: &[[i8; 8]; N],
        places: P,
        row: usize,
        k: usize,
    ) -> __m128d {
        // SAFETY: an `Avx2` exists only where the processor has AVX2. Indices are below `N`.
        unsafe {
            let at = |row: usize| points.as_ptr().add(places.at(row, k)).cast::<f64>();
            _mm_loadh_pd(_mm_load_sd(at(row)), at(row + 1))
        }
    }

    #[inline(always)]
    fn words_at<const N: usize, P: Indices<N>>(self, points: &Points<N>, places: P) -> [__m256i; 4] {
        words!(4, |k| {
            let (low, high) =
                (self.four_points(points, places, 0, k), self.four_points(points, places, 4, k));
            // SAFETY: an `Avx2` exists only where the processor has AVX2.
            unsafe { _mm256_set_m128i(high, low) }
        })
    }

    #[inline(always)]
    fn pairs_at<const N: usize, P: Indices<N>>(self, points: &[[i8; 8]; N], places: P) -> [[__m256i; 2]; 4] {
        words!(4, |k| words!(2, |half| {
            let low = self.two_points(points, places, 2 * half, k);
            let high = self.two_points(points, places, 2 * half + 4, k);
            // SAFETY: an `Avx2` exists only where the processor has AVX2.
            unsafe { _mm256_castpd_si256(_mm256_set_m128d(high, low)) }
        }))
    }

    /// The points of four elements whose indices are at byte `AT` of [`Places`] and at the same place of the other rows.
    ///
    /// Assembly, since a compiler takes an index that it saw stored out of the vector, which is several times dearer than to load
    /// it, and loads others so early that it must put them away. Each point comes with its neighbours and is blended in where it
    /// already is: no shuffle.
    #[inline(always)]
    fn eight_words<const AT: usize>(self, points: &Points<FAR>, places: &Places) -> __m256i {
        const { assert!(AT + 56 + size_of::<u16>() <= size_of::<Places>()) };
        // A pointer to the whole, since there is room before the first point.
        let points = ptr::from_ref(points).cast::<u8>().wrapping_add(4 * ROOM);
        let (low, high): (__m128i, __m128i);
        // SAFETY: an `Avx2` exists only where the processor has AVX2. The indices that are read lie within `places`; `put_places`
        // alone sets them, below `FAR`, so the words that end or begin with a point are points or room.
        unsafe {
            asm!(
                "movzx {i:e}, word ptr [{places} + {row0}]",
                "vmovd {low}, dword ptr [{points} + 4*{i}]",
                "movzx {i:e}, word ptr [{places} + {row1}]",
                "vpblendd {low}, {low}, xmmword ptr [{points} + 4*{i} - 4], 2",
                "movzx {i:e}, word ptr [{places} + {row2}]",
                "vpblendd {low}, {low}, xmmword ptr [{points} + 4*{i} - 8], 4",
                "movzx {i:e}, word ptr [{places} + {row3}]",
                "vpblendd {low}, {low}, xmmword ptr [{points} + 4*{i} - 12], 8",
                "movzx {i:e}, word ptr [{places} + {row4}]",
                "vmovd {high}, dword ptr [{points} + 4*{i}]",
                "movzx {i:e}, word ptr [{places} + {row5}]",
                "vpblendd {high}, {high}, xmmword ptr [{points} + 4*{i} - 4], 2",
                "movzx {i:e}, word ptr [{places} + {row6}]",
                "vpblendd {high}, {high}, xmmword ptr [{points} + 4*{i} - 8], 4",
                "movzx {i:e}, word ptr [{places} + {row7}]",
                "vpblendd {high}, {high}, xmmword ptr [{points} + 4*{i} - 12], 8",
                points = in(reg) points,
                places = in(reg) ptr::from_ref(places),
                row0 = const AT,
                row1 = const AT + 8,
                row2 = const AT + 32,
                row3 = const AT + 40,
                row4 = const AT + 16,
                row5 = const AT + 24,
                row6 = const AT + 48,
                row7 = const AT + 56,
                i = out(reg) _,
                low = out(xmm_reg) low,
                high = out(xmm_reg) high,
                options(pure, readonly, nostack, preserves_flags),
            );
            _mm256_set_m128i(high, low)
        }
    }

    /// The points of eight elements whose indices are at byte `AT` of [`Places`] and at the same place of the next three rows
    /// there. Assembly, as [`Self::eight_words`].
    #[inline(always)]
    fn four_pairs<const AT: usize>(self, points: &[[i8; 8]; FAR], places: &Places) -> __m256i {
        const { assert!(AT + 24 + size_of::<u16>() <= size_of::<Places>()) };
        let (low, high): (__m128i, __m128i);
        // SAFETY: an `Avx2` exists only where the processor has AVX2. The indices that are read lie within `places`; `put_places`
        // alone sets them, below `FAR`.
        unsafe {
            asm!(
                "movzx {i:e}, word ptr [{places} + {row0}]",
                "vmovq {low}, qword ptr [{points} + 8*{i}]",
                "movzx {i:e}, word ptr [{places} + {row1}]",
                "vmovhps {low}, {low}, qword ptr [{points} + 8*{i}]",
                "movzx {i:e}, word ptr [{places} + {row2}]",
                "vmovq {high}, qword ptr [{points} + 8*{i}]",
                "movzx {i:e}, word ptr [{places} + {row3}]",
                "vmovhps {high}, {high}, qword ptr [{points} + 8*{i}]",
                points = in(reg) ptr::from_ref(points),
                places = in(reg) ptr::from_ref(places),
                row0 = const AT,
                row1 = const AT + 8,
                row2 = const AT + 16,
                row3 = const AT + 24,
                i = out(reg) _,
                low = out(xmm_reg) low,
                high = out(xmm_reg) high,
                options(pure, readonly, nostack, preserves_flags),
            );
            _mm256_set_m128i(high, low)
        }
    }
}

// SAFETY of every `unsafe` block in this implementation: an `Avx2` exists only in `run_avx2`, where the processor has
// the features that the intrinsics need; loads and stores go through references to as many bytes as they touch.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Lanes for Avx2 {
    type U = __m256i;
    type F = __m256;

    const UNROLLS: bool = true;
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
    fn load_f16(self, bytes: &[u8; 16]) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn splat_pair(self, words: [u32; 2]) -> __m256i {
        unsafe { _mm256_set1_epi64x((u64::from(words[0]) | u64::from(words[1]) << 32) as i64) }
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
    fn sign_u8(self, a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sign_epi8(a, b) }
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
    fn spread_byte_pair(self, a: __m256i, byte: usize) -> [__m256i; 2] {
        // A half of the vector has four rows: the first two go to the first of the pair.
        let row = |row: usize| ((4 * row + byte) as u64 * 0x0101_0101_0101_0101) as i64;
        unsafe {
            words!(2, |i| {
                let (first, second) = (row(2 * i), row(2 * i + 1));
                _mm256_shuffle_epi8(a, _mm256_setr_epi64x(first, second, first, second))
            })
        }
    }

    #[inline(always)]
    fn bytes_of_halves(self, a: __m256i, b: __m256i, byte: usize) -> __m256i {
        // Bytes `byte` and `byte + 2` of each word to the low half of the word, zeros to the other.
        let low = |row: u64| row * 0x0404 + byte as u64 * 0x0101 + 0x0200;
        let rows = |row: u64| low(row) | 0x8080_0000 | low(row + 1) << 32 | 0x8080_0000 << 32;
        let swapped = |rows: u64| (rows << 16 & 0xffff_0000_ffff_0000) | (rows >> 16 & 0x0000_ffff_0000_ffff);
        let (x, y) = (rows(0), rows(2));
        let (p, q) = (swapped(x), swapped(y));
        unsafe {
            let first = _mm256_setr_epi64x(x as i64, y as i64, x as i64, y as i64);
            let second = _mm256_setr_epi64x(p as i64, q as i64, p as i64, q as i64);
            _mm256_or_si256(_mm256_shuffle_epi8(a, first), _mm256_shuffle_epi8(b, second))
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: __m256i) -> __m256i {
        unsafe {
            let table: __m128i = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes)
        }
    }

    #[inline(always)]
    fn gather(self, points: &Points<256>, indices: &[u8; 32]) -> [__m256i; 4] {
        self.words_at(points, indices)
    }

    #[inline(always)]
    fn put_places(self, low: __m256i, high: __m256i, four: &mut Places) {
        let high = self.and(high, self.splat((FAR as u32 / 256 - 1) * 0x0101_0101));
        let [first, second] = &mut four.0;
        unsafe {
            _mm256_storeu_si256(first.as_mut_ptr().cast(), _mm256_unpacklo_epi8(low, high));
            _mm256_storeu_si256(second.as_mut_ptr().cast(), _mm256_unpackhi_epi8(low, high));
        }
    }

    #[inline(always)]
    fn gather_far(self, points: &Points<FAR>, four: &Places) -> [__m256i; 4] {
        [
            self.eight_words::<0>(points, four),
            self.eight_words::<2>(points, four),
            self.eight_words::<4>(points, four),
            self.eight_words::<6>(points, four),
        ]
    }

    #[inline(always)]
    fn gather_pairs(self, points: &[[i8; 8]; 256], indices: &[u8; 32]) -> [[__m256i; 2]; 4] {
        self.pairs_at(points, indices)
    }

    #[inline(always)]
    fn gather_pairs_far(self, points: &[[i8; 8]; FAR], four: &Places) -> [[__m256i; 2]; 4] {
        [
            [self.four_pairs::<0>(points, four), self.four_pairs::<32>(points, four)],
            [self.four_pairs::<2>(points, four), self.four_pairs::<34>(points, four)],
            [self.four_pairs::<4>(points, four), self.four_pairs::<36>(points, four)],
            [self.four_pairs::<6>(points, four), self.four_pairs::<38>(points, four)],
        ]
    }

    #[inline(always)]
    fn gather_pairs_nine_bits(self, points: &[[i8; 8]; 512], words: &[u8; 64]) -> [[__m256i; 2]; 4] {
        self.pairs_at(points, NineBits(words))
    }

    #[inline(always)]
    fn join_pair(self, words: [__m256i; 2]) -> [__m256i; 2] {
        unsafe { [_mm256_unpacklo_epi32(words[0], words[1]), _mm256_unpackhi_epi32(words[0], words[1])] }
    }

    #[inline(always)]
    fn split_pair(self, pair: [__m256i; 2]) -> [__m256i; 2] {
        unsafe {
            let [a, b] = words!(2, |i| _mm256_castsi256_ps(pair[i]));
            let (first, second) = (_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
            [_mm256_castps_si256(first), _mm256_castps_si256(second)]
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
    #[expect(clippy::pointers_in_nomem_asm_block, reason = "no instruction, so none that touches memory")]
    fn after(self, places: &GroupPlaces, sums: __m256) -> &GroupPlaces {
        let mut at = ptr::from_ref(places);
        // No instruction at all, so `at` stays the address that it was.
        unsafe {
            let sums = _mm256_castps256_ps128(sums);
            asm!("# {0} {1}", inlateout(reg) at, in(xmm_reg) sums, options(pure, nomem, nostack, preserves_flags));
            &*at
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
