//! Compiled kernels on disk, by a hash of the parts that the caller names.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// FNV-1a of 128 bits (Fowler, Noll, Vo): the same in every build of every version, unlike the standard library's.
fn fnv(parts: &[&[u8]]) -> u128 {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for part in parts {
        // Lengths keep the borders of the parts.
        for byte in (part.len() as u64).to_le_bytes().iter().chain(*part) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
    hash
}

/// A folder of compiled kernels; without a folder, nothing is kept.
pub(super) struct Cache(Option<PathBuf>);

impl Cache {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self(folder.map(Path::to_path_buf))
    }

    fn path(&self, parts: &[&[u8]]) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(format!("{:032x}.bin", fnv(parts))))
    }

    /// What was kept for these parts. A file is its content and the content's hash; anything else is no file of ours.
    pub(super) fn get(&self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.path(parts)?).ok()?;
        let hash = bytes.split_off(bytes.len().checked_sub(16)?);
        (hash == fnv(&[&bytes]).to_le_bytes() && !bytes.is_empty()).then_some(bytes)
    }

    /// Keeps compiled code. What cannot be written is compiled again.
    pub(super) fn put(&self, parts: &[&[u8]], code: &[u8]) {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let Some(path) = self.path(parts) else { return };
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temp = path.with_extension(format!("{}.{n}.tmp", std::process::id()));
        let bytes = [code, &fnv(&[code]).to_le_bytes()].concat();
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = folder.and_then(|()| fs::write(&temp, bytes)).and_then(|()| fs::rename(&temp, &path));
        if let Err(e) = written {
            tracing::debug!("{}: {e}; the kernel is not kept", path.display());
            // Nothing more can be done about a file that may not even exist.
            let _ = fs::remove_file(&temp);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    /// The offset basis and "a", from the authors' table of test vectors; the length's eight bytes come first here, so
    /// the empty list is the one vector that is theirs.
    #[test]
    fn the_hash_is_fnv() {
        assert_eq!(fnv(&[]), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_ne!(fnv(&[b"ab", b"c"]), fnv(&[b"a", b"bc"]));
    }

    #[test]
    fn damaged_files_are_no_kernels() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(&folder.path().join("kernels")));
        let parts: [&[u8]; 2] = [b"text", b"sm_90"];
        assert_eq!(cache.get(&parts), None);
        cache.put(&parts, b"code");
        assert_eq!(cache.get(&parts).unwrap(), b"code");
        assert_eq!(cache.get(&[b"text", b"sm_80"]), None);
        let path = cache.path(&parts).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[1] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache.get(&parts), None);
        fs::write(&path, b"short").unwrap();
        assert_eq!(cache.get(&parts), None);
        assert_eq!(Cache::new(None).get(&parts), None);
    }
}
