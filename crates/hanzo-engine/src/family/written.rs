//! The GGUF keys of a model that came with a config.json: what the readers of this folder read, written by the same names.
//!
//! Nothing here knows what a family's files can say. Who writes a file reads the keys back through the family
//! ([`read_back`]) and compares the two specs: what GGUF cannot express shows there.

use hanzo_ml::file::{Metadata, TensorSource, Value};

use super::{Facts, Family, Fields, Flavour, common, fields::Key, rotation};
use crate::{Result, model_file, spec::DecoderSpec};

/// Keys of one architecture, to be filled.
pub(crate) struct Keys {
    pub architecture: &'static str,
    pub metadata: Metadata,
}

impl Keys {
    pub(super) fn count(&mut self, key: Key, count: usize) {
        self.put(key, u32::try_from(count).map_or(Value::U64(count as u64), Value::U32));
    }

    pub(super) fn number(&mut self, key: Key, number: f64) {
        self.put(key, Value::F32(number as f32));
    }

    pub(super) fn text(&mut self, key: Key, text: &str) {
        self.put(key, Value::String(text.to_owned()));
    }

    pub(super) fn flag(&mut self, key: Key, flag: bool) {
        self.put(key, Value::Bool(flag));
    }

    fn put(&mut self, key: Key, value: Value) {
        self.metadata.insert(format!("{}.{}", self.architecture, key.gguf()), value);
    }
}

/// The keys of a spec that `config` gave.
pub(crate) fn keys(family: &Family, spec: &DecoderSpec, config: &Fields<'_>) -> Result<Keys> {
    let architecture = family.written_as();
    let mut keys = Keys { architecture, metadata: Metadata::default() };
    keys.metadata.insert("general.architecture", Value::String(architecture.to_owned()));
    keys.metadata.insert("general.type", Value::String("model".to_owned()));
    common::write(spec, config, &mut keys)?;
    if let Some(rope) = spec.ropes.first() {
        rotation::write(rope, &mut keys);
    }
    (family.write)(spec, &mut keys);
    Ok(keys)
}

/// The spec that a reader of the written file will have.
pub(crate) fn read_back(
    path: String,
    keys: &Keys,
    tensors: &dyn TensorSource,
    vocab_size: usize,
) -> Result<DecoderSpec> {
    let fields = Fields::gguf(path, &keys.metadata, keys.architecture);
    let facts = Facts { fields, tensors, vocab_size };
    let family = Family::find(Flavour::Gguf, keys.architecture)
        .ok_or_else(|| facts.fields.error(format!("no family reads architecture {}", keys.architecture)))?;
    let spec = (family.spec)(&facts)?;
    facts.fields.finish(model_file::GGUF_HARMLESS)?;
    spec.check().map_err(|what| facts.fields.error(what))?;
    Ok(spec)
}
