//! Importance matrices: for each weight matrix, how large the values are that meet each of its columns.
//!
//! Source: llama.cpp's `tools/imatrix` and `common/imatrix-loader`. Two containers hold the same: a GGUF file with the
//! tensors `NAME.in_sum2` (`[E, K]`, sums of squared inputs) and `NAME.counts` (`[E, 1]`, how many inputs were summed),
//! and the older `.dat` file, a list of names and sums that are already divided by the count and multiplied by the
//! number of calls. The quantiser uses the means ([`Entry::means`]) as weights of squared errors.
//!
//! Invariants: that of [`crate::file`] for hostile input; an entry that exists has sums for whole matrices, all finite
//! and none negative, and at least one column.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map},
    path::Path,
};

use hanzo_quant::Format;

use super::{
    Array, Metadata, Value,
    atomic::AtomicFile,
    gguf::{Gguf, NAME_BYTES_MAX, NewTensor, STRING_BYTES_MAX},
    mapped,
};
use crate::{Bytes, Error, Result};

const GGUF_MAGIC: &[u8] = b"GGUF";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const TYPE_KEY: &str = "general.type";
const DATASETS_KEY: &str = "imatrix.datasets";
const CHUNK_COUNT_KEY: &str = "imatrix.chunk_count";
const CHUNK_SIZE_KEY: &str = "imatrix.chunk_size";
/// Fewest bytes of an entry of the older file: length of the name, one byte of it, calls, number of values, one value.
const DAT_ENTRY_BYTES_MIN: usize = 4 + 1 + 4 + 4 + 4;

/// The importance of the columns of one weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    sums: Vec<f32>,
    counts: Vec<f32>,
}

impl Entry {
    /// Joins sums and counts. `sums`: `[E, K]`, squared inputs of each column, summed over the rows that an expert saw;
    /// `counts`: `[E]`, how many rows that were. A weight without experts has `E = 1`.
    ///
    /// # Errors
    /// A sentence: if the sums are not whole matrices, or a number is negative or not finite.
    pub fn new(sums: Vec<f32>, counts: Vec<f32>) -> std::result::Result<Self, String> {
        if counts.is_empty() || sums.is_empty() || !sums.len().is_multiple_of(counts.len()) {
            return Err(format!("{} sums do not belong to {} counts", sums.len(), counts.len()));
        }
        match sums.iter().chain(&counts).find(|v| !(v.is_finite() && **v >= 0.0)) {
            Some(bad) => Err(format!("{bad} is neither zero nor positive")),
            None => Ok(Self { sums, counts }),
        }
    }

    /// Number of matrices, E: the experts of a mixture, else 1. A `.dat` file does not tell experts apart: there it is 1.
    pub fn n_matrices(&self) -> usize {
        self.counts.len()
    }

    /// Sums of squared inputs, `[E, K]`.
    pub fn sums(&self) -> &[f32] {
        &self.sums
    }

    /// Rows that were summed, `[E]`.
    pub fn counts(&self) -> &[f32] {
        &self.counts
    }

    /// Mean squares of the inputs, `[E, K]`; 1 for an expert that no row was sent to.
    pub fn means(&self) -> Vec<f32> {
        let columns = self.sums.len() / self.counts.len();
        let means = self.sums.chunks(columns).zip(&self.counts).flat_map(|(sums, &count)| {
            sums.iter().map(move |&sum| if count > 0.0 { sum / count } else { 1.0 })
        });
        means.collect()
    }
}

/// An importance matrix: entries by the GGUF name of their weight, and how they came about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// Names of the texts that were read.
    pub datasets: Vec<String>,
    /// Chunks of text that were read; 0 where the file does not say.
    pub chunk_count: u32,
    /// Tokens of a chunk; 0 where the file does not say.
    pub chunk_size: u32,
    entries: BTreeMap<String, Entry>,
}

impl Imatrix {
    /// Reads a file in either container.
    ///
    /// # Errors
    /// If it cannot be read, is malformed, or holds no importance matrix.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = mapped::map(path)?;
        Self::from_bytes(path, bytes)
    }

    /// Reads a file that lies in memory; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(name: &Path, bytes: Bytes) -> Result<Self> {
        let imatrix = if bytes.starts_with(GGUF_MAGIC) {
            from_gguf(&Gguf::from_bytes(name, bytes)?)?
        } else {
            from_dat(&bytes).map_err(|what| Error::file(name, format!("not an importance matrix: {what}")))?
        };
        if imatrix.is_empty() {
            return Err(Error::file(name, format!("not an importance matrix: no tensor ends in {SUMS}")));
        }
        Ok(imatrix)
    }

    /// The entry of a weight, by its GGUF name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Adds or replaces the entry of a weight.
    pub fn insert(&mut self, name: impl Into<String>, entry: Entry) {
        self.entries.insert(name.into(), entry);
    }

    /// All entries, in the order of their names.
    pub fn iter(&self) -> btree_map::Iter<'_, String, Entry> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes a GGUF file as llama.cpp does. It appears whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written, or a name is too long for it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut metadata = Metadata::new(path);
        metadata.insert(TYPE_KEY, Value::String("imatrix".to_owned()));
        metadata.insert(DATASETS_KEY, Value::Array(Array::String(self.datasets.clone())));
        metadata.insert(CHUNK_COUNT_KEY, Value::U32(self.chunk_count));
        metadata.insert(CHUNK_SIZE_KEY, Value::U32(self.chunk_size));
        let named: Vec<_> = self.entries.iter().flat_map(|(name, entry)| tensors(name, entry)).collect();
        let format = f32_format();
        let tensors = named.iter().map(|(name, shape, values)| {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            NewTensor { name, format, shape, bytes: Cow::Owned(bytes) }
        });
        super::gguf::write(path, &metadata, tensors)
    }

    /// Writes the older `.dat` file, for programs that read no other. It appears whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written, or holds more than its 32-bit counts can say.
    pub fn write_dat(&self, path: &Path) -> Result<()> {
        let int = |n: usize, what: &str| {
            let too_many = || Error::file(path, format!("{n} {what} are more than a .dat file can hold"));
            i32::try_from(n).map(i32::to_le_bytes).map_err(|_| too_many())
        };
        let mut out = Vec::new();
        out.extend(int(self.len(), "entries")?);
        for (name, entry) in &self.entries {
            out.extend(int(name.len(), "bytes of a name")?);
            out.extend(name.as_bytes());
            let most = entry.counts.iter().copied().fold(0.0, f32::max);
            // Rounded up, so that few rows do not become no call.
            let n_calls = (most / self.chunk_size.max(1) as f32).ceil().max(1.0);
            out.extend((n_calls as i32).to_le_bytes());
            out.extend(int(entry.sums.len(), "values")?);
            out.extend(entry.means().iter().flat_map(|mean| (mean * n_calls).to_le_bytes()));
        }
        out.extend(int(self.chunk_count as usize, "chunks")?);
        let dataset = self.datasets.last().map_or("", String::as_str);
        out.extend(int(dataset.len(), "bytes of a name")?);
        out.extend(dataset.as_bytes());
        let mut file = AtomicFile::create(path)?;
        file.write(&out)?;
        file.commit()
    }
}

fn f32_format() -> &'static Format {
    Format::from_ggml_type(0).expect("the table's first row")
}

/// The two tensors of an entry: name, shape, values.
fn tensors<'a>(name: &str, entry: &'a Entry) -> [(String, Vec<usize>, &'a [f32]); 2] {
    let n = entry.n_matrices();
    [
        (format!("{name}{SUMS}"), vec![n, entry.sums.len() / n], &entry.sums),
        (format!("{name}{COUNTS}"), vec![n, 1], &entry.counts),
    ]
}

fn from_gguf(file: &Gguf) -> Result<Imatrix> {
    let metadata = file.metadata();
    let mut imatrix = Imatrix {
        datasets: metadata.strings(DATASETS_KEY)?.unwrap_or_default().to_vec(),
        chunk_count: metadata.u32(CHUNK_COUNT_KEY)?.unwrap_or(0),
        chunk_size: metadata.u32(CHUNK_SIZE_KEY)?.unwrap_or(0),
        entries: BTreeMap::new(),
    };
    for info in file.tensors() {
        if let Some(name) = info.name.strip_suffix(COUNTS)
            && file.info(&format!("{name}{SUMS}")).is_none()
        {
            return Err(Error::tensor(&info.name, format!("{name}{SUMS} is missing from {}", path(file))));
        }
        let Some(name) = info.name.strip_suffix(SUMS) else { continue };
        let sums = values(file, &info.name)?;
        let counts = values(file, &format!("{name}{COUNTS}"))?;
        let entry = Entry::new(sums, counts).map_err(|what| Error::tensor(&info.name, what))?;
        imatrix.entries.insert(name.to_owned(), entry);
    }
    Ok(imatrix)
}

fn path(file: &Gguf) -> String {
    file.path().display().to_string()
}

fn values(file: &Gguf, name: &str) -> Result<Vec<f32>> {
    let tensor = file.tensor(name)?;
    if tensor.format() != f32_format() {
        return Err(Error::tensor(name, format!("{:?}, where importance is F32", tensor.format())));
    }
    Ok(tensor.to_f32())
}

type Parsed<T> = std::result::Result<T, String>;

/// The older file's bytes that are left.
struct Dat<'a>(&'a [u8]);

impl<'a> Dat<'a> {
    fn take(&mut self, n: usize, what: &str) -> Parsed<&'a [u8]> {
        let left = self.0.len();
        let (taken, rest) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| format!("{what} takes {n} bytes, but only {left} are left"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self, what: &str) -> Parsed<i32> {
        let bytes = self.take(4, what)?;
        Ok(bytes.first_chunk().copied().map_or(0, i32::from_le_bytes))
    }

    /// A number of things, each of at least `each_bytes` of what is left.
    fn count(&mut self, what: &str, each_bytes: usize) -> Parsed<usize> {
        let n = self.int(what)?;
        let bounded = usize::try_from(n).ok().filter(|n| *n <= self.0.len() / each_bytes);
        bounded.ok_or_else(|| format!("{what} is {n}, but {} bytes are left", self.0.len()))
    }

    fn text(&mut self, what: &str, max: usize) -> Parsed<&'a str> {
        let n = self.count(what, 1)?;
        if n > max {
            return Err(format!("{what} is {n}, above the limit of {max}"));
        }
        let text = std::str::from_utf8(self.take(n, what)?).map_err(|e| format!("{what}: {e}"))?;
        if text.chars().any(char::is_control) {
            return Err(format!("{what}: {text:?} contains control characters"));
        }
        Ok(text)
    }
}

fn from_dat(bytes: &[u8]) -> Parsed<Imatrix> {
    let mut dat = Dat(bytes);
    let mut imatrix = Imatrix::default();
    for i in 0..dat.count("the number of entries", DAT_ENTRY_BYTES_MIN)? {
        let name = dat.text("the length of a name", NAME_BYTES_MAX)?;
        let in_entry = |what: String| format!("entry {i} ({name}): {what}");
        let n_calls = dat.int("the number of calls").map_err(in_entry)?;
        let n_values = dat.count("the number of values", 4).map_err(in_entry)?;
        let values = dat.take(n_values * 4, "the values").map_err(in_entry)?;
        let sums = values.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        // No calls means that the sums are the means.
        let entry = Entry::new(sums, vec![n_calls.max(1) as f32]).map_err(in_entry)?;
        if imatrix.entries.insert(name.to_owned(), entry).is_some() {
            return Err(format!("entry {i} ({name}) is there a second time"));
        }
    }
    // The oldest files end here.
    if !dat.0.is_empty() {
        imatrix.chunk_count = u32::try_from(dat.int("the number of chunks")?).unwrap_or(0);
    }
    if !dat.0.is_empty() {
        imatrix.datasets.push(dat.text("the length of the dataset's name", STRING_BYTES_MAX)?.to_owned());
        imatrix.datasets.retain(|name| !name.is_empty());
    }
    Ok(imatrix)
}
