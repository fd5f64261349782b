//! The queries of a run and what they make of the scores of one block of 32 positions: weights, of an online softmax.
//!
//! A score is added up in one order, that of `dot.rs`: lane `i` of eight adds elements `i, i + 8, …`, and the lanes
//! are added in pairs. Weighted values are added by rising position. How many queries share the loads (`few`, `many`)
//! does not change a bit.

use half::f16;

use super::super::{
    math::{exp, exp_scalar, tanh},
    simd::{Kernel, LANES, Lanes, Simd},
};
use crate::backend::KV_BLOCK;

/// Vectors of one number for each position of a block.
const WIDTH: usize = KV_BLOCK / LANES;

/// One score or weight for each position of a block.
pub(super) type Scores = [f32; KV_BLOCK];

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

/// The positions that all of some queries see; empty ones lie after what comes before.
pub(super) fn common(queries: &[Query], block: usize) -> (usize, usize) {
    let (mut low, mut high) = (0, KV_BLOCK);
    for query in queries {
        let (begin, end) = query.window(block);
        (low, high) = (low.max(begin), high.min(end));
    }
    (low, high.max(low))
}

/// Scores to weights, for all queries of a block; rescales the sums of what came before.
pub(super) struct Weigh<'a> {
    pub queries: &'a mut [Query],
    /// Rows of weighted values, `stride` vectors each.
    pub acc: &'a mut [Lanes],
    pub stride: usize,
    pub block: usize,
    pub scale: f32,
    pub softcap: Option<f32>,
}

impl Kernel for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (query, acc) in self.queries.iter_mut().zip(self.acc.chunks_exact_mut(self.stride)) {
            weigh(s, query, acc, self.block, (self.scale, self.softcap));
        }
    }
}

/// Scores to weights: `exp(score − max)`, zero outside the query's range; rescales what came before.
#[inline(always)]
fn weigh<S: Simd>(
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
