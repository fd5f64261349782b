//! Nanoseconds an element of every row decoder and encoder, with the processor's widest instructions and with the
//! target's baseline: `cargo run --release -p hanzo-quant --example decode_speed [NAME]`.
//!
//! Rows of 4096 elements stay in the first-level cache, so the figure is the arithmetic's, not the memory's. It is
//! the least of nine rounds.

#![expect(clippy::print_stdout, reason = "prints its result")]

use std::{hint::black_box, time::Instant};

use hanzo_quant::{FORMATS, Format};

const ROW: usize = 4096;
const ROWS_PER_ROUND: usize = 500;

fn main() {
    let only = std::env::args().nth(1);
    println!("{:8} {:>10} {:>10} {:>10}", "ns/elem", "decode", "baseline", "encode");
    for format in FORMATS.iter().filter(|f| only.as_ref().is_none_or(|name| f.name == name)) {
        let (widest, baseline, encode) = measure(format);
        let encode = encode.map_or("-".to_owned(), |ns| format!("{ns:.3}"));
        println!("{:8} {widest:>10.3} {baseline:>10.3} {encode:>10}", format.name);
    }
}

/// ns an element of (decode, baseline decode, encode).
fn measure(format: &Format) -> (f64, f64, Option<f64>) {
    let n_bytes = format.bytes_of(ROW).expect("4096 elements are whole blocks of every format");
    // A repeated byte makes every scale an ordinary number.
    let mut bytes: Vec<u8> = (0..n_bytes).map(|i| 0x21 + (i * 7 % 16) as u8).collect();
    let mut values = vec![0.0; ROW];
    let widest = time(|| (format.decode)(black_box(&bytes), black_box(&mut values)));
    let baseline = time(|| (format.decode_baseline)(black_box(&bytes), black_box(&mut values)));
    for (i, value) in values.iter_mut().enumerate() {
        *value = ((i * 7919 % 2003) as f32 - 1001.0) * 1e-3;
    }
    let encode = format.encode.map(|encode| time(|| encode(black_box(&values), None, black_box(&mut bytes))));
    (widest, baseline, encode)
}

fn time(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..ROWS_PER_ROUND).for_each(|_| work());
        start.elapsed().as_secs_f64()
    };
    let best = (0..9).map(round).fold(f64::INFINITY, f64::min);
    best * 1e9 / (ROWS_PER_ROUND * ROW) as f64
}
