//! Operands that do not fit are errors, never panics, and both backends refuse the same calls.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_ml::{
    DType, Result,
    backend::{
        Activation, Attention, AttentionPlan, Backend, Buffer, Embed, GatedActivation, GatherRows, KvAppend,
        MatMul, MoeCombine, MoeMatMul, RmsNorm, Rope, RopeAngles, RopePairing, Route, RouteKind, ScatterRows,
        Weight,
    },
    reference::Reference,
};
use hanzo_quant::Format;

/// Lengths whose products and quotients meet often.
const LENS: [usize; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024];

/// A random call: an operation, operands by index, sizes.
struct Call {
    op: usize,
    operands: [usize; 10],
    sizes: [usize; 4],
    weight: usize,
    flag: bool,
}

/// Buffers of each type and length, and two small weights.
struct World {
    backend: Box<dyn Backend>,
    buffers: Vec<Buffer>,
    weights: Vec<Weight>,
}

impl World {
    fn new(mut backend: Box<dyn Backend>) -> Self {
        let mut rng = Rng::new(1);
        let b = &mut *backend;
        let mut buffers = Vec::new();
        for dtype in [DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16] {
            buffers.extend(LENS.map(|len| up_as(b, dtype, &rng.floats(len))));
        }
        for limit in [1, 3, 4, 64, usize::MAX] {
            buffers.extend(LENS.map(|len| up_ids(b, &rng.ids(len, limit))));
        }
        let f32 = Format::from_name("F32").unwrap();
        let shapes = [vec![4, 8], vec![3, 1], vec![4, 2, 8], vec![1, 6, 4]];
        let weights = shapes.map(|shape| b.load(&rng.weight(f32, shape)).unwrap()).into();
        Self { backend, buffers, weights }
    }

    fn floats(&self, i: usize) -> &Buffer {
        // Mostly f32, so that many calls get past the types.
        let n = if i.is_multiple_of(8) { self.buffers.len() } else { 3 * LENS.len() };
        &self.buffers[i / 8 % n]
    }

    fn ids(&self, i: usize) -> &Buffer {
        let start = if i.is_multiple_of(8) { 0 } else { 5 * LENS.len() };
        &self.buffers[start + i / 8 % (self.buffers.len() - start)]
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let o = call.operands;
        let [a, b, c, _] = call.sizes;
        let mut backend = std::mem::replace(&mut self.backend, Box::new(Reference::new()));
        let (f, u) = (|i: usize| self.floats(o[i]), |i: usize| self.ids(o[i]));
        let weight = &self.weights[call.weight];
        let flag = call.flag;
        let on = &mut *backend;
        let result = match call.op {
            0 => on.embed(f(0), &Embed { table: weight, ids: u(1), scale: 1.0 }),
            1 => on.gather_rows(f(0), &GatherRows { src: f(1), rows: u(2) }),
            2 => on.scatter_rows(f(0), &ScatterRows { src: f(1), rows: u(2) }),
            3 => on.matmul(f(0), &MatMul { x: f(1), weight, bias: flag.then(|| f(2)) }),
            4 => on.add(f(0), f(1)),
            5 => on.rms_norm(f(0), &RmsNorm { x: f(1), weight: flag.then(|| f(2)), dim: a, eps: 1e-5 }),
            6 => on.add_rms_norm(
                f(0),
                f(3),
                &RmsNorm { x: f(1), weight: flag.then(|| f(2)), dim: a, eps: 1e-5 },
            ),
            7 => on.rope_angles(
                f(0),
                &RopeAngles { positions: u(1), n_axes: a, inv_freq: f(2), axis: u(3), magnitude: 1.0 },
            ),
            8 => on.rope(f(0), &Rope { angles: f(1), n_heads: a, head_dim: b, pairing: RopePairing::Half }),
            9 => on.kv_append(f(0), &KvAppend { x: f(1), slots: u(2), n_kv_heads: a, head_dim: b }),
            10 => on.gated_activation(
                f(0),
                &GatedActivation { gate: f(1), up: f(2), activation: Activation::Silu },
            ),
            11 => on.softcap(f(0), if flag { 1.0 } else { 0.0 }),
            12 => {
                let kind = RouteKind::SoftmaxTopK { renormalize: flag };
                on.route(u(0), f(1), &Route { logits: f(2), n_experts: a, n_used: b, kind })
            }
            13 => on.moe_matmul(f(0), &MoeMatMul { x: f(1), ids: u(2), n_used: a, weight }),
            14 => on.moe_combine(f(0), &MoeCombine { y: f(1), weights: f(2), n_used: a }),
            _ => {
                let plan = AttentionPlan {
                    tables: u(4),
                    max_blocks: a,
                    row_seq: u(5),
                    row_begin: u(6),
                    row_end: u(7),
                };
                let args = Attention {
                    q: f(1),
                    k_cache: f(2),
                    v_cache: f(3),
                    plan,
                    n_heads: b,
                    n_kv_heads: c,
                    head_dim: a,
                    scale: 1.0,
                    softcap: None,
                    sinks: flag.then(|| f(8)),
                };
                on.attention(f(0), &args)
            }
        };
        self.backend = backend;
        result
    }
}

#[test]
fn random_operands_never_panic_and_backends_agree_on_what_fits() {
    let mut worlds = [World::new(Box::new(Reference::new())), World::new(Box::new(cpu(1)))];
    let mut rng = Rng::new(3);
    let mut fitting = [0usize; 16];
    for n in 0..400_000 {
        let call = Call {
            op: n % 16,
            operands: std::array::from_fn(|_| rng.below(1 << 20)),
            sizes: std::array::from_fn(|_| [0, 1, 1, 2, 3, 4, 8, usize::MAX][rng.below(8)]),
            weight: rng.below(4),
            flag: rng.below(2) == 0,
        };
        let [want, got] = worlds.each_mut().map(|w| w.run(&call));
        let (want, got) = (want.map_err(|e| e.to_string()), got.map_err(|e| e.to_string()));
        assert_eq!(want.is_ok(), got.is_ok(), "operation {}: {want:?} {got:?}", call.op);
        fitting[call.op] += usize::from(want.is_ok());
    }
    // Attention needs eight buffers that fit; `ops_attention` covers it.
    assert!(fitting[..15].iter().all(|&n| n > 0), "some operation was never reached: {fitting:?}");
}

#[test]
fn operands_never_alias() {
    for b in [&mut Reference::new() as &mut dyn Backend, &mut cpu(1)] {
        let (x, y, ids) = (up(b, &[1.0; 4]), up(b, &[1.0; 4]), up_ids(b, &[0]));
        assert!(b.add(&x, &y).is_ok());
        assert!(b.add(&x, &x).is_err());
        assert!(b.rms_norm(&x, &RmsNorm { x: &x, weight: None, dim: 4, eps: 1e-5 }).is_err());
        assert!(b.rms_norm(&x, &RmsNorm { x: &y, weight: Some(&x), dim: 4, eps: 1e-5 }).is_err());
        let (out, dim, eps) = (up(b, &[0.0; 4]), 4, 1e-5);
        assert!(b.add_rms_norm(&out, &x, &RmsNorm { x: &y, weight: Some(&x), dim, eps }).is_err());
        let activation = Activation::Silu;
        assert!(b.gated_activation(&x, &GatedActivation { gate: &x, up: &y, activation }).is_err());
        assert!(b.gather_rows(&x, &GatherRows { src: &x, rows: &ids }).is_err());
        // Nothing was lost or changed by the refused calls.
        assert_eq!(down(b, &x), [2.0; 4]);
    }
}

#[test]
fn ids_out_of_range_are_errors() {
    let format = Format::from_name("F32").unwrap();
    let mut rng = Rng::new(5);
    let (table, experts) = (rng.weight(format, vec![3, 2]), rng.weight(format, vec![3, 2, 2]));
    for b in [&mut Reference::new() as &mut dyn Backend, &mut cpu(1)] {
        let (table, weight) = (b.load(&table).unwrap(), b.load(&experts).unwrap());
        let (out, x, positions) = (up(b, &[0.0; 2]), up(b, &[1.0; 2]), up_ids(b, &[7]));
        for (id, ok) in [(2, true), (3, false), (u32::MAX, false)] {
            let (ids, axis) = (up_ids(b, &[id]), up_ids(b, &[id, 0]));
            assert_eq!(
                b.embed(&out, &Embed { table: &table, ids: &ids, scale: 1.0 }).is_ok(),
                ok,
                "embed {id}"
            );
            let args = MoeMatMul { x: &x, ids: &ids, n_used: 1, weight: &weight };
            assert_eq!(b.moe_matmul(&out, &args).is_ok(), ok, "moe {id}");
            assert!(b.gather_rows(&out, &GatherRows { src: &x, rows: &ids }).is_err(), "gather {id}");
            assert!(b.scatter_rows(&out, &ScatterRows { src: &x, rows: &ids }).is_err(), "scatter {id}");
            let angles = empty(b, 4);
            let args =
                RopeAngles { positions: &positions, n_axes: 1, inv_freq: &x, axis: &axis, magnitude: 1.0 };
            assert!(b.rope_angles(&angles, &args).is_err(), "axis {id}");
        }
        let (src, rows, table) = (up(b, &[1.0; 4]), up_ids(b, &[1, 1]), up(b, &[0.0; 6]));
        assert!(b.scatter_rows(&table, &ScatterRows { src: &src, rows: &rows }).is_err());
    }
}

#[test]
fn weights_of_another_shape_are_errors() {
    let format = Format::from_name("F32").unwrap();
    let mut rng = Rng::new(6);
    let (dense, experts) = (rng.weight(format, vec![2, 2]), rng.weight(format, vec![3, 2, 2]));
    for b in [&mut Reference::new() as &mut dyn Backend, &mut cpu(1)] {
        let (dense, experts) = (b.load(&dense).unwrap(), b.load(&experts).unwrap());
        let (out, x, ids) = (up(b, &[0.0; 2]), up(b, &[1.0; 2]), up_ids(b, &[0]));
        let product = |b: &mut dyn Backend, weight| b.matmul(&out, &MatMul { x: &x, weight, bias: None });
        assert!(product(b, &dense).is_ok());
        assert!(product(b, &experts).is_err(), "experts are no matrix");
        assert!(b.embed(&out, &Embed { table: &experts, ids: &ids, scale: 1.0 }).is_err());
        // A handle whose claims differ from what was loaded.
        let mut lie = experts.clone();
        lie.n_experts = 1;
        assert!(product(b, &lie).is_err(), "3 experts claim to be 1");
        let mut lie = dense.clone();
        lie.format = Format::from_name("F16").unwrap();
        assert!(product(b, &lie).is_err(), "another format");
        let long = up(b, &[0.0; 4]);
        let mut lie = dense.clone();
        lie.n = 4;
        assert!(
            b.matmul(&long, &MatMul { x: &x, weight: &lie, bias: None }).is_err(),
            "rows that are not there"
        );
    }
}

#[test]
fn copies_of_another_length_or_type_are_errors() {
    for b in [&mut Reference::new() as &mut dyn Backend, &mut cpu(1)] {
        let (x, ids) = (up(b, &[1.0; 3]), up_ids(b, &[0; 3]));
        assert!(b.upload_f32(&x, &[0.0; 2]).is_err());
        assert!(b.upload_f32(&ids, &[0.0; 3]).is_err());
        assert!(b.upload_u32(&x, &[0; 3]).is_err());
        assert!(b.download_f32(&x, &mut [0.0; 4]).is_err());
        assert!(b.download_f32(&ids, &mut [0.0; 3]).is_err());
        assert!(b.download_u32(&x, &mut [0; 3]).is_err());
        assert!(b.alloc(DType::F32, usize::MAX).is_err());
        // A handle of another backend.
        let mut other = cpu(1);
        let foreign = other.alloc(DType::F32, 5).unwrap();
        assert!(b.download_f32(&foreign, &mut [0.0; 5]).is_err());
    }
}
