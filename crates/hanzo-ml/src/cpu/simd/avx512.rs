//! Sixteen lanes on x86-64 with AVX-512: two vectors of eight in a register, so that each eight does what AVX2 does, bit for
//! bit. Kernels that gain nothing from it run as on AVX2. Numbers of the type that AVX-512-BF16 multiplies are widened: its sums
//! round otherwise.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::arch::x86_64 as x86;

use super::{Avx2, Kernel, Lanes, Pairs};

/// AVX-512F beside AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Avx512(Avx2);

impl Avx512 {
    /// If the processor has it.
    pub fn detect(narrow: Avx2) -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(narrow))
    }

    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: an `Avx512` exists only where `detect` found the feature, and those of the `Avx2` in it.
        unsafe { run(kernel, self) }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f")]
fn run<K: Kernel>(kernel: K, simd: Avx512) -> K::Output {
    kernel.run_pairs(simd)
}

// SAFETY of every `unsafe` block in this implementation: an `Avx512` exists only where `detect` found the feature, and the
// loads go through references to as many floats.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Pairs for Avx512 {
    type Narrow = Avx2;
    type P = x86::__m512;

    #[inline(always)]
    fn narrow(self) -> Avx2 {
        self.0
    }

    #[inline(always)]
    fn zeros(self) -> x86::__m512 {
        unsafe { x86::_mm512_setzero_ps() }
    }

    #[inline(always)]
    fn load(self, x: &[Lanes; 2]) -> x86::__m512 {
        unsafe { x86::_mm512_loadu_ps(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn twice(self, x: &Lanes) -> x86::__m512 {
        unsafe {
            let bits = x86::_mm256_loadu_pd(x.as_ptr().cast());
            x86::_mm512_castpd_ps(x86::_mm512_broadcast_f64x4(bits))
        }
    }

    #[inline(always)]
    fn fma(self, a: x86::__m512, b: x86::__m512, c: x86::__m512) -> x86::__m512 {
        unsafe { x86::_mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn halves(self, p: x86::__m512) -> [x86::__m256; 2] {
        unsafe {
            let high = x86::_mm512_extractf64x4_pd::<1>(x86::_mm512_castps_pd(p));
            [x86::_mm512_castps512_ps256(p), x86::_mm256_castpd_ps(high)]
        }
    }
}
