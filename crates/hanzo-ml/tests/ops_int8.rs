//! Products with 8-bit activations, for weights of every format: against f64 sums over the quantised activations (only
//! f32 roundings apart), against f64 sums over the activations themselves (what rounding them to 8 bits costs), and
//! the same bits for any number of rows, threads and layout of the weight.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_ml::{
    Bytes, QTensor, Result,
    backend::{Backend, Buffer, MatMul, MoeMatMul, Weight},
    cpu::{Activations, Cpu, CpuOptions},
};
use hanzo_quant::{FORMATS, Format, GROUP, Group, Unpack};

fn integer_formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().filter(|f| matches!(f.unpack, Unpack::Int(_)))
}

fn options(threads: usize, repack: bool) -> CpuOptions {
    CpuOptions { threads: Some(threads), activations: Activations::Int8, repack }
}

/// A block of 32 activations by the definition: nearest integers, ties to even, in units of the largest over 127.
struct Block {
    quants: [i32; GROUP],
    scale: f32,
}

impl Block {
    fn new(x: &[f32]) -> Self {
        let largest = x.iter().fold(0.0f32, |a, v| a.max(v.abs()));
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        let quants = std::array::from_fn(|i| (x[i] * inverse).round_ties_even() as i32);
        Self { quants, scale: largest / 127.0 }
    }
}

/// What a product should be, and how far f32 arithmetic on quantised activations may be from it.
#[derive(Clone, Copy, Default)]
struct Expected {
    /// Over the quantised activations.
    quantised: f64,
    /// Over the activations themselves.
    raw: f64,
    /// Roundings of f32.
    rounding: f64,
    /// Σ |w| · d / 2.
    quantisation: f64,
}

/// One element: a row of activations with a row of a weight, in f64.
fn expected(x: &[f32], row: &[Group], halves: bool) -> Expected {
    let mut e = Expected::default();
    let (mut magnitude, mut n_terms) = (0.0, 0);
    for (x, group) in x.chunks(GROUP).zip(row) {
        let block = Block::new(x);
        let d = f64::from(block.scale);
        let mut sums = [(0i32, 0i32); 2];
        for i in 0..GROUP {
            let (scale, minimum) = (f64::from(group.scales[i / 16]), f64::from(group.minima[i / 16]));
            let w = scale * f64::from(group.quants[i]) - minimum;
            e.quantised += w * d * f64::from(block.quants[i]);
            e.raw += w * f64::from(x[i]);
            // Products of f32 before the rounding may err by a few units in the last place of 127.
            e.quantisation += w.abs() * d * 0.5001;
            sums[i / 16].0 += i32::from(group.quants[i]) * block.quants[i];
            sums[i / 16].1 += block.quants[i];
        }
        let mut add = |half: usize, (dot, sum): (i32, i32)| {
            let term = |factor: f32, n: i32| (f64::from(factor) * d * f64::from(n)).abs();
            magnitude += term(group.scales[half], dot) + term(group.minima[half], sum);
            n_terms += 2;
        };
        if halves {
            add(0, sums[0]);
            add(1, sums[1]);
        } else {
            add(0, (sums[0].0 + sums[1].0, sums[0].1 + sums[1].1));
        }
    }
    // A term is rounded when it is made, and passes through the additions after it; each may round twice.
    e.rounding = 1.01 * f64::from(EPS) * f64::from(2 * n_terms + 4) * magnitude + 1e-36;
    e
}

/// The groups of each row of a weight.
fn groups(weight: &QTensor) -> Vec<Vec<Group>> {
    let format = weight.format();
    let Unpack::Int(unpack) = format.unpack else { panic!("{format:?}") };
    let row_bytes = weight.row_elems() / format.block_elems * format.block_bytes;
    let of_block = |block| (0..format.block_elems / GROUP).map(move |g| unpack(block, g));
    weight
        .bytes()
        .chunks(row_bytes)
        .map(|row| row.chunks(format.block_bytes).flat_map(of_block).collect())
        .collect()
}

fn check(name: &str, got: &[f32], want: &[Expected]) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let got = f64::from(got);
        let error = (got - want.quantised).abs();
        assert!(error <= want.rounding, "{name}[{i}]: {got} is not {} ± {}", want.quantised, want.rounding);
        let (error, bound) = ((got - want.raw).abs(), want.quantisation + want.rounding);
        assert!(error <= bound, "{name}[{i}]: {got} is not {} ± {bound}", want.raw);
    }
}

/// Runs on backends that must agree to the bit, and on the portable one; gives the common result.
fn on_all(name: &str, run: impl Fn(&mut dyn Backend) -> Result<Vec<f32>>, want: &[Expected]) -> Vec<f32> {
    let got = run(&mut Cpu::new(options(1, true)).unwrap()).unwrap();
    check(name, &got, want);
    for (threads, repack) in [(2, true), (3, false), (1, false)] {
        let other = run(&mut Cpu::new(options(threads, repack)).unwrap()).unwrap();
        assert!(bits(&got) == bits(&other), "{name}: {threads} threads, repack {repack} change the bits");
    }
    for repack in [true, false] {
        check(
            &format!("{name}, portable"),
            &run(&mut Cpu::portable(options(2, repack)).unwrap()).unwrap(),
            want,
        );
    }
    got
}

fn matmul(b: &mut dyn Backend, x: &[f32], weight: &QTensor, bias: Option<&[f32]>) -> Result<Vec<f32>> {
    let weight = b.load(weight)?;
    let out = empty(b, x.len() / weight.k * weight.n);
    let x = up(b, x);
    let bias = bias.map(|bias| up(b, bias));
    b.matmul(&out, &MatMul { x: &x, weight: &weight, bias: bias.as_ref() })?;
    Ok(down(b, &out))
}

/// Several blocks, and a last stretch that is short.
fn odd_k(rng: &mut Rng, format: &Format) -> usize {
    (1 + rng.below(1300 / format.block_elems)) * format.block_elems
}

#[test]
fn matmul_of_every_format() {
    let mut n_checked = 0;
    for (i, format) in integer_formats().enumerate() {
        let mut rng = Rng::new(i as u64);
        for rows in [0, 1, 2, 3, 5, 17, 67] {
            let (n, k) = (1 + rng.below(50), odd_k(&mut rng, format));
            let weight = rng.weight(format, vec![n, k]);
            let x = rng.floats(rows * k);
            let bias = rng.floats(n);
            let bias = (rows % 2 == 1).then_some(&bias[..]);
            let groups = groups(&weight);
            let mut want = Vec::new();
            for x in x.chunks(k) {
                for (row, c) in groups.iter().zip(0..) {
                    let mut e = expected(x, row, format.scale_group < GROUP);
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[c]));
                    (e.quantised, e.raw) = (e.quantised + bias, e.raw + bias);
                    e.rounding += f64::from(EPS) * (e.quantised.abs() + e.rounding);
                    want.push(e);
                }
            }
            let name = format!("int8 {format:?} [{rows}, {k}] · [{n}, {k}]");
            let got = on_all(&name, |b| matmul(b, &x, &weight, bias), &want);
            // Each row alone.
            for (row, x) in x.chunks(k).enumerate().take(6) {
                let alone = matmul(&mut Cpu::new(options(1, true)).unwrap(), x, &weight, bias).unwrap();
                assert!(bits(&alone) == bits(&got[row * n..][..n]), "{name}: row {row} differs alone");
            }
            n_checked += 1;
        }
    }
    assert_eq!(n_checked, 7 * integer_formats().count());
    assert!(n_checked >= 7 * 24);
}

/// Enough of the weight that every thread finds several tiles of several panels.
#[test]
fn a_large_weight_is_cut_into_tiles() {
    let mut rng = Rng::new(77);
    for name in ["Q4_K", "Q8_0"] {
        let format = Format::from_name(name).unwrap();
        let (n, k, rows) = (1219, 512, 3);
        let weight = rng.weight(format, vec![n, k]);
        let x = rng.floats(rows * k);
        let groups = groups(&weight);
        let want: Vec<_> =
            x.chunks(k).flat_map(|x| groups.iter().map(|row| expected(x, row, false))).collect();
        on_all(name, |b| matmul(b, &x, &weight, None), &want);
    }
}

#[test]
fn moe_matmul_against_f64_and_the_dense_product() {
    for (seed, format) in integer_formats().enumerate() {
        let mut rng = Rng::new(1000 + seed as u64);
        let (tokens, n_used, n_experts) = (rng.below(20), 1 + rng.below(4), 4 + rng.below(5));
        let (n, k) = (1 + rng.below(40), odd_k(&mut rng, format));
        let weight = rng.weight(format, vec![n_experts, n, k]);
        let shared = seed.is_multiple_of(2);
        let x = rng.floats(tokens * k * if shared { 1 } else { n_used });
        let ids: Vec<u32> = (0..tokens).flat_map(|_| rng.distinct(n_used, n_experts)).collect();
        let groups = groups(&weight);
        let row = |entry: usize| &x[(if shared { entry / n_used } else { entry }) * k..][..k];
        let mut want = Vec::new();
        for (entry, &expert) in ids.iter().enumerate() {
            let of_expert = &groups[expert as usize * n..][..n];
            want.extend(of_expert.iter().map(|w| expected(row(entry), w, format.scale_group < GROUP)));
        }
        let run = |b: &mut dyn Backend| {
            let weight = b.load(&weight)?;
            let (x, ids) = (up(b, &x), up_ids(b, &ids));
            let out = empty(b, ids.len() * weight.n);
            b.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids, n_used, weight: &weight })?;
            Ok(down(b, &out))
        };
        let got = on_all(&format!("int8 moe {format:?}"), run, &want);
        let expert_bytes = weight.bytes().len() / n_experts;
        for (entry, &expert) in ids.iter().enumerate().take(8) {
            let bytes = weight.bytes()[expert as usize * expert_bytes..][..expert_bytes].to_vec();
            let dense = QTensor::new("e", format, vec![n, k], Bytes::owned(bytes)).unwrap();
            let alone = matmul(&mut Cpu::new(options(1, false)).unwrap(), row(entry), &dense, None).unwrap();
            assert!(
                bits(&alone) == bits(&got[entry * n..][..n]),
                "{format:?}: entry {entry} differs from dense"
            );
        }
    }
}

/// Plain floats have no quants: the option changes nothing for them.
#[test]
fn float_weights_are_multiplied_in_f32() {
    let mut rng = Rng::new(5);
    for format in FORMATS.iter().filter(|f| matches!(f.unpack, Unpack::Scalar(_))) {
        let (n, k) = (9, 45);
        let (weight, x) = (rng.weight(format, vec![n, k]), rng.floats(4 * k));
        let int8 = matmul(&mut Cpu::new(options(2, true)).unwrap(), &x, &weight, None).unwrap();
        assert!(bits(&int8) == bits(&matmul(&mut cpu(2), &x, &weight, None).unwrap()), "{format:?}");
    }
}

/// A number that is not finite shows in its own row, and only there; tiny and zero rows give zeros or nearly so.
#[test]
fn odd_activations_stay_in_their_row() {
    let mut rng = Rng::new(6);
    for name in ["Q4_0", "Q4_K", "Q8_0", "Q6_K", "Q3_K"] {
        let format = Format::from_name(name).unwrap();
        let (n, k) = (13, 512);
        let (weight, good) = (rng.weight(format, vec![n, k]), rng.floats(k));
        let alone = matmul(&mut Cpu::new(options(1, true)).unwrap(), &good, &weight, None).unwrap();
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, 1e-39, 0.0, f32::MAX] {
            let mut x = vec![0.0; k];
            x[77] = odd;
            x.extend(&good);
            let y = matmul(&mut Cpu::new(options(2, true)).unwrap(), &x, &weight, None).unwrap();
            assert!(bits(&y[n..]) == bits(&alone), "{name}: {odd} changes another row");
            if !odd.is_finite() {
                assert!(y[..n].iter().all(|y| !y.is_finite()), "{name}: {odd} gives {:?}", &y[..n]);
            } else if odd < 1.0 {
                assert!(y[..n].iter().all(|y| y.abs() < 1e-6), "{name}: {odd} gives {:?}", &y[..n]);
            }
        }
    }
}

/// A block far above its row's average is quantised twice, so its error is that of a step 254 times smaller; in any company
/// the bits are the same.
#[test]
fn blocks_with_outliers_are_refined() {
    for (seed, format) in integer_formats().enumerate() {
        let mut rng = Rng::new(2000 + seed as u64);
        let (n, k, rows) = (21, 1024, 6);
        let weight = rng.weight(format, vec![n, k]);
        let mut x = rng.floats(rows * k);
        for row in [1, 4] {
            let outliers = &mut x[row * k + 300..][..GROUP];
            outliers.iter_mut().step_by(5).for_each(|x| *x *= 1000.0);
        }
        let groups = groups(&weight);
        let mut all = Vec::new();
        for (threads, repack) in [(1, true), (2, false)] {
            all.push(matmul(&mut Cpu::new(options(threads, repack)).unwrap(), &x, &weight, None).unwrap());
        }
        assert!(bits(&all[0]) == bits(&all[1]), "{format:?}");
        for row in [0, 1, 4] {
            let x = &x[row * k..][..k];
            let alone = matmul(&mut Cpu::new(options(1, true)).unwrap(), x, &weight, None).unwrap();
            assert!(bits(&alone) == bits(&all[0][row * n..][..n]), "{format:?}: row {row} differs alone");
            for (got, groups) in alone.iter().zip(&groups) {
                let (mut raw, mut bound, mut magnitude) = (0.0, 0.0, 0.0);
                for (x, group) in x.chunks(GROUP).zip(groups) {
                    let largest = x.iter().fold(0.0f32, |a, v| a.max(v.abs()));
                    let refined = largest > 50.0;
                    let error = f64::from(largest) / 127.0 * if refined { 0.501 / 254.0 } else { 0.501 };
                    for (i, x) in x.iter().enumerate() {
                        let (scale, minimum) = (group.scales[i / 16], group.minima[i / 16]);
                        let w = f64::from(scale) * f64::from(group.quants[i]) - f64::from(minimum);
                        raw += w * f64::from(*x);
                        bound += w.abs() * error;
                        let parts =
                            f64::from(scale * f32::from(group.quants[i])).abs() + f64::from(minimum.abs());
                        magnitude += parts * f64::from(x.abs());
                    }
                }
                bound += 64.0 * f64::from(EPS) * magnitude;
                let error = (f64::from(*got) - raw).abs();
                assert!(error <= bound, "{format:?}: row {row}: {got} is not {raw} ± {bound}");
            }
        }
    }
}

/// The bytes of a buffer are kept for the next product, but not when it changes, is freed, or is read in other rows.
#[test]
fn changed_activations_are_quantised_anew() {
    fn product(b: &mut dyn Backend, out: &Buffer, x: &Buffer, weight: &Weight) -> Vec<u32> {
        b.matmul(out, &MatMul { x, weight, bias: None }).unwrap();
        bits(&down(b, out))
    }
    let mut rng = Rng::new(8);
    let format = Format::from_name("Q4_0").unwrap();
    let (wide, narrow) = (rng.weight(format, vec![9, 576]), rng.weight(format, vec![9, 288]));
    let (mut first, second) = (rng.floats(1152), rng.floats(1152));
    // A block that is refined, unless scales of longer rows raise the average.
    first[96..128].iter_mut().for_each(|x| *x *= 3.0);
    let alone = |x: &[f32], weight: &QTensor| {
        bits(&matmul(&mut Cpu::new(options(1, true)).unwrap(), x, weight, None).unwrap())
    };
    let b: &mut dyn Backend = &mut Cpu::new(options(2, true)).unwrap();
    let (w, n) = (b.load(&wide).unwrap(), b.load(&narrow).unwrap());
    let (of_two, of_four) = (empty(b, 2 * 9), empty(b, 4 * 9));
    let x = up(b, &first);
    for _ in 0..2 {
        assert_eq!(product(b, &of_two, &x, &w), alone(&first, &wide));
        assert_eq!(product(b, &of_four, &x, &n), alone(&first, &narrow), "rows of another length");
    }
    b.upload_f32(&x, &second).unwrap();
    assert_eq!(product(b, &of_four, &x, &n), alone(&second, &narrow), "an upload");
    b.softcap(&x, 0.25).unwrap();
    let capped = down(b, &x);
    assert_eq!(product(b, &of_four, &x, &n), alone(&capped, &narrow), "an operation in place");
    b.free(x);
    let x = up(b, &first);
    assert_eq!(product(b, &of_four, &x, &n), alone(&first, &narrow), "another buffer in its place");
}
