//! `hanzo bench`: tokens a second of reading and of generating, in the rows of llama-bench.
//!
//! It drives the decoder's public step. A test of reading gives random tokens in batches; a test of generating
//! gives one token a step, the one that was chosen from the last step's logits. The first repetition warms up and
//! is not counted.

mod plan;
mod table;

use std::time::Instant;

use clap::Args;
use hanzo_engine::{
    ModelFile,
    decoder::{Chunk, Decoder, DecoderOptions, DevicePlan, MemoryPlan, Prepared, Rows},
    sample::{Sampler, SamplingParams},
};
use hanzo_ml::cpu::Cpu;

use crate::{
    compute::ComputeArgs,
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    loading::Loading,
    output::{note, print},
};
use plan::{Format, Setting, Test};
use table::{Row, Subject};

const EXAMPLES: &str = "\
Examples:
  hanzo bench -m smollm2:135m
  hanzo bench -m model.gguf -p 512,2048 -n 64 -d 0,4096 -t 4,8 -o csv

Each option that takes a list is tried with each of its values.";

/// Measure the speed of a model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Model: a file or folder, a name of the catalog, or a hub id org/repo[:quant]
    #[arg(short, long, value_name = "MODEL", default_value = crate::run::DEFAULT_MODEL)]
    model: String,
    /// Prompt tokens to read
    #[arg(short = 'p', long, value_name = "N,…", value_delimiter = ',', default_value = "512")]
    n_prompt: Vec<usize>,
    /// Tokens to generate
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_value = "128")]
    n_gen: Vec<usize>,
    /// Tokens in the context before
    #[arg(short = 'd', long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    n_depth: Vec<usize>,
    /// Tokens handed over at once
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', default_value = "2048")]
    batch_size: Vec<usize>,
    /// Rows of a step
    #[arg(
        long = "ubatch-size",
        visible_alias = "ub",
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "512"
    )]
    ubatch_size: Vec<usize>,
    /// Threads [default: one per physical core]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    repetitions: usize,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Form of the results
    #[arg(short, long, value_name = "FORM", default_value = "md")]
    output: Format,
    #[command(flatten)]
    hub: HubArgs,
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs, environment: &Environment) -> Result<()> {
    let tests = plan::tests(&args.n_prompt, &args.n_gen, &args.n_depth);
    let settings = plan::settings(&args.threads, &args.batch_size, &args.ubatch_size);
    if tests.is_empty() || args.repetitions == 0 {
        return Err(Error::usage("nothing to measure: give -p or -n, and -r of 1 or more"));
    }
    if settings.iter().any(|s| s.batch == 0 || s.ubatch == 0) {
        return Err(Error::usage("-b and --ubatch-size are 1 or more"));
    }
    let files = args.hub.fetch(&args.model, environment)?;
    let file = ModelFile::open(files.main_path())?;
    let subject = subject(args, &file, &files.name)?;
    print(&table::head(args.output, &subject))?;
    let mut first = true;
    for setting in settings {
        for &test in &tests {
            let row = measure(args, environment, &file, setting, test)?;
            print(&table::row(args.output, &subject, &row, first))?;
            first = false;
        }
    }
    print(table::foot(args.output))
}

fn subject(args: &BenchArgs, file: &ModelFile, name: &str) -> Result<Subject> {
    let tensors = file.tensors().tensors();
    let n_params: usize = tensors.iter().map(hanzo_ml::file::TensorInfo::elems).sum();
    let bytes: usize = tensors.iter().map(hanzo_ml::file::TensorInfo::bytes).sum();
    let bytes_of = |format| tensors.iter().filter(|t| t.format == format).map(|t| t.bytes()).sum::<usize>();
    let format = tensors.iter().map(|t| t.format).max_by_key(|&format| bytes_of(format));
    let format = format.map_or("", |format| format.name);
    let millions = n_params as f64 / 1e6;
    let size =
        if millions < 1000.0 { format!("{millions:.0}M") } else { format!("{:.1}B", millions / 1000.0) };
    let cache_types = args.compute.cache_types().map(|dtype| format!("{dtype:?}").to_lowercase());
    Ok(Subject {
        path: name.to_owned(),
        name: format!("{} {size} {format}", file.family()?.name),
        bytes: bytes as u64,
        n_params: n_params as u64,
        cache_types,
    })
}

fn measure(
    args: &BenchArgs,
    environment: &Environment,
    file: &ModelFile,
    setting: Setting,
    test: Test,
) -> Result<Row> {
    let devices = args.compute.devices(setting.threads, Some(&args.hub), environment);
    let n_threads = Cpu::new(devices.cpu)?.n_threads();
    let [cache_type_k, cache_type_v] = args.compute.cache_types();
    let options = DecoderOptions {
        context: test.depth + test.n_tokens(),
        n_sequences: 1,
        max_rows: setting.batch.min(setting.ubatch),
        cache_type_k,
        cache_type_v,
    };
    let prepared = Prepared::new(file, &devices, options, 1)?;
    let backend = backends(prepared.plan());
    let decoder = Loading::new(environment, false).load(prepared)?;
    let mut bench = Bench { decoder, rows: options.max_rows };
    let mut seconds = Vec::with_capacity(args.repetitions);
    for repetition in 0..=args.repetitions {
        if environment.bars {
            note(&format!("{}: {repetition} of {}", test.name(), args.repetitions));
        }
        let time = bench.repeat(test, repetition as u64)?;
        if repetition > 0 {
            seconds.push(time);
        }
    }
    Ok(Row { test, setting, backend, n_threads, seconds })
}

/// The devices in a column: `CPU`, `CUDA:0+CPU`.
fn backends(plan: &MemoryPlan) -> String {
    let name = |device: &DevicePlan| device.device.split(' ').next().unwrap_or_default().to_uppercase();
    plan.devices.iter().map(name).collect::<Vec<_>>().join("+")
}

/// A decoder under test.
struct Bench {
    decoder: Decoder,
    rows: usize,
}

impl Bench {
    /// Seconds of one repetition; filling the depth is not counted.
    fn repeat(&mut self, test: Test, seed: u64) -> Result<f64> {
        let sequence = self.decoder.begin();
        self.read(sequence, &self.tokens(test.depth, seed))?;
        let prompt = self.tokens(test.n_prompt, seed + 1);
        let params = SamplingParams { temp: 0.8, seed: Some(seed), ..SamplingParams::default() };
        let mut sampler = Sampler::new(params, &[], std::sync::Arc::new(|_| Vec::new()));
        let mut token = self.tokens(1, seed + 2)[0];
        let begin = Instant::now();
        self.read(sequence, &prompt)?;
        for _ in 0..test.n_gen {
            token = sampler.sample(&self.decoder.forward(&[Chunk::tokens(sequence, &[token])])?.logits);
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.decoder.end(sequence);
        Ok(seconds)
    }

    /// Reads tokens; the logits of the last are computed, as for a prompt.
    fn read(&mut self, sequence: hanzo_engine::cache::SequenceId, tokens: &[u32]) -> Result<()> {
        let n = tokens.chunks(self.rows).len();
        for (i, part) in tokens.chunks(self.rows).enumerate() {
            let logits = if i + 1 == n { Rows::Last } else { Rows::None };
            self.decoder.forward(&[Chunk { logits, ..Chunk::tokens(sequence, part) }])?;
        }
        Ok(())
    }

    /// Random tokens (a linear congruential generator: their values do not matter, that they differ does).
    fn tokens(&self, n: usize, seed: u64) -> Vec<u32> {
        let vocab = self.decoder.spec().vocab_size as u64;
        let mut state = seed.wrapping_add(1);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % vocab).unwrap_or(0)
        };
        (0..n).map(|_| next()).collect()
    }
}
