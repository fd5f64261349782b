//! `hanzo devices`: what models can be run on here.

use clap::Args;
use hanzo_ml::{
    Device,
    gpu::GpuInfo,
    limits::{self, Limits},
    parallel::Parallel,
};
use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::Result,
    machine::Machine,
    output::{self, Style, shortened, styled},
};

const EXAMPLES: &str = "\
Examples:
  hanzo devices
  hanzo devices --measure --json";

/// Show what models can be run on here
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Measure what the processor can do at most: memory read and arithmetic, with one thread and with all
    #[arg(long)]
    measure: bool,
}

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs, environment: &Environment) -> Result<()> {
    let machine = Machine::look()?;
    let measured = if args.measure { Some(measure(machine.threads)?) } else { None };
    let shown = if args.json {
        format!("{:#}\n", as_json(&machine, measured.as_deref(), environment))
    } else {
        as_text(&machine, measured.as_deref().unwrap_or_default(), environment)
    };
    output::print(&shown)
}

/// The limits with one thread and with the default number.
fn measure(threads: usize) -> Result<Vec<Limits>> {
    let mut counts = vec![1, threads];
    counts.dedup();
    counts.into_iter().map(|n| Ok(limits::measure(&Parallel::new(Some(n))?)?)).collect()
}

fn as_json(machine: &Machine, measured: Option<&[Limits]>, environment: &Environment) -> Json {
    let memory = machine.memory;
    let limits = |limits: &Limits| {
        json!({
            "threads": limits.threads,
            "read_bytes_per_s": limits.read_bytes_per_s,
            "f32_ops_per_s": limits.f32_ops_per_s,
            "int8_ops_per_s": limits.int8_ops_per_s,
        })
    };
    let cpu = json!({
        "device": "cpu",
        "available": true,
        "name": machine.cpu,
        "physical_cores": machine.physical_cores,
        "logical_cores": machine.logical_cores,
        "threads": machine.threads,
        "instructions": machine.instructions,
        "memory_bytes": memory.map(|m| m.total),
        "memory_available_bytes": memory.map(|m| m.available),
        "measured": measured.map(|all| all.iter().map(limits).collect::<Json>()),
    });
    [cpu].into_iter().chain(gpus(environment).iter().map(gpu_as_json)).collect()
}

fn gpu_as_json(gpu: &Gpu) -> Json {
    match gpu {
        Gpu::Found(gpu) => json!({
            "device": gpu.device,
            "available": gpu.unusable.is_none(),
            "reason": gpu.unusable.as_ref().map(|reason| format!("not available: {reason}")),
            "name": gpu.name,
            "memory_bytes": gpu.memory_bytes,
            "memory_available_bytes": gpu.memory_free_bytes,
            "features": gpu.features,
        }),
        Gpu::None { api, reason } => json!({ "device": api, "available": false, "reason": reason }),
    }
}

/// A GPU, or an API that has none here.
enum Gpu {
    Found(GpuInfo),
    None { api: &'static str, reason: String },
}

/// The GPUs of every API, and why there are none of the others.
fn gpus(environment: &Environment) -> Vec<Gpu> {
    let of_api = |(api, found): (&'static str, hanzo_ml::Result<Vec<GpuInfo>>)| match found {
        Ok(found) => found.into_iter().map(Gpu::Found).collect(),
        Err(e) => {
            // The row names the device already.
            let said = e.to_string();
            let reason = said.split_once("is not available: ").map_or(said.as_str(), |(_, rest)| rest);
            vec![Gpu::None { api, reason: format!("not available: {reason}") }]
        }
    };
    Device::gpus(&environment.gpu(None).driver).into_iter().flat_map(of_api).collect()
}

/// The rows of a GPU.
fn gpu_rows(gpu: Gpu, colours: bool) -> Vec<(String, String)> {
    match gpu {
        Gpu::Found(gpu) => {
            let state = match &gpu.unusable {
                None => styled("available", Style::Good, colours),
                Some(reason) => shortened(&format!("not available: {reason}"), 85),
            };
            let mut rows = vec![(gpu.device, state), ("  name".to_owned(), shortened(&gpu.name, 60))];
            if let Some(total) = gpu.memory_bytes {
                let total = HumanBytes(total as u64);
                let free =
                    gpu.memory_free_bytes.map(|free| format!(", {} available", HumanBytes(free as u64)));
                rows.push(("  memory".to_owned(), format!("{total}{}", free.unwrap_or_default())));
            }
            if !gpu.features.is_empty() {
                rows.push(("  features".to_owned(), shortened(&gpu.features.join(", "), 85)));
            }
            rows
        }
        // `--json` has all of it.
        Gpu::None { api, reason } => vec![(api.to_owned(), shortened(&reason, 85))],
    }
}

fn as_text(machine: &Machine, measured: &[Limits], environment: &Environment) -> String {
    let colours = environment.colours;
    let physical = machine.physical_cores.map(|n| format!("{n} physical, ")).unwrap_or_default();
    let threads = machine.threads;
    let mut rows = vec![
        ("cpu".to_owned(), styled("available", Style::Good, colours)),
        ("  name".to_owned(), shortened(&machine.cpu, 60)),
        (
            "  cores".to_owned(),
            format!("{physical}{} logical; threads by default: {threads}", machine.logical_cores),
        ),
        ("  vectors".to_owned(), instructions_in_words(machine.instructions)),
        ("  memory".to_owned(), memory_in_words(machine)),
    ];
    rows.extend(measured.iter().map(|limits| ("  measured".to_owned(), limits_in_words(limits))));
    rows.extend(gpus(environment).into_iter().flat_map(|gpu| gpu_rows(gpu, colours)));
    output::columns(&rows.into_iter().map(|(name, value)| vec![name, value]).collect::<Vec<_>>())
}

/// The instruction set, and what it means where it is none in particular.
pub(crate) fn instructions_in_words(name: &str) -> String {
    match name {
        "portable" => "portable (no instructions beyond those of every such processor)".to_owned(),
        name => name.to_owned(),
    }
}

/// What some number of threads can do.
fn limits_in_words(limits: &Limits) -> String {
    let int8 = limits.int8_ops_per_s.map_or_else(String::new, |ops| format!(", {:.0} GOP/s int8", ops / 1e9));
    let (read, f32_ops) = (limits.read_bytes_per_s / 1e9, limits.f32_ops_per_s / 1e9);
    let threads =
        if limits.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", limits.threads) };
    format!("{threads}: {read:.1} GB/s read, {f32_ops:.0} GFLOP/s f32{int8}")
}

/// Memory in all and available.
pub(crate) fn memory_in_words(machine: &Machine) -> String {
    machine.memory.map_or_else(
        || "not known".to_owned(),
        |m| format!("{}, {} available", HumanBytes(m.total), HumanBytes(m.available)),
    )
}
