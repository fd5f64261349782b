//! Speed of a backend's products per weight format: one row of activations (decode) and 512 rows (reading a prompt), each
//! with its share of what the machine can do, measured first.
//!
//! `cargo bench -p hanzo-ml --bench products -- [NAME ...] [--threads N] [--seconds S] [--f32] [--cached] [--json]`; every
//! format, or those whose name contains a NAME. Quantised weights are multiplied in integers, with `--f32` in floats. A figure is the median of several products after a warm-up.
//!
//! The single row goes over copies of the weight that are together several times the last cache, so that its bytes come
//! from memory; with `--cached` a weight has few rows instead and stays in the second cache, so the figure is the
//! arithmetic's alone. Weights are encoded random normals where the format has an encoder, else random blocks whose values are
//! ordinary numbers; the values do not matter for speed.

#![expect(clippy::print_stdout, reason = "prints its result")]

use std::{process::ExitCode, time::Instant};

use hanzo_ml::{
    Bytes, DType, QTensor,
    backend::{Backend, Buffer, MatMul, Weight},
    cpu::{Activations, Cpu, CpuOptions},
    limits::{self, Limits},
    parallel::Parallel,
};
use hanzo_quant::{FORMATS, Format};

const N: usize = 4096;
/// Rows of a weight that stays in a cache.
const N_CACHED: usize = 64;
const K: usize = 4096;
/// Rows of activations of the large product.
const ROWS: usize = 512;
/// Bytes that pass between two uses of the same weight by one row.
const COPIES_BYTES: usize = 128 << 20;
/// Samples of a figure at least; more while its time lasts.
const SAMPLES_MIN: usize = 5;
/// Rows of a weight that differ; the others repeat them.
const ROWS_MADE: usize = 64;
/// Larger values do not occur in models.
const VALUE_MAX: f32 = 1e4;

type Failure = Box<dyn std::error::Error>;

struct Options {
    names: Vec<String>,
    threads: Option<usize>,
    seconds: f64,
    f32: bool,
    cached: bool,
    json: bool,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options =
            Self { names: Vec::new(), threads: None, seconds: 0.5, f32: false, cached: false, json: false };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--threads" => options.threads = Some(value()?.parse()?),
                "--seconds" => options.seconds = value()?.parse()?,
                "--f32" => options.f32 = true,
                "--cached" => options.cached = true,
                "--json" => options.json = true,
                // Cargo says that this is a benchmark.
                "--bench" => {}
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
                name => options.names.push(name.to_uppercase()),
            }
        }
        Ok(options)
    }

    fn cpu(&self) -> hanzo_ml::Result<Cpu> {
        let activations = if self.f32 { Activations::F32 } else { Activations::Int8 };
        Cpu::new(CpuOptions { threads: self.threads, activations, ..CpuOptions::default() })
    }

    /// Rows of a weight.
    fn n(&self) -> usize {
        if self.cached { N_CACHED } else { N }
    }

    fn wants(&self, format: &Format) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| format.name.contains(name.as_str()))
    }
}

/// Marsaglia's xorshift64: the same weights in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About normal, variance 1: the sum of twelve uniform numbers less 6.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 6.0
    }
}

/// The bytes of a weight `[n, K]`.
fn weight_bytes(format: &Format, n: usize, random: &mut Random) -> Vec<u8> {
    let row_bytes = K / format.block_elems * format.block_bytes;
    let mut bytes = vec![0; row_bytes * ROWS_MADE];
    match format.encode {
        Some(encode) => {
            let values: Vec<f32> = (0..K * ROWS_MADE).map(|_| random.normal() / 64.0).collect();
            encode(&values, None, &mut bytes);
        }
        None => bytes.chunks_mut(format.block_bytes).for_each(|block| random_block(format, random, block)),
    }
    bytes.repeat(n / ROWS_MADE)
}

/// Fills a block with random bytes until its values are ordinary numbers.
fn random_block(format: &Format, random: &mut Random, block: &mut [u8]) {
    let mut values = vec![0.0; format.block_elems];
    loop {
        block.fill_with(|| (random.next() >> 32) as u8);
        (format.decode)(block, &mut values);
        let largest =
            values.iter().fold(0.0, |a: f32, b| if b.is_finite() { a.max(b.abs()) } else { f32::INFINITY });
        if largest < VALUE_MAX && largest > 1.0 / VALUE_MAX {
            return;
        }
    }
}

/// One measured format.
struct Row {
    format: &'static Format,
    /// Rows of the weight.
    n: usize,
    /// Seconds of one row of activations.
    one: f64,
    /// Seconds of [`ROWS`] rows.
    many: f64,
}

impl Row {
    fn bytes(&self) -> f64 {
        (K / self.format.block_elems * self.format.block_bytes * self.n) as f64
    }

    fn read_bytes_per_s(&self) -> f64 {
        self.bytes() / self.one
    }

    fn ops_per_s(&self) -> f64 {
        2.0 * (self.n * K * ROWS) as f64 / self.many
    }

    fn text(&self, limits: &Limits) -> String {
        let share = |value: f64, limit: f64| format!("{:.0}%", 100.0 * value / limit);
        format!(
            "{:<8} {:>9.3} {:>7.2} {:>7} {:>9.1} {:>9.1} {:>7} {:>7}",
            self.format.name,
            self.one * 1e3,
            self.read_bytes_per_s() / 1e9,
            share(self.read_bytes_per_s(), limits.read_bytes_per_s),
            self.many * 1e3,
            self.ops_per_s() / 1e9,
            share(self.ops_per_s(), limits.f32_ops_per_s),
            limits.int8_ops_per_s.map_or_else(|| "-".to_owned(), |limit| share(self.ops_per_s(), limit)),
        )
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "format": self.format.name,
            "matvec_s": self.one,
            "matvec_bytes_per_s": self.read_bytes_per_s(),
            "matmul_s": self.many,
            "matmul_ops_per_s": self.ops_per_s(),
        })
    }
}

/// The median seconds of a product of `x` with one weight after the other.
fn seconds(
    backend: &mut dyn Backend,
    weights: &[Weight],
    (x, out): (&Buffer, &Buffer),
    budget: f64,
) -> Result<f64, Failure> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    for (i, weight) in weights.iter().cycle().enumerate() {
        let start = Instant::now();
        backend.matmul(out, &MatMul { x, weight, bias: None })?;
        // Nothing is done before it is waited for.
        backend.download_f32(out, &mut vec![0.0; out.len()])?;
        // The first uses of every weight warm up.
        if i >= weights.len() {
            samples.push(start.elapsed().as_secs_f64());
        }
        if samples.len() >= SAMPLES_MIN && begin.elapsed().as_secs_f64() > budget {
            break;
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

fn measure(options: &Options, format: &'static Format) -> Result<Row, Failure> {
    // A backend each, so that the weights of the last format are gone.
    let (backend, n, budget): (&mut dyn Backend, _, _) = (&mut options.cpu()?, options.n(), options.seconds);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let bytes = weight_bytes(format, n, &mut random);
    let n_copies = if options.cached { 1 } else { COPIES_BYTES.div_ceil(bytes.len()) };
    let load = |backend: &mut dyn Backend| {
        backend.load(&QTensor::new("weight", format, vec![n, K], Bytes::owned(bytes.clone()))?)
    };
    let weights = (0..n_copies).map(|_| load(backend)).collect::<hanzo_ml::Result<Vec<_>>>()?;
    let mut figure = |rows: usize, weights: &[Weight]| {
        let (x, out) = (backend.alloc(DType::F32, rows * K)?, backend.alloc(DType::F32, rows * n)?);
        backend.upload_f32(&x, &(0..rows * K).map(|_| random.normal()).collect::<Vec<_>>())?;
        let seconds = seconds(backend, weights, (&x, &out), budget);
        backend.free(x);
        backend.free(out);
        seconds
    };
    Ok(Row { format, n, one: figure(1, &weights)?, many: figure(ROWS, &weights[..1])? })
}

fn run() -> Result<(), Failure> {
    let options = Options::parse(std::env::args().skip(1))?;
    let limits = limits::measure(&Parallel::new(options.threads)?)?;
    let int8 = limits.int8_ops_per_s;
    if !options.json {
        let int8 = int8.map_or_else(String::new, |ops| format!(", {:.0} GOP/s int8", ops / 1e9));
        let (read, f32_ops) = (limits.read_bytes_per_s / 1e9, limits.f32_ops_per_s / 1e9);
        println!(
            "{}: {read:.1} GB/s read, {f32_ops:.0} GFLOP/s f32{int8}; {}×{K}, T=1 and T={ROWS}",
            options.cpu()?.name(),
            options.n()
        );
        println!("format     T=1 ms    GB/s  memory  T={ROWS} ms    GOP/s     f32    int8");
    }
    let mut rows = Vec::new();
    for format in FORMATS.iter().filter(|format| options.wants(format)) {
        let row = measure(&options, format)?;
        if options.json {
            rows.push(row.json());
        } else {
            println!("{}", row.text(&limits));
        }
    }
    if options.json {
        let limits = serde_json::json!({
            "threads": limits.threads,
            "read_bytes_per_s": limits.read_bytes_per_s,
            "f32_ops_per_s": limits.f32_ops_per_s,
            "int8_ops_per_s": int8,
        });
        println!(
            "{:#}",
            serde_json::json!({ "backend": options.cpu()?.name(), "limits": limits, "rows": rows })
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
