//! Speed of the CPU's products per weight format: GB/s of weights for one row of activations, GFLOP/s for many.
//!
//! `cargo run --release -p hanzo-ml --example matmul_speed -- [FORMAT ...]`, all quantized formats by default.
//! Each figure is the best of several rounds; weights are random bytes, whose values do not matter for speed.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use hanzo_ml::{
    Bytes, DType, QTensor, Result,
    backend::{Backend, MatMul},
    cpu::{Cpu, CpuOptions},
};
use hanzo_quant::{FORMATS, Format};

const N: usize = 4096;
const K: usize = 4096;
const ROWS: usize = 512;
const ROUNDS: usize = 5;

/// Best seconds of one product of `rows` rows.
fn seconds(cpu: &mut Cpu, format: &'static Format, rows: usize) -> Result<f64> {
    let len = format.bytes_of(K).unwrap_or(0) * N;
    // Small bytes keep every float field small.
    let bytes = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x37).collect();
    let tensor = QTensor::new("weight", format, vec![N, K], Bytes::owned(bytes))?;
    let weight = cpu.load(&tensor)?;
    let x = cpu.alloc(DType::F32, rows * K)?;
    cpu.upload_f32(&x, &vec![0.5; rows * K])?;
    let out = cpu.alloc(DType::F32, rows * N)?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        cpu.matmul(&out, &MatMul { x: &x, weight: &weight, bias: None })?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    cpu.free(x);
    cpu.free(out);
    Ok(best)
}

fn main() -> Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut cpu = Cpu::new(CpuOptions::default())?;
    println!("{} · {N}×{K}, best of {ROUNDS}", cpu.name());
    println!("{:<8} {:>8} {:>10} {:>12} {:>8}", "format", "GB/s", "Gweights/s", "GFLOP/s T=512", "T=8");
    for format in FORMATS {
        let named = names.iter().any(|n| n.eq_ignore_ascii_case(format.name));
        let wanted = if names.is_empty() { format.block_elems > 1 } else { named };
        if !wanted {
            continue;
        }
        let one = seconds(&mut cpu, format, 1)?;
        let (eight, many) = (seconds(&mut cpu, format, 8)?, seconds(&mut cpu, format, ROWS)?);
        let bytes = (format.bytes_of(K).unwrap_or(0) * N) as f64;
        let flops = |rows: usize, seconds: f64| 2.0 * (N * K * rows) as f64 / seconds / 1e9;
        println!(
            "{:<8} {:>8.2} {:>10.2} {:>12.1} {:>8.1}",
            format.name,
            bytes / one / 1e9,
            (N * K) as f64 / one / 1e9,
            flops(ROWS, many),
            flops(8, eight)
        );
    }
    Ok(())
}
