//! The numeric matrix on every device of this machine: each weight format in each product and lookup, in every kind of
//! arithmetic, and every other operation. Prints how many combinations passed; on a machine without a GPU it says why there
//! is none.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say which devices they found")]

mod common;

use common::*;
use hanzo_kernel::Target;
use hanzo_ml::{
    backend::Backend,
    gpu::{Gpu, GpuOptions, Products, null::Null},
    numerics::{self, Depth, Processor, Report, Subject},
};
use hanzo_quant::{FORMATS, Unpack};

fn check(subject: &mut dyn Subject, depth: Depth) -> Report {
    let report = numerics::check(subject, depth, &mut |_, _| ()).unwrap();
    println!("{report}");
    report
}

/// Combinations of formats, products and arithmetic that a device has.
fn n_products(subject: &dyn Subject) -> usize {
    let arithmetics = subject.arithmetics();
    let count = |products| arithmetics.iter().filter(|a| a.products == products).count();
    let formats = || FORMATS.iter().filter(|format| subject.reads(format));
    let n_int = formats().filter(|format| matches!(format.unpack, Unpack::Int(_))).count();
    let n_all = formats().count();
    // Matrix units serve products of many rows.
    4 * n_all * count(Products::Float)
        + 4 * n_int * count(Products::Int8)
        + 2 * n_all * count(Products::Matrix)
}

fn expect_all(subject: &mut dyn Subject, report: &Report) {
    assert_eq!(report.n_failed(), 0, "{report}");
    let with_weights = |o: &&numerics::Outcome| o.operation.contains("mat");
    let n: usize = report.outcomes.iter().filter(with_weights).map(|o| o.n_checks).sum();
    assert_eq!(n, n_products(subject), "each product of the matrix is a combination");
    for operation in [
        "embed",
        "gather_rows",
        "scatter_rows",
        "copies",
        "add",
        "rms_norm",
        "add_rms_norm",
        "norm_for_products",
        "rope_angles",
        "rope",
        "gated_activation",
        "softcap",
        "route",
        "moe_combine",
        "kv_append",
        "rope_append",
        "attention",
        "activations",
    ] {
        assert!(report.outcomes.iter().any(|o| o.operation == operation), "{operation} was not checked");
    }
}

#[test]
fn gpus_compute_what_they_should() {
    for name in gpu_names() {
        let mut gpu = gpu(name, Products::Float);
        let depth = Depth::for_device(&Backend::name(&gpu));
        let report = check(&mut gpu, depth);
        expect_all(&mut gpu, &report);
        let formats = FORMATS.iter().filter(|format| hanzo_kernel::is_supported(format)).count();
        let decoded = report.outcomes.iter().find(|o| o.operation == "decode").unwrap();
        assert_eq!(decoded.n_checks, formats);
    }
}

#[test]
fn the_cpu_computes_what_it_should() {
    let mut cpu = Processor::new(Some(2)).unwrap();
    let report = check(&mut cpu, Depth::Brief);
    expect_all(&mut cpu, &report);
}

/// A device that does nothing fails everything, but for products, whose factors it says are zero too, and values that are
/// nearly so.
#[test]
fn a_device_that_does_nothing_fails() {
    let (null, _) = Null::new(Target::Cuda, 1 << 30);
    let mut gpu = Gpu::new(Box::new(null), GpuOptions::default()).unwrap();
    let report = numerics::check(&mut gpu, Depth::Brief, &mut |_, _| ()).unwrap();
    for outcome in report.outcomes.iter().filter(|o| !o.operation.contains("mat")) {
        let (n_failed, n_checks) = (outcome.n_failed, outcome.n_checks);
        assert!(n_failed > n_checks / 2, "{}: {n_failed} of {n_checks} failed", outcome.name());
    }
}
