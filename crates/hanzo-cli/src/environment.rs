//! The only place that reads the environment: variables, and what the standard streams are.
//!
//! Nothing here chooses how a result is computed; it chooses places and looks.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use hanzo_hub::Os;
use hanzo_ml::gpu::{GpuOptions, driver::DriverOptions};

/// What the program knows of its surroundings, read once.
pub(crate) struct Environment {
    /// Whether to write colours to standard output: a terminal, and `NO_COLOR` (<https://no-color.org>) is not set.
    pub(crate) colours: bool,
    /// Whether a person types to standard input.
    pub(crate) typed_input: bool,
    /// Whether a person sees standard output.
    pub(crate) shown_output: bool,
    /// Whether standard error is a terminal, where bars can move.
    pub(crate) bars: bool,
    /// Where the lines that were typed in conversations are kept; `None` where there is no place for them.
    pub(crate) history: Option<PathBuf>,
    /// Where models are kept and fetched from.
    pub(crate) hub: hanzo_hub::Environment,
    /// Folders of GPU toolkits: `CUDA_PATH`, `CUDA_HOME`, `ROCM_PATH`, `HIP_PATH`.
    toolkits: Vec<PathBuf>,
}

impl Environment {
    /// Reads the variables and looks at the standard streams.
    pub(crate) fn read() -> Self {
        Self {
            colours: colours(io::stdout().is_terminal(), variable("NO_COLOR"), variable("TERM")),
            typed_input: io::stdin().is_terminal(),
            shown_output: io::stdout().is_terminal(),
            bars: io::stderr().is_terminal(),
            history: state_dir(Os::current(), variable).map(|dir| dir.join("history")),
            hub: hanzo_hub::Environment::read(Os::current(), variable),
            toolkits: ["CUDA_PATH", "CUDA_HOME", "ROCM_PATH", "HIP_PATH"]
                .into_iter()
                .filter_map(variable)
                .map(PathBuf::from)
                .collect(),
        }
    }

    /// Where a GPU's libraries may lie, and where its compiled kernels are kept: below the folder of the models, which
    /// `cache_dir` may name.
    pub(crate) fn gpu(&self, cache_dir: Option<&Path>) -> GpuOptions {
        let below = |folder: &PathBuf| ["lib64", "lib", "bin"].map(|name| folder.join(name));
        let cache_dir = cache_dir.map(Path::to_owned).or_else(|| self.hub.cache_dir().ok());
        let driver = DriverOptions {
            library_folders: self.toolkits.iter().flat_map(below).collect(),
            kernel_cache: cache_dir.map(|folder| folder.join("kernels")),
        };
        GpuOptions { driver, ..GpuOptions::default() }
    }
}

/// A variable's value; one that is not Unicode counts as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The platform's folder for what a program remembers, with `hanzo` below it: the XDG base directory specification on
/// Unix, `~/Library/Application Support` on macOS, `%LOCALAPPDATA%` on Windows.
fn state_dir(os: Os, get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |below: &str| absolute("HOME").map(|home| home.join(Path::new(below)));
    let root = match os {
        Os::Unix => absolute("XDG_STATE_HOME").or_else(|| home(".local/state")),
        Os::Mac => home("Library/Application Support"),
        Os::Windows => absolute("LOCALAPPDATA"),
    };
    root.map(|root| root.join("hanzo"))
}

fn colours(terminal: bool, no_color: Option<String>, term: Option<String>) -> bool {
    // An empty NO_COLOR counts as unset, as its convention says.
    terminal && no_color.is_none_or(|v| v.is_empty()) && term.is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_kept_where_the_models_are() {
        let kept = |cache_dir| Environment::read().gpu(cache_dir).driver.kernel_cache;
        assert_eq!(kept(Some(Path::new("models"))).unwrap(), Path::new("models").join("kernels"));
        assert_ne!(kept(None), kept(Some(Path::new("models"))));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_remembered_has_its_place() {
        let dir = |os, variables: &[(&str, &str)]| {
            let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            state_dir(os, get).map(|path| path.display().to_string())
        };
        let home = ("HOME", "/people/a");
        assert_eq!(dir(Os::Unix, &[home]).unwrap(), "/people/a/.local/state/hanzo");
        assert_eq!(dir(Os::Unix, &[home, ("XDG_STATE_HOME", "/s")]).unwrap(), "/s/hanzo");
        // A relative one is ignored, as the specification says.
        assert_eq!(dir(Os::Unix, &[home, ("XDG_STATE_HOME", "s")]).unwrap(), "/people/a/.local/state/hanzo");
        assert_eq!(dir(Os::Mac, &[home]).unwrap(), "/people/a/Library/Application Support/hanzo");
        assert_eq!(dir(Os::Windows, &[("LOCALAPPDATA", "/l")]).unwrap(), "/l/hanzo");
        assert_eq!(dir(Os::Unix, &[("HOME", "")]), None);
    }

    #[test]
    fn colours_need_a_terminal_that_wants_them() {
        let some = |s: &str| Some(s.to_owned());
        assert!(colours(true, None, None));
        assert!(colours(true, some(""), some("xterm")));
        assert!(!colours(false, None, None));
        assert!(!colours(true, some("0"), None));
        assert!(!colours(true, None, some("dumb")));
    }
}
