//! Attention over the paged cache, one block of 32 positions at a time (online softmax; Milakov and Gimelshein,
//! arXiv:1805.02867), in parts of [`PART`] positions whose results are joined (Dao et al., "Flash-Decoding", 2023).
//!
//! A tile is a few batch rows and the query heads of one key/value head, so that a block is loaded once for all of
//! them. A thread takes a tile with all its parts; where there are too few tiles (one row, a long context), it takes
//! one part of a tile. The parts lie at fixed places of the cache and are joined in order, so a row's arithmetic
//! depends on its own range alone: chunked prefill, batching and threads give the same bits. Cache positions outside
//! a row's range never enter its arithmetic: they may hold anything.

mod block;
mod record;

use std::ops::Range;

use half::{f16, slice::HalfFloatSliceExt};

use super::{
    Cpu,
    memory::{Aligned, Floats, decode_blocks},
    simd::{Kernel, LANES, Lanes, Simd},
};
use crate::{
    DType, Result,
    backend::{
        Attention, Buffer, KV_BLOCK,
        check::{AttentionDims, PlanValues},
    },
    parallel::{Grid, Tile},
};
use block::{COLUMNS_MIN, Columns, Query, accumulate, scores, weigh};

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

/// From so many queries on, converting the values of a block once pays.
const WIDEN_MIN: usize = 5;

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

impl Operands<'_> {
    /// Floats of a record.
    fn record(&self) -> usize {
        record::len(self.wide) * LANES
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

/// What one thread needs beside its operands; rows of whole vectors, filled up with zeros.
struct Scratch {
    queries: Vec<Query>,
    q: Aligned<f32>,
    acc: Aligned<f32>,
    /// Keys or values of a block as f32, where they are not taken as they lie.
    rows: Aligned<f32>,
    columns: Aligned<f32>,
    /// Records of the queries.
    totals: Aligned<f32>,
}

impl Scratch {
    fn new(operands: &Operands<'_>, n_queries: usize) -> Self {
        let floats = |n: usize| Aligned::zeros(n * operands.wide * LANES);
        let lie_ready = [operands.k, operands.v].iter().all(|&x| lies_ready(x, operands.args.head_dim));
        let loaded = n_queries >= WIDEN_MIN || !lie_ready;
        Self {
            queries: Vec::with_capacity(n_queries),
            q: floats(n_queries),
            acc: floats(n_queries),
            rows: floats(if loaded { KV_BLOCK } else { 0 }),
            columns: floats(if n_queries >= COLUMNS_MIN { KV_BLOCK } else { 0 }),
            totals: Aligned::zeros(n_queries * operands.record()),
        }
    }

    /// Takes the query rows of a run: all heads of a row, then the next row.
    fn gather(&mut self, operands: &Operands<'_>, rows: Range<usize>, heads: Range<usize>) {
        let (hd, n_heads, wide) = (operands.args.head_dim, operands.args.n_heads, operands.wide * LANES);
        self.queries.clear();
        for row in rows {
            for head in heads.clone() {
                let to = &mut self.q[self.queries.len() * wide..][..hd];
                to.copy_from_slice(&operands.q[(row * n_heads + head) * hd..][..hd]);
                self.queries.push(Query::new(row, head, operands.plan.range(row)));
            }
        }
    }
}

/// The queries of the scratch, which share a sequence and a key/value head, through some parts. What they see there
/// joins `totals`, a record for each.
struct Walk<'a, 'b> {
    operands: &'a Operands<'b>,
    kv_head: usize,
    parts: Range<usize>,
    scratch: &'a mut Scratch,
    totals: &'a mut [f32],
}

impl Kernel for Walk<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let Some(first) = self.scratch.queries.first() else { return };
        let table = self.operands.plan.table(first.row);
        let wide = self.operands.wide;
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
                self.block(s, block, physical as usize, first..end);
            }
            let acc = self.scratch.acc.as_chunks::<LANES>().0.chunks_exact(wide);
            let totals = self.totals.as_chunks_mut::<LANES>().0.chunks_exact_mut(record::len(wide));
            for ((query, acc), total) in self.scratch.queries.iter().zip(acc).zip(totals) {
                let sum = s.sum(s.load(&query.sum));
                record::join(s, total, acc, (query.max, sum));
            }
        }
    }
}

impl Walk<'_, '_> {
    /// One block, for the queries `seen`: those between the first and the last that see some of it.
    #[inline(always)]
    fn block<S: Simd>(&mut self, s: S, block: usize, physical: usize, seen: Range<usize>) {
        let Operands { args, k, v, wide, .. } = *self.operands;
        let Scratch { queries, q, acc, rows, columns, .. } = &mut *self.scratch;
        let start = (physical * args.n_kv_heads + self.kv_head) * KV_BLOCK * args.head_dim;
        let at = start..start + KV_BLOCK * args.head_dim;
        let queries = &mut queries[seen.clone()];
        let q = &q.as_chunks::<LANES>().0[seen.start * wide..seen.end * wide];
        let acc = &mut acc.as_chunks_mut::<LANES>().0[seen.start * wide..seen.end * wide];
        let columns: &mut [Columns] = columns.as_chunks_mut::<LANES>().0.as_chunks_mut().0.as_chunks_mut().0;

        match load(s, k, at.clone(), args.head_dim, rows, false) {
            Rows::Full(k) => scores(s, k, wide, q, columns, queries),
            Rows::Half(k) => scores(s, k, wide, q, columns, queries),
        }
        for (query, acc) in queries.iter_mut().zip(acc.chunks_exact_mut(wide)) {
            weigh(s, query, acc, block, (args.scale, args.softcap));
        }
        match load(s, v, at, args.head_dim, rows, queries.len() >= WIDEN_MIN) {
            Rows::Full(v) => accumulate(s, v, wide, acc, queries, block),
            Rows::Half(v) => accumulate(s, v, wide, acc, queries, block),
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
#[inline(always)]
fn load<'a, S: Simd>(
    s: S,
    cache: Floats<'a>,
    at: Range<usize>,
    head_dim: usize,
    rows: &'a mut [f32],
    full: bool,
) -> Rows<'a> {
    match cache {
        Floats::F32(x) if lies_ready(cache, head_dim) => return Rows::Full(x[at].as_chunks().0),
        Floats::F16(x) if lies_ready(cache, head_dim) => {
            let from = x[at].as_chunks().0;
            if !full {
                return Rows::Half(from);
            }
            for (from, to) in from.iter().zip(rows.as_chunks_mut().0) {
                s.store(s.load_f16(from), to);
            }
        }
        _ => fill_rows(cache, at, head_dim, rows),
    }
    Rows::Full(rows.as_chunks().0)
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
                self.level.run(Walk { operands, kv_head, parts, scratch, totals: &mut totals });
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
                    self.level.run(Walk { operands, kv_head, parts: part..part + 1, scratch, totals });
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
