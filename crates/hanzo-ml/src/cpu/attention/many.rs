//! Many queries share a block: its keys, and then its values, are converted once and laid out as the loops read them.
//!
//! Twelve sums live in registers: three queries by four keys, or three queries by four vectors of a value. A step of
//! eight elements loads seven vectors for twelve multiply-adds, so that sixteen registers do and the multiply-add units
//! are what it waits for. Four keys that are multiplied together lie together, step by step, and so do three queries and
//! four vectors of the values; so a loop has two pointers that only rise, and what it reads again stays in the L1 cache.

use super::{
    super::simd::{Kernel, LANES, Lanes, Simd},
    block::{Cell, Query, common},
};
use crate::backend::KV_BLOCK;

/// Queries that are multiplied together.
pub(super) const TOGETHER: usize = 3;

/// Keys, or vectors of a value, that are multiplied together.
pub(super) const DEEP: usize = 4;

/// Keys that meet all queries before others do: with hundreds of elements each they leave room for the queries in the
/// L1 cache.
const KEYS: usize = 8;

/// Some vectors of [`TOGETHER`] queries.
pub(super) type Triple = [Lanes; TOGETHER];

/// Some vectors of [`DEEP`] keys, or consecutive ones of a value.
pub(super) type Four = [Lanes; DEEP];

/// Vectors of a row in fours.
pub(super) fn fours(wide: usize) -> usize {
    wide.div_ceil(DEEP)
}

/// Keys of a block, rows of `wide` vectors, to `[KV_BLOCK / 4][wide]` fours.
pub(super) struct LayKeys<'a, C> {
    pub k: &'a [[C; LANES]],
    pub wide: usize,
    pub to: &'a mut [Four],
}

impl<C: Cell> Kernel for LayKeys<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let fours = self.to.chunks_exact_mut(self.wide);
        for (keys, to) in self.k.chunks_exact(DEEP * self.wide).zip(fours) {
            for (j, key) in keys.chunks_exact(self.wide).enumerate() {
                for (from, to) in key.iter().zip(&mut *to) {
                    s.store(C::load(s, from), &mut to[j]);
                }
            }
        }
    }
}

/// Values of a block, rows of `wide` vectors, to `[fours(wide)][KV_BLOCK]` fours; the last may end with anything finite.
pub(super) struct LayValues<'a, C> {
    pub v: &'a [[C; LANES]],
    pub wide: usize,
    pub to: &'a mut [Four],
}

impl<C: Cell> Kernel for LayValues<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (position, value) in self.v.chunks_exact(self.wide).enumerate() {
            let (fours, rest) = value.as_chunks::<DEEP>();
            for (c, four) in fours.iter().enumerate() {
                let to = &mut self.to[c * KV_BLOCK + position];
                for n in 0..DEEP {
                    s.store(C::load(s, &four[n]), &mut to[n]);
                }
            }
            if let Some(to) = self.to.get_mut(fours.len() * KV_BLOCK + position) {
                for (from, to) in rest.iter().zip(to) {
                    s.store(C::load(s, from), to);
                }
            }
        }
    }
}

/// The products of each query with the keys that it sees, and some others. The queries lie as `[queries / 3][wide]`
/// triples; what the last triple has past the queries is left out.
pub(super) struct ScoreMany<'a> {
    pub keys: &'a [Four],
    pub wide: usize,
    pub q: &'a [Triple],
    pub queries: &'a mut [Query],
    pub block: usize,
}

impl Kernel for ScoreMany<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let wide = self.wide;
        for (i, keys) in self.keys.chunks_exact(KEYS / DEEP * wide).enumerate() {
            let triples = self.q.chunks_exact(wide).zip(self.queries.chunks_mut(TOGETHER));
            for (q, queries) in triples {
                if !queries.iter().any(|query| sees(query.window(self.block), i * KEYS)) {
                    continue;
                }
                for (j, keys) in keys.chunks_exact(wide).enumerate() {
                    score_tile(s, keys, q, queries, (i * KEYS + j * DEEP) / DEEP);
                }
            }
        }
    }
}

/// Whether a window has some of the keys from `first` on.
fn sees((low, high): (usize, usize), first: usize) -> bool {
    low < high && low < first + KEYS && first < high
}

/// The scores of three queries and four keys: those of place `four`.
#[inline(always)]
fn score_tile<S: Simd>(s: S, keys: &[Four], q: &[Triple], queries: &mut [Query], four: usize) {
    let mut acc = [[s.splat(0.0); DEEP]; TOGETHER];
    for (keys, q) in keys.iter().zip(q) {
        let x = [s.load(&q[0]), s.load(&q[1]), s.load(&q[2])];
        for j in 0..DEEP {
            let key = s.load(&keys[j]);
            for m in 0..TOGETHER {
                acc[m][j] = s.fma(x[m], key, acc[m][j]);
            }
        }
    }
    let sums = [s.sum4(acc[0]), s.sum4(acc[1]), s.sum4(acc[2])];
    for (query, sums) in queries.iter_mut().zip(sums) {
        query.scores.as_chunks_mut().0[four] = sums;
    }
}

/// Adds the weighted values to the rows of `acc`, `fours` each, positions in order.
pub(super) struct AddMany<'a> {
    pub values: &'a [Four],
    pub acc: &'a mut [Four],
    pub fours: usize,
    pub queries: &'a [Query],
    pub block: usize,
}

impl Kernel for AddMany<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (fours, block) = (self.fours, self.block);
        for (c, values) in self.values.as_chunks::<KV_BLOCK>().0.iter().enumerate().take(fours) {
            let rows = self.acc.chunks_mut(TOGETHER * fours).zip(self.queries.chunks(TOGETHER));
            for (acc, queries) in rows {
                let (low, high) = match queries {
                    [_, _, _] => common(queries, block),
                    _ => (KV_BLOCK, KV_BLOCK),
                };
                if (low, high) == (0, KV_BLOCK) {
                    add_three(s, values, (acc, fours, c), queries, (0, KV_BLOCK));
                    continue;
                }
                for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(fours)) {
                    let (begin, end) = query.window(block);
                    add_one(s, values, &mut acc[c], query, (begin, end.min(low)));
                }
                if low < high {
                    add_three(s, values, (acc, fours, c), queries, (low, high));
                }
                for (query, acc) in queries.iter().zip(acc.chunks_exact_mut(fours)) {
                    let (begin, end) = query.window(block);
                    add_one(s, values, &mut acc[c], query, (begin.max(high), end));
                }
            }
        }
    }
}

/// Positions from `low` to `high` for three queries; four `c` of each row of `fours`.
#[inline(always)]
fn add_three<S: Simd>(
    s: S,
    values: &[Four; KV_BLOCK],
    (acc, fours, c): (&mut [Four], usize, usize),
    queries: &[Query],
    (low, high): (usize, usize),
) {
    let [first, second, third] = queries else { return };
    let p = [&first.scores, &second.scores, &third.scores];
    let mut sums = [[s.splat(0.0); DEEP]; TOGETHER];
    for m in 0..TOGETHER {
        let from = &acc[m * fours + c];
        for n in 0..DEEP {
            sums[m][n] = s.load(&from[n]);
        }
    }
    for j in low..high.min(KV_BLOCK) {
        let x = [s.splat(p[0][j]), s.splat(p[1][j]), s.splat(p[2][j])];
        for n in 0..DEEP {
            let value = s.load(&values[j][n]);
            for m in 0..TOGETHER {
                sums[m][n] = s.fma(x[m], value, sums[m][n]);
            }
        }
    }
    for m in 0..TOGETHER {
        let to = &mut acc[m * fours + c];
        for n in 0..DEEP {
            s.store(sums[m][n], &mut to[n]);
        }
    }
}

/// Positions from `low` to `high` for one query.
#[inline(always)]
fn add_one<S: Simd>(
    s: S,
    values: &[Four; KV_BLOCK],
    acc: &mut Four,
    query: &Query,
    (low, high): (usize, usize),
) {
    if low >= high {
        return;
    }
    let mut sums = [s.splat(0.0); DEEP];
    for n in 0..DEEP {
        sums[n] = s.load(&acc[n]);
    }
    for (weight, value) in query.scores[low..high].iter().zip(&values[low..high]) {
        let x = s.splat(*weight);
        for n in 0..DEEP {
            sums[n] = s.fma(x, s.load(&value[n]), sums[n]);
        }
    }
    for n in 0..DEEP {
        s.store(sums[n], &mut acc[n]);
    }
}
