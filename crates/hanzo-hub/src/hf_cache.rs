//! Hugging Face's own cache, read and never written.
//!
//! Layout (its "Understand caching" page): `models--org--repo/{refs/main, blobs/<etag>, snapshots/<commit>/<file>}`;
//! the etag of a file in large file storage is its sha256; unfinished files end in `.incomplete`.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    cache::is_file_of,
    error::{Error, Result},
    manifest,
    name::{self, HubId},
    select,
};

/// Most repositories and files looked at.
const ENTRIES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 6;

/// A repository's folder.
fn repo_dir(root: &Path, repo: &str) -> PathBuf {
    root.join(format!("models--{}", repo.replace('/', "--")))
}

/// Files of `id` in the snapshot of its default branch: the snapshot, then (name, path) of each, complete or None.
pub(crate) fn snapshot(root: &Path, id: &HubId) -> Option<(PathBuf, Vec<(String, PathBuf)>)> {
    let dir = repo_dir(root, &id.repo);
    let mut commit = String::new();
    File::open(dir.join("refs").join("main")).ok()?.take(100).read_to_string(&mut commit).ok()?;
    let commit = commit.trim();
    if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let snapshot = dir.join("snapshots").join(commit);
    let mut files = Vec::new();
    walk(&snapshot, "", 0, &mut files);
    let names = select::select(&files, &id.select).ok()?;
    let paths =
        names.into_iter().map(|name| (snapshot.join(&name), name)).map(|(path, name)| (name, path)).collect();
    Some((snapshot, paths))
}

/// Relative names of the regular files below `dir`, through symbolic links that resolve.
fn walk(dir: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if files.len() >= ENTRIES_MAX {
            return;
        }
        let Ok(leaf) = entry.file_name().into_string() else { continue };
        let name = format!("{prefix}{leaf}");
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && depth < DEPTH_MAX {
            walk(&entry.path(), &format!("{name}/"), depth + 1, files);
        } else if !is_dir && name::is_safe_file(&name) && entry.path().is_file() {
            files.push(name);
        }
    }
}

/// A complete blob of this hash and size in any repository; its content is not checked here.
pub(crate) fn find_blob(root: &Path, sha256: &str, size: u64) -> Option<PathBuf> {
    fs::read_dir(root)
        .ok()?
        .take(ENTRIES_MAX)
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("models--"))
        .map(|entry| entry.path().join("blobs").join(sha256))
        .find(|path| is_file_of(path, size))
}

/// sha256 of a file's content, as hex digits.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(|e| Error::io(path, e))?;
    Ok(manifest::hex(&hasher.finalize()))
}
