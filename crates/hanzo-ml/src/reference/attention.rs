//! Attention by its formula: all scores of a row, softmax, weighted sum of values.

use super::{dot, memory::Memory};
use crate::{
    Result,
    backend::{Attention, Buffer, KV_BLOCK, check::PlanValues},
};

/// The `[T, H, Hd]` results.
pub(super) fn attend(memory: &Memory, out: &Buffer, args: &Attention<'_>) -> Result<Vec<f64>> {
    let dims = args.check(out)?;
    let plan = PlanValues {
        tables: memory.ids(args.plan.tables)?,
        max_blocks: args.plan.max_blocks,
        row_seq: memory.ids(args.plan.row_seq)?,
        row_begin: memory.ids(args.plan.row_begin)?,
        row_end: memory.ids(args.plan.row_end)?,
    };
    plan.check(&dims)?;
    let q = memory.floats(args.q)?;
    let (k, v) = (memory.floats(args.k_cache)?, memory.floats(args.v_cache)?);
    let sinks = args.sinks.map(|s| memory.floats(s)).transpose()?;
    let hd = args.head_dim;
    let mut y = Vec::with_capacity(q.len());
    for (i, q) in q.chunks_exact(hd).enumerate() {
        let (row, head) = (i / args.n_heads, i % args.n_heads);
        let (begin, end) = plan.range(row);
        // Where the key and value of a cache index lie.
        let at = |index: usize| {
            let block = plan.table(row)[index / KV_BLOCK] as usize;
            ((block * args.n_kv_heads + head / dims.group) * KV_BLOCK + index % KV_BLOCK) * hd
        };
        let score = |index: usize| {
            let score = dot(q, &k[at(index)..][..hd]) * f64::from(args.scale);
            match args.softcap.map(f64::from) {
                Some(cap) => cap * (score / cap).tanh(),
                None => score,
            }
        };
        let scores: Vec<f64> = (begin..end).map(score).collect();
        let sink = sinks.map(|s| s[head]);
        let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let denominator: f64 = scores.iter().copied().chain(sink).map(|s| (s - max).exp()).sum();
        let mut sum = vec![0.0; hd];
        for (index, score) in (begin..end).zip(&scores) {
            let p = (score - max).exp() / denominator;
            for (sum, v) in sum.iter_mut().zip(&v[at(index)..][..hd]) {
                *sum += p * v;
            }
        }
        y.extend(sum);
    }
    Ok(y)
}
