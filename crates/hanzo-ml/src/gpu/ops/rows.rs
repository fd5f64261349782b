//! Operations on rows and elements: lookups, norms, rotations, activations, cache writes.

use hanzo_kernel::Value;

use crate::{
    DType, Error, Result,
    backend::{
        Activation, Buffer, Embed, GatedActivation, GatherRows, KvAppend, RmsNorm, Rope, RopeAngles,
        RopeAppend, RopePairing, ScatterRows, Weight,
        check::{check_add, check_softcap},
        definition,
    },
    gpu::{
        backend::{Gpu, row_groups, stride_groups, word},
        blocks::quants_word,
        launcher::{Which, cache_number},
    },
};

/// Elements of a head that `rope_append` has room for.
const HEAD_MAX: usize = 256;

impl Gpu {
    pub(in crate::gpu) fn embed_to(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()> {
        let op = "embed";
        let dims = args.check(out)?;
        let weight = self.weights.get(args.table)?;
        let (row_groups, parts) = (weight.row_groups, weight.parts.clone());
        let n_groups = dims.rows * row_groups as usize;
        let (dim, rows, scale) = (word(op, dims.dim)?, word(op, dims.rows)?, args.scale.to_bits());
        word(op, out.len)?;
        if n_groups == 0 {
            return Ok(());
        }
        let places = self.places(&[("ids", args.ids), ("out", out)])?;
        let which = Which { format: Some(args.table.format), ..Which::plain(op, &[]) };
        // Each part writes the rows that it has.
        for part in &parts {
            let places = [&places[..], &[("w", part.memory)]].concat();
            let (n, first) = (word(op, part.n)?, word(op, part.first)?);
            let params = [part.n_blocks, row_groups, dim, n, rows, scale, first];
            self.launch(&which, &places, &params, [stride_groups(n_groups), 1, 1])?;
        }
        Ok(())
    }

    /// All values of a weight, decoded on the device; `[E, N, K]`.
    ///
    /// # Errors
    /// If the weight is not of this device, or there is no memory for its values.
    pub fn decode(&mut self, weight: &Weight) -> Result<Vec<f32>> {
        self.scoped(|gpu| gpu.decode_to_host(weight))
    }

    fn decode_to_host(&mut self, weight: &Weight) -> Result<Vec<f32>> {
        let op = "dequantize";
        let placed = self.weights.get(weight)?;
        let (row_groups, parts) = (placed.row_groups, placed.parts.clone());
        let rows_each = if weight.n_experts > 1 { weight.n } else { 1 };
        let mut values = Vec::new();
        for part in &parts {
            let rows = part.n * rows_each;
            let (n_groups, len) = (rows * row_groups as usize, rows * weight.k);
            word(op, len)?;
            let params = [part.n_blocks, row_groups, word(op, weight.k)?, word(op, n_groups)?];
            let out = self.scratch(DType::F32, len)?;
            let mut places = self.places(&[])?;
            places.extend([("out", out), ("w", part.memory)]);
            let which = Which { format: Some(weight.format), ..Which::plain(op, &[]) };
            self.launch(&which, &places, &params, [stride_groups(n_groups), 1, 1])?;
            let mut bytes = vec![0; len * size_of::<f32>()];
            self.runtime.download(out, 0, &mut bytes)?;
            values.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
        }
        Ok(values)
    }

    pub(in crate::gpu) fn gather_to(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()> {
        let op = "gather_rows";
        let dims = args.check(out)?;
        let params = [word(op, out.len)?, word(op, dims.dim)?];
        let buffers = [("src", args.src), ("rows", args.rows), ("out", out)];
        self.stride(&Which::plain(op, &[]), &buffers, &params, out.len)
    }

    pub(in crate::gpu) fn scatter_to(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()> {
        let op = "scatter_rows";
        let dims = args.check(out)?;
        let params = [word(op, args.src.len)?, word(op, dims.dim)?];
        let buffers = [("src", args.src), ("rows", args.rows), ("out", out)];
        self.stride(&Which::plain(op, &[]), &buffers, &params, args.src.len)
    }

    pub(in crate::gpu) fn add_to(&mut self, acc: &Buffer, x: &Buffer) -> Result<()> {
        check_add(acc, x)?;
        let params = [word("add", acc.len)?];
        self.stride(&Which::plain("add", &[]), &[("acc", acc), ("x", x)], &params, acc.len)
    }

    /// With `acc`: `acc += x` first, and the norm of that. `for_products`: the signed bytes of the results too, where
    /// products read those.
    pub(in crate::gpu) fn rms_norm_to(
        &mut self,
        out: &Buffer,
        acc: Option<&Buffer>,
        args: &RmsNorm<'_>,
        for_products: bool,
    ) -> Result<()> {
        let op = "rms_norm";
        let dims = match acc {
            Some(acc) => args.check_add(out, acc)?,
            None => args.check(op, out)?,
        };
        let params = [word(op, dims.rows)?, word(op, dims.dim)?, args.eps.to_bits()];
        word(op, out.len)?;
        if dims.rows == 0 {
            return Ok(());
        }
        let mut buffers = vec![("x", args.x), ("out", out)];
        buffers.extend(acc.map(|acc| ("acc", acc)));
        buffers.extend(args.weight.map(|weight| ("weight", weight)));
        let quantises = for_products && self.quantises_rows(dims.dim);
        let constants = [
            ("ADD", Value::Bool(acc.is_some())),
            ("WEIGHT", Value::Bool(args.weight.is_some())),
            ("QUANTIZE", Value::Bool(quantises)),
        ];
        let mut places = self.places(&buffers)?;
        let which = Which::plain(op, &constants);
        let grid = [row_groups(dims.rows), 1, 1];
        if !quantises {
            return self.launch(&which, &places, &params, grid);
        }
        self.quantising(out, |gpu, bytes| {
            places.extend(bytes);
            gpu.launch(&which, &places, &params, grid)
        })
    }

    pub(in crate::gpu) fn rope_append_to(&mut self, q: &Buffer, args: &RopeAppend<'_>) -> Result<()> {
        let op = "rope_append";
        let dims = args.check(q)?;
        let dtype = args.k_cache.dtype;
        let weights = args.norm.map(|norm| norm.q_weight.zip(norm.k_weight));
        let fits = dtype == args.v_cache.dtype
            && args.head_dim.is_multiple_of(4)
            && args.head_dim <= HEAD_MAX
            && weights.is_none_or(|weights| weights.is_some());
        let Some(angles) = args.angles.filter(|_| fits) else {
            return definition::rope_append(self, q, args);
        };
        word(op, q.len.max(args.k_cache.len))?;
        if dims.rows == 0 {
            return Ok(());
        }
        let mut params = vec![
            word(op, dims.rows)?,
            word(op, args.n_heads)?,
            word(op, args.n_kv_heads)?,
            word(op, args.head_dim)?,
            word(op, dims.pairs)?,
            args.norm.map_or(0.0, |norm| norm.eps).to_bits(),
        ];
        params.extend(quants_word(op, args.k_cache)?);
        let constants = [
            ("ADJACENT", Value::Bool(args.pairing == RopePairing::Adjacent)),
            ("NORM", Value::Bool(args.norm.is_some())),
        ];
        let which = Which { number: Some(cache_number(op, dtype)?), ..Which::plain(op, &constants) };
        let mut buffers =
            vec![("q", q), ("k", args.k), ("v", args.v), ("angles", angles), ("slots", args.slots)];
        buffers.extend([("k_cache", args.k_cache), ("v_cache", args.v_cache)]);
        if let Some((q_weight, k_weight)) = weights.flatten() {
            buffers.extend([("q_weight", q_weight), ("k_weight", k_weight)]);
        }
        let places = self.places(&buffers)?;
        let n_heads = args.n_heads.saturating_add(args.n_kv_heads.saturating_mul(2));
        self.launch(&which, &places, &params, [row_groups(dims.rows), word(op, n_heads)?, 1])
    }

    pub(in crate::gpu) fn rope_angles_to(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()> {
        let op = "rope_angles";
        let dims = args.check(out)?;
        let n = dims.rows * dims.pairs;
        let params = [word(op, n)?, word(op, dims.pairs)?, args.n_axes as u32, args.magnitude.to_bits()];
        let buffers =
            [("positions", args.positions), ("inv_freq", args.inv_freq), ("axis", args.axis), ("out", out)];
        self.stride(&Which::plain(op, &[]), &buffers, &params, n)
    }

    pub(in crate::gpu) fn rope_to(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()> {
        let op = "rope";
        let dims = args.check(x)?;
        let n = dims.rows * args.n_heads * dims.pairs;
        word(op, x.len)?;
        let params = [word(op, n)?, word(op, dims.pairs)?, word(op, args.n_heads)?, word(op, args.head_dim)?];
        let constants = [("ADJACENT", Value::Bool(args.pairing == RopePairing::Adjacent))];
        let buffers = [("angles", args.angles), ("x", x)];
        self.stride(&Which::plain(op, &constants), &buffers, &params, n)
    }

    pub(in crate::gpu) fn kv_append_to(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()> {
        let op = "kv_append";
        args.check(cache)?;
        if !args.head_dim.is_multiple_of(4) {
            return Err(Error::op(op, format!("heads of {} elements, not a multiple of 4", args.head_dim)));
        }
        word(op, cache.len)?;
        let n = args.x.len / 4;
        let mut params = vec![word(op, n)?, word(op, args.n_kv_heads)?, word(op, args.head_dim / 4)?];
        params.extend(quants_word(op, cache)?);
        let which = Which { number: Some(cache_number(op, cache.dtype)?), ..Which::plain(op, &[]) };
        self.stride(&which, &[("x", args.x), ("slots", args.slots), ("cache", cache)], &params, n)
    }

    pub(in crate::gpu) fn gated_to(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()> {
        let op = "gated_activation";
        args.check(out)?;
        let word_of = match args.activation {
            Activation::Silu => "silu",
            Activation::GeluErf => "gelu_erf",
            Activation::GeluTanh => "gelu_tanh",
        };
        let params = [word(op, out.len)?];
        let constants = [("ACTIVATION", Value::Word(word_of))];
        let buffers = [("gate", args.gate), ("up", args.up), ("out", out)];
        self.stride(&Which::plain(op, &constants), &buffers, &params, out.len)
    }

    pub(in crate::gpu) fn softcap_to(&mut self, x: &Buffer, cap: f32) -> Result<()> {
        check_softcap(x, cap)?;
        let params = [word("softcap", x.len)?, cap.to_bits()];
        self.stride(&Which::plain("softcap", &[]), &[("x", x)], &params, x.len)
    }
}
