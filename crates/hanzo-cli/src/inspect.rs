//! `hanzo inspect`: what a model file holds and whether it can be run. Reads headers alone, never a weight.

mod facts;
mod json;
mod support;
mod text;

use std::path::PathBuf;

use hanzo_engine::{LoadOptions, ModelFile, decoder::MemoryPlan};

use crate::{compute::ComputeArgs, environment::Environment, error::Result, output};

const EXAMPLES: &str = "\
Examples:
  hanzo inspect model.gguf
  hanzo inspect folder-with-config-and-safetensors
  hanzo inspect --json model.gguf | jq .supported
  hanzo inspect --plan -c 2048 model.gguf

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
    /// Show what a run takes of memory too; the options below say which run
    #[arg(long)]
    plan: bool,
    /// Context of that run [default: as trained, at most 4096]
    #[arg(short, long, value_name = "N", requires = "plan")]
    ctx_size: Option<usize>,
    #[command(flatten)]
    compute: ComputeArgs,
}

impl InspectArgs {
    fn plan(&self, environment: &Environment) -> Result<MemoryPlan> {
        let [cache_type_k, cache_type_v] = self.compute.cache_types();
        let options = LoadOptions {
            context: self.ctx_size,
            cache_type_k,
            cache_type_v,
            devices: self.compute.devices(None, None, environment),
            ..LoadOptions::default()
        };
        Ok(options.prepare(&ModelFile::open(&self.file)?)?.plan().clone())
    }
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs, environment: &Environment) -> Result<()> {
    let facts = facts::gather(&args.file)?;
    let plan = if args.plan { Some(args.plan(environment)?) } else { None };
    let plan = plan.as_ref();
    let shown =
        if args.json { json::render(&facts, plan) } else { text::render(&facts, plan, environment.colours) };
    output::print(&shown)
}
