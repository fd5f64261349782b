//! `hanzo pull`, `list`, `show`, `rm` and `cp`: the model cache and the catalog.

mod show;

use clap::Args;
use hanzo_hub::{CatalogModel, Hub, Installed, Source};
use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::Result,
    fetch::HubArgs,
    output::{self, Style, note, shortened, styled},
};
pub(crate) use show::{ShowArgs, show};

/// Widest name and licence in a list.
const NAME_CHARS_MAX: usize = 40;
const LICENCE_CHARS_MAX: usize = 20;

const PULL_EXAMPLES: &str = "\
Examples:
  hanzo pull qwen2.5-coder:0.5b        a model of the catalog
  hanzo pull org/repo:Q4_K_M           one quantisation of a hub repository
  hanzo pull https://example.com/model.gguf   an address

A download that was cut goes on where it stopped. A file is used only after its
length was checked, and its sha256 wherever one is stated.";

const LIST_EXAMPLES: &str = "\
Examples:
  hanzo list                           what is here
  hanzo list --catalog                 what has a short name
  hanzo list --json";

const REMOVE_EXAMPLES: &str = "\
Examples:
  hanzo rm smollm2:135m
  hanzo rm mine org/repo:Q4_K_M

Files go with the last name that needs them.";

const COPY_EXAMPLES: &str = "\
Examples:
  hanzo cp smollm2:135m mine
  hanzo cp org/repo:Q4_K_M coder:small

The files are shared: a second name takes no space.";

/// Fetch a model into the cache and print where it lies
#[derive(Debug, Args)]
#[command(after_help = PULL_EXAMPLES)]
pub(crate) struct PullArgs {
    /// A catalog name, a hub id org/repo[:quant|/file], or an https address
    model: String,
    #[command(flatten)]
    hub: HubArgs,
}

/// List the models of the cache or the catalog
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// List the catalog: models that have a short name
    #[arg(long)]
    catalog: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Remove models from the cache
#[derive(Debug, Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// Names as hanzo list shows them
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
    #[command(flatten)]
    hub: HubArgs,
}

/// Give a model of the cache a second name
#[derive(Debug, Args)]
#[command(after_help = COPY_EXAMPLES)]
pub(crate) struct CopyArgs {
    /// A model of the cache
    from: String,
    /// Its second name: letters, digits, '.', '-', '_' and at most one ':'
    to: String,
    #[command(flatten)]
    hub: HubArgs,
}

/// Runs `pull`.
pub(crate) fn pull(args: &PullArgs, environment: &Environment) -> Result<()> {
    let files = args.hub.fetch(&args.model, environment)?;
    note(&format!("{} is here: {}", shortened(&files.name, NAME_CHARS_MAX), HumanBytes(files.size())));
    output::print(&format!("{}\n", files.main_path().display()))
}

/// Runs `list`.
pub(crate) fn list(args: &ListArgs, environment: &Environment) -> Result<()> {
    let hub = args.hub.hub(environment)?;
    let models = hub.list()?;
    let shown = match (args.catalog, args.json) {
        (false, false) => installed_text(&models, environment.colours),
        (false, true) => json_text(&models.iter().map(|model| show::installed_json(&hub, model)).collect()),
        (true, false) => catalog_text(&hub, &models, environment.colours),
        (true, true) => {
            json_text(&hub.config().catalog.iter().map(|row| catalog_json(row, &models)).collect())
        }
    };
    if shown.is_empty() {
        note("no models here; hanzo list --catalog shows what can be had by a short name");
    }
    output::print(&shown)
}

/// Pretty JSON and a line break.
fn json_text(value: &Json) -> String {
    format!("{value:#}\n")
}

fn installed_text(models: &[Installed], colours: bool) -> String {
    if models.is_empty() {
        return String::new();
    }
    let row = |model: &Installed| {
        let state = match &model.problem {
            None => mark(model.official).to_owned(),
            Some(problem) => styled(&shortened(problem, 200), Style::Bad, colours),
        };
        vec![
            shortened(&model.name, NAME_CHARS_MAX),
            HumanBytes(model.size).to_string(),
            short_licence(&model.licence),
            state,
        ]
    };
    let head = ["NAME", "SIZE", "LICENCE", "PACKAGE"].map(str::to_owned).to_vec();
    output::columns(&[head].into_iter().chain(models.iter().map(row)).collect::<Vec<_>>())
}

/// Marks what is known not to come from the model's publisher; of what the user named nothing is known.
fn mark(official: bool) -> &'static str {
    if official { "" } else { "unofficial" }
}

/// A licence without the address behind it.
fn short_licence(licence: &str) -> String {
    let name = licence.split(" (").next().unwrap_or_default();
    shortened(name, LICENCE_CHARS_MAX)
}

fn catalog_text(hub: &Hub, models: &[Installed], colours: bool) -> String {
    let catalog = hub.config().catalog;
    let row = |row: &CatalogModel| {
        let package = match official(row) {
            (true, true) => "both",
            (true, false) => "official",
            (false, _) => "unofficial",
        };
        let here = if is_here(row, models) { styled("yes", Style::Good, colours) } else { "no".to_owned() };
        vec![
            row.full_name(),
            HumanBytes(row.size).to_string(),
            short_licence(row.licence),
            package.to_owned(),
            here,
        ]
    };
    let head = ["NAME", "SIZE", "LICENCE", "PACKAGE", "HERE"].map(str::to_owned).to_vec();
    output::columns(&[head].into_iter().chain(catalog.iter().map(row)).collect::<Vec<_>>())
}

/// Whether some source is the publisher's, and whether some is not.
fn official(row: &CatalogModel) -> (bool, bool) {
    let mut each = row.sources.iter().map(|source| match source {
        Source::Hub { official, .. } | Source::Pip { official, .. } => *official,
    });
    (each.clone().any(|official| official), each.any(|official| !official))
}

fn is_here(row: &CatalogModel, models: &[Installed]) -> bool {
    models.iter().any(|model| model.name == row.full_name() && model.problem.is_none())
}

fn catalog_json(row: &CatalogModel, models: &[Installed]) -> Json {
    let source = |source: &Source| match source {
        Source::Hub { repo, revision, file, official, .. } => {
            json!({ "kind": "hub", "repo": repo, "revision": revision, "file": file, "official": official })
        }
        Source::Pip { parts, download_size, official, .. } => {
            let packages: Vec<String> = parts.requirements().collect();
            json!({ "kind": "pip", "packages": packages, "download_bytes": download_size, "official": official })
        }
    };
    json!({
        "name": row.full_name(),
        "tags": row.tags,
        "about": row.about,
        "bytes": row.size,
        "sha256": row.sha256,
        "licence": row.licence,
        "here": is_here(row, models),
        "sources": row.sources.iter().map(source).collect::<Vec<_>>(),
    })
}

/// Runs `rm`.
pub(crate) fn remove(args: &RemoveArgs, environment: &Environment) -> Result<()> {
    let hub = args.hub.hub(environment)?;
    for model in &args.models {
        let removed = hub.remove(model)?;
        let freed = match removed.freed {
            Some(0) => "nothing freed: other models share its files, or lie elsewhere".to_owned(),
            Some(bytes) => format!("{} freed", HumanBytes(bytes)),
            None => {
                "nothing freed yet: a fetch is going on or a manifest is damaged; the next removal frees it"
                    .to_owned()
            }
        };
        output::print(&format!("removed {}: {freed}\n", shortened(&removed.name, 200)))?;
    }
    Ok(())
}

/// Runs `cp`.
pub(crate) fn copy(args: &CopyArgs, environment: &Environment) -> Result<()> {
    args.hub.hub(environment)?.copy(&args.from, &args.to)?;
    let to = args.to.to_ascii_lowercase();
    output::print(&format!("{to} is a second name of {}\n", shortened(&args.from, 200)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_catalog_fit_80_columns() {
        let hub = Hub::new(hanzo_hub::HubConfig::new("unused"));
        let text = catalog_text(&hub, &[], false);
        assert_eq!(text.lines().count(), 1 + hub.config().catalog.len());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_row_of_the_catalog_is_here_where_a_whole_model_has_its_name() {
        let row = &hanzo_hub::CATALOG[0];
        let model = |name: String, problem: Option<&str>| Installed {
            name,
            licence: String::new(),
            source: String::new(),
            official: true,
            size: row.size,
            files: vec![],
            problem: problem.map(str::to_owned),
        };
        assert!(is_here(row, &[model("other".into(), None), model(row.full_name(), None)]));
        assert!(!is_here(row, &[model("other".into(), None)]));
        assert!(!is_here(row, &[model(row.full_name(), Some("cut"))]));
    }

    #[test]
    fn foreign_names_cannot_steer_a_terminal() {
        let model = Installed {
            name: "a\x1b[2Jb".into(),
            licence: "x\ny (z)".into(),
            source: String::new(),
            official: false,
            size: 1536,
            files: vec![],
            problem: Some("\x07".into()),
        };
        let text = installed_text(&[model], false);
        assert!(text.contains("a\\u{1b}[2Jb") && text.contains("1.50 KiB"), "{text}");
        assert!(!text.contains(['\x1b', '\x07']) && text.lines().count() == 2, "{text}");
    }
}
