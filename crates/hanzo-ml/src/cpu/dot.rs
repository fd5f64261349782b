//! The one dot product in f32: the order of additions is a matter of K alone, never of the tile that computes it.
//!
//! K is cut into stretches of [`K_BLOCK`]. In a stretch, lane `i` adds the products of elements `i, i + 8, …` in
//! order with fused multiply-adds; a last vector is filled up with zeros. The eight lanes are added as
//! [`Simd::sum`] says, and the stretches in order. So a row of activations gives the same bits alone, in a batch,
//! and on any number of threads.

use super::{
    prefetch::prefetch_line,
    simd::{LANES, Lanes, Pairs, Simd},
};

/// Elements of K that are added in lanes before the lanes are added: a multiple of each format's block.
pub(super) const K_BLOCK: usize = 512;

/// Vectors of a stretch.
pub(super) const STRETCH: usize = K_BLOCK / LANES;

/// Rows of a weight that lie side by side, vector by vector.
pub(super) const SIDE: usize = 4;

/// Dot products of `M` rows with [`SIDE`] rows, both side by side. `M` of 3 fills sixteen registers. What lies `ahead`
/// vectors after the first of `x` is needed next: three cache lines of it are asked for in four steps.
#[inline(always)]
pub(super) fn dots<S: Simd, const M: usize>(
    s: S,
    x: &[[Lanes; M]],
    w: &[[Lanes; SIDE]],
    ahead: usize,
) -> [[f32; SIDE]; M] {
    /// Steps between two looks at the loop's end.
    const STEPS: usize = 4;
    /// Vectors of a cache line.
    const LINE: usize = 2;
    let mut ahead = x.as_ptr().cast::<Lanes>().wrapping_add(ahead);
    let mut acc = [[s.splat(0.0); SIDE]; M];
    let (x, x_rest) = x.as_chunks::<STEPS>();
    let (w, w_rest) = w.as_chunks::<STEPS>();
    for (x, w) in x.iter().zip(w) {
        for _ in 0..3 {
            prefetch_line(ahead.cast());
            ahead = ahead.wrapping_add(LINE);
        }
        for i in 0..STEPS {
            step::<S, M>(s, &x[i], &w[i], &mut acc);
        }
    }
    for (x, w) in x_rest.iter().zip(w_rest) {
        step::<S, M>(s, x, w, &mut acc);
    }
    sums(s, &acc)
}

/// [`dots`] with two times [`SIDE`] rows at once, the same bits; two cache lines are asked for in a step.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no other level has pairs"))]
#[inline(always)]
pub(super) fn dots_paired<P: Pairs, const M: usize>(
    p: P,
    x: &[[Lanes; M]],
    w: [&[[Lanes; SIDE]]; 2],
    ahead: usize,
) -> [[[f32; SIDE]; M]; 2] {
    /// Pairs of a step.
    const PAIRS: usize = SIDE / 2;
    /// Vectors of a cache line.
    const LINE: usize = 2;
    let s = p.narrow();
    let mut ahead = x.as_ptr().cast::<Lanes>().wrapping_add(ahead);
    let mut acc = [[[p.zeros(); PAIRS]; M]; 2];
    for (x, (a, b)) in x.iter().zip(w[0].iter().zip(w[1])) {
        for _ in 0..2 {
            prefetch_line(ahead.cast());
            ahead = ahead.wrapping_add(LINE);
        }
        let mut now = [p.zeros(); M];
        for m in 0..M {
            now[m] = p.twice(&x[m]);
        }
        for (acc, w) in acc.iter_mut().zip([a, b]) {
            let w: &[[Lanes; 2]] = w.as_chunks().0;
            for n in 0..PAIRS {
                let w = p.load(&w[n]);
                for m in 0..M {
                    acc[m][n] = p.fma(now[m], w, acc[m][n]);
                }
            }
        }
    }
    let mut out = [[[0.0; SIDE]; M]; 2];
    for (out, acc) in out.iter_mut().zip(&acc) {
        for m in 0..M {
            let [[a, b], [c, d]] = [p.halves(acc[m][0]), p.halves(acc[m][1])];
            out[m] = s.sum4([a, b, c, d]);
        }
    }
    out
}

/// Adds the products of a vector of each row: those of the activations wait in registers, those of the weight come one by
/// one.
#[inline(always)]
fn step<S: Simd, const M: usize>(s: S, x: &[Lanes; M], w: &[Lanes; SIDE], acc: &mut [[S::V; SIDE]; M]) {
    let mut now = [s.splat(0.0); M];
    for m in 0..M {
        now[m] = s.load(&x[m]);
    }
    for n in 0..SIDE {
        let w = s.load(&w[n]);
        for m in 0..M {
            acc[m][n] = s.fma(now[m], w, acc[m][n]);
        }
    }
}

/// `N` dot products at the same time, of `len` vectors each: as many chains of additions keep the units busy where there is
/// one row of activations, whose stretches these are.
///
/// # Panics
/// If a row is shorter: a bug of the caller.
#[inline(always)]
pub(super) fn dots_apart<S: Simd, const N: usize>(
    s: S,
    x: [&[Lanes]; N],
    w: [&[Lanes]; N],
    len: usize,
) -> [f32; N] {
    let (x, w) = (x.map(|x| &x[..len]), w.map(|w| &w[..len]));
    let mut acc = [[s.splat(0.0); N]];
    for k in 0..len {
        for n in 0..N {
            acc[0][n] = s.fma(s.load(&x[n][k]), s.load(&w[n][k]), acc[0][n]);
        }
    }
    let [sums] = sums(s, &acc);
    sums
}

/// The sum of each accumulator, four at a time.
#[inline(always)]
pub(super) fn sums<S: Simd, const M: usize, const N: usize>(s: S, acc: &[[S::V; N]; M]) -> [[f32; N]; M] {
    let mut out = [[0.0; N]; M];
    let at = |i: usize| acc[i / N][i % N];
    let mut i = 0;
    while i + 4 <= M * N {
        let four = s.sum4([at(i), at(i + 1), at(i + 2), at(i + 3)]);
        for (j, sum) in four.into_iter().enumerate() {
            out[(i + j) / N][(i + j) % N] = sum;
        }
        i += 4;
    }
    while i < M * N {
        out[i / N][i % N] = s.sum(at(i));
        i += 1;
    }
    out
}
