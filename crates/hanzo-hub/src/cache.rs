//! The cache on disk: blobs named by their hash, manifests that name them, locks and unfinished downloads.
//!
//! ```text
//! blobs/sha256-<hex>          complete files, checked
//! manifests/<slug>.json       models (see `manifest`)
//! views/<slug>/<name>         hard links to blobs, for models of several files that find each other by name
//! partial/<key>[.json]        unfinished downloads and what is needed to resume them
//! tmp/<slug>/                 work space of a Python package download
//! locks/<key>.lock            one writer a model and a blob; use.lock: shared by fetches, exclusive for removal
//! ```
//!
//! Invariants: a blob appears by rename, after its check; a manifest appears by rename, after its blobs; blobs are
//! removed only while nobody fetches.

use std::{
    fs::{self, File, TryLockError},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    manifest::{self, FileEntry, Manifest},
};

/// Space left free on the disk after a download.
const SPARE_BYTES: u64 = 64 << 20;

/// The cache directory and Hugging Face's.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    hf: Option<PathBuf>,
}

/// A held lock; released when dropped, and by the system when the process dies.
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock, never read")] File);

impl Cache {
    /// A cache at `root`; nothing is written yet.
    pub fn new(root: PathBuf, hf: Option<PathBuf>) -> Self {
        Self { root, hf }
    }

    /// Where a blob lies.
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(format!("sha256-{sha256}"))
    }

    /// True where the blob is here and has its length.
    pub fn has_blob(&self, sha256: &str, size: u64) -> bool {
        is_file_of(&self.blob(sha256), size)
    }

    /// Where an unfinished download lies.
    pub fn partial(&self, key: &str) -> PathBuf {
        self.root.join("partial").join(key)
    }

    /// Where a Python package download works.
    pub fn work_dir(&self, model: &str) -> PathBuf {
        self.root.join("tmp").join(manifest::slug(model))
    }

    /// Directory of hard links of a model.
    pub fn view(&self, model: &str) -> PathBuf {
        self.root.join("views").join(manifest::slug(model))
    }

    /// Where a model's manifest lies.
    pub fn manifest_path(&self, model: &str) -> PathBuf {
        self.root.join("manifests").join(manifest::file_name(model))
    }

    /// All manifest files, sorted.
    pub fn manifest_paths(&self) -> Result<Vec<PathBuf>> {
        let dir = self.root.join("manifests");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io(dir, e)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| Error::io(&dir, e))?.path();
            if path.extension().is_some_and(|ext| ext == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// The model's manifest, where it is here and sound.
    pub fn read_manifest(&self, model: &str) -> Result<Option<Manifest>> {
        let path = self.manifest_path(model);
        if path.exists() { Manifest::read(&path).map(Some) } else { Ok(None) }
    }

    /// Writes `manifest` in one step.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let path = self.manifest_path(&manifest.name);
        let text = manifest.to_json().map_err(|what| Error::file(&path, what))?;
        write_atomic(&path, &text)
    }

    /// Where the entry's bytes lie, if they are here with the right length.
    pub fn locate(&self, entry: &FileEntry) -> Option<PathBuf> {
        if self.has_blob(&entry.sha256, entry.size) {
            return Some(self.blob(&entry.sha256));
        }
        // A manifest may be forged: a file outside counts only inside Hugging Face's cache.
        let external = entry.external.as_ref()?.canonicalize().ok()?;
        let allowed = self.hf.as_ref()?.canonicalize().ok()?;
        (external.starts_with(allowed) && is_file_of(&external, entry.size)).then_some(external)
    }

    /// Takes the lock `key`, calling `on_wait` once if another holds it.
    pub fn lock(&self, key: &str, on_wait: &mut dyn FnMut()) -> Result<Lock> {
        let (file, path) = self.lock_file(key)?;
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => on_wait(),
            Err(TryLockError::Error(e)) => return Err(Error::io(path, e)),
        }
        file.lock().map_err(|e| Error::io(path, e))?;
        Ok(Lock(file))
    }

    /// Holds off removal of blobs.
    pub fn lock_use(&self) -> Result<Lock> {
        let (file, path) = self.lock_file("use")?;
        file.lock_shared().map_err(|e| Error::io(path, e))?;
        Ok(Lock(file))
    }

    /// The right to remove blobs, or None while somebody fetches.
    pub fn try_lock_removal(&self) -> Result<Option<Lock>> {
        let (file, path) = self.lock_file("use")?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(Error::io(path, e)),
        }
    }

    fn lock_file(&self, key: &str) -> Result<(File, PathBuf)> {
        let path = self.root.join("locks").join(format!("{key}.lock"));
        make_parent(&path)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        Ok((file.map_err(|e| Error::io(&path, e))?, path))
    }

    /// Writes a small file and removes it; bytes free on the disk.
    pub fn probe(&self) -> Result<u64> {
        let path = self.root.join("tmp").join(format!("probe-{}.file", std::process::id()));
        make_parent(&path)?;
        fs::write(&path, b"probe").and_then(|()| fs::remove_file(&path)).map_err(|e| Error::io(&path, e))?;
        self.free_bytes()
    }

    fn free_bytes(&self) -> Result<u64> {
        fs4::available_space(&self.root).map_err(|e| Error::io(&self.root, e))
    }

    /// An error where the disk cannot take `bytes` more.
    pub fn check_space(&self, bytes: u64) -> Result<()> {
        fs::create_dir_all(&self.root).map_err(|e| Error::io(&self.root, e))?;
        let have = self.free_bytes()?;
        let need = bytes.saturating_add(SPARE_BYTES);
        if need > have { Err(Error::space(&self.root, need, have)) } else { Ok(()) }
    }

    /// Files of the model by name: the blob itself for one file, hard links in a directory for several.
    pub fn arrange(&self, manifest: &Manifest) -> Result<Option<(Option<PathBuf>, Vec<PathBuf>)>> {
        let Some(blobs) = manifest.files.iter().map(|file| self.locate(file)).collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        if blobs.len() == 1 {
            return Ok(Some((None, blobs)));
        }
        let dir = self.view(&manifest.name);
        let mut paths = Vec::with_capacity(blobs.len());
        for (file, blob) in manifest.files.iter().zip(&blobs) {
            let path = dir.join(&file.name);
            if !is_file_of(&path, file.size) {
                link(blob, &path)?;
            }
            paths.push(path);
        }
        Ok(Some((Some(dir), paths)))
    }

    /// Removes blobs that no manifest needs; 0 while somebody fetches or a manifest cannot be read.
    pub fn collect_garbage(&self) -> Result<Option<u64>> {
        let Some(_lock) = self.try_lock_removal()? else { return Ok(None) };
        let mut wanted = std::collections::HashSet::new();
        for path in self.manifest_paths()? {
            match Manifest::read(&path) {
                Ok(manifest) => wanted.extend(manifest.files.into_iter().map(|file| file.sha256)),
                Err(error) => {
                    tracing::warn!(%error, "no blob is removed: it is unknown which ones this manifest needs");
                    return Ok(None);
                }
            }
        }
        let dir = self.root.join("blobs");
        let mut freed = 0_u64;
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let hash = name.to_str().and_then(|name| name.strip_prefix("sha256-"));
            if let Some(hash) = hash.filter(|hash| manifest::is_sha256(hash) && !wanted.contains(*hash)) {
                let size = entry.metadata().map_or(0, |m| m.len());
                let path = self.blob(hash);
                fs::remove_file(&path).map_err(|e| Error::io(path, e))?;
                freed = freed.saturating_add(size);
            }
        }
        Ok(Some(freed))
    }
}

/// True for a regular file of `size` bytes.
pub(crate) fn is_file_of(path: &Path, size: u64) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == size)
}

/// Makes the directory that `path` is to lie in.
pub(crate) fn make_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(dir) => fs::create_dir_all(dir).map_err(|e| Error::io(dir, e)),
        None => Ok(()),
    }
}

/// Removes a file that may be absent.
pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, e)),
        _ => Ok(()),
    }
}

/// Writes a small file so that readers see all of it or none.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    make_parent(path)?;
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|e| Error::io(path, e))
}

/// Gives `blob` a second name: a hard link, or a copy where the file system has none.
fn link(blob: &Path, path: &Path) -> Result<()> {
    make_parent(path)?;
    remove_if_there(path)?;
    if fs::hard_link(blob, path).is_ok() {
        return Ok(());
    }
    let unfinished = path.with_extension("copying");
    fs::copy(blob, &unfinished).and_then(|_| fs::rename(&unfinished, path)).map_err(|e| Error::io(path, e))
}
