//! A few rows of activations: each row of the weight is read once, and nothing is written on the way.

use std::marker::PhantomData;

use super::{
    super::{
        dot::{K_BLOCK, STRETCH, dots_apart, sums},
        simd::{Kernel, LANES, Lanes, Simd},
    },
    Columns,
    number::Plain,
};

/// `totals[m · width + c] = x[m] · columns[c]` for plain numbers: `N` rows of the weight side by side, so that there are
/// enough chains of additions, and memory has several places to read from.
pub(super) struct Direct<'a, T, const M: usize, const N: usize> {
    columns: Columns<'a>,
    x: [&'a [Lanes]; M],
    totals: &'a mut [f32],
    width: usize,
    plain: PhantomData<T>,
}

impl<'a, T: Plain, const M: usize, const N: usize> Direct<'a, T, M, N> {
    /// The rows of `totals` have room for whole steps of `N` columns.
    pub fn new(columns: Columns<'a>, x: [&'a [Lanes]; M], totals: &'a mut [f32], width: usize) -> Self {
        debug_assert!(width.is_multiple_of(N) && columns.n <= width);
        Self { columns, x, totals, width, plain: PhantomData }
    }
}

impl<T: Plain, const M: usize, const N: usize> Kernel for Direct<'_, T, M, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { columns, x, totals, width, .. } = self;
        for first in (0..columns.n).step_by(N) {
            // Past the end the last row stands in.
            let rows: [&[u8]; N] = std::array::from_fn(|n| columns.row((first + n).min(columns.n - 1)));
            let sums = product::<S, T, M, N>(s, x, rows);
            for (m, sums) in sums.iter().enumerate() {
                totals[m * width + first..][..N].copy_from_slice(sums);
            }
        }
    }
}

/// Dot products of `M` rows with `N` rows of numbers.
#[inline(always)]
fn product<S: Simd, T: Plain, const M: usize, const N: usize>(
    s: S,
    x: [&[Lanes]; M],
    rows: [&[u8]; N],
) -> [[f32; N]; M] {
    let mut eights: [&[T::Eight]; N] = [&[]; N];
    let mut rests: [&[u8]; N] = [&[]; N];
    for n in 0..N {
        (eights[n], rests[n]) = T::eights(rows[n]);
    }
    let mut totals = [[0.0; N]; M];
    let (whole, wide) = (eights[0].len(), x[0].len());
    for start in (0..wide).step_by(STRETCH) {
        let (end, end_whole) = (wide.min(start + STRETCH), whole.min(start + STRETCH));
        let mut acc = [[s.splat(0.0); N]; M];
        let (x, w) = (x.map(|x| &x[start..end]), eights.map(|w| &w[start..end_whole]));
        for k in 0..end_whole - start {
            let mut now = [s.splat(0.0); M];
            for m in 0..M {
                now[m] = s.load(&x[m][k]);
            }
            for n in 0..N {
                let w = T::load(s, &w[n][k]);
                for m in 0..M {
                    acc[m][n] = s.fma(now[m], w, acc[m][n]);
                }
            }
        }
        if end_whole < end {
            for n in 0..N {
                let w = T::load_rest(s, rests[n]);
                for m in 0..M {
                    acc[m][n] = s.fma(s.load(&x[m][end_whole - start]), w, acc[m][n]);
                }
            }
        }
        let sums = sums(s, &acc);
        for m in 0..M {
            for n in 0..N {
                totals[m][n] += sums[m][n];
            }
        }
    }
    totals
}

/// `totals[c] = x · columns[c]` for any format: each row of the weight is read from its first byte to its last.
pub(super) struct Lone<'a> {
    pub columns: Columns<'a>,
    pub x: &'a [Lanes],
    pub totals: &'a mut [f32],
}

/// Stretches that are decoded, and then summed at the same time.
const CHAINS: usize = 4;

impl Kernel for Lone<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { columns, x, totals } = self;
        let (k_all, decode) = (columns.k(), columns.weight.format().decode);
        let mut stretches = [[[0f32; LANES]; STRETCH]; CHAINS];
        for (row, total) in totals.iter_mut().enumerate().take(columns.n) {
            for first in (0..k_all).step_by(CHAINS * K_BLOCK) {
                let starts = (first..k_all.min(first + CHAINS * K_BLOCK)).step_by(K_BLOCK);
                for (k, to) in starts.clone().zip(&mut stretches) {
                    let len = K_BLOCK.min(k_all - k);
                    let to = to.as_flattened_mut();
                    decode(columns.stretch(row, k, len), &mut to[..len]);
                    to[len..len.next_multiple_of(LANES)].fill(0.0);
                }
                let at = |k: usize| &x[k / LANES..];
                if first + CHAINS * K_BLOCK <= k_all {
                    let x = std::array::from_fn(|i| at(first + i * K_BLOCK));
                    let w = std::array::from_fn(|i| &stretches[i][..]);
                    for sum in dots_apart::<S, CHAINS>(s, x, w, STRETCH) {
                        *total += sum;
                    }
                } else {
                    for (k, w) in starts.zip(&stretches) {
                        let len = K_BLOCK.min(k_all - k).div_ceil(LANES);
                        let [sum] = dots_apart(s, [at(k)], [&w[..]], len);
                        *total += sum;
                    }
                }
            }
        }
    }
}
