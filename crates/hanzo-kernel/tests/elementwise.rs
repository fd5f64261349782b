//! Kernels on single elements, copies, and sums of rows against their formulas in f64, on a device and on odd shapes.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{
    Gpu, Random, assert_near, bytes_f32, bytes_u32, cache_bytes, cache_values, find, flag, floats, round_to,
    words,
};
use hanzo_kernel::{Number, Value};

#[test]
fn elementwise_kernels_equal_f64() {
    let Some(gpu) = Gpu::open("elementwise_kernels_equal_f64") else { return };
    let mut random = Random(3);
    let n = 1001;
    let (a, b) = (random.units(n), random.units(n));
    let (a_bytes, b_bytes) = (bytes_f32(&a), bytes_f32(&b));
    let pairs = || a.iter().zip(&b).map(|(a, b)| (f64::from(*a), f64::from(*b)));

    let result =
        gpu.run(&find("add", None, &[]), &[("acc", &a_bytes), ("x", &b_bytes)], &[n as u32], [2, 1, 1]);
    assert_near("add", &floats(&result["acc"]), &pairs().map(|(a, b)| a + b).collect::<Vec<_>>(), 1e-7);

    // From small, where differences cancel, to large, where exponentials overflow.
    let wide: Vec<f32> = a.iter().enumerate().map(|(i, a)| a * 10f32.powi(i as i32 % 7 - 3)).collect();
    let result = gpu.run(
        &find("softcap", None, &[]),
        &[("x", &bytes_f32(&wide))],
        &[n as u32, 3.0f32.to_bits()],
        [2, 1, 1],
    );
    let want: Vec<f64> = wide.iter().map(|x| 3.0 * (f64::from(*x) / 3.0).tanh()).collect();
    assert_near("softcap", &floats(&result["x"]), &want, 1e-6);
    let relative = floats(&result["x"])
        .iter()
        .zip(&want)
        .map(|(g, w)| (f64::from(*g) / w - 1.0).abs())
        .fold(0.0, f64::max);
    assert!(relative < 1e-6, "softcap: relative error {relative:e}");

    for (name, f) in [
        ("silu", (|x| x / (1.0 + (-x).exp())) as fn(f64) -> f64),
        ("gelu_tanh", |x| x / (1.0 + (-1.595_769_121_605_730_8 * (x + 0.044_715 * x * x * x)).exp())),
        ("gelu_erf", |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))),
    ] {
        let spec = find("gated_activation", None, &[("ACTIVATION", Value::Word(name))]);
        let out = vec![0; 4 * n];
        let gate = bytes_f32(&wide);
        let result =
            gpu.run(&spec, &[("gate", &gate), ("up", &b_bytes), ("out", &out)], &[n as u32], [2, 1, 1]);
        let want: Vec<f64> = wide.iter().zip(&b).map(|(g, u)| f(f64::from(*g)) * f64::from(*u)).collect();
        assert_near(name, &floats(&result["out"]), &want, 2e-6);
    }
}

/// By its series below 6, DLMF 7.6.2.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[test]
fn numbers_are_cast_and_tensors_copied() {
    let Some(gpu) = Gpu::open("numbers_are_cast_and_tensors_copied") else { return };
    let mut random = Random(15);
    let mut values = random.units(118);
    // Ties to even, overflow, the infinities, zeros.
    values.extend([
        1.000_488_3,
        1.001_464_8,
        1.003_906_3,
        65_519.0,
        3e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        0.0,
        2048.5,
    ]);
    for &number in Number::ALL {
        let bytes = cache_bytes(number, &values).len();
        let result = gpu.run(
            &find("cast", Some(number), &[flag("FROM_F32", true)]),
            &[("src", &bytes_f32(&values)), ("out", &vec![0; bytes])],
            &[values.len() as u32 / 4],
            [1, 1, 1],
        );
        let mut want = values.clone();
        round_to(number, &mut want);
        assert_eq!(cache_values(number, &result["out"]), want, "{number:?}");
        let back = gpu.run(
            &find("cast", Some(number), &[flag("FROM_F32", false)]),
            &[("src", &result["out"]), ("out", &vec![0; 4 * values.len()])],
            &[values.len() as u32 / 4],
            [1, 1, 1],
        );
        assert_eq!(floats(&back["out"]), want, "{number:?}");
    }
    // [2, 3, 5, 7] from element 1 on, its axes in the order 2, 0, 3, 1.
    let src: Vec<u32> = (0..1 + 2 * 3 * 5 * 7).collect();
    let n = src.len() - 1;
    let result = gpu.run(
        &find("copy_strided", None, &[]),
        &[("src", &bytes_u32(&src)), ("out", &vec![0; 4 * n])],
        &[n as u32, 2, 7, 3, 1, 7, 105, 1, 35],
        [1, 1, 1],
    );
    let mut want = Vec::new();
    for c in 0..5 {
        for a in 0..2 {
            for d in 0..7 {
                want.extend((0..3).map(|b| 1 + a * 105 + b * 35 + c * 7 + d));
            }
        }
    }
    assert_eq!(words(&result["out"]), want);
}

/// A function of an element, by its name.
type Named<F> = [(&'static str, F)];

#[test]
fn activations_without_a_gate_equal_f64() {
    let Some(gpu) = Gpu::open("activations_without_a_gate_equal_f64") else { return };
    let n = 1003;
    let x: Vec<f32> =
        Random(17).units(n).iter().enumerate().map(|(i, v)| v * 10f32.powi(i as i32 % 5 - 3)).collect();
    let (scale, shift) = (1.5f32, 0.25f32);
    let functions: &Named<fn(f64) -> f64> = &[
        ("none", |x| x),
        ("silu", |x| x / (1.0 + (-x).exp())),
        ("gelu_tanh", |x| x / (1.0 + (-1.595_769_121_605_730_8 * (x + 0.044_715 * x * x * x)).exp())),
        ("gelu_erf", |x| 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))),
        ("sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("relu", |x| x.max(0.0)),
        ("tanh", f64::tanh),
        ("exp", f64::exp),
    ];
    for (name, f) in functions {
        let result = gpu.run(
            &find("activation", None, &[("ACTIVATION", Value::Word(name))]),
            &[("x", &bytes_f32(&x))],
            &[n as u32, scale.to_bits(), shift.to_bits()],
            [2, 1, 1],
        );
        // The line is rounded before the function, which is steep in places.
        let want: Vec<f64> = x.iter().map(|v| f(f64::from(scale * v + shift))).collect();
        assert_near(name, &floats(&result["x"]), &want, if *name == "exp" { 2e-5 } else { 3e-6 });
    }
}

#[test]
fn repeating_operands_meet_their_elements() {
    let Some(gpu) = Gpu::open("repeating_operands_meet_their_elements") else { return };
    let mut random = Random(18);
    let (rows, columns) = (23, 47);
    let acc = random.units(rows * columns);
    // Element by element, a value a column, a value a row, one for all.
    for (inner, period) in [(1, rows * columns), (1, columns), (columns, rows), (1, 1)] {
        let x: Vec<f32> = random.units(period).iter().map(|v| v + 1.5).collect();
        let functions: &Named<fn(f64, f64) -> f64> = &[
            ("add", |a, b| a + b),
            ("sub", |a, b| a - b),
            ("mul", |a, b| a * b),
            ("div", |a, b| a / b),
            ("min", f64::min),
            ("max", f64::max),
        ];
        for (name, f) in functions {
            let result = gpu.run(
                &find("binary", None, &[("OP", Value::Word(name))]),
                &[("acc", &bytes_f32(&acc)), ("x", &bytes_f32(&x))],
                &[acc.len() as u32, inner as u32, period as u32],
                [2, 1, 1],
            );
            let want: Vec<f64> = (acc.iter().enumerate())
                .map(|(i, a)| f(f64::from(*a), f64::from(x[i / inner % period])))
                .collect();
            assert_near(name, &floats(&result["acc"]), &want, 3e-7);
        }
    }
}

#[test]
fn rows_are_reduced_and_softened() {
    let Some(gpu) = Gpu::open("rows_are_reduced_and_softened") else { return };
    let mut random = Random(19);
    for (n_rows, dim) in [(5, 1), (3, 77), (4, 1031)] {
        // Below zero, so that a maximum that begins at zero is seen; the minimum is above zero in the next turn.
        let x: Vec<f32> = random.units(n_rows * dim).iter().map(|v| v - 3.0).collect();
        let negated: Vec<f32> = x.iter().map(|v| -v).collect();
        for x in [x, negated] {
            let rows = || x.chunks_exact(dim).map(|row| row.iter().map(|v| f64::from(*v)));
            let functions: &[(&str, Vec<f64>)] = &[
                ("sum", rows().map(Iterator::sum).collect()),
                ("mean", rows().map(|row| row.sum::<f64>() / dim as f64).collect()),
                ("squares", rows().map(|row| row.map(|v| v * v).sum()).collect()),
                ("max", rows().map(|row| row.fold(f64::NEG_INFINITY, f64::max)).collect()),
                ("min", rows().map(|row| row.fold(f64::INFINITY, f64::min)).collect()),
            ];
            for (name, want) in functions {
                let result = gpu.run(
                    &find("reduce_rows", None, &[("OP", Value::Word(name))]),
                    &[("x", &bytes_f32(&x)), ("out", &vec![0xff; 4 * n_rows])],
                    &[n_rows as u32, dim as u32],
                    [2, 1, 1],
                );
                assert_near(name, &floats(&result["out"]), want, 1e-6);
            }
            let result = gpu.run(
                &find("softmax", None, &[]),
                &[("x", &bytes_f32(&x))],
                &[n_rows as u32, dim as u32, 40f32.to_bits()],
                [2, 1, 1],
            );
            let mut want = Vec::new();
            for row in rows() {
                let top = row.clone().fold(f64::NEG_INFINITY, f64::max);
                let all: f64 = row.clone().map(|v| (40.0 * (v - top)).exp()).sum();
                want.extend(row.map(|v| (40.0 * (v - top)).exp() / all));
            }
            // Scores of up to 160 are known to 8e-6.
            assert_near("softmax", &floats(&result["x"]), &want, 2e-5);
        }
    }
}

#[test]
fn strided_tensors_change_their_type() {
    let Some(gpu) = Gpu::open("strided_tensors_change_their_type") else { return };
    // [2, 3, 5, 7] from element 1 on, its axes in the order 2, 0, 3, 1; and a slice of an odd number of elements, reversed axes.
    let cases: [([usize; 4], usize, [usize; 4]); 2] =
        [([5, 2, 7, 3], 1, [7, 105, 1, 35]), ([1, 3, 3, 5], 10, [0, 35, 2, 7])];
    for &number in Number::HALF {
        let mut src = Random(20).units(1 + 2 * 3 * 5 * 7);
        for (sizes, offset, strides) in cases {
            let mut places = Vec::new();
            for i in 0..sizes.iter().product::<usize>() {
                let [_, b, c, d] = sizes;
                let index = [i / (b * c * d), i / (c * d) % b, i / d % c, i % d];
                places.push(offset + index.iter().zip(strides).map(|(i, s)| i * s).sum::<usize>());
            }
            let n = places.len();
            let params: Vec<u32> = [&[n, sizes[1], sizes[2], sizes[3], offset][..], &strides]
                .concat()
                .iter()
                .map(|v| *v as u32)
                .collect();
            let narrow = find("cast_strided", Some(number), &[("CAST", Value::Word("narrow"))]);
            let out = vec![0xff; 2 * n.next_multiple_of(4)];
            let result = gpu.run(&narrow, &[("src", &bytes_f32(&src)), ("out", &out)], &params, [1, 1, 1]);
            round_to(number, &mut src);
            let mut want: Vec<f32> = places.iter().map(|&at| src[at]).collect();
            want.resize(n.next_multiple_of(4), 0.0);
            assert_eq!(cache_values(number, &result["out"]), want, "{number:?}: narrow");
            for (word, bytes) in [("widen", 4), ("keep", 2)] {
                let spec = find("cast_strided", Some(number), &[("CAST", Value::Word(word))]);
                let out = vec![0xff; bytes * n.next_multiple_of(4)];
                let half = cache_bytes(number, &src);
                let result = gpu.run(&spec, &[("src", &half), ("out", &out)], &params, [1, 1, 1]);
                let got =
                    if bytes == 4 { floats(&result["out"]) } else { cache_values(number, &result["out"]) };
                assert_eq!(got, want, "{number:?}: {word}");
            }
        }
    }
}
