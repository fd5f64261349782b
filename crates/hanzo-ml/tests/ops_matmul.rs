//! Products and lookups with weights of every format, against the f64 reference.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_ml::{
    QTensor, Result,
    backend::{Backend, Embed, MatMul, MoeMatMul},
};
use hanzo_quant::{FORMATS, Format};

/// Worst relative error of a dot product against `Σ |x| · |w|`: a lane adds at most 64 products of a stretch of
/// 512, three additions join the lanes, one more each stretch; every operation errs by at most [`EPS`].
fn gamma(k: usize) -> f32 {
    1.01 * EPS * (64 + 1 + 3 + k.div_ceil(512) + 1) as f32
}

/// `Σ |x| · |w|` for each row and column.
fn magnitudes(x: &[f32], w: &[f32], k: usize) -> Vec<f32> {
    let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(x * w).abs()).sum::<f64>() as f32;
    x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| dot(x, w))).collect()
}

fn matmul(b: &mut dyn Backend, x: &[f32], weight: &QTensor, bias: Option<&[f32]>) -> Result<Vec<f32>> {
    let weight = b.load(weight)?;
    let out = empty(b, x.len() / weight.k * weight.n);
    let x = up(b, x);
    let bias = bias.map(|bias| up(b, bias));
    b.matmul(&out, &MatMul { x: &x, weight: &weight, bias: bias.as_ref() })?;
    Ok(down(b, &out))
}

/// Several stretches with a rest, or whole blocks that do not fill a vector.
fn odd_k(rng: &mut Rng, format: &Format) -> usize {
    let blocks =
        if format.block_elems == 1 { 1 + rng.below(1300) } else { 1 + rng.below(1300 / format.block_elems) };
    blocks * format.block_elems
}

#[test]
fn matmul_of_every_format() {
    let mut n_checked = 0;
    for (i, format) in FORMATS.iter().enumerate() {
        let mut rng = Rng::new(i as u64);
        for rows in [0, 1, 2, 3, 4, 5, 11] {
            let (n, k) = (1 + rng.below(30), odd_k(&mut rng, format));
            let weight = rng.weight(format, vec![n, k]);
            let x = rng.floats(rows * k);
            let bias = rng.floats(n);
            let bias = (rows % 2 == 1).then_some(&bias[..]);
            let magnitudes = magnitudes(&x, &weight.to_f32(), k);
            let name = format!("matmul {format:?} [{rows}, {k}] · [{n}, {k}]");
            check_op(
                &name,
                |b| matmul(b, &x, &weight, bias),
                |i, y| gamma(k) * magnitudes[i] + EPS * (y.abs() + 1.0),
            );
            n_checked += 1;
        }
    }
    assert_eq!(n_checked, FORMATS.len() * 7);
}

#[test]
fn a_row_has_the_same_bits_in_any_batch() {
    for name in ["F32", "F16", "BF16", "F64", "Q8_0", "Q4_K"] {
        let format = Format::from_name(name).unwrap();
        let mut rng = Rng::new(7);
        // More than one tile of columns, and than one block of rows.
        let (rows, n, k) = (55, 131, if format.block_elems == 1 { 1001 } else { 1280 });
        let weight = rng.weight(format, vec![n, k]);
        let x = rng.floats(rows * k);
        let whole = matmul(&mut cpu(2), &x, &weight, None).unwrap();
        for split in [1, 2, 3, 4, 6, 7] {
            let mut parts = Vec::new();
            for x in x.chunks(split * k) {
                parts.extend(matmul(&mut cpu(1), x, &weight, None).unwrap());
            }
            assert!(bits(&parts) == bits(&whole), "{name}: batches of {split} change the bits");
        }
    }
}

/// What fills the last vector of a row is zero, not what an earlier stretch of the row left there.
#[test]
fn an_infinite_weight_gives_an_infinity() {
    let k = 516;
    let mut row = vec![1.0; k];
    row[5] = f32::INFINITY;
    for name in ["F32", "F16", "BF16"] {
        let format = Format::from_name(name).unwrap();
        let mut bytes = vec![0; k * format.block_bytes];
        format.encode.unwrap()(&row, None, &mut bytes);
        let weight = QTensor::new("weight", format, vec![1, k], hanzo_ml::Bytes::owned(bytes)).unwrap();
        for rows in 1..8 {
            let y = matmul(&mut cpu(1), &vec![1.0; rows * k], &weight, None).unwrap();
            assert_eq!(y, vec![f32::INFINITY; rows], "{name}");
        }
    }
}

struct Moe {
    x: Vec<f32>,
    ids: Vec<u32>,
    n_used: usize,
    weight: QTensor,
}

fn moe_matmul(b: &mut dyn Backend, moe: &Moe) -> Result<Vec<f32>> {
    let weight = b.load(&moe.weight)?;
    let (x, ids) = (up(b, &moe.x), up_ids(b, &moe.ids));
    let out = empty(b, moe.ids.len() * weight.n);
    b.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids, n_used: moe.n_used, weight: &weight })?;
    Ok(down(b, &out))
}

#[test]
fn moe_matmul_against_the_reference_and_the_dense_product() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let format = Format::from_name(["F32", "Q8_0", "Q4_K", "F16"][seed as usize / 2 % 4]).unwrap();
        let (tokens, n_used, n_experts) = (rng.below(9), 1 + rng.below(4), 4 + rng.below(5));
        let (n, k) = (1 + rng.below(30), if format.block_elems == 1 { 1 + rng.below(700) } else { 768 });
        let weight = rng.weight(format, vec![n_experts, n, k]);
        let shared = seed.is_multiple_of(2);
        let x = rng.floats(tokens * k * if shared { 1 } else { n_used });
        let ids: Vec<u32> = (0..tokens).flat_map(|_| rng.distinct(n_used, n_experts)).collect();
        let values = weight.to_f32();
        let mut bounds = Vec::new();
        let moe = Moe { x, ids, n_used, weight };
        let row = |entry: usize| &moe.x[(if shared { entry / n_used } else { entry }) * k..][..k];
        for (entry, &expert) in moe.ids.iter().enumerate() {
            bounds.extend(magnitudes(row(entry), &values[expert as usize * n * k..][..n * k], k));
        }
        let got = check_op(&format!("moe {seed}"), |b| moe_matmul(b, &moe), |i, _| gamma(k) * bounds[i]);
        for (entry, &expert) in moe.ids.iter().enumerate() {
            let expert_bytes = moe.weight.bytes().len() / n_experts;
            let bytes = moe.weight.bytes()[expert as usize * expert_bytes..][..expert_bytes].to_vec();
            let dense = QTensor::new("e", format, vec![n, k], hanzo_ml::Bytes::owned(bytes)).unwrap();
            let alone = matmul(&mut cpu(1), row(entry), &dense, None).unwrap();
            assert!(
                bits(&alone) == bits(&got[entry * n..][..n]),
                "moe {seed}: entry {entry} differs from dense"
            );
        }
    }
}

#[test]
fn embed_of_every_format() {
    for (i, format) in FORMATS.iter().enumerate() {
        let mut rng = Rng::new(i as u64);
        let (vocab, dim) = (1 + rng.below(40), odd_k(&mut rng, format));
        let table = rng.weight(format, vec![vocab, dim]);
        for n_tokens in [0, 1, 37] {
            let ids = rng.ids(n_tokens, vocab);
            let run = |b: &mut dyn Backend| {
                let table = b.load(&table)?;
                let out = empty(b, n_tokens * dim);
                let ids = up_ids(b, &ids);
                b.embed(&out, &Embed { table: &table, ids: &ids, scale: 1.7 })?;
                Ok(down(b, &out))
            };
            check_op(&format!("embed {format:?}"), run, |_, y| EPS * y.abs());
        }
    }
}
