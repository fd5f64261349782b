//! `hanzo devices`: what models can be run on here.

use clap::Args;
use hanzo_ml::{
    gpu::{
        driver::{Driver, Kind},
        vulkan::Vulkan,
    },
    limits::{self, Limits},
    parallel::Parallel,
};
use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::Result,
    machine::{Machine, NOT_BUILT},
    output::{self, Style, shortened, styled},
};

/// Why there are no others.
const NOT_YET: &str = "not available in this version: not built yet";

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
    let gpu = |gpu: Gpu| match gpu.found {
        Ok(name) => json!({ "device": gpu.device, "available": true, "name": name }),
        Err(reason) => json!({ "device": gpu.device, "available": false, "reason": reason }),
    };
    [cpu].into_iter().chain(gpus(environment).into_iter().map(gpu)).collect()
}

/// A GPU, or an API that has none here.
struct Gpu {
    device: String,
    /// Its name, or why it cannot be used.
    found: std::result::Result<String, String>,
}

/// The GPUs of every API, and why there are none of the others.
fn gpus(environment: &Environment) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    let drivers = Kind::ALL.map(|kind| (kind.name(), Driver::list(kind, &environment.gpu().driver)));
    for (kind, found) in drivers.into_iter().chain([("vulkan", Vulkan::list())]) {
        match found {
            Ok(names) => gpus.extend(names.into_iter().map(|name| {
                let (device, name) = name.split_once(' ').unwrap_or((&name, ""));
                Gpu { device: device.to_owned(), found: Ok(name.to_owned()) }
            })),
            Err(e) => {
                // The row names the device already.
                let said = e.to_string();
                let reason = said.split_once("is not available: ").map_or(said.as_str(), |(_, rest)| rest);
                let reason = format!("not available: {reason}");
                gpus.push(Gpu { device: kind.to_owned(), found: Err(reason) });
            }
        }
    }
    let not_built = |name: &&str| Gpu { device: (*name).to_owned(), found: Err(NOT_YET.to_owned()) };
    gpus.extend(NOT_BUILT.iter().map(not_built));
    gpus
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
    for gpu in gpus(environment) {
        match gpu.found {
            Ok(name) => {
                rows.push((gpu.device, styled("available", Style::Good, colours)));
                rows.push(("  name".to_owned(), name));
            }
            // `--json` has all of it.
            Err(reason) => rows.push((gpu.device, shortened(&reason, 85))),
        }
    }
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
