//! Attention over the paged cache: single rows over a long range, split where that fills the device, or tiles of rows.

use hanzo_kernel::Value;

use crate::{
    DType, Error, Result,
    backend::{Attention, Buffer, KV_BLOCK, check::AttentionDims},
    gpu::{
        backend::{Gpu, stride_groups, word},
        blocks::quants_word,
        launcher::{Which, cache_number},
        runtime::MemoryId,
    },
};

/// Rows up to which each is a workgroup's own.
const DECODE_ROWS_MAX: usize = 16;

/// Head widths that the kernels make room for.
const HEAD_MAX: [usize; 3] = [64, 128, 256];

/// Positions that are worth a workgroup of their own.
const SPLIT_POSITIONS: usize = 256;

/// Parts of a range at most.
const SPLITS_MAX: usize = 64;

/// Rows of a tile of `attention_prefill`, by head width.
fn tile_rows(head_max: usize) -> usize {
    if head_max == 256 { 8 } else { 16 }
}

impl Gpu {
    pub(in crate::gpu) fn attention_to(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()> {
        let op = "attention";
        let dims = args.check(out)?;
        let head_max = HEAD_MAX.into_iter().find(|&max| args.head_dim <= max);
        let head_max = head_max.filter(|_| args.head_dim.is_multiple_of(4)).ok_or_else(|| {
            let hd = args.head_dim;
            Error::op(op, format!("heads of {hd} elements: no kernel for more than 256 or other than fours"))
        })?;
        if args.k_cache.dtype != args.v_cache.dtype {
            return Err(Error::op(op, "keys and values of different types"));
        }
        word(op, out.len.max(args.k_cache.len))?;
        if dims.rows == 0 {
            return Ok(());
        }
        if dims.rows <= DECODE_ROWS_MAX {
            self.attend_rows(out, args, &dims, head_max)
        } else {
            self.attend_tiles(out, args, &dims, head_max)
        }
    }

    fn operands<'a>(args: &Attention<'a>) -> Vec<(&'static str, &'a Buffer)> {
        let mut operands = vec![
            ("q", args.q),
            ("k_cache", args.k_cache),
            ("v_cache", args.v_cache),
            ("block_tables", args.plan.tables),
            ("row_seq", args.plan.row_seq),
            ("row_begin", args.plan.row_begin),
            ("row_end", args.plan.row_end),
        ];
        operands.extend(args.sinks.map(|sinks| ("sinks", sinks)));
        operands
    }

    fn attend_rows(
        &mut self,
        out: &Buffer,
        args: &Attention<'_>,
        dims: &AttentionDims,
        head_max: usize,
    ) -> Result<()> {
        let op = "attention_decode";
        let heads = [8, 4, 2, 1].into_iter().find(|n| dims.group.is_multiple_of(*n)).unwrap_or(1);
        let n_splits = self.n_splits(args, dims.rows * (args.n_heads / heads));
        let is_split = n_splits > 1;
        let mut params = vec![
            word(op, args.n_heads)?,
            word(op, args.n_kv_heads)?,
            word(op, args.head_dim / 4)?,
            word(op, args.plan.max_blocks)?,
            word(op, n_splits)?,
            args.scale.to_bits(),
            args.softcap.unwrap_or(0.0).to_bits(),
        ];
        params.extend(quants_word(op, args.k_cache)?);
        let constants = [
            ("HEAD_MAX", Value::U32(head_max as u32)),
            ("HEADS", Value::U32(heads as u32)),
            ("SPLIT", Value::Bool(is_split)),
            ("SINKS", Value::Bool(args.sinks.is_some() && !is_split)),
            ("SOFTCAP", Value::Bool(args.softcap.is_some())),
        ];
        let which =
            Which { number: Some(cache_number(op, args.k_cache.dtype)?), ..Which::plain(op, &constants) };
        let grid = [word(op, dims.rows)?, word(op, args.n_heads / heads)?, word(op, n_splits)?];
        let mut operands = Self::operands(args);
        if !is_split {
            operands.push(("out", out));
            let places = self.places(&operands)?;
            return self.launch(&which, &places, &params, grid);
        }
        let part = self.scratch(DType::F32, out.len * n_splits)?;
        let stats = self.scratch(DType::F32, dims.rows * args.n_heads * n_splits * 2)?;
        let parts = [("part", part), ("part_stats", stats)];
        let mut places = self.places(&operands)?;
        places.extend(parts);
        self.launch(&which, &places, &params, grid)?;
        self.combine(out, args, parts, n_splits)
    }

    /// Joins the parts of split ranges.
    fn combine(
        &mut self,
        out: &Buffer,
        args: &Attention<'_>,
        parts: [(&'static str, MemoryId); 2],
        n_splits: usize,
    ) -> Result<()> {
        let op = "attention_combine";
        let n = out.len / 4;
        let params =
            [word(op, n)?, word(op, args.n_heads)?, word(op, args.head_dim / 4)?, word(op, n_splits)?];
        let mut buffers = vec![("out", out)];
        buffers.extend(args.sinks.map(|sinks| ("sinks", sinks)));
        let constants = [("SINKS", Value::Bool(args.sinks.is_some()))];
        let mut places = self.places(&buffers)?;
        places.extend(parts);
        self.launch(&Which::plain(op, &constants), &places, &params, [stride_groups(n), 1, 1])
    }

    /// Parts of each row's range: as many as fill the device twice, of at least [`SPLIT_POSITIONS`]. The range itself
    /// is known to the device alone; the table's width bounds it.
    fn n_splits(&self, args: &Attention<'_>, n_workgroups: usize) -> usize {
        let longest = args.plan.max_blocks * KV_BLOCK;
        let wanted = (2 * self.runtime.limits().n_processors as usize).div_ceil(n_workgroups);
        wanted.min(longest.div_ceil(SPLIT_POSITIONS)).clamp(1, SPLITS_MAX)
    }

    fn attend_tiles(
        &mut self,
        out: &Buffer,
        args: &Attention<'_>,
        dims: &AttentionDims,
        head_max: usize,
    ) -> Result<()> {
        let op = "attention_prefill";
        let mut params = vec![
            word(op, dims.rows)?,
            word(op, args.n_heads)?,
            word(op, args.n_kv_heads)?,
            word(op, args.head_dim / 4)?,
            word(op, args.plan.max_blocks)?,
            args.scale.to_bits(),
            args.softcap.unwrap_or(0.0).to_bits(),
        ];
        params.extend(quants_word(op, args.k_cache)?);
        let constants = [
            ("HEAD_MAX", Value::U32(head_max as u32)),
            ("SINKS", Value::Bool(args.sinks.is_some())),
            ("SOFTCAP", Value::Bool(args.softcap.is_some())),
        ];
        let which =
            Which { number: Some(cache_number(op, args.k_cache.dtype)?), ..Which::plain(op, &constants) };
        let mut operands = Self::operands(args);
        operands.push(("out", out));
        let places = self.places(&operands)?;
        let grid = [word(op, dims.rows.div_ceil(tile_rows(head_max)))?, word(op, args.n_heads)?, 1];
        self.launch(&which, &places, &params, grid)
    }
}
