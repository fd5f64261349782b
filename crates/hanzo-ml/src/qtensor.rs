//! A weight tensor as it lies in its file.

use std::{ops::Range, sync::Arc};

use hanzo_quant::Format;
use memmap2::Mmap;

use crate::{Error, Result, file};

/// Shared, immutable bytes: a range of a mapped file, or memory of our own.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Mapped(Arc<Mmap>),
    Owned(Arc<[u8]>),
}

impl Bytes {
    /// A range of a mapped file; `None` if it does not lie inside the file.
    pub fn mapped(file: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        file.get(range.clone())?;
        Some(Self { owner: Owner::Mapped(file), range })
    }

    /// Bytes in memory.
    pub fn owned(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { owner: Owner::Owned(bytes.into()), range }
    }

    /// A part of these bytes, sharing their memory; `None` if it does not lie inside them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Self { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }
}

impl Bytes {
    /// Lets the system take the pages of a part back, where they are a file's: they are read again when touched.
    fn release(&self, range: Range<usize>) {
        if let Owner::Mapped(file) = &self.owner {
            let start = self.range.start;
            file::release(file, start + range.start..start + range.end);
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Mapped(map) => map,
            Owner::Owned(bytes) => bytes,
        };
        &all[self.range.clone()]
    }
}

/// A weight in any format: `[N]`, `[N, K]` or `[E, N, K]`, row-major, rows of whole blocks.
#[derive(Clone)]
pub struct QTensor {
    name: Arc<str>,
    format: &'static Format,
    shape: Vec<usize>,
    bytes: Bytes,
}

impl QTensor {
    /// Joins a shape (outermost first) and its bytes.
    ///
    /// # Errors
    /// If the last dimension is not whole blocks or the byte count does not match.
    pub fn new(name: &str, format: &'static Format, shape: Vec<usize>, bytes: Bytes) -> Result<Self> {
        let row = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().rev().skip(1).try_fold(1usize, |n, &d| n.checked_mul(d));
        let want = format.bytes_of(row).zip(rows).and_then(|(b, n)| b.checked_mul(n));
        if want != Some(bytes.len()) {
            let have = bytes.len();
            return Err(Error::tensor(
                name,
                format!("shape {shape:?} of {format:?} does not fit {have} bytes"),
            ));
        }
        Ok(Self { name: name.into(), format, shape, bytes })
    }

    /// The tensor's name in its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The weight format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes as in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Lets the system take the pages of these bytes back, where they are a file's: they are read again when touched.
    ///
    /// # Panics
    /// If the range is not inside: a bug of the caller.
    pub(crate) fn release(&self, range: Range<usize>) {
        assert!(self.bytes.get(range.clone()).is_some(), "{range:?} of {} bytes", self.bytes.len());
        self.bytes.release(range);
    }

    /// Elements of the innermost dimension.
    pub fn row_elems(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }

    /// All values, decoded.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.elems()];
        (self.format.decode)(&self.bytes, &mut out);
        out
    }
}
