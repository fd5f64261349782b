//! Attention over the paged cache, one block of 32 positions at a time (online softmax; Milakov and Gimelshein,
//! arXiv:1805.02867).
//!
//! A thread takes a few batch rows and the query heads of one key/value head, so that a block is converted to f32
//! once for all of them. Each query row walks the logical blocks of its own range in order and its arithmetic
//! depends on nothing else, so chunked prefill and batching give the same bits. Cache positions outside a row's
//! range never enter its arithmetic: they may hold anything.

use half::slice::HalfFloatSliceExt;

use super::{
    Cpu,
    dot::dots,
    math::{exp, exp_scalar, tanh},
    memory::{Aligned, Floats},
    simd::{Kernel, LANES, Lanes, Simd},
};
use crate::{
    Result,
    backend::{
        Attention, Buffer, KV_BLOCK,
        check::{AttentionDims, PlanValues},
    },
    parallel::{Grid, Tile},
};

/// Query rows that share the conversion of a block.
const QUERIES: usize = 48;

/// One score or weight for each position of a block.
type Scores = [f32; KV_BLOCK];

/// The operands, with their values at hand.
struct Operands<'a> {
    args: &'a Attention<'a>,
    dims: AttentionDims,
    plan: PlanValues<'a>,
    q: &'a [f32],
    k: Floats<'a>,
    v: Floats<'a>,
    sinks: Option<&'a [f32]>,
    /// Vectors of a head.
    wide: usize,
}

/// One query row on its way through the blocks.
#[derive(Clone)]
struct Query {
    /// Batch row.
    row: usize,
    /// Query head.
    head: usize,
    /// Cache indices that it sees.
    begin: usize,
    end: usize,
    /// Largest score so far, and the sum of `exp(score − max)`.
    max: f32,
    sum: f32,
    scores: Scores,
}

impl Query {
    /// The positions of logical block `block` that it sees.
    fn window(&self, block: usize) -> (usize, usize) {
        let start = block * KV_BLOCK;
        (self.begin.saturating_sub(start).min(KV_BLOCK), self.end.saturating_sub(start).min(KV_BLOCK))
    }
}

/// What one thread needs beside its operands; rows of whole vectors, filled up with zeros.
struct Scratch {
    k: Aligned<f32>,
    v: Aligned<f32>,
    q: Aligned<f32>,
    acc: Aligned<f32>,
    queries: Vec<Query>,
}

impl Scratch {
    fn new(wide: usize, queries: usize) -> Self {
        let rows = |n: usize| Aligned::zeros(n * wide * LANES);
        Self {
            k: rows(KV_BLOCK),
            v: rows(KV_BLOCK),
            q: rows(queries),
            acc: rows(queries),
            queries: Vec::new(),
        }
    }
}

/// Converts one block of one head, each row filled up with zeros to whole vectors.
fn widen(from: Floats<'_>, start: usize, head_dim: usize, to: &mut [f32]) {
    let wide = head_dim.next_multiple_of(LANES);
    // Without filling, the block is one run.
    let (run, stride, n) =
        if wide == head_dim { (KV_BLOCK * head_dim, KV_BLOCK * wide, 1) } else { (head_dim, wide, KV_BLOCK) };
    for (i, to) in to.chunks_exact_mut(stride).take(n).enumerate() {
        let from_range = start + i * run..start + (i + 1) * run;
        match from {
            Floats::F32(x) => to[..run].copy_from_slice(&x[from_range]),
            Floats::F16(x) => x[from_range].convert_to_f32_slice(&mut to[..run]),
            Floats::BF16(x) => x[from_range].convert_to_f32_slice(&mut to[..run]),
        }
    }
}

/// The queries of one tile that belong to one sequence.
struct Run<'a, 'b> {
    operands: &'a Operands<'b>,
    kv_head: usize,
    scratch: &'a mut Scratch,
}

impl Kernel for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let queries = &self.scratch.queries;
        let Some(table) = queries.first().map(|q| self.operands.plan.table(q.row)) else { return };
        let begin = queries.iter().map(|q| q.begin).min().unwrap_or(0) / KV_BLOCK;
        let end = queries.iter().map(|q| q.end).max().unwrap_or(0).div_ceil(KV_BLOCK);
        self.scratch.acc.fill(0.0);
        for (block, &physical) in table.iter().enumerate().take(end).skip(begin) {
            let seen = |q: &Query| q.begin < (block + 1) * KV_BLOCK && q.end > block * KV_BLOCK;
            if self.scratch.queries.iter().any(seen) {
                self.load(physical as usize);
                self.scores(s);
                self.weigh(s, block);
                self.accumulate(s, block);
            }
        }
        self.finish(s);
    }
}

impl Run<'_, '_> {
    fn load(&mut self, block: usize) {
        let args = self.operands.args;
        let start = (block * args.n_kv_heads + self.kv_head) * KV_BLOCK * args.head_dim;
        widen(self.operands.k, start, args.head_dim, &mut self.scratch.k);
        widen(self.operands.v, start, args.head_dim, &mut self.scratch.v);
    }

    /// All products of a query and a key of the block.
    #[inline(always)]
    fn scores<S: Simd>(&mut self, s: S) {
        let n = self.scratch.queries.len();
        let mut i = 0;
        while i + 3 <= n {
            self.score_rows::<S, 3, 4>(s, i);
            i += 3;
        }
        match n - i {
            1 => self.score_rows::<S, 1, 8>(s, i),
            2 => self.score_rows::<S, 2, 4>(s, i),
            _ => {}
        }
    }

    #[inline(always)]
    fn score_rows<S: Simd, const M: usize, const N: usize>(&mut self, s: S, i: usize) {
        let wide = self.operands.wide;
        let (q, k) = (self.scratch.q.as_chunks::<LANES>().0, self.scratch.k.as_chunks::<LANES>().0);
        let q: [&[Lanes]; M] = std::array::from_fn(|m| &q[(i + m) * wide..][..wide]);
        for n in (0..KV_BLOCK).step_by(N) {
            let k: [&[Lanes]; N] = std::array::from_fn(|j| &k[(n + j) * wide..][..wide]);
            for (query, sums) in self.scratch.queries[i..].iter_mut().zip(dots(s, q, k, wide)) {
                query.scores[n..n + N].copy_from_slice(&sums);
            }
        }
    }

    /// Scores to weights: `exp(score − max)`, zero outside the query's range; rescales what came before.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, block: usize) {
        let (scale, wide) = (s.splat(self.operands.args.scale), self.operands.wide);
        let acc = self.scratch.acc.as_chunks_mut::<LANES>().0.chunks_exact_mut(wide);
        for (query, acc) in self.scratch.queries.iter_mut().zip(acc) {
            let (low, high) = query.window(block);
            if low >= high {
                continue;
            }
            let vectors = query.scores.as_chunks_mut::<LANES>().0;
            for x in &mut *vectors {
                let score = s.mul(s.load(x), scale);
                let score = match self.operands.args.softcap.map(|cap| s.splat(cap)) {
                    Some(cap) => s.mul(cap, tanh(s, s.div(score, cap))),
                    None => score,
                };
                s.store(score, x);
            }
            let largest = query.scores[low..high].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            rescale(s, &mut query.max, &mut query.sum, largest, acc);
            query.scores[..low].fill(query.max);
            query.scores[high..].fill(query.max);
            let max = s.splat(query.max);
            for x in query.scores.as_chunks_mut::<LANES>().0 {
                s.store(exp(s, s.sub(s.load(x), max)), x);
            }
            query.scores[..low].fill(0.0);
            query.scores[high..].fill(0.0);
            let [a, b, c, d] = std::array::from_fn(|i| s.load(&query.scores.as_chunks::<LANES>().0[i]));
            query.sum += s.sum(s.add(s.add(a, b), s.add(c, d)));
        }
    }

    /// Adds the weighted values, positions in order.
    #[inline(always)]
    fn accumulate<S: Simd>(&mut self, s: S, block: usize) {
        let Scratch { queries, acc, v, .. } = &mut *self.scratch;
        let wide = self.operands.wide;
        let v = v.as_chunks::<LANES>().0;
        let mut acc = acc.as_chunks_mut::<LANES>().0;
        let mut queries = &queries[..];
        while let [first, rest @ ..] = queries {
            let full = queries.len() >= 4 && queries[..4].iter().all(|q| q.window(block) == (0, KV_BLOCK));
            let taken = if full {
                let p = std::array::from_fn(|m| &queries[m].scores);
                add_values::<S, 4, 2>(s, p, v, acc, wide, (0, KV_BLOCK));
                4
            } else {
                add_values::<S, 1, 8>(s, [&first.scores], v, acc, wide, first.window(block));
                1
            };
            queries = if full { &queries[4..] } else { rest };
            acc = &mut acc[taken * wide..];
        }
    }

    /// Adds the sinks and divides by the sums.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S) {
        let wide = self.operands.wide;
        let acc = self.scratch.acc.as_chunks_mut::<LANES>().0.chunks_exact_mut(wide);
        for (query, acc) in self.scratch.queries.iter_mut().zip(acc) {
            if let Some(sinks) = self.operands.sinks {
                let sink = sinks[query.head];
                rescale(s, &mut query.max, &mut query.sum, sink, acc);
                query.sum += exp_scalar(s, sink - query.max);
            }
            let sum = s.splat(query.sum);
            for x in acc {
                s.store(s.div(s.load(x), sum), x);
            }
        }
    }
}

/// Raises the maximum to `largest` if that is larger, with what has been summed up so far.
#[inline(always)]
fn rescale<S: Simd>(s: S, max: &mut f32, sum: &mut f32, largest: f32, acc: &mut [Lanes]) {
    if largest > *max {
        let factor = if *max == f32::NEG_INFINITY { 0.0 } else { exp_scalar(s, *max - largest) };
        *max = largest;
        *sum *= factor;
        let factor = s.splat(factor);
        for x in acc {
            s.store(s.mul(s.load(x), factor), x);
        }
    }
}

/// `acc[m] += Σ p[m][j] · v[j]` for `j` from `low` to `high` in order, `C` vectors at a time.
#[inline(always)]
fn add_values<S: Simd, const M: usize, const C: usize>(
    s: S,
    p: [&Scores; M],
    v: &[Lanes],
    acc: &mut [Lanes],
    wide: usize,
    (low, high): (usize, usize),
) {
    let mut c = 0;
    while c + C <= wide {
        add_columns::<S, M, C>(s, p, v, acc, (wide, c), (low, high));
        c += C;
    }
    while c < wide {
        add_columns::<S, M, 1>(s, p, v, acc, (wide, c), (low, high));
        c += 1;
    }
}

/// [`add_values`] for vectors `c..c + C` of rows of `wide`.
#[inline(always)]
fn add_columns<S: Simd, const M: usize, const C: usize>(
    s: S,
    p: [&Scores; M],
    v: &[Lanes],
    acc: &mut [Lanes],
    (wide, c): (usize, usize),
    (low, high): (usize, usize),
) {
    let mut sums: [[S::V; C]; M] =
        std::array::from_fn(|m| std::array::from_fn(|i| s.load(&acc[m * wide + c + i])));
    for (j, v) in v.chunks_exact(wide).enumerate().take(high).skip(low) {
        let v: [S::V; C] = std::array::from_fn(|i| s.load(&v[c + i]));
        for m in 0..M {
            let p = s.splat(p[m][j]);
            for i in 0..C {
                sums[m][i] = s.fma(p, v[i], sums[m][i]);
            }
        }
    }
    for m in 0..M {
        for i in 0..C {
            s.store(sums[m][i], &mut acc[m * wide + c + i]);
        }
    }
}

impl Cpu {
    pub(super) fn attention_to(&self, out: &Buffer, y: &mut [f32], args: &Attention<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let plan = PlanValues {
            tables: self.memory.u32(args.plan.tables)?,
            max_blocks: args.plan.max_blocks,
            row_seq: self.memory.u32(args.plan.row_seq)?,
            row_begin: self.memory.u32(args.plan.row_begin)?,
            row_end: self.memory.u32(args.plan.row_end)?,
        };
        plan.check(&dims)?;
        let operands = Operands {
            args,
            dims,
            plan,
            q: self.memory.f32(args.q)?,
            k: self.memory.floats(args.k_cache)?,
            v: self.memory.floats(args.v_cache)?,
            sinks: args.sinks.map(|s| self.memory.f32(s)).transpose()?,
            wide: args.head_dim.div_ceil(LANES),
        };
        // All heads of a group together, unless that leaves threads without work.
        let tile_rows = (QUERIES / dims.group).max(1);
        let tiles = dims.rows.div_ceil(tile_rows) * args.n_kv_heads;
        let heads = if tiles < self.parallel.n_threads() { 1 } else { dims.group };
        let grid = Grid {
            rows: dims.rows,
            cols: args.n_heads * args.head_dim,
            tile_rows,
            tile_cols: heads * args.head_dim,
        };
        self.parallel.for_each_tile(
            y,
            grid,
            || Scratch::new(operands.wide, tile_rows * heads),
            |mut tile, scratch| self.attend(&operands, &mut tile, scratch),
        );
        Ok(())
    }

    /// One tile, in runs of rows that share a block table.
    fn attend(&self, operands: &Operands<'_>, tile: &mut Tile<'_, f32>, scratch: &mut Scratch) {
        let (hd, n_heads) = (operands.args.head_dim, operands.args.n_heads);
        let heads = tile.cols().start / hd..tile.cols().end / hd;
        let kv_head = heads.start / operands.dims.group;
        let rows: Vec<usize> = tile.rows().collect();
        let seq = |row: usize| operands.plan.row_seq[row];
        let wide = operands.wide * LANES;
        for rows in rows.chunk_by(|&a, &b| seq(a) == seq(b)) {
            scratch.queries.clear();
            for &row in rows {
                let (begin, end) = operands.plan.range(row);
                for head in heads.clone() {
                    let to = &mut scratch.q[scratch.queries.len() * wide..][..hd];
                    to.copy_from_slice(&operands.q[(row * n_heads + head) * hd..][..hd]);
                    let (max, sum, scores) = (f32::NEG_INFINITY, 0.0, [0.0; KV_BLOCK]);
                    scratch.queries.push(Query { row, head, begin, end, max, sum, scores });
                }
            }
            self.level.run(Run { operands, kv_head, scratch });
            let mut acc = scratch.acc.chunks_exact(wide);
            for &row in rows {
                for (out, acc) in tile.row(row).chunks_exact_mut(hd).zip(&mut acc) {
                    out.copy_from_slice(&acc[..hd]);
                }
            }
        }
    }
}
