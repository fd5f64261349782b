//! Parses and checks the header of one safetensors file.

use std::{collections::BTreeMap, fmt, ops::Range, path::Path};

use hanzo_quant::Format;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::Unsupported;
use crate::{Error, Result, file::TensorInfo};

/// Bytes of a header: the limit of the `safetensors` library.
pub const HEADER_BYTES_MAX: usize = 100_000_000;
/// Tensors of a file.
pub const TENSORS_MAX: usize = 1 << 18;
/// Bytes of a tensor name.
pub const NAME_BYTES_MAX: usize = 1024;
/// Dimensions of a tensor.
pub const DIMS_MAX: usize = 8;

/// Types that a format of the same name carries.
pub(super) const DTYPES: [&str; 8] = ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"];

/// Types that no format carries, with their bits.
const OTHER_DTYPES: [(&str, usize); 15] = [
    ("BOOL", 8),
    ("U8", 8),
    ("U16", 16),
    ("U32", 32),
    ("U64", 64),
    ("C64", 64),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("F8_E4M3", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2", 8),
    ("F8_E5M2FNUZ", 8),
    ("F8_E8M0", 8),
    ("E8M0", 8),
];

/// A checked header: every range lies inside the file.
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) unsupported: Vec<Unsupported>,
}

/// Parses a header. `bytes` begins with it, `file_bytes` is the size of the whole file, `part` goes into the tensors.
pub(super) fn parse(path: &Path, bytes: &[u8], file_bytes: usize, part: usize) -> Result<Header> {
    parse_header(bytes, file_bytes, part).map_err(|what| Error::file(path, what))
}

fn parse_header(bytes: &[u8], file_bytes: usize, part: usize) -> std::result::Result<Header, String> {
    let (&length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| {
        format!("file is truncated: {} bytes are missing from the header's length", 8 - bytes.len())
    })?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX as u64 {
        return Err(format!("the header has {length} bytes, above the limit of {HEADER_BYTES_MAX}"));
    }
    let length = length as usize;
    let json = rest.get(..length).ok_or_else(|| {
        format!("file is truncated: the header has {length} bytes, {} are missing", length - rest.len())
    })?;
    if json.first() != Some(&b'{') {
        return Err("the header does not begin with '{'".into());
    }
    let raw: RawHeader = serde_json::from_slice(json).map_err(|e| format!("the header is malformed: {e}"))?;
    check(raw, 8 + length, file_bytes, part)
}

/// A tensor as the JSON has it.
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    offsets: Range<usize>,
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, RawTensor)>,
}

/// Checks what the JSON says against itself and the file.
fn check(
    raw: RawHeader,
    data_start: usize,
    file_bytes: usize,
    part: usize,
) -> std::result::Result<Header, String> {
    let mut raw_tensors = raw.tensors;
    raw_tensors.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    if let Some(pair) = raw_tensors.windows(2).find(|w| w[0].0 == w[1].0) {
        return Err(format!("tensor {:?} is there more than once", pair[0].0));
    }
    // An empty tensor shares its place with the next one; the name decides then.
    raw_tensors.sort_by_key(|(_, t)| (t.offsets.start, t.offsets.end));
    let data_bytes = file_bytes.saturating_sub(data_start);
    let mut header = Header { metadata: raw.metadata, tensors: Vec::new(), unsupported: Vec::new() };
    let mut end = 0;
    for (name, tensor) in raw_tensors {
        let Range { start, end: stop } = tensor.offsets;
        let bad = |what: String| format!("tensor {name:?}: {what}");
        let bits = check_size(&tensor).map_err(bad)?;
        if start != end {
            let kind = if start < end { "overlaps the tensor before it" } else { "leaves a hole before it" };
            return Err(bad(format!("{kind}: it begins at {start} and not at {end}")));
        }
        end = stop;
        if stop > data_bytes {
            let missing = stop - data_bytes;
            return Err(bad(format!("file is truncated: it ends at {stop}, {missing} bytes are missing")));
        }
        match bits {
            Dtype::Format(format) => {
                let range = data_start + start..data_start + stop;
                header.tensors.push(TensorInfo { name, format, shape: tensor.shape, part, range });
            }
            Dtype::Other(dtype) => header.unsupported.push(Unsupported { name, dtype, shape: tensor.shape }),
        }
    }
    if end != data_bytes {
        return Err(format!("{} bytes follow the last tensor", data_bytes - end));
    }
    Ok(header)
}

enum Dtype {
    Format(&'static Format),
    Other(&'static str),
}

/// Checks a tensor's type and its size against its shape.
fn check_size(tensor: &RawTensor) -> std::result::Result<Dtype, String> {
    let RawTensor { dtype, shape, offsets } = tensor;
    let len = offsets
        .end
        .checked_sub(offsets.start)
        .ok_or_else(|| format!("data_offsets [{}, {}] run backwards", offsets.start, offsets.end))?;
    let too_large = || format!("the size of shape {shape:?} overflows");
    // Zero dimensions are skipped so that the others are bounded too.
    let bound =
        shape.iter().filter(|&&d| d != 0).try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(too_large)?;
    let elems = if shape.contains(&0) { 0 } else { bound };
    let known = DTYPES.iter().find(|d| *d == dtype).and_then(|d| Format::from_name(d));
    let (found, want) = if let Some(format) = known {
        (Dtype::Format(format), format.bytes_of(elems).ok_or_else(too_large)?)
    } else {
        let other = OTHER_DTYPES.iter().find(|(name, _)| name == dtype);
        let &(name, bits) = other.ok_or_else(|| format!("the type {dtype:?} is unknown"))?;
        let all = elems.checked_mul(bits).ok_or_else(too_large)?;
        if !all.is_multiple_of(8) {
            return Err(format!("shape {shape:?} of {name} is not whole bytes"));
        }
        (Dtype::Other(name), all / 8)
    };
    if want != len {
        return Err(format!("shape {shape:?} of {dtype} needs {want} bytes, data_offsets give {len}"));
    }
    Ok(found)
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawHeader, A::Error> {
        let mut metadata = None;
        let mut tensors = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                let Strings(found) = map.next_value()?;
                if metadata.replace(found).is_some() {
                    return Err(A::Error::custom("__metadata__ is there more than once"));
                }
                continue;
            }
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                let start: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format_args!(
                    "the tensor name {start:?} is empty, longer than {NAME_BYTES_MAX} bytes or has control characters"
                )));
            }
            let tensor: RawTensor =
                map.next_value().map_err(|e| A::Error::custom(format_args!("tensor {name:?}: {e}")))?;
            tensors.push((name, tensor));
            if tensors.len() > TENSORS_MAX {
                return Err(A::Error::custom(format_args!("more than {TENSORS_MAX} tensors")));
            }
        }
        Ok(RawHeader { metadata: metadata.unwrap_or_default(), tensors })
    }
}

/// A JSON object of strings without duplicate keys.
pub(super) struct Strings(pub(super) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(StringsVisitor)
    }
}

struct StringsVisitor;

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = Strings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Strings, A::Error> {
        let mut strings = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if strings.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there more than once")));
            }
            strings.insert(key, value);
        }
        Ok(Strings(strings))
    }
}

impl<'de> Deserialize<'de> for RawTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(TensorVisitor)
    }
}

struct TensorVisitor;

impl<'de> Visitor<'de> for TensorVisitor {
    type Value = RawTensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<RawTensor, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(field) = map.next_key::<String>()? {
            let twice = match field.as_str() {
                "dtype" => dtype.replace(map.next_value::<String>()?).is_some(),
                "shape" => shape.replace(map.next_value::<Shape>()?).is_some(),
                "data_offsets" => offsets.replace(map.next_value::<[usize; 2]>()?).is_some(),
                _ => return Err(A::Error::custom(format_args!("the field {field:?} is unknown"))),
            };
            if twice {
                return Err(A::Error::custom(format_args!("the field {field:?} is there more than once")));
            }
        }
        let missing = |field| A::Error::custom(format_args!("the field {field:?} is missing"));
        let [start, end] = offsets.ok_or_else(|| missing("data_offsets"))?;
        Ok(RawTensor {
            dtype: dtype.ok_or_else(|| missing("dtype"))?,
            shape: shape.ok_or_else(|| missing("shape"))?.0,
            offsets: start..end,
        })
    }
}

/// At most [`DIMS_MAX`] dimensions.
struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Shape, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if shape.len() == DIMS_MAX {
                return Err(A::Error::custom(format_args!("more than {DIMS_MAX} dimensions")));
            }
            shape.push(dim);
        }
        Ok(Shape(shape))
    }
}
