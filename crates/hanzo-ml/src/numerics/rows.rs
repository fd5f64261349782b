//! Operations on rows and elements against the reference: norms, rotations, activations, the router, copies by index.

use super::{
    bench::{Bench, Desk, EPS},
    random::Random,
};
use crate::{
    DType, Result,
    backend::{
        Activation, GatedActivation, GatherRows, MoeCombine, RmsNorm, Rope, RopeAngles, RopePairing, Route,
        RouteKind, ScatterRows,
    },
};

const DIMS: [usize; 10] = [1, 2, 7, 8, 31, 33, 64, 100, 1536, 2049];

pub(super) fn check(bench: &mut Bench<'_>) {
    for seed in 0..bench.n_shapes(24) {
        let mut random = Random::new(seed);
        moves(bench, &mut random);
        norms(bench, &mut random);
        rotations(bench, &mut random);
        elements(bench, &mut random);
        experts(bench, &mut random);
    }
}

fn moves(bench: &mut Bench<'_>, random: &mut Random) {
    let (table_rows, dim) = (1 + random.below(70), 1 + random.below(130));
    let n = 1 + random.below(table_rows);
    let table = random.floats(table_rows * dim);
    let shape = format!("{n} of {table_rows} rows of {dim}");
    let rows = random.ids(n, table_rows);
    bench.same("gather_rows", &shape, |desk| {
        let (src, rows, out) = (desk.floats(&table)?, desk.ids(&rows)?, desk.empty(n * dim)?);
        desk.backend.gather_rows(&out, &GatherRows { src: &src, rows: &rows })?;
        desk.read(&out)
    });
    let (rows, moved) = (random.distinct(n, table_rows), random.floats(n * dim));
    bench.same("scatter_rows", &shape, |desk| {
        let (src, rows, out) = (desk.floats(&moved)?, desk.ids(&rows)?, desk.floats(&table)?);
        desk.backend.scatter_rows(&out, &ScatterRows { src: &src, rows: &rows })?;
        desk.read(&out)
    });
    // Conversions at the ends of a copy, and an exchange.
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        bench.same("copies", &format!("{dtype:?}, {shape}"), |desk| {
            let (a, b) = (desk.floats_as(dtype, &moved)?, desk.floats_as(dtype, &table[..moved.len()])?);
            desk.backend.swap(&a, &b)?;
            Ok([desk.read(&a)?, desk.read(&b)?].concat())
        });
    }
    let other = random.floats(table.len());
    bench.compare(
        "add",
        &format!("{} elements", table.len()),
        |desk| {
            let (acc, x) = (desk.floats(&table)?, desk.floats(&other)?);
            desk.backend.add(&acc, &x)?;
            desk.read(&acc)
        },
        |_, _| 2.0 * EPS,
    );
}

/// The plain norm, the one with an addition before, and both for rows that products read next.
fn norms(bench: &mut Bench<'_>, random: &mut Random) {
    let (rows, dim) = ([1, 3, 40][random.below(3)], DIMS[random.below(DIMS.len())]);
    let (x, acc, weight) = (random.floats(rows * dim), random.floats(rows * dim), random.floats(dim));
    let with_weight = random.below(3) > 0;
    // A lane adds dim / 32 squares and 5 more sums join the lanes; half of that error reaches the square root. A sum with
    // the residual is rounded once before.
    let gamma = ((dim / 32 + 4 + 5) / 2 + 8) as f32 * EPS;
    let is_added = |i: usize| if i < rows * dim { acc[i] + x[i] } else { 1.0 };
    let bound = |i: usize, y: f32| {
        let sum = is_added(i);
        gamma * y.abs() + if sum.abs() < 1e-3 { 1e-5 } else { 2.0 * EPS * y.abs() / sum.abs() }
    };
    let run = |desk: &mut Desk<'_>, adds: bool, for_products: bool| -> Result<Vec<f32>> {
        let (x, acc, weight) = (desk.floats(&x)?, desk.floats(&acc)?, desk.floats(&weight)?);
        let out = desk.empty(rows * dim)?;
        let args = RmsNorm { x: &x, weight: with_weight.then_some(&weight), dim, eps: 1e-6 };
        let residual = adds.then_some(&*acc);
        match residual {
            _ if for_products => desk.backend.norm_for_products(&out, residual, &args)?,
            Some(acc) => desk.backend.add_rms_norm(&out, acc, &args)?,
            None => desk.backend.rms_norm(&out, &args)?,
        }
        Ok([desk.read(&out)?, desk.read(&acc)?].concat())
    };
    let shape = format!("{rows} rows of {dim}");
    bench.compare("rms_norm", &shape, |desk| run(desk, false, false), |_, y| gamma * y.abs());
    bench.compare("add_rms_norm", &shape, |desk| run(desk, true, false), bound);
    bench.compare("norm_for_products", &shape, |desk| run(desk, true, true), bound);
}

fn rotations(bench: &mut Bench<'_>, random: &mut Random) {
    let (rows, n_heads, n_axes) = ([1, 5, 33][random.below(3)], 1 + random.below(4), 1 + random.below(3));
    let head_dim = 2 + random.below(130);
    let pairs = 1 + random.below(head_dim / 2);
    let positions = random.ids(rows * n_axes, 200_000);
    let inv_freq: Vec<f32> = (0..pairs).map(|p| 10_000f32.powf(-(p as f32) / pairs as f32)).collect();
    let axis = random.ids(pairs, n_axes);
    let x = random.floats(rows * n_heads * head_dim);
    let pairing = [RopePairing::Half, RopePairing::Adjacent][random.below(2)];
    let run = |desk: &mut Desk<'_>, rotate: bool| -> Result<Vec<f32>> {
        let (positions, inv_freq, axis) = (desk.ids(&positions)?, desk.floats(&inv_freq)?, desk.ids(&axis)?);
        let angles = desk.empty(rows * pairs * 2)?;
        let magnitude = 1.3;
        let args = RopeAngles { positions: &positions, n_axes, inv_freq: &inv_freq, axis: &axis, magnitude };
        desk.backend.rope_angles(&angles, &args)?;
        if !rotate {
            return desk.read(&angles);
        }
        let x = desk.floats(&x)?;
        desk.backend.rope(&x, &Rope { angles: &angles, n_heads, head_dim, pairing })?;
        desk.read(&x)
    };
    let shape = format!("{rows} rows of {n_heads} heads of {head_dim}, {pairs} pairs");
    // Cosine and sine are rounded once; two products of numbers below 1.3, each operand and result rounded.
    bench.compare("rope_angles", &shape, |desk| run(desk, false), |_, y| EPS * y.abs());
    bench.compare("rope", &shape, |desk| run(desk, true), |_, _| 1.3 * 6.0 * EPS);
}

fn elements(bench: &mut Bench<'_>, random: &mut Random) {
    let len = [1, 7, 8, 1000, 40_001][random.below(5)];
    let gate: Vec<f32> = (0..len).map(|_| random.float() * 12.0).collect();
    let up = random.floats(len);
    let shape = format!("{len} elements");
    for activation in [Activation::Silu, Activation::GeluErf, Activation::GeluTanh] {
        // An exponential errs by 2 units and its argument by a rounding, whose effect grows with it (to 24 for GELU's tanh
        // form); the formula of the error function is good to 1.5e-7.
        let bound = |i: usize, y: f32| match activation {
            Activation::Silu => 20.0 * EPS * y.abs(),
            Activation::GeluTanh => 200.0 * EPS * y.abs() + 1e-30,
            Activation::GeluErf => (1.5e-7 / 2.0 + 6.0 * EPS) * (gate[i] * up[i]).abs(),
        };
        let run = |desk: &mut Desk<'_>| {
            let (gate, up, out) = (desk.floats(&gate)?, desk.floats(&up)?, desk.empty(len)?);
            desk.backend.gated_activation(&out, &GatedActivation { gate: &gate, up: &up, activation })?;
            desk.read(&out)
        };
        bench.compare("gated_activation", &format!("{activation:?} of {shape}"), run, bound);
    }
    let run = |desk: &mut Desk<'_>| {
        let x = desk.floats(&gate)?;
        desk.backend.softcap(&x, 3.0)?;
        desk.read(&x)
    };
    bench.compare("softcap", &shape, run, |_, y| 8.0 * EPS * y.abs());
}

fn experts(bench: &mut Bench<'_>, random: &mut Random) {
    let (tokens, n_experts) = (1 + random.below(6), 1 + random.below(140));
    let n_used = 1 + random.below(n_experts.min(8));
    // Few distinct values: ties, which go to the lower expert.
    let logits: Vec<f32> = (0..tokens * n_experts).map(|_| random.below(20) as f32 / 4.0).collect();
    let renormalize = random.below(2) == 0;
    let n = tokens * n_used;
    let run = |desk: &mut Desk<'_>| {
        let (logits, ids, weights) = (desk.floats(&logits)?, desk.ids(&vec![0; n])?, desk.empty(n)?);
        let kind = RouteKind::SoftmaxTopK { renormalize };
        desk.backend.route(&ids, &weights, &Route { logits: &logits, n_experts, n_used, kind })?;
        let ids = desk.read_ids(&ids)?;
        Ok(desk.read(&weights)?.into_iter().chain(ids.into_iter().map(|id| id as f32)).collect())
    };
    let shape = format!("{tokens} rows, {n_used} of {n_experts}");
    // Ids are whole numbers, of which a bound below one half allows no other.
    bench.compare("route", &shape, run, |i, y| if i < n { (n_experts + 8) as f32 * EPS * y } else { 0.0 });
    let dim = 1 + random.below(70);
    let (y, weights) = (random.floats(n * dim), random.floats(n));
    let run = |desk: &mut Desk<'_>| {
        let (y, weights, out) = (desk.floats(&y)?, desk.floats(&weights)?, desk.empty(tokens * dim)?);
        desk.backend.moe_combine(&out, &MoeCombine { y: &y, weights: &weights, n_used })?;
        desk.read(&out)
    };
    // n_used products of numbers below 1, and as many sums.
    let bound = 2.0 * (n_used * n_used) as f32 * EPS;
    bench.compare("moe_combine", &format!("{shape}, width {dim}"), run, |_, _| bound);
}
