//! Few queries: they multiply keys and values as they lie in the cache, eight elements of one row at a time.

use super::{
    super::simd::{Kernel, LANES, Lanes, Simd},
    block::{Cell, Query, Scores, common},
};
use crate::backend::KV_BLOCK;

/// Queries that share the loads of keys and values. With three, what is converted on its way does not fit sixteen registers.
const TOGETHER: usize = 2;

/// The products of each query, rows of `q`, with each key of the block, rows of `k`; both of `wide` vectors.
pub(super) struct ScoreFew<'a, C> {
    pub k: &'a [[C; LANES]],
    pub wide: usize,
    pub q: &'a [Lanes],
    pub queries: &'a mut [Query],
}

impl<C: Cell> Kernel for ScoreFew<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { k, wide, q, queries } = self;
        let mut i = 0;
        while i < queries.len() {
            let n = TOGETHER.min(queries.len() - i);
            let (q, queries) = (&q[i * wide..(i + n) * wide], &mut queries[i..i + n]);
            match n {
                1 => score_rows::<S, C, 1, 8>(s, k, wide, q, queries),
                _ => score_rows::<S, C, 2, 4>(s, k, wide, q, queries),
            }
            i += n;
        }
    }
}

/// Adds the weighted values, rows of `v` of `wide` vectors, to the rows of `acc` of `stride`, positions in order.
pub(super) struct AddFew<'a, C> {
    pub v: &'a [[C; LANES]],
    pub wide: usize,
    pub acc: &'a mut [Lanes],
    pub stride: usize,
    pub queries: &'a [Query],
    pub block: usize,
}

impl<C: Cell> Kernel for AddFew<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { v, wide, acc, stride, queries, block } = self;
        let rows = Values { v, wide, stride };
        let mut i = 0;
        while i < queries.len() {
            let n = TOGETHER.min(queries.len() - i);
            let (acc, queries) = (&mut acc[i * stride..(i + n) * stride], &queries[i..i + n]);
            match n {
                1 => rows.add_common::<S, 1, 8>(s, acc, queries, block),
                _ => rows.add_common::<S, 2, 4>(s, acc, queries, block),
            }
            i += n;
        }
    }
}

/// Scores of `M` queries, `N` keys at a time.
#[inline(always)]
fn score_rows<S: Simd, C: Cell, const M: usize, const N: usize>(
    s: S,
    k: &[[C; LANES]],
    wide: usize,
    q: &[Lanes],
    queries: &mut [Query],
) {
    let q: [&[Lanes]; M] = std::array::from_fn(|m| &q[m * wide..][..wide]);
    for n in (0..KV_BLOCK).step_by(N) {
        let k: [&[[C; LANES]]; N] = std::array::from_fn(|j| &k[(n + j) * wide..][..wide]);
        let mut acc = [[s.splat(0.0); N]; M];
        for c in 0..wide {
            let mut x = [s.splat(0.0); M];
            for m in 0..M {
                x[m] = s.load(&q[m][c]);
            }
            for j in 0..N {
                let key = C::load(s, &k[j][c]);
                for m in 0..M {
                    acc[m][j] = s.fma(x[m], key, acc[m][j]);
                }
            }
        }
        for (query, acc) in queries.iter_mut().zip(&acc) {
            for (out, acc) in
                query.scores[n..n + N].as_chunks_mut::<4>().0.iter_mut().zip(acc.as_chunks::<4>().0)
            {
                *out = s.sum4(*acc);
            }
        }
    }
}

/// Values of a block, rows of `wide` vectors, and the stride of the rows that they are added to.
struct Values<'a, C> {
    v: &'a [[C; LANES]],
    wide: usize,
    stride: usize,
}

impl<C: Cell> Values<'_, C> {
    /// What all `M` queries see is added for all at once; what comes before and after it for each alone.
    #[inline(always)]
    fn add_common<S: Simd, const M: usize, const N: usize>(
        &self,
        s: S,
        acc: &mut [Lanes],
        queries: &[Query],
        block: usize,
    ) {
        let (low, high) = common(queries, block);
        for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(self.stride)) {
            let (begin, end) = query.window(block);
            self.add::<S, 1, 8>(s, acc, [&query.scores], (begin, end.min(low)));
        }
        let weights: [&Scores; M] = std::array::from_fn(|m| &queries[m].scores);
        self.add::<S, M, N>(s, acc, weights, (low, high));
        for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(self.stride)) {
            let (begin, end) = query.window(block);
            self.add::<S, 1, 8>(s, acc, [&query.scores], (begin.max(high), end));
        }
    }

    /// `acc[m] += Σ p[m][j] · v[j]` for `j` from `low` to `high` in order, `N` vectors at a time.
    #[inline(always)]
    fn add<S: Simd, const M: usize, const N: usize>(
        &self,
        s: S,
        acc: &mut [Lanes],
        p: [&Scores; M],
        (low, high): (usize, usize),
    ) {
        if low >= high {
            return;
        }
        let mut c = 0;
        while c + N <= self.wide {
            self.add_columns::<S, M, N>(s, c, acc, p, (low, high));
            c += N;
        }
        while c < self.wide {
            self.add_columns::<S, M, 1>(s, c, acc, p, (low, high));
            c += 1;
        }
    }

    /// [`Self::add`] for vectors `c..c + N` of the rows.
    #[inline(always)]
    fn add_columns<S: Simd, const M: usize, const N: usize>(
        &self,
        s: S,
        c: usize,
        acc: &mut [Lanes],
        p: [&Scores; M],
        (low, high): (usize, usize),
    ) {
        let Self { v, wide, stride } = *self;
        let mut sums = [[s.splat(0.0); N]; M];
        for m in 0..M {
            let from = &acc[m * stride + c..][..N];
            for n in 0..N {
                sums[m][n] = s.load(&from[n]);
            }
        }
        let p: [&[f32]; M] = std::array::from_fn(|m| &p[m][low..high]);
        for (j, row) in v[low * wide..high * wide].chunks_exact(wide).enumerate() {
            let row = &row[c..c + N];
            let mut values = [s.splat(0.0); N];
            for n in 0..N {
                values[n] = C::load(s, &row[n]);
            }
            for m in 0..M {
                let p = s.splat(p[m][j]);
                for n in 0..N {
                    sums[m][n] = s.fma(p, values[n], sums[m][n]);
                }
            }
        }
        for m in 0..M {
            let to = &mut acc[m * stride + c..][..N];
            for n in 0..N {
                s.store(sums[m][n], &mut to[n]);
            }
        }
    }
}
