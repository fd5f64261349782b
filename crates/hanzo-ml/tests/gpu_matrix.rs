//! Every weight format in every product, on every GPU of this machine: decoding bit for bit, products within the bound of
//! their arithmetic. Prints how many combinations passed; on a machine without a GPU it says why there is none.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say which devices they found")]

mod common;

use std::collections::BTreeMap;

use common::*;
use hanzo_ml::{
    Bytes, QTensor,
    backend::{Backend, Embed, MatMul, MoeMatMul},
    gpu::{Gpu, Products},
};
use hanzo_quant::{FORMATS, Format, Unpack};

/// Formats that kernels read.
fn formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().filter(|f| hanzo_kernel::is_supported(f))
}

fn is_int(format: &Format) -> bool {
    matches!(format.unpack, Unpack::Int(_))
}

/// Random blocks whose values are zero or within 2^-10 to 2^10: they fit f16, and products neither over- nor underflow.
fn weight(rng: &mut Rng, format: &'static Format, shape: Vec<usize>) -> QTensor {
    let n_blocks = shape.iter().product::<usize>() / format.block_elems;
    let mut bytes = Vec::with_capacity(n_blocks * format.block_bytes);
    let mut values = vec![0.0f32; format.block_elems];
    // A few blocks, found by trial, then repeated in random order.
    let mut found: Vec<Vec<u8>> = Vec::new();
    while found.len() < 64.min(n_blocks) {
        let block: Vec<u8> = (0..format.block_bytes).map(|_| rng.next() as u8).collect();
        (format.decode)(&block, &mut values);
        if values.iter().all(|v| *v == 0.0 || (2f32.powi(-10)..2f32.powi(10)).contains(&v.abs())) {
            found.push(block);
        }
    }
    for _ in 0..n_blocks {
        bytes.extend(&found[rng.below(found.len())]);
    }
    QTensor::new("weight", format, shape, Bytes::owned(bytes)).unwrap()
}

/// What the device's int8 products read: groups of 32 rounded to 127 steps of their largest value. The same operations
/// in the same precision as the kernel `quantize`.
fn rounded(x: &[f32]) -> Vec<f32> {
    let mut out = x.to_vec();
    for group in out.chunks_mut(32) {
        let largest = group.iter().fold(0f32, |m, v| m.max(v.abs()));
        let (scale, inverse) = (largest / 127.0, if largest > 0.0 { 127.0 / largest } else { 0.0 });
        group.iter_mut().for_each(|v| *v = (*v * inverse).round_ties_even().clamp(-127.0, 127.0) * scale);
    }
    out
}

/// Results and what they may be off by: sums of f64 and `Σ |x| · |w|` times the relative error.
fn expected(x: &[f32], w: &[f32], k: usize, relative: f32) -> Vec<(f32, f32)> {
    let dot = |x: &[f32], w: &[f32]| {
        let (mut sum, mut all) = (0f64, 0f64);
        for (x, w) in x.iter().zip(w) {
            let product = f64::from(*x) * f64::from(*w);
            sum += product;
            all += product.abs();
        }
        (sum as f32, all as f32 * relative + 1e-12)
    };
    x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| dot(x, w))).collect()
}

/// The relative error of a product: a thread adds `k / 32` groups of at most 32 products, five sums join the threads, a
/// tile adds all `k` in a row. Rounding factors to f16 costs 2^-11 each.
fn relative(k: usize, products: Products) -> f32 {
    let sums = (k + 48) as f32 * EPS;
    if products == Products::Matrix { sums + 2.2 * 2f32.powi(-11) } else { sums }
}

/// Counts of combinations, by what they are.
#[derive(Default)]
struct Tally(BTreeMap<String, (usize, usize)>);

impl Tally {
    fn add(&mut self, what: &str, n_bad: usize, detail: &str) {
        let (n, bad) = self.0.entry(what.to_owned()).or_default();
        *n += 1;
        if n_bad > 0 {
            *bad += 1;
            println!("{what}: {detail}: {n_bad} wrong values");
        }
    }

    fn finish(self) {
        let total: usize = self.0.values().map(|v| v.0).sum();
        let bad: usize = self.0.values().map(|v| v.1).sum();
        for (what, (n, bad)) in &self.0 {
            println!("{what}: {} of {n} passed", n - bad);
        }
        println!("{} of {total} combinations passed", total - bad);
        assert_eq!(bad, 0, "combinations failed");
    }
}

fn count_bad(got: &[f32], want: &[(f32, f32)]) -> usize {
    assert_eq!(got.len(), want.len());
    // A NaN is within no bound.
    let is_good = |got: f32, (want, bound): (f32, f32)| (got - want).abs() <= bound;
    got.iter().zip(want).filter(|(got, want)| !is_good(**got, **want)).count()
}

fn for_each_gpu(products: Products, mut test: impl FnMut(&mut Gpu, &mut Tally)) {
    for name in gpu_names() {
        let mut gpu = gpu(name, products);
        let mut tally = Tally::default();
        println!("{}", gpu.name());
        test(&mut gpu, &mut tally);
        tally.finish();
    }
}

/// Decoding by the kernel `dequantize` and by lookups: the bits of the scalar decoders, over random bytes.
#[test]
fn decoding_is_bit_exact() {
    for_each_gpu(Products::Float, |gpu, tally| {
        for (i, format) in formats().enumerate() {
            let mut rng = Rng::new(i as u64);
            let (rows, k) = (37, if format.block_elems == 1 { 77 } else { 1024 });
            let bytes: Vec<u8> = (0..format.bytes_of(rows * k).unwrap()).map(|_| rng.next() as u8).collect();
            let tensor = QTensor::new("table", format, vec![rows, k], Bytes::owned(bytes)).unwrap();
            let want = tensor.to_f32();
            let table = gpu.load(&tensor).unwrap();
            let ids: Vec<u32> = (0..rows as u32).collect();
            let (out, ids) = (empty(gpu, rows * k), up_ids(gpu, &ids));
            gpu.embed(&out, &Embed { table: &table, ids: &ids, scale: 1.0 }).unwrap();
            for (what, got) in [("embed", down(gpu, &out)), ("decode", gpu.decode(&table).unwrap())] {
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                let n_flushed = got.iter().zip(&want).filter(|(a, b)| **a == 0.0 && b.is_subnormal()).count();
                if n_flushed > 0 {
                    println!("{what} {}: {n_flushed} subnormal results are zero", format.name);
                }
                let n_bad = got.iter().zip(&want).filter(|(a, b)| !same((a, b))).count() - n_flushed;
                tally.add(what, n_bad, format.name);
            }
            gpu.free(out);
            gpu.free(ids);
        }
    });
}

fn products(products: Products) {
    for_each_gpu(products, |gpu, tally| {
        for (i, format) in formats().enumerate().filter(|(_, f)| is_int(f) || products != Products::Int8) {
            let mut rng = Rng::new(i as u64);
            let k = if format.block_elems == 1 { 611 } else { 1024 };
            let n = 75;
            let tensor = weight(&mut rng, format, vec![n, k]);
            let w = tensor.to_f32();
            let handle = gpu.load(&tensor).unwrap();
            // Mesa's software device is slow, and the kernels' own tests run all of them there.
            let is_slow = gpu.name().contains("llvmpipe");
            let all: &[usize] = if is_slow { &[1, 17] } else { &[1, 2, 3, 7, 16, 17, 70] };
            for &rows in all {
                let (x, bias) = (rng.floats(rows * k), rng.floats(n));
                let seen = if products == Products::Int8 { rounded(&x) } else { x.clone() };
                let mut want = expected(&seen, &w, k, relative(k, products));
                let has_bias = rows % 2 == 1;
                if has_bias {
                    want.iter_mut().enumerate().for_each(|(i, v)| v.0 += bias[i % n]);
                }
                let (x, bias, out) = (up(gpu, &x), up(gpu, &bias), empty(gpu, rows * n));
                let args = MatMul { x: &x, weight: &handle, bias: has_bias.then_some(&bias) };
                gpu.matmul(&out, &args).unwrap();
                let what = if rows <= 16 { "matvec" } else { "matmul" };
                let n_bad = count_bad(&down(gpu, &out), &want);
                tally.add(&format!("{what} {products:?}"), n_bad, &format!("{} × {rows}", format.name));
                [x, bias, out].into_iter().for_each(|b| gpu.free(b));
            }
            if !is_slow || i % 8 == 0 {
                moe(gpu, tally, products, format, &mut rng);
            }
        }
    });
}

/// Products with chosen experts, few and many pairs, rows shared by a token's experts or not.
fn moe(gpu: &mut Gpu, tally: &mut Tally, products: Products, format: &'static Format, rng: &mut Rng) {
    let (n_experts, n, k) = (5, 40, if format.block_elems == 1 { 300 } else { 512 });
    let tensor = weight(rng, format, vec![n_experts, n, k]);
    let w = tensor.to_f32();
    let handle = gpu.load(&tensor).unwrap();
    for (tokens, n_used, shared) in [(1, 2, true), (9, 3, false), (50, 2, true), (33, 3, false)] {
        let ids: Vec<u32> = (0..tokens).flat_map(|_| rng.distinct(n_used, n_experts)).collect();
        let x = rng.floats(tokens * k * if shared { 1 } else { n_used });
        let seen = if products == Products::Int8 { rounded(&x) } else { x.clone() };
        let mut want = Vec::new();
        for (pair, &expert) in ids.iter().enumerate() {
            let row = &seen[if shared { pair / n_used } else { pair } * k..][..k];
            want.extend(expected(row, &w[expert as usize * n * k..][..n * k], k, relative(k, products)));
        }
        let (x, ids_buffer, out) = (up(gpu, &x), up_ids(gpu, &ids), empty(gpu, ids.len() * n));
        gpu.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids_buffer, n_used, weight: &handle }).unwrap();
        let what = if ids.len() <= 64 { "MoE matvec" } else { "MoE matmul" };
        let n_bad = count_bad(&down(gpu, &out), &want);
        tally.add(&format!("{what} {products:?}"), n_bad, &format!("{} × {}", format.name, ids.len()));
        [x, ids_buffer, out].into_iter().for_each(|b| gpu.free(b));
    }
}

#[test]
fn float_products_of_every_format() {
    products(Products::Float);
}

#[test]
fn int8_products_of_every_integer_format() {
    products(Products::Int8);
}

#[test]
fn matrix_products_of_every_format() {
    products(Products::Matrix);
}
