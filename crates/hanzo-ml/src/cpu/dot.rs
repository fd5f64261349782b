//! The one dot product: the order of additions is a matter of K alone, never of the tile that computes it.
//!
//! K is cut into stretches of [`K_BLOCK`]. In a stretch, lane `i` adds the products of elements `i, i + 8, …` in
//! order with fused multiply-adds; a last vector is filled up with zeros. The eight lanes are added as
//! [`Simd::sum`] says, and the stretches in order. So a row of activations gives the same bits alone, in a batch,
//! and on any number of threads.

use super::simd::{Lanes, Simd};

/// Elements of K that are added in lanes before the lanes are added: a multiple of each format's block.
pub(super) const K_BLOCK: usize = 512;

/// Dot products of `M` rows with `N` rows of `len` vectors each. `M · N` accumulators live in registers, so the
/// product should be 8 to 12: fewer leave the multiply-add units idle, more do not fit sixteen registers.
///
/// # Panics
/// If a row is shorter: a bug of the caller.
#[inline(always)]
pub(super) fn dots<S: Simd, const M: usize, const N: usize>(
    s: S,
    x: [&[Lanes]; M],
    w: [&[Lanes]; N],
    len: usize,
) -> [[f32; N]; M] {
    let (x, w) = (x.map(|x| &x[..len]), w.map(|w| &w[..len]));
    let mut acc = [[s.splat(0.0); N]; M];
    for k in 0..len {
        // The shorter side waits in registers, the longer comes one by one: M · N + min(M, N) + 1 registers.
        if M <= N {
            let x: [S::V; M] = std::array::from_fn(|m| s.load(&x[m][k]));
            for n in 0..N {
                let w = s.load(&w[n][k]);
                for m in 0..M {
                    acc[m][n] = s.fma(x[m], w, acc[m][n]);
                }
            }
        } else {
            let w: [S::V; N] = std::array::from_fn(|n| s.load(&w[n][k]));
            for m in 0..M {
                let x = s.load(&x[m][k]);
                for n in 0..N {
                    acc[m][n] = s.fma(x, w[n], acc[m][n]);
                }
            }
        }
    }
    sums(s, &acc)
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
fn sums<S: Simd, const M: usize, const N: usize>(s: S, acc: &[[S::V; N]; M]) -> [[f32; N]; M] {
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
