//! `hanzo inspect`: what a model file holds and whether it can be run. Reads headers alone, never a weight.

mod facts;
mod json;
mod support;
mod text;

use std::path::PathBuf;

use crate::{environment::Environment, error::Result, output};

/// Show what a model holds and whether it is supported
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// A GGUF file (of a split model any part), a safetensors file or index, or a folder with config.json
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
