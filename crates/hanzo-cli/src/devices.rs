//! `hanzo devices`: what models can be run on here.

use clap::Args;
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

/// Show what models can be run on here
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs, environment: &Environment) -> Result<()> {
    let machine = Machine::look()?;
    let shown =
        if args.json { format!("{:#}\n", as_json(&machine)) } else { as_text(&machine, environment.colours) };
    output::print(&shown)
}

fn as_json(machine: &Machine) -> Json {
    let memory = machine.memory;
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
    });
    let others =
        NOT_BUILT.iter().map(|name| json!({ "device": name, "available": false, "reason": NOT_YET }));
    [cpu].into_iter().chain(others).collect()
}

fn as_text(machine: &Machine, colours: bool) -> String {
    let physical = machine.physical_cores.map(|n| format!("{n} physical, ")).unwrap_or_default();
    let threads = machine.threads;
    let mut rows = vec![
        ("cpu", styled("available", Style::Good, colours)),
        ("  name", shortened(&machine.cpu, 60)),
        ("  cores", format!("{physical}{} logical; threads by default: {threads}", machine.logical_cores)),
        ("  vectors", instructions_in_words(machine.instructions)),
        ("  memory", memory_in_words(machine)),
    ];
    rows.extend(NOT_BUILT.iter().map(|name| (*name, NOT_YET.to_owned())));
    output::columns(&rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>())
}

/// The instruction set, and what it means where it is none in particular.
pub(crate) fn instructions_in_words(name: &str) -> String {
    match name {
        "portable" => "portable (no instructions beyond those of every such processor)".to_owned(),
        name => name.to_owned(),
    }
}

/// Memory in all and available.
pub(crate) fn memory_in_words(machine: &Machine) -> String {
    machine.memory.map_or_else(
        || "not known".to_owned(),
        |m| format!("{}, {} available", HumanBytes(m.total), HumanBytes(m.available)),
    )
}
