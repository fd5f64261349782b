//! Attention over the paged cache, one block of 32 positions at a time (online softmax; Milakov and Gimelshein,
//! arXiv:1805.02867), in parts of [`PART`] positions whose results are joined (Dao et al., "Flash-Decoding", 2023).
//!
//! A tile is a few batch rows and the query heads of one key/value head, so that a block is loaded once for all of
//! them. A thread takes a tile with all its parts; where there are too few tiles (one row, a long context), it takes
//! one part of a tile. The parts lie at fixed places of the cache and are joined in order, so a row's arithmetic
//! depends on its own range alone: chunked prefill, batching and threads give the same bits. Cache positions outside
//! a row's range never enter its arithmetic: they may hold anything.

mod block;
mod few;
mod many;
mod record;

use std::ops::Range;

use half::{f16, slice::HalfFloatSliceExt};

use super::{
    Cpu,
    math::fill,
    memory::{Aligned, Floats, decode_blocks},
    simd::{Kernel, LANES, Lanes, Level, Simd},
};
use crate::{
    DType, Result,
    backend::{
        Attention, Buffer, KV_BLOCK,
        check::{AttentionDims, PlanValues},
    },
    parallel::{Grid, Tile},
};
use block::{Cell, Query, Weigh};
use few::{AddFew, ScoreFew};
use many::{AddMany, DEEP, Four, LayKeys, LayValues, ScoreMany, TOGETHER, fours};

/// Blocks of a part.
const PART_BLOCKS: usize = 8;

/// Positions of a part: joining costs little against them, and a long context has many.
const PART: usize = PART_BLOCKS * KV_BLOCK;

/// Query rows of a tile: they share the conversion of a block, and fit the L2 cache with their sums.
const QUERIES: usize = 96;

/// Tiles for each thread, so that uneven ones leave none without work.
const TILES: usize = 4;

/// Multiplications below which waking others costs more than they would do.
const SERIAL: usize = 64 << 10;

/// From so many queries on, laying keys and values out for them pays.
const MANY_MIN: usize = 24;

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
    /// Vectors of a row of sums: whole fours.
    stride: usize,
}

impl Operands<'_> {
    /// Floats of a record.
    fn record(&self) -> usize {
        record::len(self.stride) * LANES
    }

    /// The parts that some of the rows see.
    fn parts(&self, rows: Range<usize>) -> Range<usize> {
        let ranges = || rows.clone().map(|row| self.plan.range(row));
        let begin = ranges().map(|(begin, _)| begin / PART).min().unwrap_or(0);
        let end = ranges().map(|(_, end)| end.div_ceil(PART)).max().unwrap_or(0);
        begin..end.max(begin)
    }

    /// The rows in runs of one sequence each.
    fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut start = rows.start;
        std::iter::from_fn(move || {
            let seq = |row: usize| self.plan.row_seq[row];
            let first = start;
            start = (first..rows.end).find(|&row| seq(row) != seq(first)).unwrap_or(rows.end);
            (first < start).then_some(first..start)
        })
    }

    /// The heads in runs of one key/value head each.
    fn head_runs(&self, heads: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let group = self.dims.group;
        let kv_heads = heads.start / group..heads.end.div_ceil(group);
        kv_heads.map(move |kv| heads.start.max(kv * group)..heads.end.min((kv + 1) * group))
    }
}

/// What one thread needs beside its operands.
struct Scratch {
    queries: Vec<Query>,
    /// Rows of `wide` vectors, or triples of many queries, filled up with zeros.
    q: Aligned<f32>,
    /// Rows of `stride` vectors.
    acc: Aligned<f32>,
    /// Keys or values of a block as f32, where they are not taken as they lie.
    rows: Aligned<f32>,
    /// Keys or values laid out for many queries.
    laid: Aligned<f32>,
    /// Records of the queries.
    totals: Aligned<f32>,
}

impl Scratch {
    fn new(operands: &Operands<'_>, n_queries: usize) -> Self {
        let Operands { wide, stride, .. } = *operands;
        let lie_ready = [operands.k, operands.v].iter().all(|&x| lies_ready(x, operands.args.head_dim));
        let laid = if n_queries >= MANY_MIN { KV_BLOCK * stride } else { 0 };
        let vectors = |n: usize| Aligned::zeros(n * LANES);
        Self {
            queries: Vec::with_capacity(n_queries),
            q: vectors(n_queries.next_multiple_of(TOGETHER) * wide),
            acc: vectors(n_queries * stride),
            rows: vectors(if lie_ready { 0 } else { KV_BLOCK * wide }),
            laid: vectors(laid),
            totals: Aligned::zeros(n_queries * operands.record()),
        }
    }

    /// Whether there are so many queries that they lie in triples.
    fn many(&self) -> bool {
        self.queries.len() >= MANY_MIN
    }

    /// Takes the query rows of a run: all heads of a row, then the next row.
    fn gather(&mut self, operands: &Operands<'_>, rows: Range<usize>, heads: Range<usize>) {
        let (hd, n_heads, wide) = (operands.args.head_dim, operands.args.n_heads, operands.wide);
        self.queries.clear();
        for row in rows {
            for head in heads.clone() {
                self.queries.push(Query::new(row, head, operands.plan.range(row)));
            }
        }
        // A triple's vectors lie side by side.
        let together = if self.many() { TOGETHER } else { 1 };
        let q = self.q.as_chunks_mut::<LANES>().0;
        for (i, query) in self.queries.iter().enumerate() {
            let from = &operands.q[(query.row * n_heads + query.head) * hd..][..hd];
            let first = i / together * together * wide + i % together;
            let (whole, tail) = from.as_chunks();
            for (c, from) in whole.iter().enumerate() {
                q[first + c * together] = *from;
            }
            if !tail.is_empty() {
                q[first + whole.len() * together] = fill(tail);
            }
        }
    }
}

/// The queries of the scratch, which share a sequence and a key/value head, through some parts. What they see there
/// joins `totals`, a record for each.
struct Walk<'a, 'b> {
    operands: &'a Operands<'b>,
    level: Level,
    kv_head: usize,
    parts: Range<usize>,
    scratch: &'a mut Scratch,
    totals: &'a mut [f32],
}

impl Walk<'_, '_> {
    fn run(mut self) {
        let Some(first) = self.scratch.queries.first() else { return };
        let table = self.operands.plan.table(first.row);
        let stride = self.operands.stride;
        for part in self.parts.clone() {
            self.scratch.acc.fill(0.0);
            for query in &mut self.scratch.queries {
                (query.max, query.sum) = (f32::NEG_INFINITY, [0.0; LANES]);
            }
            let blocks = table.iter().enumerate().take((part + 1) * PART_BLOCKS).skip(part * PART_BLOCKS);
            for (block, &physical) in blocks {
                let sees = |q: &Query| q.sees(block);
                let queries = &self.scratch.queries;
                let Some(first) = queries.iter().position(sees) else { continue };
                let end = queries.iter().rposition(sees).map_or(first, |last| last + 1);
                self.block(block, physical as usize, first..end);
            }
            let Scratch { queries, acc, .. } = &*self.scratch;
            let acc = acc.as_chunks().0;
            self.level.run(JoinAll { totals: self.totals, queries, acc, stride });
        }
    }

    /// One block, for the queries `seen`: those between the first and the last that see some of it.
    fn block(&mut self, block: usize, physical: usize, seen: Range<usize>) {
        let Operands { args, k, v, wide, stride, .. } = *self.operands;
        let start = (physical * args.n_kv_heads + self.kv_head) * KV_BLOCK * args.head_dim;
        let at = start..start + KV_BLOCK * args.head_dim;
        let many = self.scratch.many();
        // A triple is not cut.
        let first = if many { seen.start / TOGETHER * TOGETHER } else { seen.start };
        let Scratch { queries, q, acc, rows, laid, .. } = &mut *self.scratch;
        let mut block = Block {
            level: self.level,
            idx: block,
            wide,
            stride,
            many,
            queries: &mut queries[first..seen.end],
            q: &q.as_chunks().0[first * wide..],
            acc: &mut acc.as_chunks_mut().0[first * stride..seen.end * stride],
            laid: laid.as_chunks_mut::<LANES>().0.as_chunks_mut().0,
        };
        match load(k, at.clone(), args.head_dim, rows) {
            Rows::Full(k) => block.score(k),
            Rows::Half(k) => block.score(k),
        }
        block.weigh(args.scale, args.softcap);
        match load(v, at, args.head_dim, rows) {
            Rows::Full(v) => block.add(v),
            Rows::Half(v) => block.add(v),
        }
    }
}

/// One block and the queries that see some of it.
struct Block<'a> {
    level: Level,
    /// Its place in the sequence.
    idx: usize,
    wide: usize,
    stride: usize,
    /// Whether the queries lie in triples.
    many: bool,
    queries: &'a mut [Query],
    q: &'a [Lanes],
    acc: &'a mut [Lanes],
    laid: &'a mut [Four],
}

impl Block<'_> {
    /// The products with the keys, rows of `k`.
    fn score<C: Cell>(&mut self, k: &[[C; LANES]]) {
        let Self { level, idx: block, wide, q, .. } = *self;
        let queries = &mut *self.queries;
        if !self.many {
            return level.run(ScoreFew { k, wide, q, queries });
        }
        let keys = &mut self.laid[..KV_BLOCK / DEEP * wide];
        level.run(LayKeys { k, wide, to: keys });
        level.run(ScoreMany { keys, wide, q: q.as_chunks().0, queries, block });
    }

    fn weigh(&mut self, scale: f32, softcap: Option<f32>) {
        let (queries, acc) = (&mut *self.queries, &mut *self.acc);
        self.level.run(Weigh { queries, acc, stride: self.stride, block: self.idx, scale, softcap });
    }

    /// Adds the weighted values, rows of `v`.
    fn add<C: Cell>(&mut self, v: &[[C; LANES]]) {
        let Self { level, idx: block, wide, stride, .. } = *self;
        let (queries, acc) = (&*self.queries, &mut *self.acc);
        if !self.many {
            return level.run(AddFew { v, wide, acc, stride, queries, block });
        }
        level.run(LayValues { v, wide, to: self.laid });
        let (values, acc) = (&*self.laid, acc.as_chunks_mut().0);
        level.run(AddMany { values, acc, fours: stride / DEEP, queries, block });
    }
}

/// What each query saw in a part joins its record.
struct JoinAll<'a> {
    totals: &'a mut [f32],
    queries: &'a [Query],
    acc: &'a [Lanes],
    stride: usize,
}

impl Kernel for JoinAll<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let acc = self.acc.chunks_exact(self.stride);
        let totals = self.totals.as_chunks_mut::<LANES>().0.chunks_exact_mut(record::len(self.stride));
        for ((query, acc), total) in self.queries.iter().zip(acc).zip(totals) {
            let sum = s.sum(s.load(&query.sum));
            record::join(s, total, acc, (query.max, sum));
        }
    }
}

/// The rows of a block as vectors.
enum Rows<'a> {
    Full(&'a [Lanes]),
    Half(&'a [[f16; LANES]]),
}

/// Whether the rows of a cache can be loaded as vectors where they lie.
fn lies_ready(cache: Floats<'_>, head_dim: usize) -> bool {
    matches!(cache, Floats::F32(_) | Floats::F16(_)) && head_dim.is_multiple_of(LANES)
}

/// One block of one head: where it lies if that will do, else converted to `rows`.
fn load<'a>(cache: Floats<'a>, at: Range<usize>, head_dim: usize, rows: &'a mut [f32]) -> Rows<'a> {
    match cache {
        Floats::F32(x) if lies_ready(cache, head_dim) => Rows::Full(x[at].as_chunks().0),
        Floats::F16(x) if lies_ready(cache, head_dim) => Rows::Half(x[at].as_chunks().0),
        _ => {
            fill_rows(cache, at, head_dim, rows);
            Rows::Full(rows.as_chunks().0)
        }
    }
}

/// Converts one block of one head, each row filled up with zeros to whole vectors.
fn fill_rows(from: Floats<'_>, at: Range<usize>, head_dim: usize, to: &mut [f32]) {
    let wide = head_dim.next_multiple_of(LANES);
    // Without filling, the block is one run.
    let (run, stride) = if wide == head_dim { (at.len(), to.len()) } else { (head_dim, wide) };
    for (start, to) in at.step_by(run).zip(to.chunks_exact_mut(stride)) {
        let (at, to) = (start..start + run, &mut to[..run]);
        match from {
            Floats::F32(x) => to.copy_from_slice(&x[at]),
            Floats::F16(x) => x[at].convert_to_f32_slice(to),
            Floats::BF16(x) => x[at].convert_to_f32_slice(to),
            Floats::Q8_0(x) => {
                let bytes = |elems: usize| elems / DType::Q8_0.block_elems() * DType::Q8_0.block_bytes();
                decode_blocks(DType::Q8_0, &x[bytes(at.start)..bytes(at.end)], to);
            }
        }
    }
}

/// The record of a query to its result.
struct Finish<'a> {
    total: &'a [f32],
    sink: Option<f32>,
    out: &'a mut [f32],
}

impl Kernel for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        record::finish(s, self.total.as_chunks().0, self.sink, self.out);
    }
}

/// Joins a record of one more part.
struct Join<'a> {
    total: &'a mut [f32],
    part: &'a [f32],
}

impl Kernel for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        record::join_record(s, self.total.as_chunks_mut().0, self.part.as_chunks().0);
    }
}

/// How the work is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Batch rows of a tile.
    rows: usize,
    /// Query heads of a tile.
    heads: usize,
    /// Whether each part of a tile is work of its own.
    parts: bool,
}

impl Cut {
    fn new(operands: &Operands<'_>, n_threads: usize) -> Self {
        let (rows, group) = (operands.dims.rows, operands.dims.group);
        let (n_heads, kv) = (operands.args.n_heads, operands.args.n_kv_heads);
        let most = (QUERIES / group).max(1);
        let seen = |row| operands.plan.range(row).1 - operands.plan.range(row).0;
        let work = (0..rows).map(seen).fold(0, usize::saturating_add);
        if n_threads == 1 || work.saturating_mul(2 * n_heads * operands.args.head_dim) < SERIAL {
            return Self { rows: most, heads: n_heads, parts: false };
        }
        let tiles_of_rows = (n_threads * TILES).div_ceil(kv);
        let cut = Self { rows: rows.div_ceil(tiles_of_rows).clamp(1, most), heads: group, parts: false };
        let n_tiles = rows.div_ceil(cut.rows) * kv;
        if n_tiles < n_threads * TILES && operands.parts(0..rows).len() > 1 {
            return Self { parts: true, ..cut };
        }
        // The heads of a short context apart.
        Self { heads: (group * n_tiles / n_threads).clamp(1, group), ..cut }
    }

    fn grid(self, operands: &Operands<'_>) -> Grid {
        let hd = operands.args.head_dim;
        Grid {
            rows: operands.dims.rows,
            cols: operands.args.n_heads * hd,
            tile_rows: self.rows,
            tile_cols: self.heads * hd,
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
        let wide = args.head_dim.div_ceil(LANES);
        let operands = Operands {
            args,
            dims,
            plan,
            q: self.memory.f32(args.q)?,
            k: self.memory.floats(args.k_cache)?,
            v: self.memory.floats(args.v_cache)?,
            sinks: args.sinks.map(|s| self.memory.f32(s)).transpose()?,
            wide,
            stride: fours(wide) * DEEP,
        };
        let cut = Cut::new(&operands, self.parallel.n_threads());
        if cut.parts {
            return self.attend_in_parts(&operands, cut, y);
        }
        let n_queries = cut.rows.min(dims.rows) * cut.heads.min(dims.group);
        self.parallel.for_each_tile(
            y,
            cut.grid(&operands),
            || Scratch::new(&operands, n_queries),
            |tile, scratch| self.attend(&operands, tile, scratch),
        );
        Ok(())
    }

    /// One tile with all its parts.
    fn attend(&self, operands: &Operands<'_>, mut tile: Tile<'_, f32>, scratch: &mut Scratch) {
        let hd = operands.args.head_dim;
        let first = tile.cols().start / hd;
        for heads in operands.head_runs(first..tile.cols().end / hd) {
            for rows in operands.runs(tile.rows()) {
                scratch.gather(operands, rows.clone(), heads.clone());
                let mut totals = std::mem::replace(&mut scratch.totals, Aligned::zeros(0));
                totals.fill(0.0);
                let kv_head = heads.start / operands.dims.group;
                let parts = operands.parts(rows);
                Walk { operands, level: self.level, kv_head, parts, scratch, totals: &mut totals }.run();
                for (query, total) in scratch.queries.iter().zip(totals.chunks_exact(operands.record())) {
                    let out = &mut tile.row(query.row)[(query.head - first) * hd..][..hd];
                    self.level.run(Finish { total, sink: operands.sinks.map(|s| s[query.head]), out });
                }
                scratch.totals = totals;
            }
        }
    }

    /// Each part of each tile is computed by itself and leaves records; then the records of each query are joined.
    fn attend_in_parts(&self, operands: &Operands<'_>, cut: Cut, y: &mut [f32]) -> Result<()> {
        let (rows, group, kv) = (operands.dims.rows, operands.dims.group, operands.args.n_kv_heads);
        let (parts, hd, record) = (operands.parts(0..rows), operands.args.head_dim, operands.record());
        let n_items = rows.div_ceil(cut.rows).saturating_mul(kv).saturating_mul(parts.len());
        let n_queries = cut.rows * group;
        let item_len = n_queries * record;
        let mut records = Aligned::<f32>::new(n_items.saturating_mul(item_len))?;
        self.parallel.for_each_tile(
            &mut records,
            Grid { rows: n_items, cols: item_len, tile_rows: 1, tile_cols: item_len },
            || Scratch::new(operands, n_queries),
            |mut tile, scratch| {
                let item = tile.rows().start;
                let part = parts.start + item % parts.len();
                let (kv_head, first) = (item / parts.len() % kv, item / parts.len() / kv * cut.rows);
                for run in operands.runs(first..rows.min(first + cut.rows)) {
                    scratch.gather(operands, run.clone(), kv_head * group..(kv_head + 1) * group);
                    let totals = &mut tile.row(item)[(run.start - first) * group * record..];
                    let parts = part..part + 1;
                    Walk { operands, level: self.level, kv_head, parts, scratch, totals }.run();
                }
            },
        );
        let mut total = vec![0.0; record];
        for (i, out) in y.chunks_exact_mut(hd).enumerate() {
            let (row, head) = (i / operands.args.n_heads, i % operands.args.n_heads);
            let tile = row / cut.rows * kv + head / group;
            let at = (row % cut.rows * group + head % group) * record;
            total.fill(0.0);
            for item in tile * parts.len()..(tile + 1) * parts.len() {
                let part = &records[item * item_len + at..][..record];
                self.level.run(Join { total: &mut total, part });
            }
            self.level.run(Finish { total: &total, sink: operands.sinks.map(|s| s[head]), out });
        }
        Ok(())
    }
}
