//! `hanzo inspect`: what a model file holds and whether it can be run. Reads headers alone, never a weight.

mod facts;
mod json;
mod support;
mod text;

use std::path::PathBuf;

use crate::{environment::Environment, error::Result, output};

const EXAMPLES: &str = "\
Examples:
  hanzo inspect model.gguf
  hanzo inspect folder-with-config-and-safetensors
  hanzo inspect --json model.gguf | jq .supported

Only headers are read, never a weight.";

/// Show what a model file holds and whether it is supported
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArgs {
    /// A GGUF file (of a split model any part), a safetensors file or index, or a
    /// folder with config.json
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs, environment: &Environment) -> Result<()> {
    let facts = facts::gather(&args.file)?;
    let shown = if args.json { json::render(&facts) } else { text::render(&facts, environment.colours) };
    output::print(&shown)
}
