//! Cache writes and attention against the f64 reference, on random ranges of a shuffled paged cache.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_ml::{
    DType,
    backend::{Attention, AttentionPlan, Backend, Buffer, KV_BLOCK, KvAppend},
};

/// A random paged cache with rows that look at it.
struct Case {
    dtype: DType,
    rows: usize,
    group: usize,
    n_kv_heads: usize,
    head_dim: usize,
    n_blocks: usize,
    max_blocks: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    tables: Vec<u32>,
    row_seq: Vec<u32>,
    begin: Vec<u32>,
    end: Vec<u32>,
    softcap: Option<f32>,
    sinks: Option<Vec<f32>>,
}

const SCALE: f32 = 0.3;

/// The types that a cache of such heads may have.
fn types(head_dim: usize) -> &'static [DType] {
    let all = &[DType::F32, DType::F16, DType::BF16, DType::Q8_0];
    if head_dim.is_multiple_of(DType::Q8_0.block_elems()) { all } else { &all[..3] }
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (group, n_kv_heads) = (1 + rng.below(5), 1 + rng.below(3));
        let head_dim = [1, 7, 8, 20, 64, 128][rng.below(6)];
        let rows = [0, 1, 2, 5, 19, 70][rng.below(6)];
        // Every fourth has a context of several parts.
        let max_blocks = if seed % 4 == 3 { 20 } else { 1 + rng.below(4) };
        let n_seqs = 1 + rng.below(3);
        let n_blocks = n_seqs * max_blocks + 1;
        let tables = rng.distinct(n_seqs * max_blocks, n_blocks);
        let (mut row_seq, mut begin, mut end) = (rng.ids(rows, n_seqs), Vec::new(), Vec::new());
        if seed.is_multiple_of(2) {
            row_seq.sort_unstable();
        }
        for _ in 0..rows {
            let last = 1 + rng.below(max_blocks * KV_BLOCK);
            end.push(last as u32);
            begin.push(if rng.below(2) == 0 { 0 } else { rng.below(last) as u32 });
        }
        let cells = n_blocks * n_kv_heads * KV_BLOCK * head_dim;
        let n_heads = group * n_kv_heads;
        let (mut k, mut v) = (vec![f32::NAN; cells], vec![f32::NAN; cells]);
        // What lies between the ranges of a sequence's rows was written, as in every cache; nothing else holds numbers.
        let seen = |row: usize| {
            let same = (0..rows).filter(|&r| row_seq[r] == row_seq[row]);
            let first = same.clone().map(|r| begin[r]).min().unwrap_or(0);
            first as usize..same.map(|r| end[r]).max().unwrap_or(0) as usize
        };
        for row in 0..rows {
            for index in seen(row) {
                let block = tables[row_seq[row] as usize * max_blocks + index / KV_BLOCK] as usize;
                for head in 0..n_kv_heads {
                    let at = ((block * n_kv_heads + head) * KV_BLOCK + index % KV_BLOCK) * head_dim;
                    if k[at].is_nan() {
                        k[at..at + head_dim].copy_from_slice(&rng.floats(head_dim));
                        v[at..at + head_dim].copy_from_slice(&rng.floats(head_dim));
                    }
                }
            }
        }
        Self {
            dtype: types(head_dim)[rng.below(types(head_dim).len())],
            q: rng.floats(rows * n_heads * head_dim),
            softcap: (rng.below(3) == 0).then_some(2.0),
            sinks: (rng.below(3) == 0).then(|| rng.floats(n_heads)),
            rows,
            group,
            n_kv_heads,
            head_dim,
            n_blocks,
            max_blocks,
            k,
            v,
            tables,
            row_seq,
            begin,
            end,
        }
    }

    fn width(&self) -> usize {
        self.group * self.n_kv_heads * self.head_dim
    }

    /// Attention of some of the rows.
    fn run(&self, b: &mut dyn Backend, rows: std::ops::Range<usize>) -> hanzo_ml::Result<Vec<f32>> {
        assert_eq!(self.k.len(), self.n_blocks * self.n_kv_heads * KV_BLOCK * self.head_dim);
        let q = up(b, &self.q[rows.start * self.width()..rows.end * self.width()]);
        let (k_cache, v_cache) = (try_up_as(b, self.dtype, &self.k)?, try_up_as(b, self.dtype, &self.v)?);
        let tables = up_ids(b, &self.tables);
        let row_seq = up_ids(b, &self.row_seq[rows.clone()]);
        let row_begin = up_ids(b, &self.begin[rows.clone()]);
        let row_end = up_ids(b, &self.end[rows.clone()]);
        let sinks = self.sinks.as_ref().map(|s| up(b, s));
        let out = empty(b, q.len());
        let plan = AttentionPlan {
            tables: &tables,
            max_blocks: self.max_blocks,
            row_seq: &row_seq,
            row_begin: &row_begin,
            row_end: &row_end,
        };
        let args = Attention {
            q: &q,
            k_cache: &k_cache,
            v_cache: &v_cache,
            plan,
            n_heads: self.group * self.n_kv_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.head_dim,
            scale: SCALE,
            softcap: self.softcap,
            sinks: sinks.as_ref(),
        };
        b.attention(&out, &args)?;
        Ok(down(b, &out))
    }

    /// All values lie in −1 to 1, so a score is at most `Hd · SCALE`. Its error δ is that of a dot product (a lane
    /// adds `Hd / 8` products) and of scale and cap (8 roundings); weights are off by `e^(2δ) − 1`, their exp by
    /// 2 units, and the sums of all positions by as many roundings; to join a part is an exp and 3 roundings. What a
    /// type loses in the cache is the same for both backends.
    fn bound(&self) -> f32 {
        let score = self.head_dim as f32 * SCALE;
        let delta = (self.head_dim.div_ceil(8) + 3 + 8) as f32 * EPS * score;
        let positions = self.max_blocks * KV_BLOCK;
        let joins = 2 * 5 * positions.div_ceil(256);
        1.05 * (2.0 * delta + (4 + 2 * positions + joins) as f32 * EPS)
    }
}

#[test]
fn attention_against_the_reference() {
    for seed in 0..80 {
        let case = Case::new(seed);
        let bound = case.bound();
        check_op(&format!("attention {seed}"), |b| case.run(b, 0..case.rows), |_, _| bound);
    }
}

#[test]
fn a_row_attends_with_the_same_bits_in_any_batch() {
    for seed in 0..40 {
        let case = Case::new(seed);
        let whole = case.run(&mut cpu(2), 0..case.rows).unwrap();
        for split in [1, 3, 16] {
            let mut parts = Vec::new();
            for start in (0..case.rows).step_by(split) {
                parts.extend(case.run(&mut cpu(1), start..case.rows.min(start + split)).unwrap());
            }
            assert!(bits(&parts) == bits(&whole), "attention {seed}: batches of {split} change the bits");
        }
    }
}

/// One row of a long context is computed in parts by several threads, in a prompt with all its parts by one thread
/// beside many rows, whose keys become columns: the same bits, in each type.
#[test]
fn a_row_of_a_long_context_has_the_same_bits_alone_and_in_a_prompt() {
    let mut rng = Rng::new(5);
    let (group, n_kv_heads, head_dim, max_blocks) = (3, 2, 64, 25);
    let n_heads = group * n_kv_heads;
    let rows = 45;
    let last = max_blocks * KV_BLOCK;
    for (window, &dtype) in [last, 300, 40, last].into_iter().zip(types(head_dim)) {
        let end: Vec<u32> = (0..rows).map(|row| (last - rows + 1 + row) as u32).collect();
        let case = Case {
            dtype,
            rows,
            group,
            n_kv_heads,
            head_dim,
            n_blocks: max_blocks,
            max_blocks,
            q: rng.floats(rows * n_heads * head_dim),
            k: rng.floats(last * n_kv_heads * head_dim),
            v: rng.floats(last * n_kv_heads * head_dim),
            tables: rng.distinct(max_blocks, max_blocks),
            row_seq: vec![0; rows],
            begin: end.iter().map(|&end| end.saturating_sub(window as u32)).collect(),
            end,
            softcap: None,
            sinks: Some(rng.floats(n_heads)),
        };
        let whole = case.run(&mut cpu(1), 0..rows).unwrap();
        for threads in [1, 2, 3, 16] {
            assert!(
                bits(&case.run(&mut cpu(threads), 0..rows).unwrap()) == bits(&whole),
                "{dtype:?} {threads}"
            );
            for row in [0, 1, 30, rows - 1] {
                let alone = case.run(&mut cpu(threads), row..row + 1).unwrap();
                let there = &whole[row * case.width()..(row + 1) * case.width()];
                assert!(
                    bits(&alone) == bits(there),
                    "{dtype:?} window {window} row {row}, {threads} threads"
                );
            }
        }
    }
}

/// A request that computes NaN does not reach the rows of others, in its own tile or in later ones.
#[test]
fn a_row_of_nan_stays_alone() {
    let seed = (0..).find(|&s| Case::new(s).rows == 70).unwrap();
    let mut case = Case::new(seed);
    let clean = case.run(&mut cpu(1), 0..case.rows).unwrap();
    let width = case.width();
    case.q[..width].fill(f32::NAN);
    let got = case.run(&mut cpu(1), 0..case.rows).unwrap();
    assert!(got[..width].iter().all(|v| v.is_nan()));
    assert!(bits(&got[width..]) == bits(&clean[width..]));
}

#[test]
fn a_sink_alone_takes_its_share() {
    // One key with score 0 and a sink of ln 3: the value gets 1/4.
    let case = Case {
        dtype: DType::F32,
        rows: 1,
        group: 1,
        n_kv_heads: 1,
        head_dim: 8,
        n_blocks: 1,
        max_blocks: 1,
        q: vec![0.0; 8],
        k: vec![1.0; KV_BLOCK * 8],
        v: vec![2.0; KV_BLOCK * 8],
        tables: vec![0],
        row_seq: vec![0],
        begin: vec![4],
        end: vec![5],
        softcap: None,
        sinks: Some(vec![3f32.ln()]),
    };
    let got = check_op("sink", |b| case.run(b, 0..1), |_, _| 1e-6);
    assert!(got.iter().all(|v| (v - 0.5).abs() < 1e-6), "{got:?}");
}

#[test]
fn bad_plans_are_errors() {
    type Break = (&'static str, fn(&mut Case));
    let breaks: [Break; 8] = [
        ("sequence", |c| c.row_seq[0] = 99),
        ("empty range", |c| c.begin[0] = c.end[0]),
        ("range past the table", |c| c.end[0] = (c.max_blocks * KV_BLOCK) as u32 + 1),
        ("range of the largest number", |c| c.end[0] = u32::MAX),
        ("block", |c| c.tables.fill(c.n_blocks as u32)),
        ("softcap", |c| c.softcap = Some(0.0)),
        ("values of fewer blocks", |c| c.v.truncate(c.n_kv_heads * KV_BLOCK * c.head_dim)),
        ("more sinks than heads", |c| c.sinks = Some(vec![0.0; c.group * c.n_kv_heads + 1])),
    ];
    let seed = (0..).find(|&s| Case::new(s).rows > 1).unwrap();
    for (name, harm) in breaks {
        let mut case = Case::new(seed);
        harm(&mut case);
        assert!(case.run(&mut cpu(1), 0..case.rows).is_err(), "{name}");
        assert!(case.run(&mut hanzo_ml::reference::Reference::new(), 0..case.rows).is_err(), "{name}");
    }
}

#[test]
fn operands_of_attention_never_alias() {
    for b in [&mut hanzo_ml::reference::Reference::new() as &mut dyn Backend, &mut cpu(1)] {
        let (q, out) = (up(b, &[1.0]), up(b, &[0.0]));
        let (k, v) = (up(b, &[1.0; KV_BLOCK]), up(b, &[2.0; KV_BLOCK]));
        let (zero, one) = ([up_ids(b, &[0]), up_ids(b, &[0]), up_ids(b, &[0])], up_ids(b, &[1]));
        let [tables, row_seq, row_begin] = &zero;
        let attend = |b: &mut dyn Backend, out, v_cache, row_begin| {
            let plan = AttentionPlan { tables, max_blocks: 1, row_seq, row_begin, row_end: &one };
            let args = Attention {
                q: &q,
                k_cache: &k,
                v_cache,
                plan,
                n_heads: 1,
                n_kv_heads: 1,
                head_dim: 1,
                scale: 1.0,
                softcap: None,
                sinks: None,
            };
            b.attention(out, &args)
        };
        assert!(attend(b, &out, &v, row_begin).is_ok());
        assert!(attend(b, &q, &v, row_begin).is_err(), "q is out");
        assert!(attend(b, &out, &k, row_begin).is_err(), "keys are values");
        assert!(attend(b, &out, &v, row_seq).is_err(), "sequences are beginnings");
        assert_eq!(down(b, &out), [2.0]);
    }
}

fn append(
    b: &mut dyn Backend,
    cache: &Buffer,
    x: &[f32],
    slots: &[u32],
    dims: (usize, usize),
) -> hanzo_ml::Result<()> {
    let (x, slots) = (up(b, x), up_ids(b, slots));
    b.kv_append(cache, &KvAppend { x: &x, slots: &slots, n_kv_heads: dims.0, head_dim: dims.1 })
}

#[test]
fn kv_append_rounds_and_leaves_the_rest() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let hd = if seed % 2 == 0 { 32 * (1 + rng.below(3)) } else { 1 + rng.below(20) };
        let (heads, blocks) = (1 + rng.below(3), 1 + rng.below(4));
        let rows = rng.below(KV_BLOCK);
        let slots = rng.distinct(rows, blocks * KV_BLOCK);
        let (x, before) = (rng.floats(rows * heads * hd), rng.floats(blocks * heads * KV_BLOCK * hd));
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0] {
            if !hd.is_multiple_of(dtype.block_elems()) {
                let cache = cpu(1).alloc(dtype, before.len().next_multiple_of(32));
                assert!(append(&mut cpu(1), &cache.unwrap(), &x, &slots, (heads, hd)).is_err(), "{hd}");
                continue;
            }
            let run = |b: &mut dyn Backend| {
                let cache = try_up_as(b, dtype, &before)?;
                append(b, &cache, &x, &slots, (heads, hd))?;
                Ok(down(b, &cache))
            };
            let got = check_op(&format!("kv_append {seed} {dtype:?}"), run, |_, _| 0.0);
            for (row, &slot) in slots.iter().enumerate() {
                let (block, offset) = (slot as usize / KV_BLOCK, slot as usize % KV_BLOCK);
                let at = ((block * heads + heads - 1) * KV_BLOCK + offset) * hd;
                let want = x[(row * heads + heads - 1) * hd];
                // Half a step of a block, whose 127 steps reach 1 at most, and the scale's rounding to f16.
                let bound =
                    if dtype == DType::Q8_0 { 0.5 / 127.0 + 1.0 / 2048.0 } else { want.abs() / 256.0 };
                assert!((got[at] - want).abs() <= bound, "{dtype:?} {} {want}", got[at]);
            }
        }
        let b = &mut cpu(1);
        let cache = up(b, &before);
        let x = vec![0.0; 2 * heads * hd];
        assert!(append(b, &cache, &x, &[0, (blocks * KV_BLOCK) as u32], (heads, hd)).is_err());
        assert!(append(b, &cache, &x, &[1, 1], (heads, hd)).is_err());
        assert!(append(b, &cache, &x, &[1, 0], (heads, hd)).is_ok());
    }
}
