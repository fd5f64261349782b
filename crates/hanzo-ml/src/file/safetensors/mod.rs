//! Safetensors: one file, or a folder of shards with `model.safetensors.index.json`.
//!
//! Source: <https://github.com/huggingface/safetensors#format>. A file is a 64-bit header length, a JSON header and the
//! tensors' bytes without holes. The `safetensors` crate takes the last of duplicate keys and ignores unknown fields,
//! so the header is parsed here and the crate serves the tests as an oracle.
//!
//! Invariants: those of [`crate::file`]; besides, the tensors fill the data section exactly, and a shard's name never
//! leaves the folder. Tensors of types that no format carries (`BOOL`, `F8_E4M3` …) are checked and listed by
//! [`SafeTensors::unsupported`] when a file is opened (checkpoints hold mask buffers that nobody reads); asking for one
//! is an error that names the type.

mod header;
mod index;
mod writer;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

pub use header::{DIMS_MAX, HEADER_BYTES_MAX, NAME_BYTES_MAX, TENSORS_MAX};
pub use writer::write;

use super::{NameIndex, TensorInfo, TensorSource, mapped};
use crate::{Bytes, Error, QTensor, Result};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A tensor of a type that no format carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The name in the file.
    pub name: String,
    /// The type's name in the file, for example `F8_E4M3`.
    pub dtype: &'static str,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// One model: a safetensors file or all its shards. Holds the headers; tensors stay mapped.
pub struct SafeTensors {
    path: PathBuf,
    shards: Vec<Bytes>,
    metadata: BTreeMap<String, String>,
    tensors: Vec<TensorInfo>,
    index: NameIndex,
    unsupported: Vec<Unsupported>,
}

impl SafeTensors {
    /// Opens a `.safetensors` file, a `.safetensors.index.json`, or a folder that holds `model.safetensors` or
    /// `model.safetensors.index.json` (in that order).
    ///
    /// # Errors
    /// If a file cannot be read, is malformed or truncated, or the index and the shards disagree.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return [SINGLE, INDEX].map(|name| path.join(name)).iter().find(|p| p.exists()).map_or_else(
                || Err(Error::file(path, format!("the folder has neither {SINGLE} nor {INDEX}"))),
                |found| Self::open(found),
            );
        }
        if path.extension().is_some_and(|e| e == "json") {
            return index::open(path);
        }
        Self::from_bytes(path, mapped::map(path)?)
    }

    /// Reads a file that lies in memory; `name` is what errors call it.
    ///
    /// # Errors
    /// If it is malformed or truncated.
    pub fn from_bytes(name: &Path, bytes: Bytes) -> Result<Self> {
        let header = header::parse(name, &bytes, bytes.len(), 0)?;
        Self::join(name, vec![(bytes, header)])
    }

    /// Joins shards; of metadata keys that several have, the first counts.
    fn join(path: &Path, parts: Vec<(Bytes, header::Header)>) -> Result<Self> {
        let (mut shards, mut tensors, mut unsupported) = (Vec::new(), Vec::new(), Vec::<Unsupported>::new());
        let mut metadata = BTreeMap::new();
        for (bytes, header) in parts {
            shards.push(bytes);
            tensors.extend(header.tensors);
            unsupported.extend(header.unsupported);
            for (key, value) in header.metadata {
                metadata.entry(key).or_insert(value);
            }
        }
        let twice = |name| Error::file(path, format!("tensor {name:?} is there more than once"));
        let index = NameIndex::new(&tensors).map_err(twice)?;
        let path = path.into();
        Ok(Self { path, shards, metadata, tensors, index, unsupported })
    }

    /// The file that was opened: of a sharded model its index.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The `__metadata__` of the header; of a sharded model that of all shards together.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// All tensors of types that a format carries, in file order, shards in the order of their names.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensors of all other types.
    pub fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }

    /// The tensor of that name, if there is one of a type that a format carries.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.index.find(&self.tensors, name)
    }

    /// The weight of that name; shares the mapped memory.
    ///
    /// # Errors
    /// If there is no such tensor or no format carries its type.
    pub fn tensor(&self, name: &str) -> Result<QTensor> {
        let missing = || match self.unsupported.iter().find(|t| t.name == name) {
            Some(t) => {
                Error::file(&self.path, format!("tensor {name:?} has the unsupported type {}", t.dtype))
            }
            None => Error::file(&self.path, format!("tensor {name:?} is missing")),
        };
        let info = self.info(name).ok_or_else(missing)?;
        let bytes =
            self.shards.get(info.part).and_then(|p| p.slice(info.range.clone())).ok_or_else(missing)?;
        QTensor::new(name, info.format, info.shape.clone(), bytes)
    }

    /// Number of files: 1, or the shards of a sharded model.
    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// Size of all files together, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().map(|p| p.len() as u64).sum()
    }
}

impl TensorSource for SafeTensors {
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

impl fmt::Debug for SafeTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeTensors")
            .field("path", &self.path)
            .field("n_shards", &self.shards.len())
            .field("n_tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}
