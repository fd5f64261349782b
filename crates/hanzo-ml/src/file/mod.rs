//! Readers and writers of model files. Every file is hostile input.
//!
//! * [`gguf`]: GGUF versions 2 and 3, little-endian, split or whole.
//! * [`safetensors`]: single files and sharded folders.
//! * [`imatrix`]: importance matrices, which the encoders of small formats want.
//! * [`mapped`]: the only place that maps a file into memory.
//!
//! Invariants of both readers: opening reads the header alone and touches no weights; all arithmetic is checked;
//! nothing is allocated from a count before the count is bounded by the bytes that are left; a [`TensorInfo`] that
//! exists has a size that matches its shape and a range that lies inside its file and overlaps no other.

pub mod gguf;
pub mod imatrix;
pub mod mapped;
pub mod safetensors;

mod atomic;
mod metadata;

use std::{ops::Range, path::Path};

use hanzo_quant::Format;

use crate::{QTensor, Result};

pub use atomic::AtomicFile;
pub(crate) use mapped::release;
pub use metadata::{Array, Metadata, Value};

/// Where a tensor lies and what it is. The reader has checked all of it against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// The weight format.
    pub format: &'static Format,
    /// Dimensions, outermost first (a GGUF file holds them innermost first).
    pub shape: Vec<usize>,
    /// Index of the file part (split GGUF, safetensors shard) that holds the bytes.
    pub part: usize,
    /// The bytes, counted from the beginning of that part.
    pub range: Range<usize>,
}

impl TensorInfo {
    /// Number of bytes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A file that holds named tensors, whatever its container.
pub trait TensorSource {
    /// The path that was opened.
    fn path(&self) -> &Path;

    /// All tensors, in file order.
    fn tensors(&self) -> &[TensorInfo];

    /// The tensor of that name, if the file has it.
    fn info(&self, name: &str) -> Option<&TensorInfo>;

    /// The weight of that name, sharing the mapped file's memory.
    ///
    /// # Errors
    /// If the file has no such tensor, or holds it in a type that no format carries.
    fn tensor(&self, name: &str) -> Result<QTensor>;

    /// The names of all tensors, in file order.
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.tensors().iter().map(|t| t.name.as_str()))
    }
}

/// Finds two ranges of one part that overlap; empty ranges never do.
fn overlap(tensors: &[TensorInfo]) -> Option<(&TensorInfo, &TensorInfo)> {
    let mut order: Vec<&TensorInfo> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    order.sort_unstable_by_key(|t| (t.part, t.range.start));
    let pair = order.windows(2).find(|w| w[0].part == w[1].part && w[1].range.start < w[0].range.end)?;
    Some((pair[0], pair[1]))
}

/// Tensor names in order, for look-up without a second copy of each name.
struct NameIndex(Vec<u32>);

impl NameIndex {
    /// Sorts the names.
    ///
    /// # Errors
    /// The first name that occurs twice.
    fn new(tensors: &[TensorInfo]) -> std::result::Result<Self, &str> {
        // Both readers bound the number of tensors far below 2^32.
        let mut order: Vec<u32> = (0..tensors.len() as u32).collect();
        let name = |i: u32| tensors[i as usize].name.as_str();
        order.sort_unstable_by_key(|&i| name(i));
        match order.windows(2).find(|w| name(w[0]) == name(w[1])) {
            Some(pair) => Err(name(pair[0])),
            None => Ok(Self(order)),
        }
    }

    fn find<'a>(&self, tensors: &'a [TensorInfo], name: &str) -> Option<&'a TensorInfo> {
        let at = self.0.binary_search_by_key(&name, |&i| tensors[i as usize].name.as_str()).ok()?;
        tensors.get(self.0[at] as usize)
    }
}
