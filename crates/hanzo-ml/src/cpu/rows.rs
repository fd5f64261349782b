//! Operations on rows and single elements: norms, rotations, activations, the router, copies by index.

use half::{
    bf16, f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};

use super::{
    Cpu,
    math::{Map, Map2, fill, gelu_erf, gelu_tanh, map_in_place, silu, tanh, zip},
    memory::{Cells, encode_blocks},
    simd::{Kernel, LANES, Simd},
};
use crate::{
    DType, Result,
    backend::{
        Activation, Buffer, GatedActivation, GatherRows, KV_BLOCK, KvAppend, MoeCombine, RmsNorm, Rope,
        RopeAngles, RopePairing, Route, RouteKind, ScatterRows,
        check::{check_add, check_below, check_softcap, check_unique},
    },
    parallel::Grid,
};

/// Elements that one thread takes at a time; fewer are not worth waking another.
const CHUNK: usize = 16 * 1024;

/// Whole rows of about [`CHUNK`] elements.
fn by_rows(rows: usize, dim: usize) -> Grid {
    Grid { rows, cols: dim, tile_rows: (CHUNK / dim.max(1)).max(1), tile_cols: dim.max(1) }
}

/// `out = x / sqrt(mean(x²) + eps) · weight` of one row.
struct NormRow<'a> {
    out: &'a mut [f32],
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    eps: f32,
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Four chains of eight lanes; the order of additions depends on the row's length alone.
        let mut acc = [s.splat(0.0); 4];
        let (chunks, tail) = self.x.as_chunks::<LANES>();
        let (fours, rest) = chunks.as_chunks::<4>();
        for four in fours {
            for (acc, x) in acc.iter_mut().zip(four) {
                let x = s.load(x);
                *acc = s.fma(x, x, *acc);
            }
        }
        for x in rest {
            let x = s.load(x);
            acc[0] = s.fma(x, x, acc[0]);
        }
        if !tail.is_empty() {
            let x = s.load(&fill(tail));
            acc[0] = s.fma(x, x, acc[0]);
        }
        let sum = s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3])));
        let factor = 1.0 / (sum / self.x.len() as f32 + self.eps).sqrt();
        match self.weight {
            Some(weight) => zip(s, self.out, self.x, weight, &ScaledProduct(factor)),
            None => zip(s, self.out, self.x, self.x, &Scaled(factor)),
        }
    }
}

/// `a · factor · b`.
struct ScaledProduct(f32);

impl Map2 for ScaledProduct {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, a: S::V, b: S::V) -> S::V {
        s.mul(s.mul(a, s.splat(self.0)), b)
    }
}

/// `a · factor`.
struct Scaled(f32);

impl Map2 for Scaled {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, a: S::V, _: S::V) -> S::V {
        s.mul(a, s.splat(self.0))
    }
}

/// `out = activation(gate) · up`.
struct Gate<'a> {
    out: &'a mut [f32],
    gate: &'a [f32],
    up: &'a [f32],
    activation: Activation,
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.activation {
            Activation::Silu => zip(s, self.out, self.gate, self.up, &SiluGate),
            Activation::GeluErf => zip(s, self.out, self.gate, self.up, &GeluErfGate),
            Activation::GeluTanh => zip(s, self.out, self.gate, self.up, &GeluTanhGate),
        }
    }
}

struct SiluGate;

impl Map2 for SiluGate {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, gate: S::V, up: S::V) -> S::V {
        s.mul(silu(s, gate), up)
    }
}

struct GeluErfGate;

impl Map2 for GeluErfGate {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, gate: S::V, up: S::V) -> S::V {
        s.mul(gelu_erf(s, gate), up)
    }
}

struct GeluTanhGate;

impl Map2 for GeluTanhGate {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, gate: S::V, up: S::V) -> S::V {
        s.mul(gelu_tanh(s, gate), up)
    }
}

/// `x = cap · tanh(x / cap)`.
struct Cap<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Kernel for Cap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_in_place(s, self.x, &SoftCap(self.cap));
    }
}

/// `cap · tanh(x / cap)`.
struct SoftCap(f32);

impl Map for SoftCap {
    #[inline(always)]
    fn map<S: Simd>(&self, s: S, x: S::V) -> S::V {
        let cap = s.splat(self.0);
        s.mul(cap, tanh(s, s.div(x, cap)))
    }
}

/// The chosen experts of one token and their weights.
fn route_row(logits: &[f32], kind: RouteKind, ids: &mut [u32], weights: &mut [f32]) {
    let RouteKind::SoftmaxTopK { renormalize } = kind;
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let logit = |e: u32| logits[e as usize];
    order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
    let max = order.first().map_or(0.0, |&e| logit(e));
    for ((id, weight), &expert) in ids.iter_mut().zip(&mut *weights).zip(&order) {
        *id = expert;
        *weight = (logit(expert) - max).exp();
    }
    let sum: f32 =
        if renormalize { weights.iter().sum() } else { order.iter().map(|&e| (logit(e) - max).exp()).sum() };
    weights.iter_mut().for_each(|w| *w /= sum);
}

/// Rotates the first pairs of each head of a row; `angles` holds a cosine and a sine of each.
struct Rotate<'a> {
    row: &'a mut [f32],
    head_dim: usize,
    angles: &'a [f32],
    pairing: RopePairing,
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for head in self.row.chunks_exact_mut(self.head_dim) {
            rotate(&mut head[..self.angles.len()], self.angles, self.pairing);
        }
    }
}

/// Plain loops, which become vectors of whatever the level has.
#[inline(always)]
fn rotate(head: &mut [f32], angles: &[f32], pairing: RopePairing) {
    let (angles, _) = angles.as_chunks::<2>();
    match pairing {
        RopePairing::Half => {
            let (a, b) = head.split_at_mut(angles.len());
            for ((a, b), [cos, sin]) in a.iter_mut().zip(b).zip(angles) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
        RopePairing::Adjacent => {
            for ([a, b], [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

impl Cpu {
    pub(super) fn gather_to(&self, out: &Buffer, y: &mut [f32], args: &GatherRows<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (src, rows) = (self.memory.f32(args.src)?, self.memory.u32(args.rows)?);
        check_below("gather_rows", "rows", rows, dims.table_rows)?;
        for (i, &row) in rows.iter().enumerate() {
            y[i * dims.dim..][..dims.dim].copy_from_slice(&src[row as usize * dims.dim..][..dims.dim]);
        }
        Ok(())
    }

    pub(super) fn scatter_to(&self, out: &Buffer, y: &mut [f32], args: &ScatterRows<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (src, rows) = (self.memory.f32(args.src)?, self.memory.u32(args.rows)?);
        check_below("scatter_rows", "rows", rows, dims.table_rows)?;
        check_unique("scatter_rows", "rows", rows)?;
        for (i, &row) in rows.iter().enumerate() {
            y[row as usize * dims.dim..][..dims.dim].copy_from_slice(&src[i * dims.dim..][..dims.dim]);
        }
        Ok(())
    }

    pub(super) fn add_to(&self, acc: &Buffer, y: &mut [f32], x: &Buffer) -> Result<()> {
        check_add(acc, x)?;
        let x = self.memory.f32(x)?;
        let grid = Grid::line(y.len(), CHUNK);
        self.parallel.for_each_tile(
            y,
            grid,
            || (),
            |mut tile, ()| {
                let cols = tile.cols();
                tile.row(0).iter_mut().zip(&x[cols]).for_each(|(y, x)| *y += x);
            },
        );
        Ok(())
    }

    pub(super) fn rms_norm_to(&self, out: &Buffer, y: &mut [f32], args: &RmsNorm<'_>) -> Result<()> {
        let dims = args.check("rms_norm", out)?;
        let x = self.memory.f32(args.x)?;
        let weight = args.weight.map(|w| self.memory.f32(w)).transpose()?;
        self.parallel.for_each_tile(
            y,
            by_rows(dims.rows, dims.dim),
            || (),
            |mut tile, ()| {
                for row in tile.rows() {
                    let x = &x[row * dims.dim..][..dims.dim];
                    self.level.run(NormRow { out: tile.row(row), x, weight, eps: args.eps });
                }
            },
        );
        Ok(())
    }

    pub(super) fn rope_angles_to(&self, out: &Buffer, y: &mut [f32], args: &RopeAngles<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (positions, axis) = (self.memory.u32(args.positions)?, self.memory.u32(args.axis)?);
        let inv_freq = self.memory.f32(args.inv_freq)?;
        check_below("rope_angles", "axis", axis, args.n_axes)?;
        let magnitude = f64::from(args.magnitude);
        self.parallel.for_each_tile(
            y,
            Grid { tile_rows: 16, ..by_rows(dims.rows, dims.pairs * 2) },
            || (),
            |mut tile, ()| {
                for row in tile.rows() {
                    let position = &positions[row * args.n_axes..][..args.n_axes];
                    let out = tile.row(row).as_chunks_mut::<2>().0;
                    for ((out, &freq), &axis) in out.iter_mut().zip(inv_freq).zip(axis) {
                        let (sin, cos) = (f64::from(position[axis as usize]) * f64::from(freq)).sin_cos();
                        *out = [(cos * magnitude) as f32, (sin * magnitude) as f32];
                    }
                }
            },
        );
        Ok(())
    }

    pub(super) fn rope_to(&self, x: &Buffer, y: &mut [f32], args: &Rope<'_>) -> Result<()> {
        let dims = args.check(x)?;
        let angles = self.memory.f32(args.angles)?;
        let width = dims.pairs * 2;
        self.parallel.for_each_tile(
            y,
            by_rows(dims.rows, args.n_heads * args.head_dim),
            || (),
            |mut tile, ()| {
                for row in tile.rows() {
                    let angles = &angles[row * width..][..width];
                    let (head_dim, pairing) = (args.head_dim, args.pairing);
                    self.level.run(Rotate { row: tile.row(row), head_dim, angles, pairing });
                }
            },
        );
        Ok(())
    }

    pub(super) fn kv_append_to(&self, cache: &Buffer, y: &mut Cells, args: &KvAppend<'_>) -> Result<()> {
        let dims = args.check(cache)?;
        let (x, slots) = (self.memory.f32(args.x)?, self.memory.u32(args.slots)?);
        check_below("kv_append", "slots", slots, dims.table_rows.saturating_mul(KV_BLOCK))?;
        check_unique("kv_append", "slots", slots)?;
        let (heads, hd) = (args.n_kv_heads, args.head_dim);
        // Bytes of so many elements; the check found heads of whole blocks.
        let blocks = |elems: usize| elems / DType::Q8_0.block_elems() * DType::Q8_0.block_bytes();
        for (t, &slot) in slots.iter().enumerate() {
            let (block, offset) = (slot as usize / KV_BLOCK, slot as usize % KV_BLOCK);
            for head in 0..heads {
                let start = ((block * heads + head) * KV_BLOCK + offset) * hd;
                let (to, x) = (start..start + hd, &x[(t * heads + head) * hd..][..hd]);
                match y {
                    Cells::F32(y) => y[to].copy_from_slice(x),
                    Cells::F16(y) => y[to].reinterpret_cast_mut::<f16>().convert_from_f32_slice(x),
                    Cells::BF16(y) => y[to].reinterpret_cast_mut::<bf16>().convert_from_f32_slice(x),
                    Cells::Q8_0(y) => encode_blocks(DType::Q8_0, x, &mut y[blocks(to.start)..blocks(to.end)]),
                    Cells::U32(_) => {}
                }
            }
        }
        Ok(())
    }

    pub(super) fn gated_to(&self, out: &Buffer, y: &mut [f32], args: &GatedActivation<'_>) -> Result<()> {
        args.check(out)?;
        let (gate, up) = (self.memory.f32(args.gate)?, self.memory.f32(args.up)?);
        let grid = Grid::line(y.len(), CHUNK / 4);
        self.parallel.for_each_tile(
            y,
            grid,
            || (),
            |mut tile, ()| {
                let cols = tile.cols();
                let (gate, up) = (&gate[cols.clone()], &up[cols]);
                self.level.run(Gate { out: tile.row(0), gate, up, activation: args.activation });
            },
        );
        Ok(())
    }

    pub(super) fn softcap_to(&self, x: &Buffer, y: &mut [f32], cap: f32) -> Result<()> {
        check_softcap(x, cap)?;
        let grid = Grid::line(y.len(), CHUNK / 4);
        self.parallel.for_each_tile(
            y,
            grid,
            || (),
            |mut tile, ()| self.level.run(Cap { x: tile.row(0), cap }),
        );
        Ok(())
    }

    /// Writes ids and weights that [`Route::check`] found to fit.
    pub(super) fn route_to(&self, ids: &mut [u32], weights: &mut [f32], args: &Route<'_>) -> Result<()> {
        let logits = self.memory.f32(args.logits)?.chunks_exact(args.n_experts);
        let chosen = ids.chunks_exact_mut(args.n_used).zip(weights.chunks_exact_mut(args.n_used));
        for (logits, (ids, weights)) in logits.zip(chosen) {
            route_row(logits, args.kind, ids, weights);
        }
        Ok(())
    }

    pub(super) fn moe_combine_to(&self, out: &Buffer, sum: &mut [f32], args: &MoeCombine<'_>) -> Result<()> {
        let dims = args.check(out)?;
        let (y, weights) = (self.memory.f32(args.y)?, self.memory.f32(args.weights)?);
        self.parallel.for_each_tile(
            sum,
            by_rows(dims.rows, dims.dim),
            || (),
            |mut tile, ()| {
                for row in tile.rows() {
                    let out = tile.row(row);
                    out.fill(0.0);
                    for entry in row * args.n_used..(row + 1) * args.n_used {
                        let y = &y[entry * dims.dim..][..dims.dim];
                        out.iter_mut().zip(y).for_each(|(o, y)| *o += weights[entry] * y);
                    }
                }
            },
        );
        Ok(())
    }
}
