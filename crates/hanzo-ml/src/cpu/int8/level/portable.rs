//! Plain Rust for any processor.

use hanzo_quant::{LANES, Panel};

use super::Int8;

#[derive(Clone, Copy)]
pub(in crate::cpu) struct Portable;

#[inline(always)]
fn each<T>(f: impl Fn(usize) -> T) -> [T; LANES] {
    std::array::from_fn(f)
}

impl Int8 for Portable {
    type Q = [u32; LANES];
    type A = [i8; 4];
    type S = [i32; LANES];
    type I = [i32; LANES];
    type F = [f32; LANES];

    const GROUPS: usize = 1;
    const WIDE_SUMS: bool = true;
    const SIGNED: bool = false;
    const FEW_REGISTERS: bool = false;
    const PAIRS: usize = 2;

    #[inline(always)]
    fn quants(self, panels: &[Panel], word: usize) -> [u32; LANES] {
        panels[0].quants[word]
    }

    #[inline(always)]
    fn activations(self, word: u32) -> [i8; 4] {
        word.to_le_bytes().map(|byte| byte as i8)
    }

    #[inline(always)]
    fn zero(self) -> [i32; LANES] {
        [0; LANES]
    }

    #[inline(always)]
    fn add_product(self, s: [i32; LANES], q: [u32; LANES], a: [i8; 4]) -> [i32; LANES] {
        each(|i| {
            let q = q[i].to_le_bytes();
            let product = |k: usize| i32::from(q[k]) * i32::from(a[k]);
            s[i] + product(0) + product(1) + product(2) + product(3)
        })
    }

    #[inline(always)]
    fn widen(self, s: [i32; LANES]) -> [i32; LANES] {
        s
    }

    #[inline(always)]
    fn add_wide_product(self, i: [i32; LANES], q: [u32; LANES], a: [i8; 4]) -> [i32; LANES] {
        self.add_product(i, q, a)
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> [i32; LANES] {
        [x; LANES]
    }

    #[inline(always)]
    fn add_i32(self, a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn to_f32(self, i: [i32; LANES]) -> [f32; LANES] {
        each(|k| i[k] as f32)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; LANES] {
        [x; LANES]
    }

    #[inline(always)]
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> [f32; LANES] {
        *of(&panels[0])
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> [f32; LANES] {
        each(|i| x[i])
    }

    #[inline(always)]
    fn store(self, v: [f32; LANES], out: &mut [f32]) {
        out[..LANES].copy_from_slice(&v);
    }

    #[inline(always)]
    fn mul(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        each(|i| a[i] * b[i])
    }

    /// Where the target has no instruction for it, a fused multiply-add would be a slow library call.
    #[inline(always)]
    fn fma(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            each(|i| a[i] * b[i] + c[i])
        }
    }

    #[inline(always)]
    fn fnma(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        self.fma(each(|i| -a[i]), b, c)
    }
}
