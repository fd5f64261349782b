//! The facts about a model, whatever its container.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use hanzo_engine::ModelFile;
use hanzo_ml::{
    Error,
    file::{Array, TensorInfo, Value, safetensors::SafeTensors},
};
use serde_json::{Map, Value as Json};

use super::support::{self, Support};
use crate::error::Result;

/// Elements of an array that are kept.
const ARRAY_ELEMS_MAX: usize = 8;
/// Bytes of a config.json that are read; the largest seen have 100 kB.
const CONFIG_BYTES_MAX: u64 = 16 << 20;
const CONFIG: &str = "config.json";

/// What is known of a model.
pub(super) struct Facts {
    pub(super) path: PathBuf,
    /// The container in words, for example `GGUF version 3`.
    pub(super) container: String,
    pub(super) n_files: usize,
    pub(super) file_bytes: u64,
    /// `general.architecture` or `model_type`.
    pub(super) architecture: Option<String>,
    /// In file order.
    pub(super) metadata: Vec<Entry>,
    /// In file order.
    pub(super) tensors: Vec<TensorRow>,
    pub(super) support: Support,
}

/// One metadata key.
pub(super) struct Entry {
    pub(super) key: String,
    /// The type's name; empty where the container has none.
    pub(super) kind: String,
    pub(super) value: Shown,
}

/// A value, long arrays shortened.
pub(super) enum Shown {
    Whole(Json),
    Begin { len: usize, first: Vec<Json> },
}

/// One tensor.
pub(super) struct TensorRow {
    pub(super) name: String,
    /// Outermost dimension first.
    pub(super) shape: Vec<usize>,
    pub(super) kind: &'static str,
    /// `None` for types that no format carries.
    pub(super) bytes: Option<u64>,
}

/// Tensors of one type together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) n_tensors: usize,
    pub(super) bytes: u64,
    pub(super) n_params: u64,
}

impl Facts {
    /// Totals by type.
    pub(super) fn by_type(&self) -> BTreeMap<&'static str, Total> {
        let mut totals = BTreeMap::<_, Total>::new();
        for tensor in &self.tensors {
            let total = totals.entry(tensor.kind).or_default();
            total.n_tensors += 1;
            total.bytes += tensor.bytes.unwrap_or(0);
            // The readers have bounded every product by the size of the file.
            total.n_params += tensor.shape.iter().map(|&d| d as u64).product::<u64>();
        }
        totals
    }

    /// Elements of all tensors.
    pub(super) fn n_params(&self) -> u64 {
        self.by_type().values().map(|total| total.n_params).sum()
    }
}

/// Reads the headers at `path`.
///
/// # Errors
/// If a file is missing, malformed or truncated.
pub(super) fn gather(path: &Path) -> Result<Facts> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if found.is_dir() {
        folder(path)
    } else if found.is_file() && is_safetensors(path)? {
        safetensors(path, support::of_safetensors(path))
    } else {
        gguf(path)
    }
}

/// Whether a regular file is safetensors, by its name or else by its first bytes.
fn is_safetensors(path: &Path) -> Result<bool> {
    if let Some(extension) = path.extension().and_then(|e| e.to_str()) {
        match extension.to_ascii_lowercase().as_str() {
            "safetensors" | "json" => return Ok(true),
            "gguf" => return Ok(false),
            _ => {}
        }
    }
    // A header's length, then JSON.
    let begin = read_at_most(path, 9)?;
    Ok(begin.len() == 9 && begin[8] == b'{' && !begin.starts_with(b"GGUF"))
}

fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|e| Error::io(path, e))?;
    Ok(bytes)
}

fn gguf(path: &Path) -> Result<Facts> {
    let model = ModelFile::open(path)?;
    let Some(file) = model.gguf() else { return folder(path) };
    let metadata = file.metadata();
    let entry = |(key, value): (&str, &Value)| Entry {
        key: key.into(),
        kind: value.type_name(),
        value: shown(value),
    };
    Ok(Facts {
        path: path.into(),
        container: format!("GGUF version {}", file.version()),
        n_files: file.n_parts(),
        file_bytes: file.file_bytes(),
        architecture: metadata.str("general.architecture").ok().flatten().map(str::to_owned),
        metadata: metadata.iter().map(entry).collect(),
        tensors: file.tensors().iter().map(tensor_row).collect(),
        support: support::of_gguf(&model),
    })
}

fn safetensors(path: &Path, support: Support) -> Result<Facts> {
    let file = SafeTensors::open(path)?;
    let entry = |(key, value): (&String, &String)| Entry {
        key: key.clone(),
        kind: "string".into(),
        value: Shown::Whole(Json::String(value.clone())),
    };
    let other = file.unsupported().iter().map(|t| TensorRow {
        name: t.name.clone(),
        shape: t.shape.clone(),
        kind: t.dtype,
        bytes: None,
    });
    Ok(Facts {
        path: path.into(),
        container: "safetensors".into(),
        n_files: file.n_shards(),
        file_bytes: file.file_bytes(),
        architecture: None,
        metadata: file.metadata().iter().map(entry).collect(),
        tensors: file.tensors().iter().map(tensor_row).chain(other).collect(),
        support,
    })
}

/// A folder as Hugging Face lays it out: config.json beside the weights.
fn folder(path: &Path) -> Result<Facts> {
    let config = read_config(&path.join(CONFIG))?;
    let mut facts = safetensors(path, support::of_folder(path))?;
    facts.architecture = config.get("model_type").and_then(Json::as_str).map(str::to_owned);
    let entry = |(key, value): (&String, &Json)| {
        let kind = json_type(value).into();
        let value = match value.as_array().filter(|list| list.len() > ARRAY_ELEMS_MAX) {
            Some(list) => Shown::Begin { len: list.len(), first: list[..ARRAY_ELEMS_MAX].to_vec() },
            None => Shown::Whole(value.clone()),
        };
        Entry { key: key.clone(), kind, value }
    };
    facts.metadata = config.iter().map(entry).chain(facts.metadata).collect();
    Ok(facts)
}

fn read_config(path: &Path) -> Result<Map<String, Json>> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !found.is_file() {
        return Err(Error::file(path, "not a regular file").into());
    }
    let bytes = read_at_most(path, CONFIG_BYTES_MAX + 1)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        let source =
            io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {CONFIG_BYTES_MAX} bytes"));
        return Err(Error::io(path, source).into());
    }
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::file(path, format!("not an object of fields: {e}")).into())
}

fn tensor_row(info: &TensorInfo) -> TensorRow {
    TensorRow {
        name: info.name.clone(),
        shape: info.shape.clone(),
        kind: info.format.name,
        bytes: Some(info.bytes() as u64),
    }
}

fn json_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn shown(value: &Value) -> Shown {
    Shown::Whole(match *value {
        Value::U8(v) => v.into(),
        Value::I8(v) => v.into(),
        Value::U16(v) => v.into(),
        Value::I16(v) => v.into(),
        Value::U32(v) => v.into(),
        Value::I32(v) => v.into(),
        Value::U64(v) => v.into(),
        Value::I64(v) => v.into(),
        Value::Bool(v) => v.into(),
        Value::F32(v) => number(f64::from(v), &v),
        Value::F64(v) => number(v, &v),
        Value::String(ref v) => v.as_str().into(),
        Value::Array(ref array) => return shown_array(array),
    })
}

/// A float in its shortest form; JSON has no infinities and no NaN, so those become texts.
fn number(wide: f64, shortest: &impl ToString) -> Json {
    let text = shortest.to_string();
    if !wide.is_finite() {
        return text.into();
    }
    text.parse::<f64>().map_or(Json::String(text), Json::from)
}

fn shown_array(array: &Array) -> Shown {
    fn first<T>(values: &[T], json: impl Fn(&T) -> Json) -> Vec<Json> {
        values.iter().take(ARRAY_ELEMS_MAX).map(json).collect()
    }
    let first = match array {
        Array::U8(v) => first(v, |&v| v.into()),
        Array::I8(v) => first(v, |&v| v.into()),
        Array::U16(v) => first(v, |&v| v.into()),
        Array::I16(v) => first(v, |&v| v.into()),
        Array::U32(v) => first(v, |&v| v.into()),
        Array::I32(v) => first(v, |&v| v.into()),
        Array::U64(v) => first(v, |&v| v.into()),
        Array::I64(v) => first(v, |&v| v.into()),
        Array::Bool(v) => first(v, |&v| v.into()),
        Array::F32(v) => first(v, |&v| number(f64::from(v), &v)),
        Array::F64(v) => first(v, |&v| number(v, &v)),
        Array::String(v) => first(v, |v| v.as_str().into()),
    };
    if array.len() > first.len() {
        Shown::Begin { len: array.len(), first }
    } else {
        Shown::Whole(first.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arrays_are_shortened_and_short_ones_whole() {
        let ints = |n| Array::I32((0..n).collect());
        let Shown::Begin { len, first } = shown_array(&ints(9)) else { panic!("9 elements are too many") };
        assert_eq!((len, first.len()), (9, ARRAY_ELEMS_MAX));
        assert!(matches!(shown_array(&ints(8)), Shown::Whole(Json::Array(v)) if v.len() == 8));
    }

    #[test]
    fn floats_keep_their_shortest_form() {
        assert_eq!(number(f64::from(1e-5f32), &1e-5f32), Json::from(1e-5));
        assert_eq!(number(f64::from(0.1f32), &0.1f32).to_string(), "0.1");
        assert_eq!(number(f64::NAN, &f64::NAN), Json::from("NaN"));
        assert_eq!(number(f64::NEG_INFINITY, &f32::NEG_INFINITY), Json::from("-inf"));
    }
}
