//! One block of 32 positions against the queries of a run: scores, weights, weighted values.
//!
//! A score is added up in one order, that of `dot.rs`: lane `i` of eight adds elements `i, i + 8, …`, and the lanes
//! are added in pairs. Few queries multiply the keys as they lie in the cache, eight elements of one key at a time
//! ([`score_rows`]). Many share a block whose keys have become columns, eight keys at a time, and keep one sum for
//! each of the eight lanes ([`score_columns`]): the same bits without adding across a vector.

use half::f16;

use super::super::{
    math::{exp, exp_scalar, tanh},
    simd::{LANES, Lanes, Simd},
};
use crate::backend::KV_BLOCK;

/// Vectors of one number for each position of a block.
pub(super) const WIDTH: usize = KV_BLOCK / LANES;

/// One score or weight for each position of a block.
pub(super) type Scores = [f32; KV_BLOCK];

/// Eight elements of each key of a block: for each element the keys' values.
pub(super) type Columns = [[Lanes; WIDTH]; LANES];

/// From so many queries on, making columns of the keys pays.
pub(super) const COLUMNS_MIN: usize = 12;

/// An element of a cache.
pub(super) trait Cell: Copy {
    fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::V;
}

impl Cell for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &Lanes) -> S::V {
        s.load(x)
    }
}

impl Cell for f16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::V {
        s.load_f16(x)
    }
}

/// One query row of one head on its way through the blocks of a part.
#[derive(Clone)]
pub(super) struct Query {
    /// Batch row.
    pub row: usize,
    /// Query head.
    pub head: usize,
    /// Cache indices that it sees.
    pub begin: usize,
    pub end: usize,
    /// Largest score of the part so far.
    pub max: f32,
    /// Sums of `exp(score − max)`.
    pub sum: Lanes,
    pub scores: Scores,
}

impl Query {
    /// A query before its first block.
    pub fn new(row: usize, head: usize, (begin, end): (usize, usize)) -> Self {
        Self { row, head, begin, end, max: f32::NEG_INFINITY, sum: [0.0; LANES], scores: [0.0; KV_BLOCK] }
    }

    /// The positions of logical block `block` that it sees.
    pub fn window(&self, block: usize) -> (usize, usize) {
        let start = block * KV_BLOCK;
        (self.begin.saturating_sub(start).min(KV_BLOCK), self.end.saturating_sub(start).min(KV_BLOCK))
    }

    /// Whether it sees a position of the block.
    pub fn sees(&self, block: usize) -> bool {
        let (low, high) = self.window(block);
        low < high
    }
}

/// How many of `n` queries share the loads of keys or values: threes, and twos rather than a one.
fn together(n: usize) -> usize {
    match n {
        1 => 1,
        2 | 4 => 2,
        _ => 3,
    }
}

/// The products of each query, rows of `q`, with each key of the block, rows of `k`; both of `wide` vectors.
#[inline(always)]
pub(super) fn scores<S: Simd, C: Cell>(
    s: S,
    k: &[[C; LANES]],
    wide: usize,
    q: &[Lanes],
    columns: &mut [Columns],
    queries: &mut [Query],
) {
    let many = queries.len() >= COLUMNS_MIN;
    if many {
        to_columns(s, k, wide, columns);
    }
    let mut i = 0;
    while i < queries.len() {
        let n = together(queries.len() - i);
        let (q, queries) = (&q[i * wide..(i + n) * wide], &mut queries[i..i + n]);
        match (many, n) {
            (true, 3) => score_columns::<S, 3>(s, columns, wide, q, queries),
            (true, 2) => score_columns::<S, 2>(s, columns, wide, q, queries),
            (true, _) => score_columns::<S, 1>(s, columns, wide, q, queries),
            (false, 3) => score_rows::<S, C, 3, 4>(s, k, wide, q, queries),
            (false, 2) => score_rows::<S, C, 2, 4>(s, k, wide, q, queries),
            (false, _) => score_rows::<S, C, 1, 8>(s, k, wide, q, queries),
        }
        i += n;
    }
}

#[inline(always)]
fn to_columns<S: Simd, C: Cell>(s: S, k: &[[C; LANES]], wide: usize, columns: &mut [Columns]) {
    for (c, columns) in columns[..wide].iter_mut().enumerate() {
        for v in 0..WIDTH {
            let mut rows = [s.splat(0.0); LANES];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = C::load(s, &k[(v * LANES + i) * wide + c]);
            }
            for (column, values) in columns.iter_mut().zip(s.transpose(rows)) {
                s.store(values, &mut column[v]);
            }
        }
    }
}

/// Scores of `M` queries, sixteen keys and two of the eight sums at a time.
#[inline(always)]
fn score_columns<S: Simd, const M: usize>(
    s: S,
    columns: &[Columns],
    wide: usize,
    q: &[Lanes],
    queries: &mut [Query],
) {
    let zero = s.splat(0.0);
    let q: [&[Lanes]; M] = std::array::from_fn(|m| &q[m * wide..(m + 1) * wide]);
    for half in 0..WIDTH / 2 {
        let mut sums = [[[zero; 2]; M]; LANES / 2];
        for (pair, sums) in sums.iter_mut().enumerate() {
            let mut acc = [[[zero; 2]; M]; 2];
            for (c, columns) in columns[..wide].iter().enumerate() {
                for (r, acc) in acc.iter_mut().enumerate() {
                    let column = &columns[2 * pair + r];
                    let k = [s.load(&column[2 * half]), s.load(&column[2 * half + 1])];
                    for (acc, q) in acc.iter_mut().zip(&q) {
                        let x = s.splat(q[c][2 * pair + r]);
                        acc[0] = s.fma(x, k[0], acc[0]);
                        acc[1] = s.fma(x, k[1], acc[1]);
                    }
                }
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                *sums = [s.add(acc[0][m][0], acc[1][m][0]), s.add(acc[0][m][1], acc[1][m][1])];
            }
        }
        for (m, query) in queries.iter_mut().enumerate() {
            let out = query.scores.as_chunks_mut::<LANES>().0;
            for v in 0..2 {
                let [a, b, c, d] = [sums[0][m][v], sums[1][m][v], sums[2][m][v], sums[3][m][v]];
                s.store(s.add(s.add(a, b), s.add(c, d)), &mut out[2 * half + v]);
            }
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
    let q: [&[Lanes]; M] = std::array::from_fn(|m| &q[m * wide..(m + 1) * wide]);
    for n in (0..KV_BLOCK).step_by(N) {
        let k: [&[[C; LANES]]; N] = std::array::from_fn(|j| &k[(n + j) * wide..(n + j + 1) * wide]);
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

/// Scores to weights: `exp(score − max)`, zero outside the query's range; rescales what came before.
#[inline(always)]
pub(super) fn weigh<S: Simd>(
    s: S,
    query: &mut Query,
    acc: &mut [Lanes],
    block: usize,
    (scale, softcap): (f32, Option<f32>),
) {
    let (low, high) = query.window(block);
    if low >= high {
        return;
    }
    let mut x = [s.splat(0.0); WIDTH];
    for (x, from) in x.iter_mut().zip(query.scores.as_chunks::<LANES>().0) {
        *x = s.mul(s.load(from), s.splat(scale));
    }
    if let Some(cap) = softcap {
        let cap = s.splat(cap);
        for x in &mut x {
            *x = s.mul(cap, tanh(s, s.div(*x, cap)));
        }
    }
    let partial = (low, high) != (0, KV_BLOCK);
    if partial {
        fill_outside(s, &mut query.scores, &mut x, (low, high), f32::NEG_INFINITY);
    }
    let largest = s.largest(s.max(s.max(x[0], x[1]), s.max(x[2], x[3])));
    if largest > query.max {
        let factor = if query.max == f32::NEG_INFINITY { 0.0 } else { exp_scalar(s, query.max - largest) };
        query.max = largest;
        let factor = s.splat(factor);
        s.store(s.mul(s.load(&query.sum), factor), &mut query.sum);
        for x in acc {
            s.store(s.mul(s.load(x), factor), x);
        }
    }
    let max = s.splat(query.max);
    for x in &mut x {
        *x = exp(s, s.sub(*x, max));
    }
    if partial {
        fill_outside(s, &mut query.scores, &mut x, (low, high), 0.0);
    }
    let sum = s.add(s.add(x[0], x[1]), s.add(x[2], x[3]));
    s.store(s.add(s.load(&query.sum), sum), &mut query.sum);
    for (x, to) in x.iter().zip(query.scores.as_chunks_mut::<LANES>().0) {
        s.store(*x, to);
    }
}

/// Puts `value` where the query does not look.
#[inline(always)]
fn fill_outside<S: Simd>(
    s: S,
    scores: &mut Scores,
    x: &mut [S::V; WIDTH],
    (low, high): (usize, usize),
    value: f32,
) {
    for (x, to) in x.iter().zip(scores.as_chunks_mut::<LANES>().0) {
        s.store(*x, to);
    }
    scores[..low].fill(value);
    scores[high..].fill(value);
    for (x, from) in x.iter_mut().zip(scores.as_chunks::<LANES>().0) {
        *x = s.load(from);
    }
}

/// Adds the weighted values, rows of `v`, to the rows of `acc`, positions in order.
#[inline(always)]
pub(super) fn accumulate<S: Simd, C: Cell>(
    s: S,
    v: &[[C; LANES]],
    wide: usize,
    acc: &mut [Lanes],
    queries: &[Query],
    block: usize,
) {
    let mut i = 0;
    while i < queries.len() {
        let n = together(queries.len() - i);
        let (acc, queries) = (&mut acc[i * wide..(i + n) * wide], &queries[i..i + n]);
        match n {
            3 => add_common::<S, C, 3, 4>(s, v, wide, acc, queries, block),
            2 => add_common::<S, C, 2, 4>(s, v, wide, acc, queries, block),
            _ => add_common::<S, C, 1, 8>(s, v, wide, acc, queries, block),
        }
        i += n;
    }
}

/// What all `M` queries see is added for all at once; what comes before and after it for each alone.
#[inline(always)]
fn add_common<S: Simd, C: Cell, const M: usize, const N: usize>(
    s: S,
    v: &[[C; LANES]],
    wide: usize,
    acc: &mut [Lanes],
    queries: &[Query],
    block: usize,
) {
    let (mut low, mut high) = (0, KV_BLOCK);
    for query in queries {
        let (begin, end) = query.window(block);
        (low, high) = (low.max(begin), high.min(end));
    }
    // Without a common position, each goes alone.
    let high = high.max(low);
    for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(wide)) {
        let (begin, end) = query.window(block);
        add_values::<S, C, 1, 8>(s, v, wide, acc, [&query.scores], (begin, end.min(low)));
    }
    let weights: [&Scores; M] = std::array::from_fn(|m| &queries[m].scores);
    add_values::<S, C, M, N>(s, v, wide, acc, weights, (low, high));
    for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(wide)) {
        let (begin, end) = query.window(block);
        add_values::<S, C, 1, 8>(s, v, wide, acc, [&query.scores], (begin.max(high), end));
    }
}

/// `acc[m] += Σ p[m][j] · v[j]` for `j` from `low` to `high` in order, `N` vectors at a time.
#[inline(always)]
fn add_values<S: Simd, C: Cell, const M: usize, const N: usize>(
    s: S,
    v: &[[C; LANES]],
    wide: usize,
    acc: &mut [Lanes],
    p: [&Scores; M],
    (low, high): (usize, usize),
) {
    if low >= high {
        return;
    }
    let mut c = 0;
    while c + N <= wide {
        add_columns::<S, C, M, N>(s, v, (wide, c), acc, p, (low, high));
        c += N;
    }
    while c < wide {
        add_columns::<S, C, M, 1>(s, v, (wide, c), acc, p, (low, high));
        c += 1;
    }
}

/// [`add_values`] for vectors `c..c + N` of rows of `wide`.
#[inline(always)]
fn add_columns<S: Simd, C: Cell, const M: usize, const N: usize>(
    s: S,
    v: &[[C; LANES]],
    (wide, c): (usize, usize),
    acc: &mut [Lanes],
    p: [&Scores; M],
    (low, high): (usize, usize),
) {
    let mut sums = [[s.splat(0.0); N]; M];
    for (m, sums) in sums.iter_mut().enumerate() {
        for (sum, from) in sums.iter_mut().zip(&acc[m * wide + c..][..N]) {
            *sum = s.load(from);
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
    for (m, sums) in sums.iter().enumerate() {
        for (sum, to) in sums.iter().zip(&mut acc[m * wide + c..][..N]) {
            s.store(*sum, to);
        }
    }
}
