//! Mixture of experts: the router, products with chosen experts, their sum.

use hanzo_kernel::Value;

use super::matmul::{MATVEC_WEIGHT_ROWS, TILE};
use crate::{
    DType, Error, Result,
    backend::{Buffer, MoeCombine, MoeMatMul, Route, RouteKind},
    gpu::{
        backend::{Gpu, row_groups, word},
        launcher::Which,
        runtime::MemoryId,
        weights::Part,
    },
};

/// Experts that the kernels have workgroup memory for.
const EXPERTS_MAX: usize = 1024;

/// Pairs (token, expert) up to which each is a product of its own.
const PAIRS_ALONE_MAX: usize = 64;

impl Gpu {
    pub(in crate::gpu) fn route_to(
        &mut self,
        ids: &Buffer,
        weights: &Buffer,
        args: &Route<'_>,
    ) -> Result<()> {
        let op = "route";
        let dims = args.check(ids, weights)?;
        let RouteKind::SoftmaxTopK { renormalize } = args.kind;
        expect_experts(op, dims.dim)?;
        let params = [word(op, dims.rows)?, word(op, dims.dim)?, word(op, args.n_used)?];
        if dims.rows == 0 {
            return Ok(());
        }
        let constants = [("RENORMALIZE", Value::Bool(renormalize))];
        let places = self.places(&[("logits", args.logits), ("ids", ids), ("weights", weights)])?;
        self.launch(&Which::plain(op, &constants), &places, &params, [row_groups(dims.rows), 1, 1])
    }

    pub(in crate::gpu) fn moe_matmul_to(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        let op = "moe_matmul";
        let dims = args.check(out)?;
        let weight = self.weights.get(args.weight)?;
        let (row_groups, parts) = (weight.row_groups, weight.parts.clone());
        let n_pairs = args.ids.len;
        let x_share = if dims.shared { args.n_used } else { 1 };
        let n = word(op, dims.n)?;
        let words = [row_groups, word(op, dims.k)?, n, word(op, n_pairs)?, word(op, x_share)?];
        word(op, out.len.max(args.x.len))?;
        if n_pairs == 0 {
            return Ok(());
        }
        let format = args.weight.format;
        let x = self.activations(format, args.x)?;
        let mut places = self.places(&[("out", out), ("ids", args.ids)])?;
        places.extend(&x.places);
        let (number, is_int8) = (x.number, x.number.is_none());
        // Each part computes the pairs of its experts.
        let params = |part: &Part| {
            let first = [part.n_blocks].into_iter().chain(words);
            Ok(first.chain([word(op, part.first)?, word(op, part.n)?]).collect::<Vec<u32>>())
        };
        if n_pairs <= PAIRS_ALONE_MAX {
            let constants = [
                ("INT8", Value::Bool(is_int8)),
                ("MOE", Value::Bool(true)),
                ("BIAS", Value::Bool(false)),
                ("COLS", Value::U32(1)),
            ];
            let which = Which { format: Some(format), number, ..Which::plain("qmatvec", &constants) };
            let grid = [word(op, dims.n.div_ceil(MATVEC_WEIGHT_ROWS))?, word(op, n_pairs)?, 1];
            for part in &parts {
                let places = [&places[..], &[("w", part.memory)]].concat();
                self.launch(&which, &places, &params(part)?, grid)?;
            }
        } else {
            let n_tiles = n_pairs.div_ceil(TILE) + args.weight.n_experts;
            let [order, tile_expert] = self.moe_plan(args.ids, args.weight.n_experts, n_tiles)?;
            places.extend([("order", order), ("tile_expert", tile_expert)]);
            let constants = Self::tile_constants(self.tile_core(is_int8), true, false);
            let which = Which { format: Some(format), number, ..Which::plain("qmatmul", &constants) };
            let grid = [word(op, dims.n.div_ceil(TILE))?, word(op, n_tiles)?, 1];
            for part in &parts {
                let places = [&places[..], &[("w", part.memory)]].concat();
                self.launch(&which, &places, &params(part)?, grid)?;
            }
        }
        Ok(())
    }

    /// Pairs in the order of their experts, in tiles of one expert.
    fn moe_plan(&mut self, ids: &Buffer, n_experts: usize, n_tiles: usize) -> Result<[MemoryId; 2]> {
        let op = "moe_plan";
        expect_experts(op, n_experts)?;
        let order = self.scratch(DType::U32, n_tiles * TILE)?;
        let tile_expert = self.scratch(DType::U32, n_tiles)?;
        let params = [word(op, ids.len)?, word(op, n_experts)?, word(op, n_tiles)?];
        let places = [("ids", self.place(ids)?), ("order", order), ("tile_expert", tile_expert)];
        let constants = [("TILE_ROWS", Value::U32(TILE as u32))];
        self.launch(&Which::plain(op, &constants), &places, &params, [1, 1, 1])?;
        Ok([order, tile_expert])
    }

    pub(in crate::gpu) fn moe_combine_to(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()> {
        let op = "moe_combine";
        let dims = args.check(out)?;
        word(op, args.y.len)?;
        let params = [word(op, out.len)?, word(op, dims.dim)?, word(op, args.n_used)?];
        let buffers = [("y", args.y), ("weights", args.weights), ("out", out)];
        self.stride(&Which::plain(op, &[]), &buffers, &params, out.len)
    }
}

fn expect_experts(op: &'static str, n_experts: usize) -> Result<()> {
    if n_experts > EXPERTS_MAX {
        return Err(Error::op(op, format!("{n_experts} experts are more than {EXPERTS_MAX}")));
    }
    Ok(())
}
