//! A model's manifest: a small versioned JSON file that gives names to blobs. Everything in it is checked on reading:
//! it is a file that anybody may have edited, and it must not name anything outside the cache.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    name,
};

/// Version written and read.
const VERSION: u32 = 1;
/// Largest manifest read.
const BYTES_MAX: u64 = 1 << 20;
/// Most files of one model.
pub(crate) const FILES_MAX: usize = 2048;
/// Largest file believed in: 2^50 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 50;

/// What the cache knows about one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Format version.
    pub version: u32,
    /// Full name of the model.
    pub name: String,
    /// Licence, or "unknown".
    pub licence: String,
    /// True where the publisher of the model uploaded it.
    pub official: bool,
    /// Where it came from, in words.
    pub source: String,
    /// Its files, the main one first.
    pub files: Vec<FileEntry>,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Readable relative name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Hash of the content.
    pub sha256: String,
    /// The file in Hugging Face's cache that holds it, where this cache has no blob of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<PathBuf>,
}

impl Manifest {
    /// A manifest of the current version.
    pub fn new(name: String, licence: String, official: bool, source: String, files: Vec<FileEntry>) -> Self {
        Self { version: VERSION, name, licence, official, source, files }
    }

    /// Reads and checks the manifest at `path`; the file's own name must be that of the model in it.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = Vec::new();
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(|e| Error::io(path, e))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(Error::file(path, format!("manifest is larger than {BYTES_MAX} bytes")));
        }
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|e| Error::file(path, format!("not a manifest: {e}")))?;
        manifest.check().map_err(|what| Error::file(path, what))?;
        if path.file_name().and_then(|n| n.to_str()) != Some(&file_name(&manifest.name)) {
            return Err(Error::file(
                path,
                format!("holds the model {:?}, not its own", name::shorten(&manifest.name)),
            ));
        }
        Ok(manifest)
    }

    /// JSON text of a manifest that passes its own check.
    pub fn to_json(&self) -> std::result::Result<Vec<u8>, String> {
        self.check()?;
        serde_json::to_vec_pretty(self).map_err(|e| e.to_string())
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.version != VERSION {
            return Err(format!("manifest version {}, this program knows {VERSION}", self.version));
        }
        if !is_full_name(&self.name) {
            return Err(format!("name {:?} is not a model's name", name::shorten(&self.name)));
        }
        if self.files.is_empty() || self.files.len() > FILES_MAX {
            return Err(format!("{} files, between 1 and {FILES_MAX} are allowed", self.files.len()));
        }
        for (idx, file) in self.files.iter().enumerate() {
            if !name::is_safe_file(&file.name) {
                return Err(format!("file name {:?} leaves its directory", name::shorten(&file.name)));
            }
            if !is_sha256(&file.sha256) {
                return Err(format!(
                    "sha256 {:?} is not 64 lower-case hex digits",
                    name::shorten(&file.sha256)
                ));
            }
            if file.size > FILE_BYTES_MAX {
                return Err(format!("size {} of {} is beyond belief", file.size, file.name));
            }
            if self.files[..idx].iter().any(|other| other.name == file.name) {
                return Err(format!("file {} stands there twice", file.name));
            }
        }
        Ok(())
    }
}

/// 64 lower-case hex digits.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Anything `name::parse` takes, spelled as the cache spells it.
fn is_full_name(text: &str) -> bool {
    match name::parse(text) {
        Ok(name::Name::Short(short)) => short == text,
        Ok(name::Name::Hub(id)) => id.full_name() == text,
        Ok(name::Name::Url(_)) => true,
        Err(_) => false,
    }
}

/// File-system name for a model: a readable start and a hash, so that it is short, holds no special character and
/// differs from every other model's on systems that ignore case.
pub(crate) fn slug(model: &str) -> String {
    const READABLE_MAX: usize = 60;
    let readable: String = model
        .chars()
        .take(READABLE_MAX)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let hash = hex(&Sha256::digest(model.as_bytes()));
    format!("{readable}-{}", &hash[..16])
}

/// File name of a model's manifest.
pub(crate) fn file_name(model: &str) -> String {
    format!("{}.json", slug(model))
}

/// Lower-case hex digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Manifest {
        let file = FileEntry { name: "m.gguf".into(), size: 3, sha256: "a".repeat(64), external: None };
        Manifest::new("smollm2:135m".into(), "MIT".into(), true, "test".into(), vec![file])
    }

    #[test]
    fn a_manifest_survives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name("smollm2:135m"));
        std::fs::write(&path, good().to_json().unwrap()).unwrap();
        assert_eq!(Manifest::read(&path).unwrap(), good());
    }

    #[test]
    fn hostile_manifests_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(file_name("smollm2:135m"));
        let text = String::from_utf8(good().to_json().unwrap()).unwrap();
        let hash = "a".repeat(64);
        let cases = [
            (text.replace("m.gguf", "../../m.gguf"), "leaves its directory"),
            (text.replace("m.gguf", "/etc/passwd"), "leaves its directory"),
            (text.replace(&hash, "../../../../etc/passwd"), "64 lower-case hex"),
            (text.replace(&hash, &"A".repeat(64)), "64 lower-case hex"),
            (text.replace("\"version\": 1", "\"version\": 2"), "version 2"),
            (text.replace("smollm2:135m", "../x"), "not a model's name"),
            (text.replace("smollm2:135m", "gemma3:270m"), "not its own"),
            (text.replace("\"size\": 3", "\"size\": -3"), "not a manifest"),
            (text.replace("\"size\": 3", "\"size\": 18446744073709551615"), "beyond belief"),
            (text.replace("\"size\"", "\"extra\": 1, \"size\""), "unknown field"),
            (text[..text.len() / 2].to_owned(), "not a manifest"),
            (format!("{}{text}", " ".repeat(2 << 20)), "larger than"),
            (text.replace(&text[text.find('[').unwrap()..=text.rfind(']').unwrap()], "[]"), "0 files"),
        ];
        for (text, want) in cases {
            std::fs::write(&path, &text).unwrap();
            let error = Manifest::read(&path).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("smollm2"), "{error} has no {want:?}");
        }
    }

    #[test]
    fn slugs_are_plain_and_differ() {
        let names = ["Org/Repo", "org/repo", "org-repo", "https://h/../../x?y", &"z".repeat(2000)];
        let slugs: std::collections::HashSet<String> = names.iter().map(|name| slug(name)).collect();
        assert_eq!(slugs.len(), names.len());
        for slug in &slugs {
            assert!(
                slug.len() < 90
                    && slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
        }
        assert_eq!(hex(&[0x00, 0xaf, 0x10]), "00af10");
    }
}
