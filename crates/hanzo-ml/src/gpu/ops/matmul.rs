//! Products with weights: few rows by `qmatvec`, many by tiles of `qmatmul`.

use hanzo_kernel::{Number, Value};
use hanzo_quant::Format;

use crate::{
    DType, Result,
    backend::{Buffer, MatMul},
    gpu::{
        backend::{Gpu, Products, word},
        launcher::Which,
        runtime::MemoryId,
        weights::Part,
    },
};

/// Rows up to which a product is a matter of bandwidth, and weights are decoded once for all rows.
const MATVEC_ROWS_MAX: usize = 16;

/// Weight rows of a workgroup of `qmatvec`: 128 threads, 32 to a team, two rows to a team.
pub(super) const MATVEC_WEIGHT_ROWS: usize = 8;

/// Weight rows and columns of a tile of `qmatmul`.
pub(super) const TILE: usize = 64;

/// A product with a matrix, but for its operands.
struct Product {
    format: &'static Format,
    /// The type of activations; `None` for signed bytes.
    number: Option<Number>,
    has_bias: bool,
    /// Groups of 32 of a row.
    row_groups: u32,
    k: usize,
    /// Rows of activations.
    rows: usize,
}

impl Gpu {
    /// The core of a tiled product.
    pub(super) fn tile_core(&self, is_int8: bool) -> &'static str {
        match self.options.products {
            _ if is_int8 => "int8",
            Products::Matrix if self.has_matrices() => "matrix",
            Products::Float | Products::Int8 | Products::Matrix => "fma",
        }
    }

    /// Constants of a tiled product.
    pub(super) fn tile_constants(
        core: &'static str,
        is_moe: bool,
        has_bias: bool,
    ) -> Vec<(&'static str, Value)> {
        let mut constants =
            vec![("CORE", Value::Word(core)), ("MOE", Value::Bool(is_moe)), ("BIAS", Value::Bool(has_bias))];
        if core == "matrix" {
            constants.extend([("TILE", Value::U32(16)), ("SUBGROUP", Value::U32(32))]);
        }
        constants
    }

    pub(in crate::gpu) fn matmul_to(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        let op = "matmul";
        let dims = args.check(out)?;
        let weight = self.weights.get(args.weight)?;
        let (row_groups, parts) = (weight.row_groups, weight.parts.clone());
        word(op, out.len.max(args.x.len))?;
        if dims.rows == 0 {
            return Ok(());
        }
        let x = self.activations(args.weight.format, args.x)?;
        let mut places = self.places(&[])?;
        places.extend(&x.places);
        let product = Product {
            format: args.weight.format,
            number: x.number,
            has_bias: args.bias.is_some(),
            row_groups,
            k: dims.k,
            rows: dims.rows,
        };
        let (out, bias) = (self.place(out)?, args.bias.map(|bias| self.place(bias)).transpose()?);
        if let [part] = &parts[..] {
            places.extend([("out", out), ("w", part.memory)]);
            places.extend(bias.map(|bias| ("bias", bias)));
            self.product(&product, &places, part)?;
        } else {
            for part in &parts {
                self.product_of_part(&product, &places, part, (out, dims.n, bias))?;
            }
        }
        Ok(())
    }

    /// The columns of a product that a part of the weight gives: computed apart, then copied row by row to where they
    /// belong.
    fn product_of_part(
        &mut self,
        product: &Product,
        places: &[(&'static str, MemoryId)],
        part: &Part,
        (out, n_all, bias): (MemoryId, usize, Option<MemoryId>),
    ) -> Result<()> {
        const WORD: usize = size_of::<f32>();
        let from = self.scratch(DType::F32, product.rows * part.n)?;
        let mut places = places.to_vec();
        places.extend([("out", from), ("w", part.memory)]);
        if let Some(bias) = bias {
            let own = self.scratch(DType::F32, part.n)?;
            self.runtime.copy((own, 0), (bias, part.first * WORD), part.n * WORD)?;
            places.push(("bias", own));
        }
        self.product(product, &places, part)?;
        self.forget_quantised_at(out);
        for row in 0..product.rows {
            let to = (row * n_all + part.first) * WORD;
            self.runtime.copy((out, to), (from, row * part.n * WORD), part.n * WORD)?;
        }
        Ok(())
    }

    /// One launch of a product with a part of a weight. `places` name everything that its kernels read and write.
    fn product(&mut self, product: &Product, places: &[(&str, MemoryId)], part: &Part) -> Result<()> {
        let op = "matmul";
        let Product { format, number, has_bias, row_groups, k, rows } = *product;
        let is_int8 = number.is_none();
        let params = [part.n_blocks, row_groups, word(op, k)?, word(op, part.n)?, word(op, rows)?, 1];
        if rows <= MATVEC_ROWS_MAX {
            let cols = match (rows, is_int8) {
                (1, _) => 1,
                (2, true) => 2,
                (3..=4, _) | (_, false) => 4,
                _ => 8,
            };
            let constants = [
                ("INT8", Value::Bool(is_int8)),
                ("MOE", Value::Bool(false)),
                ("BIAS", Value::Bool(has_bias)),
                ("COLS", Value::U32(cols)),
            ];
            let which = Which { format: Some(format), number, ..Which::plain("qmatvec", &constants) };
            let grid =
                [word(op, part.n.div_ceil(MATVEC_WEIGHT_ROWS))?, word(op, rows.div_ceil(cols as usize))?, 1];
            self.launch(&which, places, &params, grid)
        } else {
            let constants = Self::tile_constants(self.tile_core(is_int8), false, has_bias);
            let which = Which { format: Some(format), number, ..Which::plain("qmatmul", &constants) };
            let grid = [word(op, part.n.div_ceil(TILE))?, word(op, rows.div_ceil(TILE))?, 1];
            self.launch(&which, places, &params, grid)
        }
    }
}
