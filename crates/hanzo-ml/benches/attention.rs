//! Attention of the CPU backend on one thread, in nanoseconds per query head and 32 positions, by cache type.
//!
//! `cargo bench -p hanzo-ml --bench attention`. Figures are the 10th percentile of many calls. `decode` is one row at
//! the end of a context, `prefill` a prompt that fills the context, each row seeing what lies before it. In brackets:
//! the share of the multiply-adds that one core can do at 16 a cycle of 3.5 GHz.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and fails loudly")]
#![allow(clippy::needless_update, reason = "options that do not matter here may be added")]

use std::time::Instant;

use hanzo_ml::{
    DType,
    backend::{Attention, AttentionPlan, Backend, KV_BLOCK},
    cpu::{Cpu, CpuOptions},
};

/// Name, heads, key/value heads, elements of a head.
const SHAPES: [(&str, usize, usize, usize); 3] =
    [("SmolLM2-135M", 9, 3, 64), ("Gemma-3-270M", 4, 1, 256), ("Qwen2.5-1.5B", 12, 2, 128)];

fn main() {
    for (name, n_heads, n_kv_heads, head_dim) in SHAPES {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (what, rows, context) in [("decode", 1, 512), ("decode", 1, 4096), ("prefill", 512, 512)] {
                let seconds = measure(rows, context, (n_heads, n_kv_heads, head_dim), dtype);
                let blocks: usize = (0..rows).map(|row| (context - rows + row) / KV_BLOCK + 1).sum();
                let ns = seconds * 1e9 / (blocks * n_heads) as f64;
                let ideal = (2 * KV_BLOCK * head_dim) as f64 / 16.0 / 3.5;
                println!("{name} {dtype:?} {what} {context}: {ns:.1} ({:.0}%)", ideal / ns * 100.0);
            }
        }
    }
}

fn measure(rows: usize, context: usize, (h, kv, hd): (usize, usize, usize), dtype: DType) -> f64 {
    let b: &mut dyn Backend =
        &mut Cpu::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
    let floats = |b: &mut dyn Backend, dtype, n: usize| {
        let x: Vec<f32> = (0..n).map(|i| (i * 7919 % 1000) as f32 / 1000.0 - 0.5).collect();
        let buffer = b.alloc(dtype, n).unwrap();
        b.upload_f32(&buffer, &x).unwrap();
        buffer
    };
    let ids = |b: &mut dyn Backend, x: Vec<u32>| {
        let buffer = b.alloc(DType::U32, x.len()).unwrap();
        b.upload_u32(&buffer, &x).unwrap();
        buffer
    };
    let (q, out) = (floats(b, DType::F32, rows * h * hd), floats(b, DType::F32, rows * h * hd));
    let (k, v) = (floats(b, dtype, context * kv * hd), floats(b, dtype, context * kv * hd));
    let max_blocks = context / KV_BLOCK;
    let tables = ids(b, (0..max_blocks as u32).collect());
    let (row_seq, row_begin) = (ids(b, vec![0; rows]), ids(b, vec![0; rows]));
    let row_end = ids(b, (0..rows).map(|row| (context - rows + row + 1) as u32).collect());
    let plan = AttentionPlan {
        tables: &tables,
        max_blocks,
        row_seq: &row_seq,
        row_begin: &row_begin,
        row_end: &row_end,
    };
    let args = Attention {
        q: &q,
        k_cache: &k,
        v_cache: &v,
        plan,
        n_heads: h,
        n_kv_heads: kv,
        head_dim: hd,
        scale: 0.1,
        softcap: None,
        sinks: None,
    };
    let mut calls: Vec<f64> = (0..if rows == 1 { 400 } else { 20 })
        .map(|_| {
            let begin = Instant::now();
            b.attention(&out, &args).unwrap();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    calls.sort_by(f64::total_cmp);
    calls[calls.len() / 10]
}
