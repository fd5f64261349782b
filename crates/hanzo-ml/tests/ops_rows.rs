//! Norms, rotations, activations, the router and copies by index against the f64 reference.

mod common;

use common::*;
use hanzo_ml::{
    DType, Result,
    backend::{
        Activation, Backend, GatedActivation, GatherRows, MoeCombine, RmsNorm, Rope, RopeAngles, RopePairing,
        Route, RouteKind, ScatterRows,
    },
};

const DIMS: [usize; 9] = [1, 2, 7, 8, 31, 33, 64, 100, 1536];

#[test]
fn rms_norm_and_its_fusion_with_add() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (rows, dim) = ([0, 1, 3, 40][rng.below(4)], DIMS[rng.below(9)]);
        let (x, acc, weight) = (rng.floats(rows * dim), rng.floats(rows * dim), rng.floats(dim));
        let with_weight = rng.below(3) > 0;
        let run = |b: &mut dyn Backend, fused: bool| -> Result<Vec<f32>> {
            let (x, acc, weight) = (up(b, &x), up(b, &acc), up(b, &weight));
            let out = empty(b, rows * dim);
            let args = RmsNorm { x: &x, weight: with_weight.then_some(&weight), dim, eps: 1e-6 };
            if fused {
                b.add_rms_norm(&out, &acc, &args)?;
                return Ok([down(b, &out), down(b, &acc)].concat());
            }
            b.add(&acc, &x)?;
            b.rms_norm(&out, &RmsNorm { x: &acc, ..args })?;
            Ok([down(b, &out), down(b, &acc)].concat())
        };
        // A lane adds dim / 32 squares and 5 more sums join the lanes; half of that error reaches the square root.
        // The sum `acc + x` was rounded once before.
        let gamma = ((dim / 32 + 4 + 5) / 2 + 8) as f32 * EPS;
        let bound = |i: usize, y: f32| {
            let sum = if i < rows * dim { acc[i] + x[i] } else { 1.0 };
            let relative = gamma * y.abs();
            relative + if sum.abs() < 1e-3 { 1e-5 } else { 2.0 * EPS * y.abs() / sum.abs() }
        };
        let fused = check_op(&format!("add_rms_norm {seed}"), |b| run(b, true), bound);
        let plain = check_op(&format!("add, rms_norm {seed}"), |b| run(b, false), bound);
        assert!(bits(&fused) == bits(&plain), "the fused operation is not its definition");
    }
}

#[test]
fn rotations() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (rows, n_heads, n_axes) = ([0, 1, 5, 33][rng.below(4)], 1 + rng.below(4), 1 + rng.below(3));
        let head_dim = 1 + rng.below(130);
        let pairs = rng.below(head_dim / 2 + 1);
        let positions = rng.ids(rows * n_axes, 200_000);
        let inv_freq: Vec<f32> = (0..pairs).map(|p| 10_000f32.powf(-(p as f32) / pairs as f32)).collect();
        let axis = rng.ids(pairs, n_axes);
        let x = rng.floats(rows * n_heads * head_dim);
        let pairing = [RopePairing::Half, RopePairing::Adjacent][rng.below(2)];
        let run = |b: &mut dyn Backend, rotate: bool| -> Result<Vec<f32>> {
            let (positions, inv_freq, axis) = (up_ids(b, &positions), up(b, &inv_freq), up_ids(b, &axis));
            let angles = empty(b, rows * pairs * 2);
            let magnitude = 1.3;
            let args =
                RopeAngles { positions: &positions, n_axes, inv_freq: &inv_freq, axis: &axis, magnitude };
            b.rope_angles(&angles, &args)?;
            if !rotate {
                return Ok(down(b, &angles));
            }
            let x = up(b, &x);
            b.rope(&x, &Rope { angles: &angles, n_heads, head_dim, pairing })?;
            Ok(down(b, &x))
        };
        // Cosine and sine are rounded once from f64.
        check_op(&format!("rope_angles {seed}"), |b| run(b, false), |_, y| EPS * y.abs() + 1e-15);
        // Two products of numbers below 1.3, each operand and result rounded.
        check_op(&format!("rope {seed}"), |b| run(b, true), |_, _| 1.3 * 6.0 * EPS);
    }
}

#[test]
fn gated_activations_and_softcap() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let len = [0, 1, 7, 8, 1000, 40_001][rng.below(6)];
        let gate: Vec<f32> = (0..len).map(|_| rng.float() * 12.0).collect();
        let up_values = rng.floats(len);
        for activation in [Activation::Silu, Activation::GeluErf, Activation::GeluTanh] {
            let run = |b: &mut dyn Backend| -> Result<Vec<f32>> {
                let (gate, up) = (up(b, &gate), up(b, &up_values));
                let out = empty(b, len);
                b.gated_activation(&out, &GatedActivation { gate: &gate, up: &up, activation })?;
                Ok(down(b, &out))
            };
            // exp errs by 2 units and its argument by a rounding, whose effect grows with it (to 24 for GELU's
            // tanh form); the formula of the error function is good to 1.5e-7.
            let bound = |i: usize, y: f32| match activation {
                Activation::Silu => 20.0 * EPS * y.abs(),
                Activation::GeluTanh => 200.0 * EPS * y.abs() + 1e-30,
                Activation::GeluErf => (1.5e-7 / 2.0 + 6.0 * EPS) * (gate[i] * up_values[i]).abs(),
            };
            check_op(&format!("{activation:?} {seed}"), run, bound);
        }
        let run = |b: &mut dyn Backend| -> Result<Vec<f32>> {
            let x = up(b, &gate);
            b.softcap(&x, 3.0)?;
            Ok(down(b, &x))
        };
        check_op(&format!("softcap {seed}"), run, |_, y| 8.0 * EPS * y.abs());
    }
    let b = &mut cpu(1);
    let x = up(b, &[1.0]);
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(b.softcap(&x, cap).is_err(), "{cap}");
    }
}

#[test]
fn routing_and_combining() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (tokens, n_experts) = (rng.below(6), 1 + rng.below(70));
        let n_used = 1 + rng.below(n_experts.min(8));
        // Few distinct values: ties.
        let logits: Vec<f32> = (0..tokens * n_experts).map(|_| rng.below(20) as f32 / 4.0).collect();
        let kind = RouteKind::SoftmaxTopK { renormalize: seed.is_multiple_of(2) };
        let run = |b: &mut dyn Backend| -> Result<Vec<f32>> {
            let logits = up(b, &logits);
            let (ids, weights) = (b.alloc(DType::U32, tokens * n_used)?, empty(b, tokens * n_used));
            b.route(&ids, &weights, &Route { logits: &logits, n_experts, n_used, kind })?;
            let ids = down_ids(b, &ids).into_iter().map(|id| id as f32);
            Ok(down(b, &weights).into_iter().chain(ids).collect())
        };
        let n = tokens * n_used;
        let relative = (n_experts + 8) as f32 * EPS;
        let got = check_op(&format!("route {seed}"), run, |i, y| if i < n { relative * y } else { 0.0 });
        for ids in got[n..].chunks(n_used) {
            assert!(
                (1..ids.len()).all(|i| !ids[..i].contains(&ids[i])),
                "an expert was chosen twice: {ids:?}"
            );
        }
        let dim = 1 + rng.below(40);
        let (y, weights) = (rng.floats(n * dim), rng.floats(n));
        let run = |b: &mut dyn Backend| -> Result<Vec<f32>> {
            let (y, weights) = (up(b, &y), up(b, &weights));
            let out = empty(b, tokens * dim);
            b.moe_combine(&out, &MoeCombine { y: &y, weights: &weights, n_used })?;
            Ok(down(b, &out))
        };
        // n_used products of numbers below 1, and as many sums.
        let bound = 2.0 * (n_used * n_used) as f32 * EPS;
        check_op(&format!("moe_combine {seed}"), run, |_, _| bound);
    }
}

/// The order is part of the definition: another one gives 0 here.
#[test]
fn experts_are_combined_in_the_order_of_choice() {
    let b = &mut cpu(1);
    let (y, weights, out) = (up(b, &[1e8, -1e8, 1.0]), up(b, &[1.0; 3]), empty(b, 1));
    b.moe_combine(&out, &MoeCombine { y: &y, weights: &weights, n_used: 3 }).unwrap();
    assert_eq!(down(b, &out), [1.0]);
}

#[test]
fn ties_go_to_the_lower_expert() {
    let run = |b: &mut dyn Backend| -> Result<Vec<f32>> {
        let logits = up(b, &[1.0, 3.0, 3.0, 2.0, 3.0]);
        let (ids, weights) = (b.alloc(DType::U32, 4)?, empty(b, 4));
        let kind = RouteKind::SoftmaxTopK { renormalize: true };
        b.route(&ids, &weights, &Route { logits: &logits, n_experts: 5, n_used: 4, kind })?;
        assert_eq!(down_ids(b, &ids), [1, 2, 4, 3]);
        Ok(down(b, &weights))
    };
    let got = check_op("ties", run, |_, y| 8.0 * EPS * y);
    let e = 1f32.exp();
    assert!((got[0] - e / (3.0 * e + 1.0)).abs() < 1e-6 && (got.iter().sum::<f32>() - 1.0).abs() < 1e-6);
}

#[test]
fn gather_and_scatter() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let (table_rows, dim) = (1 + rng.below(20), 1 + rng.below(40));
        let n_rows = rng.below(table_rows + 1);
        let rows = rng.distinct(n_rows, table_rows);
        let (table, moved) = (rng.floats(table_rows * dim), rng.floats(n_rows * dim));
        let gather = |b: &mut dyn Backend| -> Result<Vec<f32>> {
            let (src, rows) = (up(b, &table), up_ids(b, &rows));
            let out = empty(b, n_rows * dim);
            b.gather_rows(&out, &GatherRows { src: &src, rows: &rows })?;
            Ok(down(b, &out))
        };
        let got = check_op(&format!("gather {seed}"), gather, |_, _| 0.0);
        let want: Vec<f32> = rows.iter().flat_map(|&r| table[r as usize * dim..][..dim].to_vec()).collect();
        assert_eq!(got, want);
        let scatter = |b: &mut dyn Backend| -> Result<Vec<f32>> {
            let (src, rows, out) = (up(b, &moved), up_ids(b, &rows), up(b, &table));
            b.scatter_rows(&out, &ScatterRows { src: &src, rows: &rows })?;
            Ok(down(b, &out))
        };
        let got = check_op(&format!("scatter {seed}"), scatter, |_, _| 0.0);
        let mut want = table.clone();
        for (i, &row) in rows.iter().enumerate() {
            want[row as usize * dim..][..dim].copy_from_slice(&moved[i * dim..][..dim]);
        }
        assert_eq!(got, want);
    }
}
