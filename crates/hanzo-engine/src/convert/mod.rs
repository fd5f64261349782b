//! From a Hugging Face folder to the metadata and tensors of a GGUF file.
//!
//! Names and keys come from the tables that the readers use (`family/`). Weights change as llama.cpp's converter changes
//! them: rows of query and key so that rotated pairs are adjacent, where the family's files have it so; a constant added
//! to norms; experts stacked. Vectors and routers become F32, matrices keep their type.
//!
//! Invariant: the keys are read back through the family, and a model whose spec would not be the same is refused with what
//! differs: better no file than one that computes something else.

mod difference;
mod made;

use std::path::Path;

use hanzo_ml::{
    backend::RopePairing,
    file::{Metadata, Value},
};
use hanzo_quant::Format;

use crate::{
    ModelFile, Result,
    decoder::layout::{Found, Layout},
    family::{Family, Slot, divisors_name, written},
    quantize::{Fix, Origin, SourceTensor},
    sample::{self, SamplingParams},
    spec::DecoderSpec,
    text,
};
use made::Made;

/// What a file is made of.
pub(crate) struct Converted {
    pub metadata: Metadata,
    pub tensors: Vec<SourceTensor>,
    /// What people should know.
    pub notes: Vec<String>,
}

/// Converts an open folder.
///
/// # Errors
/// If the model is not supported, GGUF cannot express it, or its tokenizer cannot be converted.
pub(crate) fn convert(file: &ModelFile) -> Result<Converted> {
    let (family, spec) = (file.family()?, file.spec()?);
    let mut keys = written::keys(family, &spec, &file.fields()?)?;
    let layout = Layout::new(file, &spec)?;
    let mut tensors = divisors(&spec);
    for (slot, layer, found) in layout.iter() {
        tensors.push(tensor(file, family, slot, layer, found)?);
    }
    let made = Made::new(file.path(), &tensors);
    let path = format!("{} as GGUF", file.path().display());
    let back = written::read_back(path, &keys, &made, spec.vocab_size)?;
    if let Some(what) = difference::between(&spec, &back) {
        return Err(
            file.error(format!("a GGUF file of {} cannot express this model: {what}", keys.architecture))
        );
    }
    if back.ropes.iter().any(|rope| rope.pairing == RopePairing::Adjacent) {
        pair(file, &spec, &layout, &mut tensors)?;
    }
    sample::to_gguf(&SamplingParams::recommended(file)?, &mut keys.metadata);
    let folder = file.path().parent().unwrap_or(Path::new("."));
    let mut notes = Vec::new();
    if let Some(name) = name(folder) {
        keys.metadata.insert("general.name", Value::String(name));
    }
    if folder.join("tokenizer.json").exists() {
        notes.extend(text::export(folder, spec.vocab_size, &mut keys.metadata)?);
    } else {
        keys.metadata.insert("tokenizer.ggml.model", Value::String("none".to_owned()));
        let model =
            if folder.join("tokenizer.model").exists() { " (tokenizer.model is not read)" } else { "" };
        notes.push(format!("there is no tokenizer.json{model}: the file will have no vocabulary"));
    }
    Ok(Converted { metadata: keys.metadata, tensors, notes })
}

/// What to call a model: its folder.
fn name(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let name = folder.file_name()?.to_string_lossy();
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    Some(name).filter(|name| !name.is_empty())
}

fn f32_format() -> &'static Format {
    Format::from_ggml_type(0).expect("the table's first row")
}

/// The tensor that says how Llama 3.1 stretches frequencies.
fn divisors(spec: &DecoderSpec) -> Vec<SourceTensor> {
    let divisors = spec.ropes.first().and_then(crate::rope::RopeSpec::divisors);
    let tensor = |values: Vec<f32>| SourceTensor {
        name: divisors_name().to_owned(),
        format: f32_format(),
        shape: vec![values.len()],
        origin: Origin::Values(values),
    };
    divisors.map(tensor).into_iter().collect()
}

/// A tensor of a slot under its GGUF name.
fn tensor(
    file: &ModelFile,
    family: &Family,
    slot: Slot,
    layer: usize,
    found: &Found,
) -> Result<SourceTensor> {
    let pattern = family.gguf_name(slot);
    if pattern.is_empty() {
        return Err(file.error(format!("GGUF has no name for {slot:?}")));
    }
    let first = found.names.first().and_then(|name| file.tensors().info(name));
    let first = first.ok_or_else(|| file.error(format!("layer {layer} has no {slot:?}")))?;
    let is_small = found.shape.len() < 2 || slot == Slot::Router;
    let fix =
        if slot.is_norm() && family.norm_offset != 0.0 { Fix::Add(family.norm_offset) } else { Fix::None };
    Ok(SourceTensor {
        name: pattern.replace("{l}", &layer.to_string()),
        format: if is_small { f32_format() } else { first.format },
        shape: found.shape.clone(),
        origin: Origin::File { names: found.names.clone(), fix },
    })
}

/// Makes rotated pairs adjacent: rows of query and key, and the elements of their biases.
fn pair(file: &ModelFile, spec: &DecoderSpec, layout: &Layout, tensors: &mut [SourceTensor]) -> Result<()> {
    let first = usize::from(!divisors(spec).is_empty());
    for ((slot, layer, found), tensor) in layout.iter().zip(&mut tensors[first..]) {
        let head_dim = spec.layers.get(layer).map_or(0, |layer| layer.attention().head_dim);
        let moved = Fix::Pair { head_dim };
        match (slot, &mut tensor.origin) {
            (Slot::Query | Slot::Key, Origin::File { fix, .. }) => *fix = moved,
            (Slot::QueryBias | Slot::KeyBias, origin) => {
                let bias = file.tensors().tensor(&found.names[0])?.to_f32();
                *origin = Origin::Values((0..bias.len()).map(|i| bias[moved.row(i)]).collect());
            }
            (Slot::QueryNorm | Slot::KeyNorm, _) => {
                return Err(file.error("normed heads with adjacent pairs are not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}
