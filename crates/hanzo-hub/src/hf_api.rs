//! The hub's description of a repository: commit, licence, files with sizes and hashes.
//!
//! Source: the hub's `GET /api/models/{repo}?blobs=true` as `huggingface_hub.HfApi.model_info(files_metadata=True)`
//! uses it. Only the fields read here are declared; sizes, names and hashes are checked where they are used.

use serde::Deserialize;

use crate::{
    error::{Error, Result},
    http::{Http, encode_path},
};

/// Longest answer read.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// A repository.
#[derive(Debug, Deserialize)]
pub(crate) struct Repo {
    /// Commit that the file list belongs to.
    #[serde(default)]
    sha: Option<String>,
    #[serde(default, rename = "cardData")]
    card: Option<Card>,
    #[serde(default)]
    tags: Vec<String>,
    /// Its files.
    #[serde(default)]
    pub siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Card {
    #[serde(default)]
    license: Option<serde_json::Value>,
    #[serde(default)]
    license_name: Option<String>,
}

/// A file of a repository.
#[derive(Debug, Deserialize)]
pub(crate) struct Sibling {
    /// Path in the repository.
    #[serde(rename = "rfilename")]
    pub name: String,
    /// Bytes.
    #[serde(default)]
    pub size: Option<u64>,
    #[serde(default)]
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    #[serde(default)]
    sha256: Option<String>,
}

impl Sibling {
    /// Hash, for files in large file storage.
    pub fn sha256(&self) -> Option<String> {
        let hash = self.lfs.as_ref()?.sha256.as_ref()?.to_ascii_lowercase();
        crate::manifest::is_sha256(&hash).then_some(hash)
    }
}

impl Repo {
    /// Asks the hub at `endpoint`.
    pub fn get(http: &Http, endpoint: &str, repo: &str) -> Result<Self> {
        let url = format!("{endpoint}/api/models/{repo}?blobs=true");
        let (status, text) = http.get_small(&url, ANSWER_BYTES_MAX)?;
        match status {
            200 => serde_json::from_slice(&text)
                .map_err(|e| Error::http(url, format!("answer not understood: {e}"))),
            401 | 403 => Err(Error::http(
                url,
                format!(
                    "access refused (status {status}): the repository is gated, private or absent; check its name, \
                     accept its terms at {endpoint}/{repo} and set HF_TOKEN to a token of yours"
                ),
            )),
            404 => Err(Error::http(url, "no such repository (status 404)")),
            _ => Err(Error::http(url, format!("unexpected answer (status {status}), try again later"))),
        }
    }

    /// Commit of the list, or the default branch.
    pub fn revision(&self) -> &str {
        match &self.sha {
            Some(sha) if sha.len() == 40 && sha.bytes().all(|b| b.is_ascii_hexdigit()) => sha,
            _ => "main",
        }
    }

    /// Licence as the model card states it.
    pub fn licence(&self) -> String {
        let card = self.card.as_ref();
        let stated = card.and_then(|card| card.license.as_ref()).and_then(|licence| licence.as_str());
        let named = card.and_then(|card| card.license_name.as_deref()).filter(|_| stated == Some("other"));
        let tagged = self.tags.iter().find_map(|tag| tag.strip_prefix("license:"));
        let licence = named.or(stated).or(tagged).unwrap_or("unknown");
        licence.chars().filter(|c| !c.is_control()).take(100).collect()
    }
}

/// Address of a repository's file.
pub(crate) fn file_url(endpoint: &str, repo: &str, revision: &str, file: &str) -> String {
    format!("{endpoint}/{repo}/resolve/{revision}/{}", encode_path(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_found_where_cards_put_them() {
        let licence = |json: &str| serde_json::from_str::<Repo>(json).unwrap().licence();
        assert_eq!(licence(r#"{"cardData":{"license":"apache-2.0"}}"#), "apache-2.0");
        assert_eq!(licence(r#"{"cardData":{"license":"other","license_name":"qwen"}}"#), "qwen");
        assert_eq!(licence(r#"{"cardData":{"license":["a","b"]},"tags":["license:mit"]}"#), "mit");
        assert_eq!(licence(r#"{"cardData":null,"siblings":[]}"#), "unknown");
        assert_eq!(licence("{\"cardData\":{\"license\":\"a\\u001b[31m\"}}"), "a[31m");
    }

    #[test]
    fn a_revision_is_a_commit_or_main() {
        let revision = |json: &str| serde_json::from_str::<Repo>(json).unwrap().revision().to_owned();
        assert_eq!(revision(&format!(r#"{{"sha":"{}"}}"#, "a1".repeat(20))), "a1".repeat(20));
        assert_eq!(revision(r#"{"sha":"../../x"}"#), "main");
        assert_eq!(file_url("https://h", "o/r", "main", "a b.gguf"), "https://h/o/r/resolve/main/a%20b.gguf");
    }
}
