//! The definition of every operation: plain loops over f64, one thread, no cleverness.
//!
//! Other backends are measured against this one. Float buffers hold f64 whatever their type; f16, bf16 and
//! q8_0 buffers round what is written to them, f32 buffers do not. Weights are decoded by
//! [`hanzo_quant::Format::decode`], the bit-exact definition of the formats.

mod attention;
mod memory;

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, SQRT_2};

use memory::{Memory, decode_row};

use crate::{
    DType, QTensor, Result,
    backend::{
        Activation, Attention, Backend, Buffer, Embed, GatedActivation, GatherRows, KV_BLOCK, KvAppend,
        MatMul, MoeCombine, MoeMatMul, RmsNorm, Rope, RopeAngles, RopePairing, Route, RouteKind, ScatterRows,
        Weight,
        check::{check_add, check_below, check_copy, check_softcap, check_swap, check_unique},
        slab::Weights,
    },
};

/// The naive f64 backend.
#[derive(Default)]
pub struct Reference {
    memory: Memory,
    weights: Weights,
}

impl Reference {
    /// A backend without memory.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Backend for Reference {
    fn name(&self) -> String {
        "reference (f64)".into()
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        self.memory.alloc(dtype, len)
    }

    fn free(&mut self, buffer: Buffer) {
        self.memory.free(&buffer);
    }

    fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        check_swap(a, b)?;
        self.memory.swap(a, b)
    }

    fn upload_f32(&mut self, dst: &Buffer, data: &[f32]) -> Result<()> {
        check_copy("upload_f32", dst, data.len(), true)?;
        self.memory.write(dst, data.iter().copied().map(f64::from).collect())
    }

    fn upload_u32(&mut self, dst: &Buffer, data: &[u32]) -> Result<()> {
        check_copy("upload_u32", dst, data.len(), false)?;
        self.memory.write_ids(dst, data.to_vec())
    }

    fn download_f32(&mut self, src: &Buffer, out: &mut [f32]) -> Result<()> {
        check_copy("download_f32", src, out.len(), true)?;
        for (o, v) in out.iter_mut().zip(self.memory.floats(src)?) {
            *o = *v as f32;
        }
        Ok(())
    }

    fn download_u32(&mut self, src: &Buffer, out: &mut [u32]) -> Result<()> {
        check_copy("download_u32", src, out.len(), false)?;
        out.copy_from_slice(self.memory.ids(src)?);
        Ok(())
    }

    fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        self.weights.load(tensor)
    }

    fn embed(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let table = self.weights.get(args.table)?;
        let ids = self.memory.ids(args.ids)?;
        check_below("embed", "ids", ids, args.table.n)?;
        let scale = f64::from(args.scale);
        let mut y = Vec::with_capacity(dims.rows * dims.dim);
        for &id in ids {
            y.extend(decode_row(table, id as usize).iter().map(|v| v * scale));
        }
        self.memory.write(out, y)
    }

    fn gather_rows(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (src, rows) = (self.memory.floats(args.src)?, self.memory.ids(args.rows)?);
        check_below("gather_rows", "rows", rows, dims.table_rows)?;
        let y = rows.iter().flat_map(|&r| &src[r as usize * dims.dim..][..dims.dim]).copied().collect();
        self.memory.write(out, y)
    }

    fn scatter_rows(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (src, rows) = (self.memory.floats(args.src)?, self.memory.ids(args.rows)?);
        check_below("scatter_rows", "rows", rows, dims.table_rows)?;
        check_unique("scatter_rows", "rows", rows)?;
        let mut y = self.memory.floats(out)?.to_vec();
        for (i, &row) in rows.iter().enumerate() {
            y[row as usize * dims.dim..][..dims.dim].copy_from_slice(&src[i * dims.dim..][..dims.dim]);
        }
        self.memory.write(out, y)
    }

    fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let weight = self.weights.get(args.weight)?;
        let x = self.memory.floats(args.x)?;
        let bias = args.bias.map(|b| self.memory.floats(b)).transpose()?;
        let mut y = vec![0.0; dims.rows * dims.n];
        for n in 0..dims.n {
            let w = decode_row(weight, n);
            for t in 0..dims.rows {
                y[t * dims.n + n] = dot(&x[t * dims.k..][..dims.k], &w) + bias.map_or(0.0, |b| b[n]);
            }
        }
        self.memory.write(out, y)
    }

    fn add(&mut self, acc: &Buffer, x: &Buffer) -> Result<()> {
        check_add(acc, x)?;
        let (a, b) = (self.memory.floats(acc)?, self.memory.floats(x)?);
        let sum = a.iter().zip(b).map(|(a, b)| a + b).collect();
        self.memory.write(acc, sum)
    }

    fn rms_norm(&mut self, out: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        let dims = args.check("rms_norm", out)?;
        let x = self.memory.floats(args.x)?;
        let weight = args.weight.map(|w| self.memory.floats(w)).transpose()?;
        let mut y = Vec::with_capacity(x.len());
        for row in x.chunks_exact(dims.dim) {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / dims.dim as f64;
            let factor = 1.0 / (mean + f64::from(args.eps)).sqrt();
            y.extend(row.iter().enumerate().map(|(i, v)| v * factor * weight.map_or(1.0, |w| w[i])));
        }
        self.memory.write(out, y)
    }

    fn rope_angles(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (positions, axis) = (self.memory.ids(args.positions)?, self.memory.ids(args.axis)?);
        let inv_freq = self.memory.floats(args.inv_freq)?;
        check_below("rope_angles", "axis", axis, args.n_axes)?;
        let magnitude = f64::from(args.magnitude);
        let mut y = Vec::with_capacity(dims.rows * dims.pairs * 2);
        for position in positions.chunks_exact(args.n_axes) {
            for (freq, &axis) in inv_freq.iter().zip(axis) {
                let angle = f64::from(position[axis as usize]) * freq;
                y.extend([angle.cos() * magnitude, angle.sin() * magnitude]);
            }
        }
        self.memory.write(out, y)
    }

    fn rope(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()> {
        let dims = args.check(x)?;
        let angles = self.memory.floats(args.angles)?;
        let mut y = self.memory.floats(x)?.to_vec();
        for (h, head) in y.chunks_exact_mut(args.head_dim).enumerate() {
            let t = h / args.n_heads;
            for p in 0..dims.pairs {
                let (a, b) = match args.pairing {
                    RopePairing::Half => (p, p + dims.pairs),
                    RopePairing::Adjacent => (2 * p, 2 * p + 1),
                };
                let (cos, sin) = (angles[(t * dims.pairs + p) * 2], angles[(t * dims.pairs + p) * 2 + 1]);
                let (xa, xb) = (head[a], head[b]);
                head[a] = xa * cos - xb * sin;
                head[b] = xa * sin + xb * cos;
            }
        }
        self.memory.write(x, y)
    }

    fn kv_append(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()> {
        let dims = args.check(cache)?;
        let (x, slots) = (self.memory.floats(args.x)?, self.memory.ids(args.slots)?);
        check_below("kv_append", "slots", slots, dims.table_rows * KV_BLOCK)?;
        check_unique("kv_append", "slots", slots)?;
        let mut y = self.memory.floats(cache)?.to_vec();
        let (heads, hd) = (args.n_kv_heads, args.head_dim);
        for (t, &slot) in slots.iter().enumerate() {
            let (block, offset) = (slot as usize / KV_BLOCK, slot as usize % KV_BLOCK);
            for head in 0..heads {
                let to = ((block * heads + head) * KV_BLOCK + offset) * hd;
                y[to..to + hd].copy_from_slice(&x[(t * heads + head) * hd..][..hd]);
            }
        }
        self.memory.write(cache, y)
    }

    fn attention(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()> {
        let y = attention::attend(&self.memory, out, args)?;
        self.memory.write(out, y)
    }

    fn gated_activation(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()> {
        args.check(out)?;
        let (gate, up) = (self.memory.floats(args.gate)?, self.memory.floats(args.up)?);
        let y = gate.iter().zip(up).map(|(&g, &u)| activate(args.activation, g) * u).collect();
        self.memory.write(out, y)
    }

    fn softcap(&mut self, x: &Buffer, cap: f32) -> Result<()> {
        check_softcap(x, cap)?;
        let cap = f64::from(cap);
        let y = self.memory.floats(x)?.iter().map(|v| cap * (v / cap).tanh()).collect();
        self.memory.write(x, y)
    }

    fn route(&mut self, ids: &Buffer, weights: &Buffer, args: &Route<'_>) -> Result<()> {
        let dims = args.check(ids, weights)?;
        let RouteKind::SoftmaxTopK { renormalize } = args.kind;
        let (mut chosen, mut chosen_weights) = (Vec::new(), Vec::new());
        for logits in self.memory.floats(args.logits)?.chunks_exact(dims.dim) {
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = logits.iter().map(|v| (v - max).exp()).sum();
            let mut order: Vec<usize> = (0..dims.dim).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
            order.truncate(args.n_used);
            let p: Vec<f64> = order.iter().map(|&e| (logits[e] - max).exp() / all).collect();
            let sum = if renormalize { p.iter().sum() } else { 1.0 };
            chosen.extend(order.iter().map(|&e| e as u32));
            chosen_weights.extend(p.iter().map(|p| p / sum));
        }
        self.memory.write_ids(ids, chosen)?;
        self.memory.write(weights, chosen_weights)
    }

    fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let weight = self.weights.get(args.weight)?;
        let (x, ids) = (self.memory.floats(args.x)?, self.memory.ids(args.ids)?);
        check_below("moe_matmul", "ids", ids, args.weight.n_experts)?;
        let mut y = Vec::with_capacity(ids.len() * dims.n);
        for (i, &expert) in ids.iter().enumerate() {
            let row = if dims.shared { i / args.n_used } else { i };
            let x = &x[row * dims.k..][..dims.k];
            y.extend((0..dims.n).map(|n| dot(x, &decode_row(weight, expert as usize * dims.n + n))));
        }
        self.memory.write(out, y)
    }

    fn moe_combine(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (y, weights) = (self.memory.floats(args.y)?, self.memory.floats(args.weights)?);
        let mut sum = vec![0.0; dims.rows * dims.dim];
        for (i, w) in weights.iter().enumerate() {
            let token = i / args.n_used;
            for d in 0..dims.dim {
                sum[token * dims.dim + d] += w * y[i * dims.dim + d];
            }
        }
        self.memory.write(out, sum)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluErf => 0.5 * x * (1.0 + erf(x / SQRT_2)),
        // ½(1 + tanh u) = 1 / (1 + e^(−2u)), without the cancellation.
        Activation::GeluTanh => {
            let u = FRAC_2_PI.sqrt() * (x + 0.044_715 * x * x * x);
            x / (1.0 + (-2.0 * u).exp())
        }
    }
}

/// The error function by Kummer's series `2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))` (DLMF 7.6.2), whose terms
/// have one sign; beyond 6 the result is ±1 in f64.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::erf;

    /// Values of DLMF table 7.2 (Abramowitz and Stegun, table 7.1).
    #[test]
    fn erf_equals_the_tables() {
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)]
        {
            assert!((erf(x) - want).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(f64::INFINITY), 1.0);
        assert!(erf(f64::NAN).is_nan());
    }
}
