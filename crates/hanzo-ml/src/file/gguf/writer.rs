//! Writes GGUF version 3.
//!
//! Invariant: the finished header goes through the reader before anything reaches the disk, so a file that the reader
//! would refuse is never written. A file appears whole or not at all.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use hanzo_quant::Format;

use super::{
    header::{self, ALIGNMENT_DEFAULT, ALIGNMENT_KEY, MAGIC},
    split,
};
use crate::{
    Error, QTensor, Result,
    file::{Array, Metadata, NameIndex, Value, atomic::AtomicFile},
};

const VERSION: u32 = 3;

/// A tensor to be written.
pub struct NewTensor<'a> {
    /// The name, unique in the model.
    pub name: &'a str,
    /// The weight format.
    pub format: &'static Format,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
    /// The blocks, as many as the shape needs.
    pub bytes: Cow<'a, [u8]>,
}

impl<'a> From<&'a QTensor> for NewTensor<'a> {
    fn from(tensor: &'a QTensor) -> Self {
        Self {
            name: tensor.name(),
            format: tensor.format(),
            shape: tensor.shape(),
            bytes: Cow::Borrowed(tensor.bytes()),
        }
    }
}

/// Writes one file. `general.alignment` is honoured if the metadata has it (32 otherwise); `split.*` keys are dropped,
/// since the file is whole.
///
/// # Errors
/// If the file cannot be written, or if what it would hold is not valid.
pub fn write<'a>(
    path: &Path,
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = NewTensor<'a>>,
) -> Result<()> {
    let tensors: Vec<NewTensor<'a>> = tensors.into_iter().collect();
    let entries: Vec<Entry<'_>> = whole(metadata).collect();
    write_part(path, alignment(path, metadata)?, &entries, &tensors)
}

/// Writes a split model of at most `tensors_per_part` tensors a file as `STEM-00001-of-000NN.gguf` and so on into
/// `folder`; the paths come back. Each file is replaced whole; all of them together are not.
///
/// # Errors
/// As [`write`]; also if `tensors_per_part` is zero or makes more than 65535 parts.
pub fn write_split<'a>(
    folder: &Path,
    stem: &str,
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = NewTensor<'a>>,
    tensors_per_part: usize,
) -> Result<Vec<PathBuf>> {
    let tensors: Vec<NewTensor<'a>> = tensors.into_iter().collect();
    let fail = |what: String| Error::file(folder.join(stem), what);
    if tensors_per_part == 0 {
        return Err(fail("a part of zero tensors".into()));
    }
    let count = tensors.len().div_ceil(tensors_per_part).max(1);
    let too_many = || fail(format!("{} tensors in {count} parts are too many", tensors.len()));
    let count_u16 = u16::try_from(count).map_err(|_| too_many())?;
    let n_tensors = i32::try_from(tensors.len()).map_err(|_| too_many())?;
    let alignment = alignment(&folder.join(stem), metadata)?;
    let mut paths = Vec::with_capacity(count);
    for no in 0..count_u16 {
        let i = usize::from(no);
        let chunk = tensors.chunks(tensors_per_part).nth(i).unwrap_or_default();
        let split_keys = [
            (split::NO, Value::U16(no)),
            (split::COUNT, Value::U16(count_u16)),
            (split::TENSORS, Value::I32(n_tensors)),
        ];
        // The first part holds everything, the others only what their own layout needs.
        let mut entries: Vec<Entry<'_>> =
            whole(metadata).filter(|&(k, _)| no == 0 || k == ALIGNMENT_KEY).collect();
        entries.extend(split_keys.iter().map(|(k, v)| (*k, v)));
        let path = split::part_path(folder, stem, i + 1, count);
        write_part(&path, alignment, &entries, chunk)?;
        paths.push(path);
    }
    Ok(paths)
}

type Entry<'a> = (&'a str, &'a Value);

/// The entries of a model that is not split.
fn whole(metadata: &Metadata) -> impl Iterator<Item = Entry<'_>> {
    metadata.iter().filter(|(key, _)| !key.starts_with("split."))
}

/// The alignment as far as it is needed to lay out the file; the reader checks it in full.
fn alignment(path: &Path, metadata: &Metadata) -> Result<usize> {
    let bad = |what: String| Error::file(path, format!("{ALIGNMENT_KEY} is {what}, not a power of two"));
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(ALIGNMENT_DEFAULT as usize),
        Some(&Value::U32(n)) if n.is_power_of_two() && u64::from(n) <= header::ALIGNMENT_MAX => {
            Ok(n as usize)
        }
        Some(&Value::U32(n)) => Err(bad(n.to_string())),
        Some(value) => Err(bad(value.type_name())),
    }
}

fn write_part(path: &Path, alignment: usize, entries: &[Entry<'_>], tensors: &[NewTensor<'_>]) -> Result<()> {
    let infos: Vec<NewInfo<'_>> = tensors
        .iter()
        .map(|&NewTensor { name, format, shape, .. }| NewInfo { name, format, shape })
        .collect();
    let header = Header::new(path, alignment, entries, &infos)?;
    for (&want, tensor) in header.sizes.iter().zip(tensors) {
        let have = tensor.bytes.len();
        if have != want {
            let what = format!("{have} bytes do not fit shape {:?}: {want}", tensor.shape);
            return Err(Error::tensor(tensor.name, what));
        }
    }
    let mut writer = Writer::begin(path, alignment, header)?;
    for tensor in tensors {
        writer.append(&tensor.bytes)?;
    }
    writer.finish()
}

/// A tensor whose bytes come later.
#[derive(Clone, Copy, Debug)]
pub struct NewInfo<'a> {
    /// The name, unique in the model.
    pub name: &'a str,
    /// The weight format.
    pub format: &'static Format,
    /// Dimensions, outermost first.
    pub shape: &'a [usize],
}

/// A finished header, which the reader has accepted.
struct Header {
    bytes: Vec<u8>,
    /// Bytes of each tensor.
    sizes: Vec<usize>,
    file_bytes: usize,
}

impl Header {
    fn new(path: &Path, alignment: usize, entries: &[Entry<'_>], tensors: &[NewInfo<'_>]) -> Result<Self> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((tensors.len() as u64).to_le_bytes());
        out.extend((entries.len() as u64).to_le_bytes());
        for (key, value) in entries {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0usize;
        let mut sizes = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let bytes = tensor_bytes(tensor)?;
            put_string(&mut out, tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            for &dim in tensor.shape.iter().rev() {
                out.extend((dim as u64).to_le_bytes());
            }
            out.extend(tensor.format.ggml_type.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = bytes
                .checked_add(offset)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| Error::tensor(tensor.name, "the file would be too large"))?;
            sizes.push(bytes);
        }
        out.resize(out.len().next_multiple_of(alignment), 0);
        // The padding behind the header is not part of it, but the reader does not mind.
        let read = header::parse(path, &out, out.len() + offset, 0)?;
        NameIndex::new(&read.tensors)
            .map_err(|name| Error::file(path, format!("tensor {name:?} is there more than once")))?;
        Ok(Self { file_bytes: out.len() + offset, bytes: out, sizes })
    }
}

/// Bytes of a tensor.
fn tensor_bytes(tensor: &NewInfo<'_>) -> Result<usize> {
    let row = tensor.shape.last().copied().unwrap_or(1);
    let rows = tensor.shape.iter().rev().skip(1).try_fold(1usize, |n, &d| n.checked_mul(d));
    let bytes = tensor.format.bytes_of(row).zip(rows).and_then(|(bytes, rows)| bytes.checked_mul(rows));
    bytes.ok_or_else(|| {
        let Format { name, block_elems, .. } = tensor.format;
        let what = format!("rows of {row} elements are not whole blocks of {block_elems} ({name})");
        Error::tensor(tensor.name, what)
    })
}

/// Writes a whole model piece by piece, so that no tensor need be in memory: the header first, from shapes and formats,
/// then the bytes of all tensors in order. The file appears when [`Self::finish`] returns; a writer that is dropped
/// before leaves nothing behind.
pub struct Writer {
    file: AtomicFile,
    alignment: usize,
    sizes: Vec<usize>,
    file_bytes: usize,
    /// The tensor that is being written, and how many of its bytes are there.
    tensor: usize,
    written: usize,
}

impl Writer {
    /// Begins a file. `general.alignment` and `split.*` are treated as [`write`] does.
    ///
    /// # Errors
    /// If the file cannot be created, or what it would hold is not valid.
    pub fn create(path: &Path, metadata: &Metadata, tensors: &[NewInfo<'_>]) -> Result<Self> {
        let entries: Vec<Entry<'_>> = whole(metadata).collect();
        let alignment = alignment(path, metadata)?;
        Self::begin(path, alignment, Header::new(path, alignment, &entries, tensors)?)
    }

    fn begin(path: &Path, alignment: usize, header: Header) -> Result<Self> {
        let mut file = AtomicFile::create(path)?;
        file.write(&header.bytes)?;
        let Header { sizes, file_bytes, .. } = header;
        let mut writer = Self { file, alignment, sizes, file_bytes, tensor: 0, written: 0 };
        writer.pad()?;
        Ok(writer)
    }

    /// Bytes that the finished file will have.
    pub fn file_bytes(&self) -> usize {
        self.file_bytes
    }

    /// Appends bytes to the tensor that is not complete yet; they may not reach into the next one.
    ///
    /// # Errors
    /// If they cannot be written or are more than the tensor lacks.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let lacks = self.sizes.get(self.tensor).map_or(0, |size| size - self.written);
        if bytes.len() > lacks {
            let what = format!("{} bytes for tensor {}, which lacks {lacks}", bytes.len(), self.tensor);
            return Err(Error::op("writing a model", what));
        }
        self.file.write(bytes)?;
        self.written += bytes.len();
        self.pad()
    }

    /// Goes past every tensor that is complete, to the place of the next one.
    fn pad(&mut self) -> Result<()> {
        while self.sizes.get(self.tensor) == Some(&self.written) {
            let padding = self.written.next_multiple_of(self.alignment) - self.written;
            self.file.write(&vec![0; padding])?;
            (self.tensor, self.written) = (self.tensor + 1, 0);
        }
        Ok(())
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// If a tensor is incomplete, or the file cannot be written.
    pub fn finish(self) -> Result<()> {
        if self.tensor < self.sizes.len() {
            let what = format!("tensor {} of {} is incomplete", self.tensor, self.sizes.len());
            return Err(Error::op("writing a model", what));
        }
        self.file.commit()
    }
}

fn put_string(out: &mut Vec<u8>, string: &str) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string.as_bytes());
}

/// Puts a type id and a number's bytes.
fn put_number<const N: usize>(out: &mut Vec<u8>, id: u32, bytes: [u8; N]) {
    out.extend(id.to_le_bytes());
    out.extend(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => put_number(out, 0, v.to_le_bytes()),
        Value::I8(v) => put_number(out, 1, v.to_le_bytes()),
        Value::U16(v) => put_number(out, 2, v.to_le_bytes()),
        Value::I16(v) => put_number(out, 3, v.to_le_bytes()),
        Value::U32(v) => put_number(out, 4, v.to_le_bytes()),
        Value::I32(v) => put_number(out, 5, v.to_le_bytes()),
        Value::F32(v) => put_number(out, 6, v.to_le_bytes()),
        Value::Bool(v) => put_number(out, 7, [u8::from(*v)]),
        Value::String(v) => {
            out.extend(8u32.to_le_bytes());
            put_string(out, v);
        }
        Value::Array(v) => {
            out.extend(9u32.to_le_bytes());
            put_array(out, v);
        }
        Value::U64(v) => put_number(out, 10, v.to_le_bytes()),
        Value::I64(v) => put_number(out, 11, v.to_le_bytes()),
        Value::F64(v) => put_number(out, 12, v.to_le_bytes()),
    }
}

/// Puts an element type id, a length and the numbers.
fn put_numbers<const N: usize, T: Copy>(out: &mut Vec<u8>, id: u32, values: &[T], bytes: fn(T) -> [u8; N]) {
    out.extend(id.to_le_bytes());
    out.extend((values.len() as u64).to_le_bytes());
    out.extend(values.iter().flat_map(|&v| bytes(v)));
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    match array {
        Array::U8(v) => put_numbers(out, 0, v, u8::to_le_bytes),
        Array::I8(v) => put_numbers(out, 1, v, i8::to_le_bytes),
        Array::U16(v) => put_numbers(out, 2, v, u16::to_le_bytes),
        Array::I16(v) => put_numbers(out, 3, v, i16::to_le_bytes),
        Array::U32(v) => put_numbers(out, 4, v, u32::to_le_bytes),
        Array::I32(v) => put_numbers(out, 5, v, i32::to_le_bytes),
        Array::F32(v) => put_numbers(out, 6, v, f32::to_le_bytes),
        Array::Bool(v) => put_numbers(out, 7, v, |b| [u8::from(b)]),
        Array::String(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|s| put_string(out, s));
        }
        Array::U64(v) => put_numbers(out, 10, v, u64::to_le_bytes),
        Array::I64(v) => put_numbers(out, 11, v, i64::to_le_bytes),
        Array::F64(v) => put_numbers(out, 12, v, f64::to_le_bytes),
    }
}
