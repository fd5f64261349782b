//! Nanoseconds an element of every row decoder, panel function and encoder, with the processor's widest instructions, and of
//! the decoder with the target's baseline: `cargo run --release -p hanzo-quant --example decode_speed [NAME ...]`.
//!
//! Rows of 4096 elements stay in the first-level cache, so the figure is the arithmetic's, not the memory's. It is
//! the least of many rounds, each short enough to be left alone on a busy machine.

#![expect(clippy::print_stdout, reason = "prints its result")]

use std::{hint::black_box, time::Instant};

use hanzo_quant::{FORMATS, Format, LANES, PANEL_ELEMS, Panel};

const ROW: usize = 4096;
const ROWS_PER_ROUND: usize = 20;
const ROUNDS: usize = 201;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    println!("{:8} {:>10} {:>10} {:>10} {:>10}", "ns/elem", "decode", "baseline", "panel", "encode");
    for format in FORMATS.iter().filter(|f| only.is_empty() || only.iter().any(|name| f.name == name)) {
        let figures: Vec<String> =
            measure(format).iter().map(|ns| ns.map_or("-".to_owned(), |ns| format!("{ns:.3}"))).collect();
        println!(
            "{:8} {:>10} {:>10} {:>10} {:>10}",
            format.name, figures[0], figures[1], figures[2], figures[3]
        );
    }
}

/// ns an element of decode, baseline decode, panel and encode.
fn measure(format: &Format) -> [Option<f64>; 4] {
    let n_bytes = format.bytes_of(ROW).expect("4096 elements are whole blocks of every format");
    // A repeated byte makes every scale an ordinary number.
    let mut bytes: Vec<u8> = (0..n_bytes).map(|i| 0x21 + (i * 7 % 16) as u8).collect();
    let mut values = vec![0.0; ROW];
    let widest = time(|| (format.decode)(black_box(&bytes), black_box(&mut values)));
    let baseline = time(|| (format.decode_baseline)(black_box(&bytes), black_box(&mut values)));
    let panel = format.panel.map(|panel| {
        let mut out = Panel::ZERO.clone();
        // Eight rows' worth of blocks, in as many panels as hold as many elements as a row.
        let blocks = &bytes[..n_bytes / (ROW / (LANES * PANEL_ELEMS))];
        time(|| {
            (0..ROW / (LANES * PANEL_ELEMS))
                .for_each(|_| (panel.fill)(black_box(blocks), black_box(&mut out)))
        })
    });
    for (i, value) in values.iter_mut().enumerate() {
        *value = ((i * 7919 % 2003) as f32 - 1001.0) * 1e-3;
    }
    let encode = format.encode.map(|encode| time(|| encode(black_box(&values), None, black_box(&mut bytes))));
    [Some(widest), Some(baseline), panel, encode]
}

fn time(mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..ROWS_PER_ROUND).for_each(|_| work());
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min);
    best * 1e9 / (ROWS_PER_ROUND * ROW) as f64
}
