//! `hanzo show`: what is known of one model, whether it is here or not.

use std::path::PathBuf;

use clap::Args;
use hanzo_hub::{Hub, Installed, ModelFiles, Plan, Resolved};
use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use super::{json_text, mark};
use crate::{
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    output::{self, shortened},
};

const VALUE_CHARS_MAX: usize = 200;

const EXAMPLES: &str = "\
Examples:
  hanzo show smollm2:135m
  hanzo show org/repo:Q4_K_M --json";

/// Show what is known of a model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// A model of the cache or the catalog, or a hub id
    model: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Runs the command.
pub(crate) fn show(args: &ShowArgs, environment: &Environment) -> Result<()> {
    let hub = args.hub.hub(environment)?;
    let (json, rows) = match (hub.resolve(&args.model)?, hub.show(&args.model)) {
        (Resolved::Path(files), _) => {
            let path = files.main_path().display();
            return Err(Error::usage(format!(
                "{path} is a file of yours: hanzo inspect shows what it holds"
            )));
        }
        (_, Ok(model)) => (installed_json(&hub, &model), installed_rows(&hub, &model)),
        (Resolved::Cached(files), Err(_)) => (elsewhere_json(&files), elsewhere_rows(&files)),
        (Resolved::NotCached(plan), Err(_)) => (plan_json(&plan), plan_rows(&plan)),
    };
    output::print(&if args.json { json_text(&json) } else { output::columns(&rows) })
}

fn row(name: &str, value: impl Into<String>) -> Vec<String> {
    vec![name.to_owned(), shortened(&value.into(), VALUE_CHARS_MAX)]
}

/// A model of the cache. Paths are null for files that are not there.
pub(super) fn installed_json(hub: &Hub, model: &Installed) -> Json {
    let files = model.files.iter().map(|(name, size, sha256)| {
        json!({ "name": name, "bytes": size, "sha256": sha256, "path": blob(hub, sha256, *size) })
    });
    json!({
        "name": model.name,
        "here": model.problem.is_none(),
        "problem": model.problem,
        "bytes": model.size,
        "licence": model.licence,
        "source": model.source,
        "official": model.official,
        "files": files.collect::<Vec<_>>(),
    })
}

fn blob(hub: &Hub, sha256: &str, size: u64) -> Option<PathBuf> {
    hub.blob_path(sha256, size)
}

fn installed_rows(hub: &Hub, model: &Installed) -> Vec<Vec<String>> {
    let mut rows = vec![
        row("name", &model.name),
        row("here", model.problem.clone().map_or("yes".to_owned(), |problem| format!("no: {problem}"))),
        row("size", HumanBytes(model.size).to_string()),
        row("licence", &model.licence),
        row("source", &model.source),
    ];
    if !model.official {
        rows.push(row("package", mark(false)));
    }
    for (name, size, sha256) in &model.files {
        rows.push(row("file", format!("{name}, {}", HumanBytes(*size))));
        rows.push(row("  sha256", sha256));
        rows.extend(blob(hub, sha256, *size).map(|path| row("  path", path.display().to_string())));
    }
    rows
}

/// A model of Hugging Face's own cache.
fn elsewhere_json(files: &ModelFiles) -> Json {
    let file =
        |file: &hanzo_hub::ModelFile| json!({ "name": file.name, "bytes": file.size, "path": file.path });
    json!({
        "name": files.name,
        "here": true,
        "bytes": files.size(),
        "source": "the cache of huggingface_hub",
        "files": files.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn elsewhere_rows(files: &ModelFiles) -> Vec<Vec<String>> {
    let mut rows = vec![
        row("name", &files.name),
        row("here", "yes, in the cache of huggingface_hub"),
        row("size", HumanBytes(files.size()).to_string()),
    ];
    rows.extend(files.paths().map(|path| row("file", path.display().to_string())));
    rows
}

/// A model that would have to be fetched.
fn plan_json(plan: &Plan) -> Json {
    json!({
        "name": plan.name,
        "here": false,
        "bytes": plan.size,
        "licence": plan.licence,
        "sources": plan.sources,
    })
}

fn plan_rows(plan: &Plan) -> Vec<Vec<String>> {
    let unknown = || "not known before it is fetched".to_owned();
    let mut rows = vec![
        row("name", &plan.name),
        row("here", format!("no: hanzo pull {} fetches it", plan.name)),
        row("size", plan.size.map_or_else(unknown, |bytes| HumanBytes(bytes).to_string())),
        row("licence", plan.licence.clone().unwrap_or_else(unknown)),
    ];
    rows.extend(plan.sources.iter().map(|source| row("source", source)));
    rows
}
