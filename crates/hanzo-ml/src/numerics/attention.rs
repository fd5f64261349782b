//! Cache writes and attention against the reference, on random ranges of a shuffled paged cache.

use super::{
    bench::{Bench, Desk, EPS},
    random::Random,
};
use crate::{
    DType, Result,
    backend::{Attention, AttentionPlan, KV_BLOCK, KvAppend, QkNorm, RopeAppend, RopePairing},
};

/// Factor on scores.
const SCALE: f32 = 0.3;

/// Widths of heads: multiples of 4, as kernels want.
const HEAD_DIMS: [usize; 7] = [4, 20, 64, 80, 96, 128, 256];

/// The types that a cache of such heads may have.
fn types(head_dim: usize) -> &'static [DType] {
    let all = &[DType::F32, DType::F16, DType::BF16, DType::Q8_0];
    if head_dim.is_multiple_of(DType::Q8_0.block_elems()) { all } else { &all[..3] }
}

pub(super) fn check(bench: &mut Bench<'_>) {
    for seed in 0..bench.n_shapes(32) {
        let mut random = Random::new(seed);
        appends(bench, &mut random);
        let case = Case::new(&mut random, seed);
        let bound = case.bound();
        bench.compare("attention", &case.shape(), |desk| case.run(desk), |_, _| bound);
    }
}

/// Rows to slots of a cache that holds other numbers, alone and after norm and rotation.
fn appends(bench: &mut Bench<'_>, random: &mut Random) {
    let (n_kv_heads, group) = (1 + random.below(3), 1 + random.below(4));
    let head_dim = HEAD_DIMS[random.below(HEAD_DIMS.len())];
    let (rows, n_blocks) = (1 + random.below(KV_BLOCK), 1 + random.below(4));
    let slots = random.distinct(rows, n_blocks * KV_BLOCK);
    let x = random.floats(rows * n_kv_heads * head_dim);
    let before = random.floats(n_blocks * n_kv_heads * KV_BLOCK * head_dim);
    let n_heads = group * n_kv_heads;
    let (q, v) = (random.floats(rows * n_heads * head_dim), random.floats(x.len()));
    let (q_weight, k_weight) = (random.floats(head_dim), random.floats(head_dim));
    let pairs = 1 + random.below(head_dim / 2);
    let angles = random.floats(rows * pairs * 2);
    let pairing = [RopePairing::Half, RopePairing::Adjacent][random.below(2)];
    let is_normed = random.below(2) == 0;
    for &dtype in types(head_dim) {
        let shape = format!("{dtype:?}, {rows} rows, {n_kv_heads} heads of {head_dim}");
        bench.same("kv_append", &shape, |desk| {
            let (cache, x, slots) = (desk.floats_as(dtype, &before)?, desk.floats(&x)?, desk.ids(&slots)?);
            desk.backend.kv_append(&cache, &KvAppend { x: &x, slots: &slots, n_kv_heads, head_dim })?;
            desk.read(&cache)
        });
        let run = |desk: &mut Desk<'_>| -> Result<Vec<f32>> {
            let (q, k, v) = (desk.floats(&q)?, desk.floats(&x)?, desk.floats(&v)?);
            let (k_cache, v_cache) = (desk.floats_as(dtype, &before)?, desk.floats_as(dtype, &before)?);
            let (q_weight, k_weight) = (desk.floats(&q_weight)?, desk.floats(&k_weight)?);
            let (angles, slots) = (desk.floats(&angles)?, desk.ids(&slots)?);
            let norm = QkNorm { q_weight: Some(&q_weight), k_weight: Some(&k_weight), eps: 1e-6 };
            let args = RopeAppend {
                k: &k,
                v: &v,
                norm: is_normed.then_some(norm),
                angles: Some(&angles),
                pairing,
                k_cache: &k_cache,
                v_cache: &v_cache,
                slots: &slots,
                n_heads,
                n_kv_heads,
                head_dim,
            };
            desk.backend.rope_append(&q, &args)?;
            Ok([desk.read(&v_cache)?, desk.read(&q)?, desk.read(&k_cache)?].concat())
        };
        // A normed element is below sqrt(Hd) times its weight. Keys are rounded to the cache's type after arithmetic that
        // is off by a little, so they may land on the number next to the reference's.
        let size = if is_normed { (head_dim as f32).sqrt() } else { 1.0 };
        let arithmetic = size * ((head_dim / 32 + 10) as f32 + 6.0) * EPS;
        let step = match dtype {
            DType::F32 | DType::U32 => 0.0,
            DType::F16 => 2f32.powi(-10),
            DType::BF16 => 2f32.powi(-7),
            // A step of 1/127 of the largest number of a block.
            DType::Q8_0 => 1.5 * size * 1.01 / 127.0,
        };
        let n_exact = before.len();
        let bound = |i: usize, y: f32| match i {
            _ if i < n_exact => 0.0,
            _ if i < n_exact + q.len() => arithmetic,
            _ if dtype == DType::Q8_0 => arithmetic + step,
            _ => arithmetic + step * y.abs(),
        };
        bench.compare("rope_append", &format!("{shape}, {pairs} pairs, norm {is_normed}"), run, bound);
    }
}

/// A random paged cache with rows that look at it.
struct Case {
    dtype: DType,
    rows: usize,
    group: usize,
    n_kv_heads: usize,
    head_dim: usize,
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

impl Case {
    fn new(random: &mut Random, seed: u64) -> Self {
        let (group, n_kv_heads) = (1 + random.below(5), 1 + random.below(3));
        let head_dim = HEAD_DIMS[random.below(HEAD_DIMS.len())];
        let rows = [1, 2, 5, 19, 70][random.below(5)];
        // Every fourth has a context of several parts.
        let max_blocks = if seed % 4 == 3 { 20 } else { 1 + random.below(4) };
        let n_seqs = 1 + random.below(3);
        let n_blocks = n_seqs * max_blocks + 1;
        let cells = n_blocks * n_kv_heads * KV_BLOCK * head_dim;
        let end: Vec<u32> = (0..rows).map(|_| 1 + random.below(max_blocks * KV_BLOCK) as u32).collect();
        let begin =
            end.iter().map(|&end| if random.below(2) == 0 { 0 } else { random.below(end as usize) as u32 });
        let begin = begin.collect();
        let n_heads = group * n_kv_heads;
        let types = types(head_dim);
        Self {
            dtype: types[random.below(types.len())],
            rows,
            group,
            n_kv_heads,
            head_dim,
            max_blocks,
            q: random.floats(rows * n_heads * head_dim),
            k: random.floats(cells),
            v: random.floats(cells),
            tables: random.distinct(n_seqs * max_blocks, n_blocks),
            row_seq: random.ids(rows, n_seqs),
            begin,
            end,
            softcap: (random.below(3) == 0).then_some(2.0),
            sinks: (random.below(3) == 0).then(|| random.floats(n_heads)),
        }
    }

    fn shape(&self) -> String {
        format!(
            "{:?}, {} rows, {} of {} heads of {}, {} blocks",
            self.dtype, self.rows, self.group, self.n_kv_heads, self.head_dim, self.max_blocks
        )
    }

    fn run(&self, desk: &mut Desk<'_>) -> Result<Vec<f32>> {
        let (q, out) = (desk.floats(&self.q)?, desk.empty(self.q.len())?);
        let (k_cache, v_cache) = (desk.floats_as(self.dtype, &self.k)?, desk.floats_as(self.dtype, &self.v)?);
        let (tables, row_seq) = (desk.ids(&self.tables)?, desk.ids(&self.row_seq)?);
        let (row_begin, row_end) = (desk.ids(&self.begin)?, desk.ids(&self.end)?);
        let sinks = self.sinks.as_ref().map(|sinks| desk.floats(sinks)).transpose()?;
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
            sinks: sinks.as_deref(),
        };
        desk.backend.attention(&out, &args)?;
        desk.read(&out)
    }

    /// All values lie in −1 to 1, so a score is at most `Hd · SCALE`. Its error δ is that of a dot product (a lane adds
    /// `Hd / 8` products) and of scale and cap (8 roundings); weights are off by `e^(2δ) − 1`, their exp by 2 units, and
    /// the sums of all positions by as many roundings; to join a part is an exp and 3 roundings. What a type loses in the
    /// cache is the same for both backends.
    fn bound(&self) -> f32 {
        let score = self.head_dim as f32 * SCALE;
        let delta = (self.head_dim.div_ceil(8) + 3 + 8) as f32 * EPS * score;
        let positions = self.max_blocks * KV_BLOCK;
        let joins = 2 * 5 * positions.div_ceil(256);
        1.05 * (2.0 * delta + (4 + 2 * positions + joins) as f32 * EPS)
    }
}
