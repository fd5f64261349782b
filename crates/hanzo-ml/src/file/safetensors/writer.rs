//! Writes one safetensors file, whole or not at all.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value, json};

use super::header::{self, DTYPES};
use crate::{
    Error, Result,
    file::{atomic::AtomicFile, gguf::NewTensor},
};

/// Writes tensors of plain number types, in the order given. The header is padded to 8 bytes, as the format's own
/// library pads it.
///
/// # Errors
/// If the file cannot be written, or if what it would hold is not valid.
pub fn write<'a>(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: impl IntoIterator<Item = NewTensor<'a>>,
) -> Result<()> {
    let tensors: Vec<NewTensor<'a>> = tensors.into_iter().collect();
    let mut object = Map::new();
    if !metadata.is_empty() {
        object.insert("__metadata__".into(), json!(metadata));
    }
    let mut end = 0usize;
    for tensor in &tensors {
        let dtype = tensor.format.name;
        if !DTYPES.contains(&dtype) {
            return Err(Error::tensor(tensor.name, format!("safetensors has no type {dtype}")));
        }
        let start = end;
        end += tensor.bytes.len();
        let entry = json!({"dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end]});
        if object.insert(tensor.name.into(), entry).is_some() {
            return Err(Error::file(path, format!("tensor {:?} is there more than once", tensor.name)));
        }
    }
    let mut json = Value::Object(object).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend(json);
    // A file that the reader would refuse is not written.
    header::parse(path, &out, out.len() + end, 0)?;
    let mut file = AtomicFile::create(path)?;
    file.write(&out)?;
    for tensor in &tensors {
        file.write(&tensor.bytes)?;
    }
    file.commit()
}
