//! VNNI: `vpdpbusd` multiplies unsigned with signed bytes and adds four products to an i32. With AVX-512 a vector holds
//! sixteen rows, the panels' side by side; without it eight.
//!
//! The tests of `cpu::int8` run these functions where there is a processor that has them; one was an Intel Xeon with both sets.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm256_castps_pd, _mm256_dpbusd_avx_epi32, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm512_add_epi32, _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps256_ps512,
    _mm512_castsi256_si512, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps,
    _mm512_insertf64x4, _mm512_inserti64x4, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_si512, _mm512_storeu_ps,
};

use hanzo_quant::{LANES, Panel};

use super::{Int8, Int8Kernel, avx2::Avx2};

/// x86-64 with AVX-512 F and VNNI.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx512Vnni(());

impl Avx512Vnni {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma");
        found.then_some(Self(()))
    }

    pub(super) fn run(self, kernel: impl Int8Kernel) {
        // SAFETY: an `Avx512Vnni` exists only where `detect` found all features.
        unsafe { run_avx512(self, kernel) }
    }
}

#[target_feature(enable = "avx512f,avx512vnni,avx2,fma")]
fn run_avx512(level: Avx512Vnni, kernel: impl Int8Kernel) {
    kernel.run::<Avx512Vnni, 1, 8>(level);
}

// SAFETY of every `unsafe` block in this implementation: an `Avx512Vnni` exists only where `Avx512Vnni::detect` found the
// features that the intrinsics need, and loads and stores go through references to as many numbers as they touch.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Int8 for Avx512Vnni {
    type Q = __m512i;
    type A = __m512i;
    type S = __m512i;
    type I = __m512i;
    type F = __m512;

    const GROUPS: usize = 2;
    const WIDE_SUMS: bool = true;
    const SIGNED: bool = false;
    const FEW_REGISTERS: bool = false;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn quants(self, panels: &[Panel], word: usize) -> __m512i {
        let (low, high): (&[u32; LANES], &[u32; LANES]) = (&panels[0].quants[word], &panels[1].quants[word]);
        unsafe {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
        }
    }

    #[inline(always)]
    fn activations(self, word: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn zero(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_product(self, s: __m512i, q: __m512i, a: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(s, q, a) }
    }

    #[inline(always)]
    fn widen(self, s: __m512i) -> __m512i {
        s
    }

    #[inline(always)]
    fn add_wide_product(self, i: __m512i, q: __m512i, a: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(i, q, a) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn add_i32(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn to_f32(self, i: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(i) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> __m512 {
        let (low, high) = (of(&panels[0]), of(&panels[1]));
        unsafe {
            let low = _mm512_castps256_ps512(_mm256_loadu_ps(low.as_ptr()));
            let high = _mm256_castps_pd(_mm256_loadu_ps(high.as_ptr()));
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castps_pd(low), high))
        }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        unsafe { _mm512_loadu_ps(x[..2 * LANES].as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32]) {
        unsafe { _mm512_storeu_ps(out[..2 * LANES].as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
}

/// x86-64 with AVX2, FMA and AVX-VNNI.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct AvxVnni(Avx2);

impl AvxVnni {
    pub(super) fn detect() -> Option<Self> {
        Avx2::detect().filter(|_| is_x86_feature_detected!("avxvnni")).map(Self)
    }

    pub(super) fn run(self, kernel: impl Int8Kernel) {
        // SAFETY: an `AvxVnni` exists only where `detect` found all features.
        unsafe { run_avx(self, kernel) }
    }
}

#[target_feature(enable = "avx2,fma,avxvnni")]
fn run_avx(level: AvxVnni, kernel: impl Int8Kernel) {
    kernel.run::<AvxVnni, 2, 4>(level);
}

/// Everything but the products is that of [`Avx2`].
impl Int8 for AvxVnni {
    type Q = __m256i;
    type A = __m256i;
    type S = __m256i;
    type I = __m256i;
    type F = __m256;

    const GROUPS: usize = 1;
    const WIDE_SUMS: bool = true;
    const SIGNED: bool = false;
    const FEW_REGISTERS: bool = true;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn quants(self, panels: &[Panel], word: usize) -> __m256i {
        self.0.quants(panels, word)
    }

    #[inline(always)]
    fn activations(self, word: u32) -> __m256i {
        self.0.activations(word)
    }

    #[inline(always)]
    fn zero(self) -> __m256i {
        self.0.zero()
    }

    #[inline(always)]
    fn add_product(self, s: __m256i, q: __m256i, a: __m256i) -> __m256i {
        self.add_wide_product(s, q, a)
    }

    #[inline(always)]
    fn widen(self, s: __m256i) -> __m256i {
        s
    }

    #[inline(always)]
    fn add_wide_product(self, i: __m256i, q: __m256i, a: __m256i) -> __m256i {
        // SAFETY: an `AvxVnni` exists only where `AvxVnni::detect` found the instruction.
        unsafe { _mm256_dpbusd_avx_epi32(i, q, a) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m256i {
        self.0.splat_i32(x)
    }

    #[inline(always)]
    fn add_i32(self, a: __m256i, b: __m256i) -> __m256i {
        self.0.add_i32(a, b)
    }

    #[inline(always)]
    fn to_f32(self, i: __m256i) -> __m256 {
        self.0.to_f32(i)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        self.0.splat(x)
    }

    #[inline(always)]
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> __m256 {
        self.0.floats(panels, of)
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        self.0.load(x)
    }

    #[inline(always)]
    fn store(self, v: __m256, out: &mut [f32]) {
        self.0.store(v, out);
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        self.0.mul(a, b)
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        self.0.fma(a, b, c)
    }

    #[inline(always)]
    fn fnma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        self.0.fnma(a, b, c)
    }
}
