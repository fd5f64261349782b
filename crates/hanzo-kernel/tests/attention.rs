//! Attention over a paged cache against its formula in f64: single rows, split ranges, and tiles of rows of several
//! sequences, with windows, sinks, softcap, every cache type and odd shapes.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{Gpu, Random, bytes_f32, bytes_u32, cache_bytes, cache_params, floats, round_to};
use hanzo_kernel::{Number, Spec, Value};

/// A batch and its cache.
struct Batch {
    n_heads: usize,
    n_kv: usize,
    head_dim: usize,
    number: Number,
    softcap: Option<f32>,
    /// Sequence, first and one past the last cache index of each row.
    rows: Vec<(usize, usize, usize)>,
    max_blocks: usize,
    tables: Vec<u32>,
    q: Vec<f32>,
    /// Values as the cache has them, NaN where no row looks.
    k: Vec<f32>,
    v: Vec<f32>,
    sinks: Option<Vec<f32>>,
}

const SCALE: f32 = 0.3;

impl Batch {
    fn random(
        shape: [usize; 3],
        number: Number,
        rows: &[(usize, usize, usize)],
        random: &mut Random,
    ) -> Self {
        let [n_heads, n_kv, head_dim] = shape;
        let n_seqs = rows.iter().map(|r| r.0 + 1).max().unwrap();
        let max_blocks = rows.iter().map(|r| r.2.div_ceil(32)).max().unwrap() + 1;
        // Physical blocks in another order than the logical ones.
        let mut tables: Vec<u32> = (0..(n_seqs * max_blocks) as u32).collect();
        (1..tables.len()).for_each(|i| tables.swap(i, random.below(i + 1)));
        let n = tables.len() * n_kv * 32 * head_dim;
        let mut batch = Self {
            n_heads,
            n_kv,
            head_dim,
            number,
            softcap: None,
            rows: rows.to_vec(),
            max_blocks,
            tables,
            q: random.units(rows.len() * n_heads * head_dim).iter().map(|q| 3.0 * q).collect(),
            k: vec![f32::NAN; n],
            v: vec![f32::NAN; n],
            sinks: None,
        };
        for &(seq, begin, end) in rows {
            for index in begin..end {
                for head in 0..n_kv {
                    let at = batch.at(seq, index, head);
                    if batch.k[at].is_nan() {
                        for cache in [&mut batch.k, &mut batch.v] {
                            cache[at..at + head_dim].copy_from_slice(&random.units(head_dim));
                            round_to(number, &mut cache[at..at + head_dim]);
                        }
                    }
                }
            }
        }
        batch
    }

    /// Where the key and value of a cache index lie.
    fn at(&self, seq: usize, index: usize, kv_head: usize) -> usize {
        let block = self.tables[seq * self.max_blocks + index / 32] as usize;
        ((block * self.n_kv + kv_head) * 32 + index % 32) * self.head_dim
    }

    fn reference(&self) -> Vec<f64> {
        let hd = self.head_dim;
        let mut out = Vec::new();
        for (i, q) in self.q.chunks_exact(hd).enumerate() {
            let (seq, begin, end) = self.rows[i / self.n_heads];
            let head = i % self.n_heads;
            let kv_head = head / (self.n_heads / self.n_kv);
            let score = |index: usize| {
                let k = &self.k[self.at(seq, index, kv_head)..][..hd];
                let s: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
                    * f64::from(SCALE);
                self.softcap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh())
            };
            let scores: Vec<f64> = (begin..end).map(score).collect();
            let sink = self.sinks.as_ref().map(|s| f64::from(s[head]));
            let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = scores.iter().copied().chain(sink).map(|s| (s - top).exp()).sum();
            let mut sum = vec![0.0; hd];
            for (index, s) in (begin..end).zip(&scores) {
                let v = &self.v[self.at(seq, index, kv_head)..][..hd];
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += (s - top).exp() / all * f64::from(*v));
            }
            out.extend(sum);
        }
        out
    }

    fn buffers(&self) -> Vec<(&'static str, Vec<u8>)> {
        let column = |f: fn(&(usize, usize, usize)) -> usize| {
            bytes_u32(&self.rows.iter().map(|r| f(r) as u32).collect::<Vec<_>>())
        };
        vec![
            ("q", bytes_f32(&self.q)),
            ("k_cache", cache_bytes(self.number, &self.k)),
            ("v_cache", cache_bytes(self.number, &self.v)),
            ("block_tables", bytes_u32(&self.tables)),
            ("row_seq", column(|r| r.0)),
            ("row_begin", column(|r| r.1)),
            ("row_end", column(|r| r.2)),
            ("sinks", bytes_f32(self.sinks.as_deref().unwrap_or_default())),
        ]
    }

    fn flags(&self) -> [(&'static str, Value); 2] {
        [("SINKS", Value::Bool(self.sinks.is_some())), ("SOFTCAP", Value::Bool(self.softcap.is_some()))]
    }

    fn head_max(&self) -> u32 {
        [64, 128, 256].into_iter().find(|&max| self.head_dim <= max).unwrap() as u32
    }

    /// The last parameters of both kernels.
    fn rest(&self) -> Vec<u32> {
        let floats = [SCALE.to_bits(), self.softcap.unwrap_or(0.0).to_bits()];
        [&floats[..], &cache_params(self.number, self.k.len())].concat()
    }

    fn run(
        &self,
        gpu: &Gpu,
        spec: &Spec,
        extra: &[(&str, &[u8])],
        params: &[u32],
        grid: [u32; 3],
    ) -> Outputs {
        let own = self.buffers();
        let mut buffers: Vec<(&str, &[u8])> = own.iter().map(|(n, b)| (*n, &b[..])).collect();
        buffers.extend(extra);
        gpu.run(spec, &buffers, params, grid)
    }

    fn decode(&self, gpu: &Gpu, heads: usize, n_splits: usize) -> Vec<f32> {
        let split = n_splits > 1;
        let [sinks, softcap] = self.flags();
        let constants = [
            ("HEAD_MAX", Value::U32(self.head_max())),
            ("HEADS", Value::U32(heads as u32)),
            ("SPLIT", Value::Bool(split)),
            ("SINKS", if split { Value::Bool(false) } else { sinks.1 }),
            softcap,
        ];
        let spec = Spec::find("attention_decode", None, Some(self.number), &constants).unwrap();
        let (n_rows, fours) = (self.rows.len(), self.head_dim / 4);
        let sizes = [self.n_heads, self.n_kv, fours, self.max_blocks, n_splits].map(|v| v as u32);
        let params = [&sizes[..], &self.rest()].concat();
        let grid = [n_rows as u32, (self.n_heads / heads) as u32, n_splits as u32];
        let out = vec![0xff; self.q.len() * 4];
        if !split {
            return floats(&self.run(gpu, &spec, &[("out", &out)], &params, grid)["out"]);
        }
        let part = vec![0xff; self.q.len() * n_splits * 4];
        let stats = vec![0xff; n_rows * self.n_heads * n_splits * 8];
        let result = self.run(gpu, &spec, &[("part", &part), ("part_stats", &stats)], &params, grid);
        let combine = Spec::find("attention_combine", None, None, &[sinks]).unwrap();
        let extra: [(&str, &[u8]); 3] =
            [("part", &result["part"]), ("part_stats", &result["part_stats"]), ("out", &out)];
        let params = [n_rows * self.n_heads * fours, self.n_heads, fours, n_splits].map(|v| v as u32);
        floats(&self.run(gpu, &combine, &extra, &params, [1, 1, 1])["out"])
    }

    fn prefill(&self, gpu: &Gpu) -> Vec<f32> {
        let [sinks, softcap] = self.flags();
        let constants = [("HEAD_MAX", Value::U32(self.head_max())), sinks, softcap];
        let spec = Spec::find("attention_prefill", None, Some(self.number), &constants).unwrap();
        let n_rows = self.rows.len();
        let sizes = [n_rows, self.n_heads, self.n_kv, self.head_dim / 4, self.max_blocks].map(|v| v as u32);
        let params = [&sizes[..], &self.rest()].concat();
        let tile = if self.head_max() == 256 { 8 } else { 16 };
        let out = vec![0xff; self.q.len() * 4];
        let grid = [n_rows.div_ceil(tile) as u32, self.n_heads as u32, 1];
        floats(&self.run(gpu, &spec, &[("out", &out)], &params, grid)["out"])
    }

    fn check(&self, what: &str, got: &[f32]) {
        let want = self.reference();
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let error = (f64::from(*got) - want).abs();
            assert!(error < 3e-6, "{what}, {:?}: [{i}] is {got} instead of {want}", self.number);
        }
    }
}

type Outputs = std::collections::BTreeMap<String, Vec<u8>>;

#[test]
fn single_rows_attend() {
    let Some(gpu) = Gpu::open("single_rows_attend") else { return };
    let mut random = Random(20);
    // A row alone, one of 300, a window in the middle, one past a block.
    let rows = [(0, 0, 1), (1, 0, 300), (2, 77, 170), (1, 0, 33)];
    let shapes = [([4, 2, 64], 2), ([8, 1, 128], 8), ([3, 3, 80], 1), ([4, 1, 256], 4), ([2, 1, 12], 1)];
    let plain = shapes.into_iter().enumerate().map(|(i, shape)| (i, shape, Number::ALL));
    // Heads of whole blocks, odd numbers of them too.
    let shapes = [([4, 2, 64], 2), ([3, 3, 96], 1), ([4, 1, 256], 4), ([2, 1, 32], 1)];
    let blocks = shapes.into_iter().enumerate().map(|(i, shape)| (i, shape, &[Number::Q8_0][..]));
    for (i, (shape, heads), numbers) in plain.chain(blocks) {
        for n_splits in [1, 5] {
            let number = numbers[(i + n_splits) % numbers.len()];
            let mut batch = Batch::random(shape, number, &rows, &mut random);
            batch.softcap = (i % 2 == 1).then_some(2.0);
            batch.sinks = (i % 3 != 1).then(|| random.units(shape[0]));
            batch.check(&format!("{shape:?} in {n_splits}"), &batch.decode(&gpu, heads, n_splits));
        }
    }
}

#[test]
fn tiles_of_rows_attend() {
    let Some(gpu) = Gpu::open("tiles_of_rows_attend") else { return };
    let mut random = Random(21);
    // A causal prompt that starts late, one with a window of 40, and a row that decodes, in one ragged batch.
    let mut rows: Vec<(usize, usize, usize)> = (0..21).map(|i| (0, 0, 50 + i)).collect();
    rows.extend((0..30usize).map(|i| (2, (60 + i).saturating_sub(40), 60 + i)));
    rows.push((1, 3, 100));
    let shapes = [[4, 2, 64], [2, 1, 128], [2, 2, 80], [2, 1, 256]];
    let plain = shapes.into_iter().enumerate().map(|(i, shape)| (i, shape, Number::ALL));
    let shapes = [[4, 2, 32], [2, 1, 96], [2, 1, 256]];
    let blocks = shapes.into_iter().enumerate().map(|(i, shape)| (i, shape, &[Number::Q8_0][..]));
    for (i, shape, numbers) in plain.chain(blocks) {
        for j in 0..2 {
            let number = numbers[(i + j) % numbers.len()];
            let mut batch = Batch::random(shape, number, &rows, &mut random);
            batch.softcap = (i % 2 == j).then_some(2.0);
            batch.sinks = (i % 2 == 0).then(|| random.units(shape[0]));
            batch.check(&format!("{shape:?}"), &batch.prefill(&gpu));
        }
    }
}
