//! Kernels on rows against their formulas in f64, on a device and on odd shapes.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{Gpu, Random, assert_near, bytes_f32, bytes_u32, find, flag, floats, words};
use half::{bf16, f16};
use hanzo_kernel::{Number, Planes, Spec, table_words};
use hanzo_quant::Format;

#[test]
fn rows_move_by_index() {
    let Some(gpu) = Gpu::open("rows_move_by_index") else { return };
    let mut random = Random(4);
    let (n_rows, dim) = (7, 33);
    let src = random.units(n_rows * dim);
    let rows = [6u32, 0, 3];
    let buffers = (bytes_f32(&src), bytes_u32(&rows));
    let out = vec![0; rows.len() * dim * 4];
    let params = [(rows.len() * dim) as u32, dim as u32];
    let result = gpu.run(
        &find("gather_rows", None, &[]),
        &[("src", &buffers.0), ("rows", &buffers.1), ("out", &out)],
        &params,
        [1, 1, 1],
    );
    let want: Vec<f32> = rows.iter().flat_map(|&r| &src[r as usize * dim..][..dim]).copied().collect();
    assert_eq!(floats(&result["out"]), want);
    let back = gpu.run(
        &find("scatter_rows", None, &[]),
        &[("src", &result["out"]), ("rows", &buffers.1), ("out", &vec![0; n_rows * dim * 4])],
        &params,
        [1, 1, 1],
    );
    let back = floats(&back["out"]);
    for row in 0..n_rows {
        let got = &back[row * dim..][..dim];
        let moved = rows.contains(&(row as u32));
        assert!(
            got.iter().zip(&src[row * dim..]).all(|(g, s)| *g == if moved { *s } else { 0.0 }),
            "row {row}"
        );
    }
}

#[test]
fn norms_equal_f64_and_quantise_what_they_give() {
    let Some(gpu) = Gpu::open("norms_equal_f64_and_quantise_what_they_give") else { return };
    let mut random = Random(5);
    for (n_rows, dim) in [(3, 77), (2, 2080)] {
        let x = random.units(n_rows * dim);
        let (acc, weight) = (random.units(n_rows * dim), random.units(dim));
        for bits in 0..8 {
            let (add, weighted, quantize) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            if quantize && dim % 32 != 0 {
                continue;
            }
            let flags = [flag("ADD", add), flag("WEIGHT", weighted), flag("QUANTIZE", quantize)];
            let buffers = [
                ("x", bytes_f32(&x)),
                ("weight", bytes_f32(&weight)),
                ("acc", bytes_f32(&acc)),
                ("out", vec![0; n_rows * dim * 4]),
                ("x_q", vec![0; n_rows * dim]),
                ("x_meta", vec![0; n_rows * dim / 32 * 8]),
            ];
            let buffers: Vec<(&str, &[u8])> = buffers.iter().map(|(n, b)| (*n, &b[..])).collect();
            let params = [n_rows as u32, dim as u32, 1e-5f32.to_bits()];
            let result = gpu.run(&find("rms_norm", None, &flags), &buffers, &params, [2, 1, 1]);
            let summed: Vec<f32> = x.iter().zip(&acc).map(|(x, a)| if add { x + a } else { *x }).collect();
            if add {
                assert_eq!(floats(&result["acc"]), summed);
            }
            let mut want = Vec::new();
            for row in summed.chunks_exact(dim) {
                let mean = row.iter().map(|v| f64::from(v * v)).sum::<f64>() / dim as f64;
                let factor = 1.0 / (mean + 1e-5).sqrt();
                let weight = |i: usize| if weighted { f64::from(weight[i]) } else { 1.0 };
                want.extend(row.iter().enumerate().map(|(i, v)| f64::from(*v) * factor * weight(i)));
            }
            assert_near(&format!("norm {flags:?}"), &floats(&result["out"]), &want, 1e-6);
            if quantize {
                check_bytes(&floats(&result["out"]), &result["x_q"], &result["x_meta"]);
            }
        }
    }
}

#[test]
fn layer_norms_equal_f64_and_quantise_what_they_give() {
    let Some(gpu) = Gpu::open("layer_norms_equal_f64_and_quantise_what_they_give") else { return };
    let mut random = Random(14);
    for (n_rows, dim) in [(3, 333), (2, 2080)] {
        // Far from zero, where squares without their mean would cancel.
        let x: Vec<f32> = random.units(n_rows * dim).iter().map(|v| v + 100.0).collect();
        let (acc, weight, bias) = (random.units(n_rows * dim), random.units(dim), random.units(dim));
        for bits in 0..8 {
            let (add, biased, quantize) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            if quantize && dim % 32 != 0 {
                continue;
            }
            let flags = [flag("ADD", add), flag("BIAS", biased), flag("QUANTIZE", quantize)];
            let buffers = [
                ("x", bytes_f32(&x)),
                ("weight", bytes_f32(&weight)),
                ("bias", bytes_f32(&bias)),
                ("acc", bytes_f32(&acc)),
                ("out", vec![0; n_rows * dim * 4]),
                ("x_q", vec![0; n_rows * dim]),
                ("x_meta", vec![0; n_rows * dim / 32 * 8]),
            ];
            let buffers: Vec<(&str, &[u8])> = buffers.iter().map(|(n, b)| (*n, &b[..])).collect();
            let params = [n_rows as u32, dim as u32, 1e-5f32.to_bits()];
            let result = gpu.run(&find("layer_norm", None, &flags), &buffers, &params, [2, 1, 1]);
            let summed: Vec<f32> = x.iter().zip(&acc).map(|(x, a)| if add { x + a } else { *x }).collect();
            if add {
                assert_eq!(floats(&result["acc"]), summed);
            }
            let mut want = Vec::new();
            for row in summed.chunks_exact(dim) {
                let mean = row.iter().map(|v| f64::from(*v)).sum::<f64>() / dim as f64;
                let variance = row.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / dim as f64;
                let normed = |v: f32| (f64::from(v) - mean) / (variance + 1e-5).sqrt();
                let bias = |i: usize| if biased { f64::from(bias[i]) } else { 0.0 };
                want.extend(row.iter().enumerate().map(|(i, v)| normed(*v) * f64::from(weight[i]) + bias(i)));
            }
            // A mean near 100 of many is known to 2e-5.
            assert_near(&format!("layer norm {flags:?}"), &floats(&result["out"]), &want, 8e-5);
            if quantize {
                check_bytes(&floats(&result["out"]), &result["x_q"], &result["x_meta"]);
            }
        }
    }
}

/// Signed bytes are what the values round to, and their sums are theirs.
fn check_bytes(values: &[f32], quants: &[u8], meta: &[u8]) {
    let meta = words(meta);
    for (g, values) in values.as_chunks::<32>().0.iter().enumerate() {
        let scale = f32::from_bits(meta[2 * g]);
        let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!((scale - largest / 127.0).abs() <= 1e-6 * scale, "group {g}: scale {scale} of {largest}");
        let quants = &quants[32 * g..][..32];
        for (value, quant) in values.iter().zip(quants) {
            let error = (value - scale * f32::from(*quant as i8)).abs();
            assert!(error <= 0.5001 * scale, "group {g}: {value} as {} of {scale}", *quant as i8);
        }
        let sums =
            quants.as_chunks::<16>().0.iter().map(|q| q.iter().map(|q| i16::from(*q as i8)).sum::<i16>());
        let want = sums.zip([meta[2 * g + 1] as u16 as i16, (meta[2 * g + 1] >> 16) as u16 as i16]);
        want.into_iter().for_each(|(want, got)| assert_eq!(got, want, "group {g}: sum"));
    }
}

#[test]
fn activations_quantise_from_every_number_type() {
    let Some(gpu) = Gpu::open("activations_quantise_from_every_number_type") else { return };
    let n_groups = 1041;
    let mut values = Random(6).units(32 * n_groups);
    // Groups of all sizes.
    for (g, group) in values.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        group.iter_mut().for_each(|v| *v *= 2f32.powi(g as i32 % 20 - 10));
    }
    // A group of zeros has the scale zero.
    values[64..96].fill(0.0);
    for (number, bytes, exact) in [
        (Number::F32, bytes_f32(&values), values.clone()),
        (
            Number::F16,
            values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            values.iter().map(|v| f16::from_f32(*v).to_f32()).collect(),
        ),
        (
            Number::Bf16,
            values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect(),
        ),
    ] {
        let (q, meta) = (vec![0xff; values.len()], vec![0xff; values.len() / 4]);
        let buffers: [(&str, &[u8]); 3] = [("x", &bytes), ("x_q", &q), ("x_meta", &meta)];
        let result = gpu.run(&find("quantize", Some(number), &[]), &buffers, &[n_groups as u32], [3, 1, 1]);
        check_bytes(&exact, &result["x_q"], &result["x_meta"]);
        // Bit for bit what correctly rounded division gives.
        for (g, values) in exact.as_chunks::<32>().0.iter().enumerate() {
            let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            assert_eq!(
                f32::from_bits(words(&result["x_meta"])[2 * g]),
                largest / 127.0,
                "scale of group {g}"
            );
            for (i, value) in values.iter().enumerate() {
                let quant = result["x_q"][32 * g + i] as i8;
                assert_eq!(f32::from(quant), (value * inverse).round_ties_even(), "{value} of {largest}");
            }
        }
    }
}

#[test]
fn embeddings_are_rows_of_the_table() {
    let Some(gpu) = Gpu::open("embeddings_are_rows_of_the_table") else { return };
    let mut random = Random(8);
    let tables = bytes_u32(&table_words());
    for (name, k) in [("Q4_K", 512), ("F16", 45), ("IQ2_XS", 256)] {
        let format = Format::from_name(name).unwrap();
        let bytes = random.bytes(format.bytes_of(9 * k).unwrap());
        let mut values = vec![0.0; 9 * k];
        (format.decode)(&bytes, &mut values);
        let planes = Planes::new(format, 9, k).unwrap();
        let mut device = vec![0; planes.bytes()];
        planes.lay(&bytes, &mut device).unwrap();
        let ids = [8u32, 0, 9, 3, 3];
        let out = vec![0xff; ids.len() * k * 4];
        let ids_bytes = bytes_u32(&ids);
        let spec = Spec::find("embed", Some(format), None, &[]).unwrap();
        let launch = |planes: &Planes, device: &[u8], out: &[u8], n: u32, first: u32| {
            let (n_blocks, row_groups) = (planes.n_blocks() as u32, planes.row_groups() as u32);
            let params = [n_blocks, row_groups, k as u32, n, 5, 2.5f32.to_bits(), first];
            let buffers: [(&str, &[u8]); 4] =
                [("w", device), ("tables", &tables), ("ids", &ids_bytes), ("out", out)];
            gpu.run(&spec, &buffers, &params, [1, 1, 1])["out"].clone()
        };
        let whole = launch(&planes, &device, &out, 9, 0);
        let got = floats(&whole);
        // The same in parts of four rows and of five.
        let mut parts = out;
        for (first, n) in [(0, 4), (4, 5)] {
            let planes = Planes::new(format, n, k).unwrap();
            let row = bytes.len() / 9;
            let mut device = vec![0; planes.bytes()];
            planes.lay(&bytes[first * row..(first + n) * row], &mut device).unwrap();
            parts = launch(&planes, &device, &parts, n as u32, first as u32);
        }
        assert!(parts == whole, "{name}: in parts");
        for (t, &id) in ids.iter().enumerate() {
            for i in 0..k {
                let want = if id < 9 { 2.5 * values[id as usize * k + i] } else { 0.0 };
                let got = got[t * k + i];
                assert!(
                    got == want || got.is_nan() && want.is_nan(),
                    "{name}: [{t}, {i}] is {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn angles_are_exact_far_out() {
    let Some(gpu) = Gpu::open("angles_are_exact_far_out") else { return };
    let mut random = Random(9);
    // Frequencies of a base of 10,000 and of a million, odd ones, and a zero.
    let mut inv_freq: Vec<f32> = (0..32).map(|i| 10_000f32.powf(-(i as f32) / 32.0)).collect();
    inv_freq.extend((0..32).map(|i| 1e6f32.powf(-(i as f32) / 32.0)));
    inv_freq.extend([3.7, -0.25, 0.0, 1e-20, 1e-39]);
    let n_pairs = inv_freq.len();
    let axis: Vec<u32> = (0..n_pairs as u32).map(|i| i % 2).collect();
    let mut positions = vec![0u32, 1, 2, 131_071, 1_048_575, 4_194_303];
    positions.extend((0..10).map(|_| random.below(1 << 20) as u32));
    let n_rows = positions.len() / 2;
    let out = vec![0; n_rows * n_pairs * 8];
    let buffers = [bytes_u32(&positions), bytes_f32(&inv_freq), bytes_u32(&axis)];
    let result = gpu.run(
        &find("rope_angles", None, &[]),
        &[("positions", &buffers[0]), ("inv_freq", &buffers[1]), ("axis", &buffers[2]), ("out", &out)],
        &[(n_rows * n_pairs) as u32, n_pairs as u32, 2, 1.5f32.to_bits()],
        [1, 1, 1],
    );
    let mut want = Vec::new();
    for row in positions.as_chunks::<2>().0 {
        for (freq, &axis) in inv_freq.iter().zip(&axis) {
            let angle = f64::from(row[axis as usize]) * f64::from(*freq);
            want.extend([1.5 * angle.cos(), 1.5 * angle.sin()]);
        }
    }
    assert_near("angles", &floats(&result["out"]), &want, 2.5e-7);
}

#[test]
fn the_largest_and_the_experts_are_chosen() {
    let Some(gpu) = Gpu::open("the_largest_and_the_experts_are_chosen") else { return };
    let mut random = Random(13);
    let (n_rows, dim) = (5, 1003);
    let mut x = random.units(n_rows * dim);
    // Ties go to the lower index; negative rows; NaN is passed over; a row of NaN gives 0.
    (x[700], x[90]) = (3.0, 3.0);
    x[dim..2 * dim].iter_mut().for_each(|v| *v -= 5.0);
    x[2 * dim] = f32::NAN;
    x[4 * dim..].fill(f32::NAN);
    let result = gpu.run(
        &find("argmax", None, &[]),
        &[("x", &bytes_f32(&x)), ("out", &[0xff; 20])],
        &[n_rows as u32, dim as u32],
        [2, 1, 1],
    );
    let largest = |row: &[f32]| {
        let mut best = None;
        for (i, v) in row.iter().enumerate() {
            if !v.is_nan() && best.is_none_or(|b: usize| *v > row[b]) {
                best = Some(i);
            }
        }
        best.unwrap_or(0) as u32
    };
    let want: Vec<u32> = x.chunks_exact(dim).map(largest).collect();
    assert_eq!((want[0], want[4]), (90, 0));
    assert_eq!(words(&result["out"]), want);

    for (n_experts, n_used, renormalize) in [(130usize, 8usize, true), (7, 2, false)] {
        let mut logits = random.units(3 * n_experts);
        // A tie: the lower id comes first.
        (logits[5], logits[3]) = (4.0, 4.0);
        let out = vec![0; 3 * n_used * 4];
        let result = gpu.run(
            &find("route", None, &[flag("RENORMALIZE", renormalize)]),
            &[("logits", &bytes_f32(&logits)), ("ids", &out), ("weights", &out)],
            &[3, n_experts as u32, n_used as u32],
            [2, 1, 1],
        );
        let (ids, weights) = (words(&result["ids"]), floats(&result["weights"]));
        for (row, logits) in logits.chunks_exact(n_experts).enumerate() {
            let mut order: Vec<usize> = (0..n_experts).collect();
            order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
            let all: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            let chosen: f64 = order[..n_used].iter().map(|&e| f64::from(logits[e]).exp() / all).sum();
            let scale = if renormalize { 1.0 / chosen } else { 1.0 };
            let want: Vec<f64> =
                order[..n_used].iter().map(|&e| f64::from(logits[e]).exp() / all * scale).collect();
            assert_eq!(
                ids[row * n_used..][..n_used],
                order[..n_used].iter().map(|&e| e as u32).collect::<Vec<_>>()
            );
            assert_near("route", &weights[row * n_used..][..n_used], &want, 1e-6);
        }
        let dim = 19;
        let y = random.units(3 * n_used * dim);
        let combined = gpu.run(
            &find("moe_combine", None, &[]),
            &[("y", &bytes_f32(&y)), ("weights", &result["weights"]), ("out", &vec![0; 3 * dim * 4])],
            &[3 * dim as u32, dim as u32, n_used as u32],
            [1, 1, 1],
        );
        let mut want = vec![0.0; 3 * dim];
        for (i, y) in y.chunks_exact(dim).enumerate() {
            let to = i / n_used * dim;
            (0..dim).for_each(|d| want[to + d] += f64::from(weights[i]) * f64::from(y[d]));
        }
        assert_near("combine", &floats(&combined["out"]), &want, 1e-6);
    }
}

#[test]
fn the_largest_few_are_found_in_order() {
    let Some(gpu) = Gpu::open("the_largest_few_are_found_in_order") else { return };
    let mut random = Random(16);
    let (n_rows, dim) = (4, 3001);
    let mut x: Vec<f32> = random.units(n_rows * dim).iter().map(|v| 20.0 * v).collect();
    // A row of few values, so that the last place is one of many equals; zeros of both signs are equals too.
    x[dim..2 * dim].iter_mut().for_each(|v| *v = (*v / 10.0).round());
    // A row below zero with infinities; a row of NaN but for five.
    x[2 * dim..3 * dim].iter_mut().for_each(|v| *v = -v.abs() - 1.0);
    (x[2 * dim + 5], x[2 * dim + 7], x[2 * dim + 9]) = (f32::INFINITY, f32::NEG_INFINITY, f32::NAN);
    x[3 * dim..].fill(f32::NAN);
    (0..5).for_each(|i| x[3 * dim + 600 * i] = i as f32);
    for k in [1usize, 5, 40, 700, 1024] {
        let out = vec![0xff; 4 * n_rows * k];
        let result = gpu.run(
            &find("top_k", None, &[]),
            &[("x", &bytes_f32(&x)), ("values", &out), ("ids", &out)],
            &[n_rows as u32, dim as u32, k as u32],
            [3, 1, 1],
        );
        let (values, ids) = (floats(&result["values"]), words(&result["ids"]));
        for (row, x) in x.chunks_exact(dim).enumerate() {
            let rank = |v: f32| if v.is_nan() { f64::NEG_INFINITY } else { f64::from(v).max(-1e300) + 0.0 };
            let mut order: Vec<u32> = (0..dim as u32).collect();
            order.sort_by(|&a, &b| rank(x[b as usize]).total_cmp(&rank(x[a as usize])).then(a.cmp(&b)));
            assert_eq!(ids[row * k..][..k], order[..k], "{k} of row {row}");
            let got = values[row * k..][..k].iter().map(|v| v.to_bits());
            assert!(got.eq(order[..k].iter().map(|&i| x[i as usize].to_bits())), "{k} of row {row}");
        }
    }
}
