//! Maps files into memory: the only `unsafe` of the file readers.
//!
//! A mapped file that another process shortens raises SIGBUS on access, and one that is rewritten in place changes
//! under us. No reader can exclude that; our own writers replace files by renaming, which leaves a mapping intact.
//! The bytes are plain data: no reader keeps a reference that assumes more than "some bytes of this length".

#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe by nature; this module is the only one that does it"
)]

use std::{fs, ops::Range, path::Path, sync::Arc};

use memmap2::Mmap;

use crate::{Bytes, Error, Result};

/// Maps a regular file, read-only. Pages are read from disk when they are first touched.
///
/// # Errors
/// If the file cannot be opened or mapped, or is not a regular file (a folder, a pipe, a device).
pub fn map(path: &Path) -> Result<Bytes> {
    // Asked before opening: opening a pipe would wait for its writer.
    let found = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !found.is_file() {
        return Err(Error::file(path, "not a regular file"));
    }
    let file = fs::File::open(path).map_err(|e| Error::io(path, e))?;
    // An empty mapping is an error on some systems.
    if file.metadata().map_err(|e| Error::io(path, e))?.len() == 0 {
        return Ok(Bytes::owned(Vec::new()));
    }
    // SAFETY: the mapping is read-only, and its pages are only ever read as bytes, for which every bit pattern is
    // valid. What others may do to the file meanwhile is described in the module's head.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
    let len = map.len();
    Bytes::mapped(Arc::new(map), 0..len)
        .ok_or_else(|| Error::file(path, "the mapping is shorter than the file"))
}

/// Lets the system take the pages of a part of a mapping back. They are read again when they are next touched.
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    if map.get(range.clone()).is_some() {
        // SAFETY: the mapping is of a file, shared and never written, so a page that comes back has the file's bytes as
        // before. A system that declines leaves the pages where they are.
        let _ = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
        };
    }
    #[cfg(not(unix))]
    let _ = (map, range);
}
