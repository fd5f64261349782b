//! The checks that the operands of an operation fit together, one per argument struct, for every backend.
//!
//! A check looks at lengths, types and handles only and gives the sizes that follow from them; all arithmetic is
//! checked, so it holds for any combination of lengths. What lies *inside* index buffers is checked by the
//! backends that can see it, with the `check_*` functions at the end of this file.

use super::{
    Attention, Buffer, Embed, GatedActivation, GatherRows, KV_BLOCK, KvAppend, MatMul, MoeCombine, MoeMatMul,
    RmsNorm, Rope, RopeAngles, RopeAppend, Route, ScatterRows, Weight,
};
use crate::{DType, Error, Result};

/// Rows and elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowDims {
    pub rows: usize,
    pub dim: usize,
}

/// Sizes of a gather or scatter: `rows` rows of `dim` elements move from or to a table of `table_rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoveDims {
    pub rows: usize,
    pub dim: usize,
    pub table_rows: usize,
}

/// Sizes of a product: `[rows, k] · [n, k]ᵀ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatDims {
    pub rows: usize,
    pub n: usize,
    pub k: usize,
}

/// Sizes of a product with chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MoeDims {
    pub tokens: usize,
    pub n: usize,
    pub k: usize,
    /// Whether the experts of a token share one row of `x`.
    pub shared: bool,
}

/// Sizes of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RopeDims {
    pub rows: usize,
    pub pairs: usize,
}

/// Sizes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttentionDims {
    pub rows: usize,
    /// Query heads that share a key/value head.
    pub group: usize,
    /// Blocks of the caches.
    pub n_blocks: usize,
    /// Rows of the block tables.
    pub n_seqs: usize,
}

fn product(op: &'static str, factors: &[usize]) -> Result<usize> {
    factors
        .iter()
        .try_fold(1usize, |all, &f| all.checked_mul(f))
        .ok_or_else(|| Error::op(op, format!("{factors:?} elements are more than can be addressed")))
}

fn expect_len(op: &'static str, name: &str, buffer: &Buffer, factors: &[usize]) -> Result<()> {
    if buffer.len != product(op, factors)? {
        return Err(Error::op(op, format!("{name} has {} elements instead of {factors:?}", buffer.len)));
    }
    Ok(())
}

fn expect_type(op: &'static str, name: &str, buffer: &Buffer, dtype: DType) -> Result<()> {
    if buffer.dtype != dtype {
        return Err(Error::op(op, format!("{name} is {:?} instead of {dtype:?}", buffer.dtype)));
    }
    Ok(())
}

fn expect_float(op: &'static str, name: &str, buffer: &Buffer) -> Result<()> {
    if buffer.dtype == DType::U32 {
        return Err(Error::op(op, format!("{name} is U32 instead of a float type")));
    }
    Ok(())
}

/// Each head of a cache holds whole blocks of the cache's type.
fn expect_whole_heads(op: &'static str, name: &str, cache: &Buffer, head_dim: usize) -> Result<()> {
    expect_float(op, name, cache)?;
    let elems = cache.dtype.block_elems();
    if !head_dim.is_multiple_of(elems) {
        let dtype = cache.dtype;
        return Err(Error::op(
            op,
            format!("{name} is {dtype:?}: a head of {head_dim} is not blocks of {elems}"),
        ));
    }
    Ok(())
}

fn expect_distinct(op: &'static str, buffers: &[&Buffer]) -> Result<()> {
    for (i, a) in buffers.iter().enumerate() {
        if buffers[..i].iter().any(|b| a.id == b.id) {
            return Err(Error::op(op, format!("two operands are the same buffer {}", a.id)));
        }
    }
    Ok(())
}

fn expect_nonzero(op: &'static str, name: &str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(Error::op(op, format!("{name} is zero")));
    }
    Ok(())
}

/// How many rows of `dim` elements the buffer holds.
fn rows_of(op: &'static str, name: &str, buffer: &Buffer, dim: usize) -> Result<usize> {
    if dim == 0 || !buffer.len.is_multiple_of(dim) {
        return Err(Error::op(op, format!("{name} has {} elements, not rows of {dim}", buffer.len)));
    }
    Ok(buffer.len / dim)
}

fn expect_cap(op: &'static str, cap: f32) -> Result<()> {
    if cap > 0.0 && cap.is_finite() {
        return Ok(());
    }
    Err(Error::op(op, format!("softcap is {cap}, not a positive number")))
}

fn expect_dense(op: &'static str, weight: &Weight) -> Result<()> {
    if weight.n_experts != 1 {
        return Err(Error::op(op, format!("weight has {} experts instead of 1", weight.n_experts)));
    }
    Ok(())
}

impl Embed<'_> {
    /// Rows are tokens.
    pub(crate) fn check(&self, out: &Buffer) -> Result<RowDims> {
        let op = "embed";
        expect_type(op, "ids", self.ids, DType::U32)?;
        expect_type(op, "out", out, DType::F32)?;
        expect_dense(op, self.table)?;
        expect_distinct(op, &[out, self.ids])?;
        expect_len(op, "out", out, &[self.ids.len, self.table.k])?;
        Ok(RowDims { rows: self.ids.len, dim: self.table.k })
    }
}

/// The shared part of gather and scatter: `moved` has one row of elements per index, `table` whole rows.
fn check_move(op: &'static str, moved: &Buffer, rows: &Buffer, table: &Buffer) -> Result<MoveDims> {
    expect_type(op, "rows", rows, DType::U32)?;
    expect_type(op, "src", moved, DType::F32)?;
    expect_type(op, "out", table, DType::F32)?;
    expect_distinct(op, &[moved, rows, table])?;
    if rows.len == 0 {
        expect_len(op, "rows", moved, &[0])?;
        return Ok(MoveDims { rows: 0, dim: 0, table_rows: 0 });
    }
    let dim = moved.len / rows.len;
    expect_nonzero(op, "row length", dim)?;
    expect_len(op, "moved rows", moved, &[rows.len, dim])?;
    let table_rows = rows_of(op, "table of rows", table, dim)?;
    Ok(MoveDims { rows: rows.len, dim, table_rows })
}

impl GatherRows<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<MoveDims> {
        check_move("gather_rows", out, self.rows, self.src)
    }
}

impl ScatterRows<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<MoveDims> {
        check_move("scatter_rows", self.src, self.rows, out)
    }
}

impl MatMul<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<MatDims> {
        let op = "matmul";
        let Weight { n, k, .. } = *self.weight;
        expect_type(op, "x", self.x, DType::F32)?;
        expect_type(op, "out", out, DType::F32)?;
        expect_dense(op, self.weight)?;
        let rows = rows_of(op, "x", self.x, k)?;
        expect_len(op, "out", out, &[rows, n])?;
        if let Some(bias) = self.bias {
            expect_type(op, "bias", bias, DType::F32)?;
            expect_len(op, "bias", bias, &[n])?;
            expect_distinct(op, &[out, self.x, bias])?;
        }
        expect_distinct(op, &[out, self.x])?;
        Ok(MatDims { rows, n, k })
    }
}

/// Operands of [`super::Backend::add`].
pub(crate) fn check_add(acc: &Buffer, x: &Buffer) -> Result<()> {
    let op = "add";
    expect_type(op, "acc", acc, DType::F32)?;
    expect_type(op, "x", x, DType::F32)?;
    expect_len(op, "x", x, &[acc.len])?;
    expect_distinct(op, &[acc, x])
}

impl RmsNorm<'_> {
    pub(crate) fn check(&self, op: &'static str, out: &Buffer) -> Result<RowDims> {
        expect_type(op, "x", self.x, DType::F32)?;
        expect_type(op, "out", out, DType::F32)?;
        let rows = rows_of(op, "x", self.x, self.dim)?;
        expect_len(op, "out", out, &[rows, self.dim])?;
        if let Some(weight) = self.weight {
            expect_type(op, "weight", weight, DType::F32)?;
            expect_len(op, "weight", weight, &[self.dim])?;
            expect_distinct(op, &[out, self.x, weight])?;
        }
        expect_distinct(op, &[out, self.x])?;
        Ok(RowDims { rows, dim: self.dim })
    }

    /// The same with the residual stream `acc`.
    pub(crate) fn check_add(&self, out: &Buffer, acc: &Buffer) -> Result<RowDims> {
        let op = "add_rms_norm";
        let dims = self.check(op, out)?;
        expect_type(op, "acc", acc, DType::F32)?;
        expect_len(op, "acc", acc, &[dims.rows, dims.dim])?;
        expect_distinct(op, &[out, acc, self.x])?;
        if let Some(weight) = self.weight {
            expect_distinct(op, &[acc, weight])?;
        }
        Ok(dims)
    }
}

impl RopeAngles<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<RopeDims> {
        let op = "rope_angles";
        expect_type(op, "positions", self.positions, DType::U32)?;
        expect_type(op, "inv_freq", self.inv_freq, DType::F32)?;
        expect_type(op, "axis", self.axis, DType::U32)?;
        expect_type(op, "out", out, DType::F32)?;
        if !(1..=3).contains(&self.n_axes) {
            return Err(Error::op(op, format!("n_axes is {}, not 1 to 3", self.n_axes)));
        }
        let rows = rows_of(op, "positions", self.positions, self.n_axes)?;
        let pairs = self.inv_freq.len;
        expect_len(op, "axis", self.axis, &[pairs])?;
        expect_len(op, "out", out, &[rows, pairs, 2])?;
        expect_distinct(op, &[out, self.positions, self.inv_freq, self.axis])?;
        Ok(RopeDims { rows, pairs })
    }
}

impl Rope<'_> {
    pub(crate) fn check(&self, x: &Buffer) -> Result<RopeDims> {
        let op = "rope";
        expect_type(op, "x", x, DType::F32)?;
        expect_type(op, "angles", self.angles, DType::F32)?;
        let rows = rows_of(op, "x", x, product(op, &[self.n_heads, self.head_dim])?)?;
        let pairs = self.angles.len.checked_div(rows).unwrap_or(0) / 2;
        expect_len(op, "angles", self.angles, &[rows, pairs, 2])?;
        if pairs > self.head_dim / 2 {
            return Err(Error::op(op, format!("{pairs} pairs do not fit a head of {}", self.head_dim)));
        }
        expect_distinct(op, &[x, self.angles])?;
        Ok(RopeDims { rows, pairs })
    }
}

impl KvAppend<'_> {
    /// Table rows are the blocks of the cache; `dim` is a row of `x`.
    pub(crate) fn check(&self, cache: &Buffer) -> Result<MoveDims> {
        let op = "kv_append";
        expect_type(op, "x", self.x, DType::F32)?;
        expect_type(op, "slots", self.slots, DType::U32)?;
        expect_whole_heads(op, "cache", cache, self.head_dim)?;
        let dim = product(op, &[self.n_kv_heads, self.head_dim])?;
        let table_rows = rows_of(op, "cache", cache, product(op, &[dim, KV_BLOCK])?)?;
        expect_len(op, "x", self.x, &[self.slots.len, dim])?;
        expect_distinct(op, &[cache, self.x, self.slots])?;
        Ok(MoveDims { rows: self.slots.len, dim, table_rows })
    }
}

impl<'a> RopeAppend<'a> {
    /// The rotation of q or k; nothing without angles.
    pub(crate) fn rope(&self, n_heads: usize) -> Option<Rope<'a>> {
        let (head_dim, pairing) = (self.head_dim, self.pairing);
        self.angles.map(|angles| Rope { angles, n_heads, head_dim, pairing })
    }

    /// The cache write of k or v.
    pub(crate) fn append(&self, x: &'a Buffer) -> KvAppend<'a> {
        KvAppend { x, slots: self.slots, n_kv_heads: self.n_kv_heads, head_dim: self.head_dim }
    }

    /// Rows, and pairs of a head (0 without a rotation).
    pub(crate) fn check(&self, q: &Buffer) -> Result<RopeDims> {
        let op = "rope_append";
        self.append(self.k).check(self.k_cache)?;
        self.append(self.v).check(self.v_cache)?;
        let rows = self.slots.len;
        expect_type(op, "q", q, DType::F32)?;
        expect_len(op, "q", q, &[rows, self.n_heads, self.head_dim])?;
        let mut operands = vec![q, self.k, self.v, self.slots, self.k_cache, self.v_cache];
        let mut pairs = 0;
        if let (Some(of_q), Some(of_k)) = (self.rope(self.n_heads), self.rope(self.n_kv_heads)) {
            pairs = of_q.check(q)?.pairs;
            of_k.check(self.k)?;
            operands.push(of_q.angles);
        }
        let norm = self.norm.as_ref();
        for weight in norm.iter().flat_map(|norm| [norm.q_weight, norm.k_weight]).flatten() {
            expect_type(op, "norm weight", weight, DType::F32)?;
            expect_len(op, "norm weight", weight, &[self.head_dim])?;
            operands.push(weight);
        }
        expect_distinct(op, &operands)?;
        Ok(RopeDims { rows, pairs })
    }
}

/// Operands of [`super::Backend::swap`].
pub(crate) fn check_swap(a: &Buffer, b: &Buffer) -> Result<()> {
    expect_type("swap", "b", b, a.dtype)?;
    expect_len("swap", "b", b, &[a.len])?;
    expect_distinct("swap", &[a, b])
}

impl Attention<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<AttentionDims> {
        let op = "attention";
        let (h, kv, hd) = (self.n_heads, self.n_kv_heads, self.head_dim);
        let plan = &self.plan;
        for (name, b, dtype) in [
            ("q", self.q, DType::F32),
            ("out", out, DType::F32),
            ("tables", plan.tables, DType::U32),
            ("row_seq", plan.row_seq, DType::U32),
            ("row_begin", plan.row_begin, DType::U32),
            ("row_end", plan.row_end, DType::U32),
        ] {
            expect_type(op, name, b, dtype)?;
        }
        expect_whole_heads(op, "k_cache", self.k_cache, hd)?;
        expect_whole_heads(op, "v_cache", self.v_cache, hd)?;
        if kv == 0 || h == 0 || !h.is_multiple_of(kv) {
            return Err(Error::op(op, format!("{h} heads are not a multiple of {kv} key/value heads")));
        }
        let rows = rows_of(op, "q", self.q, product(op, &[h, hd])?)?;
        expect_len(op, "out", out, &[rows, h, hd])?;
        let n_blocks = rows_of(op, "k_cache", self.k_cache, product(op, &[kv, KV_BLOCK, hd])?)?;
        expect_len(op, "v_cache", self.v_cache, &[n_blocks, kv, KV_BLOCK, hd])?;
        let n_seqs =
            if plan.tables.len == 0 { 0 } else { rows_of(op, "tables", plan.tables, plan.max_blocks)? };
        expect_len(op, "row_seq", plan.row_seq, &[rows])?;
        expect_len(op, "row_begin", plan.row_begin, &[rows])?;
        expect_len(op, "row_end", plan.row_end, &[rows])?;
        if let Some(cap) = self.softcap {
            expect_cap(op, cap)?;
        }
        let mut operands = vec![
            out,
            self.q,
            self.k_cache,
            self.v_cache,
            plan.tables,
            plan.row_seq,
            plan.row_begin,
            plan.row_end,
        ];
        if let Some(sinks) = self.sinks {
            expect_type(op, "sinks", sinks, DType::F32)?;
            expect_len(op, "sinks", sinks, &[h])?;
            operands.push(sinks);
        }
        expect_distinct(op, &operands)?;
        Ok(AttentionDims { rows, group: h / kv, n_blocks, n_seqs })
    }
}

impl GatedActivation<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<()> {
        let op = "gated_activation";
        for (name, b) in [("gate", self.gate), ("up", self.up), ("out", out)] {
            expect_type(op, name, b, DType::F32)?;
            expect_len(op, name, b, &[out.len])?;
        }
        expect_distinct(op, &[out, self.gate, self.up])
    }
}

/// Operands of [`super::Backend::softcap`].
pub(crate) fn check_softcap(x: &Buffer, cap: f32) -> Result<()> {
    expect_type("softcap", "x", x, DType::F32)?;
    expect_cap("softcap", cap)
}

impl Route<'_> {
    /// Rows are tokens, `dim` is E.
    pub(crate) fn check(&self, ids: &Buffer, weights: &Buffer) -> Result<RowDims> {
        let op = "route";
        expect_type(op, "logits", self.logits, DType::F32)?;
        expect_type(op, "ids", ids, DType::U32)?;
        expect_type(op, "weights", weights, DType::F32)?;
        let rows = rows_of(op, "logits", self.logits, self.n_experts)?;
        if self.n_used == 0 || self.n_used > self.n_experts {
            return Err(Error::op(op, format!("n_used is {}, not 1 to {}", self.n_used, self.n_experts)));
        }
        expect_len(op, "ids", ids, &[rows, self.n_used])?;
        expect_len(op, "weights", weights, &[rows, self.n_used])?;
        expect_distinct(op, &[ids, weights, self.logits])?;
        Ok(RowDims { rows, dim: self.n_experts })
    }
}

impl MoeMatMul<'_> {
    pub(crate) fn check(&self, out: &Buffer) -> Result<MoeDims> {
        let op = "moe_matmul";
        let Weight { n, k, .. } = *self.weight;
        expect_type(op, "x", self.x, DType::F32)?;
        expect_type(op, "ids", self.ids, DType::U32)?;
        expect_type(op, "out", out, DType::F32)?;
        let tokens = rows_of(op, "ids", self.ids, self.n_used)?;
        expect_len(op, "out", out, &[tokens, self.n_used, n])?;
        let shared = self.x.len == product(op, &[tokens, k])?;
        if !shared {
            expect_len(op, "x", self.x, &[tokens, self.n_used, k])?;
        }
        expect_distinct(op, &[out, self.x, self.ids])?;
        Ok(MoeDims { tokens, n, k, shared })
    }
}

impl MoeCombine<'_> {
    /// Rows are tokens, `dim` is D.
    pub(crate) fn check(&self, out: &Buffer) -> Result<RowDims> {
        let op = "moe_combine";
        for (name, b) in [("y", self.y), ("weights", self.weights), ("out", out)] {
            expect_type(op, name, b, DType::F32)?;
        }
        let rows = rows_of(op, "weights", self.weights, self.n_used)?;
        let dim = out.len.checked_div(rows).unwrap_or(0);
        expect_len(op, "out", out, &[rows, dim])?;
        expect_len(op, "y", self.y, &[rows, self.n_used, dim])?;
        expect_distinct(op, &[out, self.y, self.weights])?;
        Ok(RowDims { rows, dim })
    }
}

/// The data of an upload or download has the buffer's length.
pub(crate) fn check_copy(op: &'static str, buffer: &Buffer, len: usize, float: bool) -> Result<()> {
    if float {
        expect_float(op, "buffer", buffer)?;
    } else {
        expect_type(op, "buffer", buffer, DType::U32)?;
    }
    if buffer.len != len {
        return Err(Error::op(op, format!("{len} elements for a buffer of {}", buffer.len)));
    }
    Ok(())
}

/// Every value of an index buffer lies below `limit`.
pub(crate) fn check_below(op: &'static str, name: &str, values: &[u32], limit: usize) -> Result<()> {
    match values.iter().enumerate().find(|&(_, &v)| v as usize >= limit) {
        Some((i, v)) => Err(Error::op(op, format!("{name}[{i}] is {v}, not below {limit}"))),
        None => Ok(()),
    }
}

/// No value of an index buffer occurs twice.
pub(crate) fn check_unique(op: &'static str, name: &str, values: &[u32]) -> Result<()> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|w| w[0] == w[1]) {
        Some(w) => Err(Error::op(op, format!("{name} holds {} twice", w[0]))),
        None => Ok(()),
    }
}

/// The values of an [`super::AttentionPlan`].
#[derive(Clone, Copy)]
pub(crate) struct PlanValues<'a> {
    pub tables: &'a [u32],
    pub max_blocks: usize,
    pub row_seq: &'a [u32],
    pub row_begin: &'a [u32],
    pub row_end: &'a [u32],
}

impl<'a> PlanValues<'a> {
    /// Every row has a range that is not empty, in blocks that exist.
    pub(crate) fn check(&self, dims: &AttentionDims) -> Result<()> {
        let op = "attention";
        check_below(op, "row_seq", self.row_seq, dims.n_seqs)?;
        for row in 0..dims.rows {
            let (begin, end) = (self.row_begin[row] as usize, self.row_end[row] as usize);
            if begin >= end || end.div_ceil(KV_BLOCK) > self.max_blocks {
                let what = format!("row {row} sees {begin}..{end} of {} blocks", self.max_blocks);
                return Err(Error::op(op, what));
            }
            let blocks = &self.table(row)[begin / KV_BLOCK..end.div_ceil(KV_BLOCK)];
            check_below(op, "tables", blocks, dims.n_blocks)?;
        }
        Ok(())
    }

    /// The block table of a batch row.
    pub(crate) fn table(&self, row: usize) -> &'a [u32] {
        let seq = self.row_seq[row] as usize;
        &self.tables[seq * self.max_blocks..][..self.max_blocks]
    }

    /// First and one past the last cache index that a batch row sees.
    pub(crate) fn range(&self, row: usize) -> (usize, usize) {
        (self.row_begin[row] as usize, self.row_end[row] as usize)
    }
}
