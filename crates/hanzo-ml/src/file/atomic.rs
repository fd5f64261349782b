//! Writes a file whole or not at all: a temporary file beside the target, then a rename.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Error, Result};

/// A file under a temporary name, removed again unless [`Self::commit`] is reached.
pub struct AtomicFile {
    target: PathBuf,
    temp: PathBuf,
    file: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Creates the temporary file in the target's folder.
    ///
    /// # Errors
    /// If it cannot be created there.
    pub fn create(target: &Path) -> Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or_else(|| Error::file(target, "not a file name"))?;
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let mut temp_name = std::ffi::OsString::from(".");
        temp_name.push(name);
        temp_name.push(format!(".{}.{n}.tmp", std::process::id()));
        let temp = target.with_file_name(temp_name);
        let file =
            File::options().write(true).create_new(true).open(&temp).map_err(|e| Error::io(&temp, e))?;
        Ok(Self { target: target.into(), temp, file: Some(BufWriter::with_capacity(1 << 20, file)) })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let file =
            self.file.as_mut().ok_or_else(|| Error::file(&self.temp, "written after it was closed"))?;
        file.write_all(bytes).map_err(|e| Error::io(&self.temp, e))
    }

    /// Puts the file in the target's place, after its bytes have reached the disk.
    ///
    /// # Errors
    /// If they do not reach it, or the target cannot be replaced.
    pub fn commit(mut self) -> Result<()> {
        let fail = |e| Error::io(&self.temp, e);
        if let Some(file) = self.file.take() {
            let file = file.into_inner().map_err(|e| fail(e.into_error()))?;
            file.sync_all().map_err(fail)?;
        }
        fs::rename(&self.temp, &self.target).map_err(|e| Error::io(&self.target, e))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a commit the temporary name is gone and this fails; nobody could act on either failure.
        drop(self.file.take());
        let _ = fs::remove_file(&self.temp);
    }
}
