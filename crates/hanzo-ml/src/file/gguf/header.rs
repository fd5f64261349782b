//! Parses the header of one GGUF file.
//!
//! The limits below bound what a hostile header can make us allocate: about eight times [`HEADER_BYTES_MAX`], and never
//! more than about sixteen times the file. They stand far above real files (largest seen: 16 MB of header, 600 k array
//! elements, a 33 MB `tokenizer.json` in one string).

use std::path::Path;

use hanzo_quant::Format;

use super::cursor::{Cursor, Parsed};
use crate::{
    Error, Result,
    file::{Array, Metadata, TensorInfo, Value, overlap},
};

/// Bytes of a header.
pub const HEADER_BYTES_MAX: usize = 128 << 20;
/// Metadata keys of a file.
pub const KEYS_MAX: usize = 1 << 16;
/// Tensors of a file.
pub const TENSORS_MAX: usize = 1 << 18;
/// Bytes of a metadata key: the specification's limit.
pub const KEY_BYTES_MAX: usize = (1 << 16) - 1;
/// Bytes of a tensor name. The specification says 64; image models use up to 127.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of a string value.
pub const STRING_BYTES_MAX: usize = 64 << 20;
/// Bytes of a string in an array (a token, a merge).
pub const TOKEN_BYTES_MAX: usize = 1 << 16;
/// Elements of an array.
pub const ARRAY_LEN_MAX: usize = 1 << 24;
/// Dimensions of a tensor.
pub const DIMS_MAX: u32 = 4;
/// Alignment in bytes.
pub const ALIGNMENT_MAX: u64 = 1 << 16;

/// The alignment of a file that names none.
pub(super) const ALIGNMENT_DEFAULT: u64 = 32;
pub(super) const MAGIC: [u8; 4] = *b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// Fewest bytes of a metadata entry: key length, one byte of key, type, one byte of value.
const KEY_BYTES_MIN: usize = 8 + 1 + 4 + 1;
/// Fewest bytes of a tensor description: name length, one byte of name, rank, one dimension, type, offset.
const TENSOR_BYTES_MIN: usize = 8 + 1 + 4 + 8 + 4 + 8;

/// A checked header: every range lies inside the file.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

/// Parses a header. `bytes` begins with it, `file_bytes` is the size of the whole file, `part` goes into the tensors.
pub(super) fn parse(path: &Path, bytes: &[u8], file_bytes: usize, part: usize) -> Result<Header> {
    parse_header(path, bytes, file_bytes, part).map_err(|what| Error::file(path, what))
}

fn parse_header(path: &Path, bytes: &[u8], file_bytes: usize, part: usize) -> Parsed<Header> {
    let mut cursor = Cursor::new(bytes, HEADER_BYTES_MAX);
    let version = parse_version(&mut cursor)?;
    let n_tensors = cursor.count("the tensor count", TENSOR_BYTES_MIN, TENSORS_MAX)?;
    let n_keys = cursor.count("the metadata count", KEY_BYTES_MIN, KEYS_MAX)?;
    let metadata = parse_metadata(&mut cursor, path, n_keys)?;
    let alignment = parse_alignment(&metadata)?;
    // Checked again: the metadata has used up some of the bytes.
    cursor.bounded(n_tensors as u64, "the tensor count", TENSOR_BYTES_MIN)?;
    let mut tensors = Vec::with_capacity(n_tensors);
    for i in 0..n_tensors {
        tensors.push(parse_tensor(&mut cursor, i, alignment, part)?);
    }
    place(&mut tensors, cursor.at(), alignment, file_bytes)?;
    Ok(Header { version, alignment, metadata, tensors })
}

fn parse_version(cursor: &mut Cursor<'_>) -> Parsed<u32> {
    let magic: [u8; 4] = cursor.array("the magic number")?;
    match &magic {
        &MAGIC => {}
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            return Err("a GGML file from before GGUF; convert the original model again".into());
        }
        b"vers" => {
            return Err("not a GGUF file but, it seems, a Git LFS pointer; fetch the model itself".into());
        }
        other => {
            return Err(format!("not a GGUF file: it begins with {:?}", other.escape_ascii().to_string()));
        }
    }
    match cursor.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        1 => Err("GGUF version 1 is not supported; convert the original model again".into()),
        // A small number whose bytes are swapped.
        version if version != 0 && version & 0xffff == 0 => {
            let version = version.swap_bytes();
            let how = "convert it with gguf_convert_endian of the gguf Python package";
            Err(format!("big-endian GGUF (version {version}) is not supported; {how}"))
        }
        version => Err(format!("GGUF version {version} is unknown; versions 2 and 3 are supported")),
    }
}

fn parse_metadata(cursor: &mut Cursor<'_>, path: &Path, n_keys: usize) -> Parsed<Metadata> {
    let mut metadata = Metadata::new(path);
    for i in 0..n_keys {
        let key = cursor.name(&format!("metadata key {i}"), KEY_BYTES_MAX)?;
        let value = parse_value(cursor).map_err(|what| format!("metadata key {key:?}: {what}"))?;
        if metadata.insert(key, value).is_some() {
            return Err(format!("metadata key {key:?} is there more than once"));
        }
    }
    Ok(metadata)
}

fn parse_bool(byte: u8) -> Parsed<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("the bool has the value {other}")),
    }
}

fn parse_value(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    const WHAT: &str = "the value";
    Ok(match cursor.u32("the value type")? {
        0 => Value::U8(u8::from_le_bytes(cursor.array(WHAT)?)),
        1 => Value::I8(i8::from_le_bytes(cursor.array(WHAT)?)),
        2 => Value::U16(u16::from_le_bytes(cursor.array(WHAT)?)),
        3 => Value::I16(i16::from_le_bytes(cursor.array(WHAT)?)),
        4 => Value::U32(u32::from_le_bytes(cursor.array(WHAT)?)),
        5 => Value::I32(i32::from_le_bytes(cursor.array(WHAT)?)),
        6 => Value::F32(f32::from_le_bytes(cursor.array(WHAT)?)),
        7 => Value::Bool(parse_bool(u8::from_le_bytes(cursor.array(WHAT)?))?),
        8 => Value::String(cursor.string("the string", STRING_BYTES_MAX)?.into()),
        9 => Value::Array(parse_array(cursor)?),
        10 => Value::U64(u64::from_le_bytes(cursor.array(WHAT)?)),
        11 => Value::I64(i64::from_le_bytes(cursor.array(WHAT)?)),
        12 => Value::F64(f64::from_le_bytes(cursor.array(WHAT)?)),
        id => return Err(format!("value type {id} is unknown")),
    })
}

/// An array of numbers of `N` bytes.
fn numbers<const N: usize, T>(cursor: &mut Cursor<'_>, read: fn([u8; N]) -> T) -> Parsed<Vec<T>> {
    let len = cursor.count("the array length", N, ARRAY_LEN_MAX)?;
    let (elems, _) = cursor.take(len * N, "the array")?.as_chunks::<N>();
    Ok(elems.iter().copied().map(read).collect())
}

fn parse_array(cursor: &mut Cursor<'_>) -> Parsed<Array> {
    Ok(match cursor.u32("the array's element type")? {
        0 => Array::U8(numbers(cursor, u8::from_le_bytes)?),
        1 => Array::I8(numbers(cursor, i8::from_le_bytes)?),
        2 => Array::U16(numbers(cursor, u16::from_le_bytes)?),
        3 => Array::I16(numbers(cursor, i16::from_le_bytes)?),
        4 => Array::U32(numbers(cursor, u32::from_le_bytes)?),
        5 => Array::I32(numbers(cursor, i32::from_le_bytes)?),
        6 => Array::F32(numbers(cursor, f32::from_le_bytes)?),
        7 => Array::Bool(numbers(cursor, |[b]| b)?.into_iter().map(parse_bool).collect::<Parsed<_>>()?),
        8 => Array::String(parse_strings(cursor)?),
        9 => return Err("arrays of arrays are not supported".into()),
        10 => Array::U64(numbers(cursor, u64::from_le_bytes)?),
        11 => Array::I64(numbers(cursor, i64::from_le_bytes)?),
        12 => Array::F64(numbers(cursor, f64::from_le_bytes)?),
        id => return Err(format!("array element type {id} is unknown")),
    })
}

fn parse_strings(cursor: &mut Cursor<'_>) -> Parsed<Vec<String>> {
    // Each string takes at least its 64-bit length.
    let len = cursor.count("the array length", 8, ARRAY_LEN_MAX)?;
    let mut strings = Vec::with_capacity(len);
    for i in 0..len {
        let string = cursor.string("a string of the array", TOKEN_BYTES_MAX);
        strings.push(string.map_err(|what| format!("index {i}: {what}"))?.into());
    }
    Ok(strings)
}

fn parse_alignment(metadata: &Metadata) -> Parsed<u64> {
    let alignment = match metadata.get(ALIGNMENT_KEY) {
        None => ALIGNMENT_DEFAULT,
        Some(&Value::U32(alignment)) => alignment.into(),
        Some(&Value::U64(alignment)) => alignment,
        Some(value) => return Err(format!("{ALIGNMENT_KEY} should be u32, found {}", value.type_name())),
    };
    if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        return Err(format!("{ALIGNMENT_KEY} is {alignment}, not a power of two of at most {ALIGNMENT_MAX}"));
    }
    Ok(alignment)
}

/// One tensor's description. Its range is relative to the data section until [`place`] has moved it.
fn parse_tensor(cursor: &mut Cursor<'_>, i: usize, alignment: u64, part: usize) -> Parsed<TensorInfo> {
    let name = cursor.name(&format!("the name of tensor {i}"), NAME_BYTES_MAX)?;
    let mut parse = || {
        let n_dims = cursor.u32("the number of dimensions")?;
        if n_dims == 0 || n_dims > DIMS_MAX {
            return Err(format!("{n_dims} dimensions; 1 to {DIMS_MAX} are allowed"));
        }
        let mut shape = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            let dim = cursor.u64("a dimension")?;
            shape.push(usize::try_from(dim).map_err(|_| format!("dimension {dim} is too large"))?);
        }
        let id = cursor.u32("the type")?;
        let format = Format::from_ggml_type(id).map_err(|e| e.to_string())?;
        let offset = cursor.u64("the offset")?;
        if !offset.is_multiple_of(alignment) {
            return Err(format!("offset {offset} is not a multiple of the alignment {alignment}"));
        }
        let start = usize::try_from(offset).map_err(|_| format!("offset {offset} is too large"))?;
        let bytes = tensor_bytes(format, &shape)?;
        let end =
            start.checked_add(bytes).ok_or_else(|| format!("offset {offset} + {bytes} bytes overflows"))?;
        shape.reverse();
        Ok(TensorInfo { name: name.into(), format, shape, part, range: start..end })
    };
    parse().map_err(|what| format!("tensor {name:?}: {what}"))
}

/// Bytes of a tensor; `dims` innermost first.
fn tensor_bytes(format: &'static Format, dims: &[usize]) -> Parsed<usize> {
    if dims.contains(&0) {
        return Err(format!("dimensions {dims:?} contain zero"));
    }
    let row = dims.first().copied().unwrap_or(1);
    let row_bytes = format.bytes_of(row).ok_or_else(|| {
        format!(
            "a row of {row} elements is not whole blocks of {} elements of {}",
            format.block_elems, format.name
        )
    })?;
    let too_large = || format!("the size of dimensions {dims:?} overflows");
    // The element count must fit too, since callers multiply it out.
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
    dims.iter().skip(1).try_fold(row_bytes, |n, &d| n.checked_mul(d)).ok_or_else(too_large)
}

/// Moves the ranges behind the header and checks them against the file and each other.
fn place(tensors: &mut [TensorInfo], header_bytes: usize, alignment: u64, file_bytes: usize) -> Parsed<()> {
    // The header is at most HEADER_BYTES_MAX, the alignment at most ALIGNMENT_MAX: this cannot overflow.
    let data_start = header_bytes.next_multiple_of(alignment as usize);
    for tensor in tensors.iter_mut() {
        let end = tensor.range.end.checked_add(data_start);
        let end = end.ok_or_else(|| format!("tensor {:?}: its end overflows", tensor.name))?;
        tensor.range = tensor.range.start + data_start..end;
    }
    if let Some(last) = tensors.iter().max_by_key(|t| t.range.end)
        && last.range.end > file_bytes
    {
        let (name, end) = (&last.name, last.range.end);
        let missing = end - file_bytes;
        return Err(format!(
            "file is truncated: tensor {name:?} ends at byte {end}, {missing} bytes are missing from {file_bytes}"
        ));
    }
    if let Some((a, b)) = overlap(tensors) {
        return Err(format!("tensors {:?} and {:?} overlap", a.name, b.name));
    }
    Ok(())
}
