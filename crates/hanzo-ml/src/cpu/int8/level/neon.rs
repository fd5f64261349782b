//! NEON with the dot product instruction: `sdot` multiplies signed bytes and adds four products to an i32.
//!
//! Tested under qemu (`tools/toolchains/test_aarch64.sh`), never timed on a processor that has it.

#![expect(unsafe_code, reason = "instructions that only some processors have")]

use std::arch::{
    aarch64::{
        float32x4_t, int8x16_t, int32x4_t, uint8x16_t, vaddq_s32, vcvtq_f32_s32, vdupq_n_f32, vdupq_n_s32,
        vdupq_n_u8, veorq_u8, vfmaq_f32, vfmsq_f32, vld1q_f32, vld1q_u32, vmulq_f32, vreinterpretq_s8_s32,
        vreinterpretq_s8_u8, vreinterpretq_u8_u32, vst1q_f32,
    },
    asm, is_aarch64_feature_detected,
};

use hanzo_quant::{LANES, Panel};

use super::{Int8, Int8Kernel};

/// 64-bit ARM with NEON and its dot product instructions.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        (is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")).then_some(Self(()))
    }

    pub(super) fn run(self, kernel: impl Int8Kernel) {
        // SAFETY: a `Neon` exists only where `detect` found both features.
        unsafe { run(self, kernel) }
    }

    /// `acc + Σ a · b` of four signed bytes each.
    #[inline(always)]
    fn sdot(self, mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: a `Neon` exists only where `detect` found the instruction, which reads and writes registers alone.
        unsafe {
            asm!(
                ".arch_extension dotprod",
                "sdot {acc:v}.4s, {a:v}.16b, {b:v}.16b",
                acc = inout(vreg) acc,
                a = in(vreg) a,
                b = in(vreg) b,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        acc
    }
}

#[target_feature(enable = "neon,dotprod")]
fn run(level: Neon, kernel: impl Int8Kernel) {
    kernel.run::<Neon, 2, 4>(level);
}

// SAFETY of every `unsafe` block in this implementation: a `Neon` exists only where `Neon::detect` found the features that
// the intrinsics need, and loads and stores go through references to as many numbers as they touch.
#[expect(clippy::undocumented_unsafe_blocks, reason = "stated once above")]
impl Int8 for Neon {
    type Q = [uint8x16_t; 2];
    type A = int8x16_t;
    type S = [int32x4_t; 2];
    type I = [int32x4_t; 2];
    type F = [float32x4_t; 2];

    const GROUPS: usize = 1;
    const WIDE_SUMS: bool = true;
    const SIGNED: bool = true;
    const FEW_REGISTERS: bool = false;
    const PAIRS: usize = 4;

    #[inline(always)]
    fn quants(self, panels: &[Panel], word: usize) -> [uint8x16_t; 2] {
        let (low, high) = panels[0].quants[word].split_at(LANES / 2);
        unsafe {
            [vreinterpretq_u8_u32(vld1q_u32(low.as_ptr())), vreinterpretq_u8_u32(vld1q_u32(high.as_ptr()))]
        }
    }

    #[inline(always)]
    fn activations(self, word: u32) -> int8x16_t {
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(word as i32)) }
    }

    #[inline(always)]
    fn zero(self) -> [int32x4_t; 2] {
        self.splat_i32(0)
    }

    /// Quants up to 127 are signed bytes as they are.
    #[inline(always)]
    fn add_product(self, s: [int32x4_t; 2], q: [uint8x16_t; 2], a: int8x16_t) -> [int32x4_t; 2] {
        let q = unsafe { [vreinterpretq_s8_u8(q[0]), vreinterpretq_s8_u8(q[1])] };
        [self.sdot(s[0], q[0], a), self.sdot(s[1], q[1], a)]
    }

    #[inline(always)]
    fn widen(self, s: [int32x4_t; 2]) -> [int32x4_t; 2] {
        s
    }

    #[inline(always)]
    fn add_wide_product(self, i: [int32x4_t; 2], q: [uint8x16_t; 2], a: int8x16_t) -> [int32x4_t; 2] {
        let q = unsafe {
            let sign = vdupq_n_u8(0x80);
            [veorq_u8(q[0], sign), veorq_u8(q[1], sign)]
        };
        self.add_product(i, q, a)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> [int32x4_t; 2] {
        unsafe { [vdupq_n_s32(x); 2] }
    }

    #[inline(always)]
    fn add_i32(self, a: [int32x4_t; 2], b: [int32x4_t; 2]) -> [int32x4_t; 2] {
        unsafe { [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])] }
    }

    #[inline(always)]
    fn to_f32(self, i: [int32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vcvtq_f32_s32(i[0]), vcvtq_f32_s32(i[1])] }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [float32x4_t; 2] {
        unsafe { [vdupq_n_f32(x); 2] }
    }

    #[inline(always)]
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> [float32x4_t; 2] {
        self.load(of(&panels[0]))
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> [float32x4_t; 2] {
        let (low, high) = x[..LANES].split_at(LANES / 2);
        unsafe { [vld1q_f32(low.as_ptr()), vld1q_f32(high.as_ptr())] }
    }

    #[inline(always)]
    fn store(self, v: [float32x4_t; 2], out: &mut [f32]) {
        let (low, high) = out[..LANES].split_at_mut(LANES / 2);
        unsafe {
            vst1q_f32(low.as_mut_ptr(), v[0]);
            vst1q_f32(high.as_mut_ptr(), v[1]);
        }
    }

    #[inline(always)]
    fn mul(self, a: [float32x4_t; 2], b: [float32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: [float32x4_t; 2], b: [float32x4_t; 2], c: [float32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
    }

    #[inline(always)]
    fn fnma(self, a: [float32x4_t; 2], b: [float32x4_t; 2], c: [float32x4_t; 2]) -> [float32x4_t; 2] {
        unsafe { [vfmsq_f32(c[0], a[0], b[0]), vfmsq_f32(c[1], a[1], b[1])] }
    }
}
