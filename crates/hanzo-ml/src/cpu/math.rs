//! Exponential and its relatives on vectors.
//!
//! `exp` and `tanh` use the ranges and minimax polynomials of the Cephes library (`expf.c`, `tanhf.c`, S. Moshier);
//! the error function is formula 7.1.26 of Abramowitz and Stegun.

#![expect(clippy::excessive_precision, reason = "coefficients as their source prints them")]

use super::simd::{LANES, Lanes, Simd};

/// `c[0] · xⁿ + c[1] · xⁿ⁻¹ + …`.
#[inline(always)]
fn horner<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut y = s.splat(c[0]);
    for &c in &c[1..] {
        y = s.fma(y, x, s.splat(c));
    }
    y
}

/// `eˣ` to about one unit in the last place; saturates below −87.33 (1.2e-38) and above 88.37 (2.4e38).
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // ln 2 in two parts, so that n · LN_2_HIGH is exact.
    const LN_2_HIGH: f32 = 0.693_359_375;
    const LN_2_LOW: f32 = -2.121_944_40e-4;
    let x = s.max(s.splat(-87.33), s.min(s.splat(88.37), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN_2_HIGH), x);
    let r = s.fma(n, s.splat(-LN_2_LOW), r);
    let p = horner(
        s,
        r,
        [
            1.987_569_15e-4,
            1.398_199_95e-3,
            8.333_451_91e-3,
            4.166_579_59e-2,
            1.666_666_55e-1,
            5.000_000_12e-1,
        ],
    );
    let p = s.fma(s.mul(p, r), r, r);
    s.mul(s.add(p, s.splat(1.0)), s.exp2_int(n))
}

/// `eˣ` of one number, by the same arithmetic.
#[inline(always)]
pub(super) fn exp_scalar<S: Simd>(s: S, x: f32) -> f32 {
    let mut out = [0.0; LANES];
    s.store(exp(s, s.splat(x)), &mut out);
    out[0]
}

/// `1 / (1 + e⁻ˣ)`.
#[inline(always)]
fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let e = exp(s, s.sub(s.splat(0.0), x));
    s.div(s.splat(1.0), s.add(s.splat(1.0), e))
}

/// `tanh x` to a few units in the last place: a polynomial near zero, the exponential elsewhere.
#[inline(always)]
pub(super) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let magnitude = s.max(s.sub(zero, x), x);
    let z = s.mul(x, x);
    let p = horner(
        s,
        z,
        [-5.704_988_727e-3, 2.063_908_880e-2, -5.373_971_555e-2, 1.333_144_220e-1, -3.333_328_194e-1],
    );
    let near = s.fma(s.mul(p, z), x, x);
    let e = exp(s, s.add(magnitude, magnitude));
    let far = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    let far = s.select_lt(x, zero, s.sub(zero, far), far);
    s.select_lt(magnitude, s.splat(0.625), near, far)
}

/// The error function within 1.5e-7.
#[inline(always)]
fn erf<S: Simd>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let one = s.splat(1.0);
    let magnitude = s.max(s.sub(zero, x), x);
    let t = s.div(one, s.fma(magnitude, s.splat(0.327_591_1), one));
    let p = horner(s, t, [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]);
    let e = exp(s, s.sub(zero, s.mul(x, x)));
    let y = s.sub(one, s.mul(s.mul(p, t), e));
    s.select_lt(x, zero, s.sub(zero, y), y)
}

/// `x · σ(x)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    s.mul(x, sigmoid(s, x))
}

/// `x · Φ(x)`.
#[inline(always)]
pub(super) fn gelu_erf<S: Simd>(s: S, x: S::V) -> S::V {
    let half = s.mul(x, s.splat(0.5));
    s.fma(half, erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2))), half)
}

/// `x · Φ(x)` by the usual approximation: ½(1 + tanh u) = σ(2u); 2 · √(2/π) = 1.595769122.
#[inline(always)]
pub(super) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let cube = s.mul(s.mul(x, x), x);
    let u = s.fma(cube, s.splat(0.044_715), x);
    s.mul(x, sigmoid(s, s.mul(u, s.splat(1.595_769_122))))
}

/// A function of one vector; a closure would not be inlined for certain.
pub(super) trait Map {
    /// Must be `#[inline(always)]`.
    fn map<S: Simd>(&self, s: S, x: S::V) -> S::V;
}

/// A function of two vectors.
pub(super) trait Map2 {
    /// Must be `#[inline(always)]`.
    fn map<S: Simd>(&self, s: S, a: S::V, b: S::V) -> S::V;
}

/// Calls `f` on each vector of a slice, the last one filled up with zeros, and writes the result over it.
#[inline(always)]
pub(super) fn map_in_place<S: Simd>(s: S, x: &mut [f32], f: &impl Map) {
    let (chunks, tail) = x.as_chunks_mut::<LANES>();
    for chunk in chunks {
        let y = f.map(s, s.load(chunk));
        s.store(y, chunk);
    }
    if !tail.is_empty() {
        let mut last = fill(tail);
        let y = f.map(s, s.load(&last));
        s.store(y, &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}

/// `out[i] = f(a[i], b[i])`; the slices have one length.
#[inline(always)]
pub(super) fn zip<S: Simd>(s: S, out: &mut [f32], a: &[f32], b: &[f32], f: &impl Map2) {
    let (out, out_tail) = out.as_chunks_mut::<LANES>();
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        s.store(f.map(s, s.load(a), s.load(b)), out);
    }
    if !out_tail.is_empty() {
        let mut last = [0.0; LANES];
        s.store(f.map(s, s.load(&fill(a_tail)), s.load(&fill(b_tail))), &mut last);
        out_tail.copy_from_slice(&last[..out_tail.len()]);
    }
}

/// At most seven values and zeros after them.
#[inline(always)]
pub(super) fn fill(tail: &[f32]) -> Lanes {
    let mut last = [0.0; LANES];
    last[..tail.len()].copy_from_slice(tail);
    last
}

#[cfg(test)]
mod tests {
    use super::{
        super::simd::{Kernel, Level, Portable},
        *,
    };

    /// Worst relative error of a function on a sweep, in units of 2⁻²³.
    struct Sweep<F> {
        from: f32,
        to: f32,
        want: F,
        exp: bool,
    }

    impl<F: Fn(f64) -> f64> Kernel for Sweep<F> {
        type Output = f64;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f64 {
            const STEPS: usize = 200_000;
            let mut worst = 0.0f64;
            for i in 0..=STEPS {
                let x = self.from + (self.to - self.from) * (i as f32 / STEPS as f32);
                let mut y = [0.0; LANES];
                s.store(if self.exp { exp(s, s.splat(x)) } else { tanh(s, s.splat(x)) }, &mut y);
                let want = (self.want)(f64::from(x));
                if want != 0.0 {
                    worst = worst.max(((f64::from(y[0]) - want) / want).abs());
                }
            }
            worst / f64::from(f32::EPSILON)
        }
    }

    #[test]
    fn exp_and_tanh_are_within_a_few_units_of_f64() {
        for fast in [true, false] {
            let exp = Sweep { from: -87.3, to: 88.3, want: f64::exp, exp: true };
            let tanh = Sweep { from: -12.0, to: 12.0, want: f64::tanh, exp: false };
            let worst = if fast {
                (Level::detect().run(exp), Level::detect().run(tanh))
            } else {
                (exp.run(Portable), tanh.run(Portable))
            };
            assert!(worst.0 < 2.0 && worst.1 < 4.0, "exp, tanh: {worst:?}");
        }
    }

    #[test]
    fn exp_of_the_extremes() {
        for (x, low, high) in
            [(-200.0, 0.0, 1.3e-38), (f32::NEG_INFINITY, 0.0, 1.3e-38), (200.0, 2.3e38, f32::MAX)]
        {
            let y = exp_scalar(Portable, x);
            assert!((low..=high).contains(&y), "exp({x}) = {y}");
        }
        assert_eq!(exp_scalar(Portable, 0.0), 1.0);
        assert!(exp_scalar(Portable, f32::NAN).is_nan());
    }
}
