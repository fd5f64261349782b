//! GGUF, versions 2 and 3, little-endian, in one file or split into parts.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. A file is a header (counts, key-value
//! metadata, tensor descriptions), padding to `general.alignment`, and the tensors' bytes. Split models
//! (`NAME-00001-of-00003.gguf`) hold the metadata in the first part and `split.no`, `split.count` and
//! `split.tensors.count` in each.
//!
//! Invariants: those of [`crate::file`]; besides, names and keys are unique and free of control characters, and all
//! strings are UTF-8 (every converter writes them so, token texts included: byte tokens are spelled out in ASCII).
//! Left out on purpose: version 1, big-endian files and arrays of arrays, each refused by name.

mod cursor;
mod header;
mod split;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use header::Header;
pub use header::{
    ALIGNMENT_MAX, ARRAY_LEN_MAX, DIMS_MAX, HEADER_BYTES_MAX, KEY_BYTES_MAX, KEYS_MAX, NAME_BYTES_MAX,
    STRING_BYTES_MAX, TENSORS_MAX, TOKEN_BYTES_MAX,
};
pub use writer::{NewInfo, NewTensor, Writer, write, write_split};

use super::{Metadata, NameIndex, TensorInfo, TensorSource, mapped};
use crate::{Bytes, Error, QTensor, Result};

/// One model: a GGUF file, or all parts of a split one. Holds the header; tensors stay mapped.
pub struct Gguf {
    path: PathBuf,
    parts: Vec<Bytes>,
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: NameIndex,
}

impl Gguf {
    /// Opens a file. Of a split model any part may be given; the others are found beside it.
    ///
    /// # Errors
    /// If a file cannot be read, is malformed or truncated, or a part is missing or belongs elsewhere.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = mapped::map(path)?;
        let header = header::parse(path, &bytes, bytes.len(), 0)?;
        match split::Place::of(&header)? {
            None => Self::join(path, vec![(bytes, header)]),
            Some(place) => Self::join(path, split::open_parts(path, &place)?),
        }
    }

    /// Reads a file that lies in memory; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Self::open`]; also if the file is one part of a split model.
    pub fn from_bytes(name: &Path, bytes: Bytes) -> Result<Self> {
        let header = header::parse(name, &bytes, bytes.len(), 0)?;
        if let Some(place) = split::Place::of(&header)? {
            let what =
                format!("part {} of {} of a split model cannot be read alone", place.number(), place.count);
            return Err(Error::file(name, what));
        }
        Self::join(name, vec![(bytes, header)])
    }

    fn join(path: &Path, parts: Vec<(Bytes, Header)>) -> Result<Self> {
        let mut bytes = Vec::with_capacity(parts.len());
        let mut tensors = Vec::new();
        let mut first = None;
        for (part_bytes, mut header) in parts {
            bytes.push(part_bytes);
            tensors.append(&mut header.tensors);
            first.get_or_insert(header);
        }
        let first = first.ok_or_else(|| Error::file(path, "a split model without parts"))?;
        let index = NameIndex::new(&tensors)
            .map_err(|name| Error::file(path, format!("tensor {name:?} is there more than once")))?;
        let Header { version, alignment, metadata, .. } = first;
        Ok(Self { path: path.into(), parts: bytes, version, alignment, metadata, tensors, index })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of the tensors' offsets, in bytes: a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The key-value metadata; of a split model that of its first part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order, parts in order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of that name, if there is one.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.index.find(&self.tensors, name)
    }

    /// The weight of that name; shares the mapped memory.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn tensor(&self, name: &str) -> Result<QTensor> {
        let missing = || Error::file(&self.path, format!("tensor {name:?} is missing"));
        let info = self.info(name).ok_or_else(missing)?;
        let bytes =
            self.parts.get(info.part).and_then(|p| p.slice(info.range.clone())).ok_or_else(missing)?;
        QTensor::new(name, info.format, info.shape.clone(), bytes)
    }

    /// Number of files: 1, or the parts of a split model.
    pub fn n_parts(&self) -> usize {
        self.parts.len()
    }

    /// Size of all files together, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.len() as u64).sum()
    }
}

impl TensorSource for Gguf {
    fn path(&self) -> &Path {
        self.path()
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.tensors()
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.info(name)
    }

    fn tensor(&self, name: &str) -> Result<QTensor> {
        self.tensor(name)
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path)
            .field("n_parts", &self.parts.len())
            .field("n_keys", &self.metadata.len())
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}
