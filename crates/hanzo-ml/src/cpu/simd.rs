//! Eight lanes of f32, written once for every instruction set.
//!
//! A [`Kernel`] is generic over [`Simd`]; [`Level::run`] instantiates it for the instruction set that was found
//! when the backend started. Everything is `#[inline(always)]` so that a kernel's body lands inside the one
//! function that enables the instructions; a closure is not inlined for certain, so new code has none over vectors. The
//! order of additions in [`Simd::sum`] is the same on every level; levels differ in whether [`Simd::fma`] rounds once or
//! twice.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions that only some processors have")
)]

#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64 as x86;

use half::f16;

#[cfg(target_arch = "x86_64")]
use avx512::Avx512;

/// Lanes of a vector.
pub(super) const LANES: usize = 8;

/// The elements of a vector in memory.
pub(super) type Lanes = [f32; LANES];

/// The instructions of one level; a value is the proof that the processor has them.
pub(super) trait Simd: Copy + Send + Sync {
    /// A vector of eight f32.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &Lanes) -> Self::V;
    fn store(self, v: Self::V, out: &mut Lanes);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`, so a NaN in `b` stays.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`, so a NaN in `b` stays.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { x } else { y }`.
    fn select_lt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// The nearest integer, ties to even, of values below 2²² in magnitude.
    fn round(self, v: Self::V) -> Self::V;
    /// `2^n` for integers from −126 to 127.
    fn exp2_int(self, n: Self::V) -> Self::V;
    /// `((0+1) + (2+3)) + ((4+5) + (6+7))` of each of four vectors.
    fn sum4(self, v: [Self::V; 4]) -> [f32; 4];
    /// `((0+1) + (2+3)) + ((4+5) + (6+7))`.
    fn sum(self, v: Self::V) -> f32;
    /// The largest lane, by [`Simd::max`] of lanes four, then two, then one apart.
    fn largest(self, v: Self::V) -> f32;
    fn load_f16(self, x: &[f16; LANES]) -> Self::V;
    /// Eight f32, little-endian.
    fn load_f32_bytes(self, x: &[u8; 4 * LANES]) -> Self::V;
    /// Eight f16, little-endian.
    fn load_f16_bytes(self, x: &[u8; 2 * LANES]) -> Self::V;
    /// Eight bf16, little-endian.
    fn load_bf16_bytes(self, x: &[u8; 2 * LANES]) -> Self::V;
}

/// A computation that is written for any level.
pub(super) trait Kernel {
    type Output;

    /// Whether [`Self::run_pairs`] is more than [`Self::run`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no other level has pairs"))]
    const PAIRS: bool = false;

    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;

    /// The same bits with vectors in pairs. Must be `#[inline(always)]`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no other level has pairs"))]
    #[inline(always)]
    fn run_pairs<P: Pairs>(self, pairs: P) -> Self::Output
    where
        Self: Sized,
    {
        self.run(pairs.narrow())
    }
}

/// Two vectors in one register, on levels that have such registers, and thirty-two of them.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no other level has pairs"))]
pub(super) trait Pairs: Copy + Send + Sync {
    /// Single vectors.
    type Narrow: Simd;
    /// A pair.
    type P: Copy;

    fn narrow(self) -> Self::Narrow;
    fn zeros(self) -> Self::P;
    fn load(self, x: &[Lanes; 2]) -> Self::P;
    /// A vector, twice.
    fn twice(self, x: &Lanes) -> Self::P;
    /// `a · b + c`.
    fn fma(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P;
    fn halves(self, p: Self::P) -> [<Self::Narrow as Simd>::V; 2];
}

/// The instruction set that the processor has.
#[derive(Clone, Copy)]
pub(super) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable,
    /// Pairs in plain Rust: what is made of pairs is tested on processors that have none.
    #[cfg(test)]
    PortablePairs,
}

impl Level {
    /// The levels of this processor, the best first.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            let narrow = Avx2(());
            all.extend(Avx512::detect(narrow).map(Self::Avx512));
            all.push(Self::Avx2(narrow));
        }
        all.push(Self::Portable);
        #[cfg(test)]
        all.push(Self::PortablePairs);
        all
    }

    /// The best level of this processor.
    pub(super) fn detect() -> Self {
        Self::all().first().copied().unwrap_or(Self::Portable)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            Self::Portable => "portable",
            #[cfg(test)]
            Self::PortablePairs => "portable pairs",
        }
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) if K::PAIRS => simd.run(kernel),
            // SAFETY: an `Avx2` exists only where `all` found the three features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => unsafe { run_avx2(kernel, simd.narrow()) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => unsafe { run_avx2(kernel, simd) },
            Self::Portable => kernel.run(Portable),
            #[cfg(test)]
            Self::PortablePairs => kernel.run_pairs(Portable),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K, simd: Avx2) -> K::Output {
    kernel.run(simd)
}

/// Plain Rust for any processor.
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Lanes {
    std::array::from_fn(f)
}

impl Simd for Portable {
    type V = Lanes;

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &Lanes) -> Lanes {
        *x
    }

    #[inline(always)]
    fn store(self, v: Lanes, out: &mut Lanes) {
        *out = v;
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| a[i] / b[i])
    }

    /// Where the target has no instruction for it, a fused multiply-add would be a slow library call.
    #[inline(always)]
    fn fma(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            each(|i| a[i] * b[i] + c[i])
        }
    }

    #[inline(always)]
    fn max(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Lanes, b: Lanes) -> Lanes {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn select_lt(self, a: Lanes, b: Lanes, x: Lanes, y: Lanes) -> Lanes {
        each(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn round(self, v: Lanes) -> Lanes {
        // Adding 1.5 · 2²³ leaves no bits for a fraction.
        const MAGIC: f32 = 12_582_912.0;
        each(|i| (v[i] + MAGIC) - MAGIC)
    }

    #[inline(always)]
    fn exp2_int(self, n: Lanes) -> Lanes {
        each(|i| f32::from_bits(((n[i] as i32).wrapping_add(127) as u32) << 23))
    }

    #[inline(always)]
    fn sum4(self, v: [Lanes; 4]) -> [f32; 4] {
        v.map(|v| self.sum(v))
    }

    #[inline(always)]
    fn sum(self, v: Lanes) -> f32 {
        ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
    }

    #[inline(always)]
    fn largest(self, v: Lanes) -> f32 {
        let max = |a: f32, b: f32| if a > b { a } else { b };
        max(max(max(v[0], v[4]), max(v[2], v[6])), max(max(v[1], v[5]), max(v[3], v[7])))
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Lanes {
        each(|i| x[i].to_f32())
    }

    #[inline(always)]
    fn load_f32_bytes(self, x: &[u8; 4 * LANES]) -> Lanes {
        each(|i| f32::from_le_bytes([x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]]))
    }

    #[inline(always)]
    fn load_f16_bytes(self, x: &[u8; 2 * LANES]) -> Lanes {
        each(|i| f16::from_le_bytes([x[2 * i], x[2 * i + 1]]).to_f32())
    }

    #[inline(always)]
    fn load_bf16_bytes(self, x: &[u8; 2 * LANES]) -> Lanes {
        each(|i| f32::from_le_bytes([0, 0, x[2 * i], x[2 * i + 1]]))
    }
}

#[cfg(test)]
impl Pairs for Portable {
    type Narrow = Self;
    type P = [Lanes; 2];

    fn narrow(self) -> Self {
        self
    }

    fn zeros(self) -> [Lanes; 2] {
        [[0.0; LANES]; 2]
    }

    fn load(self, x: &[Lanes; 2]) -> [Lanes; 2] {
        *x
    }

    fn twice(self, x: &Lanes) -> [Lanes; 2] {
        [*x; 2]
    }

    fn fma(self, a: [Lanes; 2], b: [Lanes; 2], c: [Lanes; 2]) -> [Lanes; 2] {
        [Simd::fma(self, a[0], b[0], c[0]), Simd::fma(self, a[1], b[1], c[1])]
    }

    fn halves(self, p: [Lanes; 2]) -> [Lanes; 2] {
        p
    }
}

/// x86-64 with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Sums of neighbours: two shuffles and an addition, which is cheaper than a horizontal addition.
    #[inline(always)]
    fn add_pairs(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        // SAFETY: an `Avx2` exists only where `Level::all` found the features.
        unsafe {
            let even = x86::_mm256_shuffle_ps::<0x88>(a, b);
            x86::_mm256_add_ps(even, x86::_mm256_shuffle_ps::<0xdd>(a, b))
        }
    }
}

// SAFETY of every `unsafe` block in this implementation: an `Avx2` exists only where `Level::all` found the
// features that the intrinsics need, and the loads and stores go through references to eight numbers or their bytes.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Simd for Avx2 {
    type V = x86::__m256;

    #[inline(always)]
    fn splat(self, x: f32) -> x86::__m256 {
        unsafe { x86::_mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &Lanes) -> x86::__m256 {
        unsafe { x86::_mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: x86::__m256, out: &mut Lanes) {
        unsafe { x86::_mm256_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: x86::__m256, b: x86::__m256, c: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: x86::__m256, b: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn select_lt(self, a: x86::__m256, b: x86::__m256, x: x86::__m256, y: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_blendv_ps(y, x, x86::_mm256_cmp_ps::<{ x86::_CMP_LT_OQ }>(a, b)) }
    }

    #[inline(always)]
    fn round(self, v: x86::__m256) -> x86::__m256 {
        unsafe { x86::_mm256_round_ps::<{ x86::_MM_FROUND_TO_NEAREST_INT | x86::_MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn exp2_int(self, n: x86::__m256) -> x86::__m256 {
        unsafe {
            let biased = x86::_mm256_add_epi32(x86::_mm256_cvtps_epi32(n), x86::_mm256_set1_epi32(127));
            x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<23>(biased))
        }
    }

    #[inline(always)]
    fn sum4(self, v: [x86::__m256; 4]) -> [f32; 4] {
        unsafe {
            let halves = self.add_pairs(self.add_pairs(v[0], v[1]), self.add_pairs(v[2], v[3]));
            let high = x86::_mm256_extractf128_ps::<1>(halves);
            let mut out = [0.0; 4];
            x86::_mm_storeu_ps(out.as_mut_ptr(), x86::_mm_add_ps(x86::_mm256_castps256_ps128(halves), high));
            out
        }
    }

    #[inline(always)]
    fn sum(self, v: x86::__m256) -> f32 {
        self.sum4([v; 4])[0]
    }

    #[inline(always)]
    fn largest(self, v: x86::__m256) -> f32 {
        unsafe {
            let v = x86::_mm_max_ps(x86::_mm256_castps256_ps128(v), x86::_mm256_extractf128_ps::<1>(v));
            let v = x86::_mm_max_ps(v, x86::_mm_movehl_ps(v, v));
            x86::_mm_cvtss_f32(x86::_mm_max_ss(v, x86::_mm_movehdup_ps(v)))
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> x86::__m256 {
        unsafe { x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_f32_bytes(self, x: &[u8; 4 * LANES]) -> x86::__m256 {
        unsafe { x86::_mm256_loadu_ps(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_f16_bytes(self, x: &[u8; 2 * LANES]) -> x86::__m256 {
        unsafe { x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_bf16_bytes(self, x: &[u8; 2 * LANES]) -> x86::__m256 {
        unsafe {
            let wide = x86::_mm256_cvtepu16_epi32(x86::_mm_loadu_si128(x.as_ptr().cast()));
            x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<16>(wide))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the movements of lanes give, on whole numbers.
    struct Movements;

    impl Kernel for Movements {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Vec<f32> {
            let rows: [Lanes; LANES] =
                std::array::from_fn(|i| std::array::from_fn(|j| (i * LANES + j) as f32));
            let mut vectors = [s.splat(0.0); LANES];
            for (v, row) in vectors.iter_mut().zip(&rows) {
                *v = s.load(row);
            }
            let mut out = Vec::new();
            for i in 0..LANES {
                let mut x = [-1.0; LANES];
                x[i] = i as f32;
                out.push(s.largest(s.load(&x)));
            }
            out.extend(s.sum4([vectors[0], vectors[1], vectors[2], vectors[3]]));
            let bits: [u16; LANES] = [0, 0x8000, 1, 0x03ff, 0x3c00, 0xc500, 0x7bff, 0x7c00];
            let mut halves = [0.0; LANES];
            s.store(s.load_f16(&bits.map(f16::from_bits)), &mut halves);
            out.extend(halves);
            let bytes = |bits: [u16; LANES]| bits.map(u16::to_le_bytes).as_flattened().first_chunk().copied();
            s.store(s.load_f16_bytes(&bytes(bits).unwrap()), &mut halves);
            out.extend(halves);
            let bits: [u16; LANES] = [0, 0x8000, 1, 0x7f, 0x3f80, 0xc0a0, 0x7f7f, 0x7f80];
            s.store(s.load_bf16_bytes(&bytes(bits).unwrap()), &mut halves);
            out.extend(halves);
            let floats = rows[1].map(f32::to_le_bytes);
            s.store(s.load_f32_bytes(floats.as_flattened().first_chunk().unwrap()), &mut halves);
            out.extend(halves);
            out
        }
    }

    #[test]
    fn lanes_move_the_same_way_on_every_level() {
        let mut want: Vec<f32> = Vec::new();
        want.extend((0..LANES).map(|i| i as f32));
        want.extend([28.0, 92.0, 156.0, 220.0]);
        // IEEE 754, binary16.
        let halves = [0.0, -0.0, 2f32.powi(-24), 1023.0 * 2f32.powi(-24), 1.0, -5.0, 65504.0, f32::INFINITY];
        want.extend(halves);
        want.extend(halves);
        // The high half of binary32.
        let largest = f32::from_bits(0x7f7f_0000);
        want.extend([0.0, -0.0, 2f32.powi(-133), 127.0 * 2f32.powi(-133), 1.0, -5.0, largest, f32::INFINITY]);
        want.extend((8..16).map(|i| i as f32));
        let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for level in Level::all() {
            assert_eq!(bits(&level.run(Movements)), bits(&want), "{}", level.name());
        }
    }
}
