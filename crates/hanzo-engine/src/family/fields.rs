//! One view of a model's metadata, GGUF keys or config.json, that remembers what was read.
//!
//! A field that nobody read and that is not known to be harmless is an error: it may change the mathematics.

use std::{cell::RefCell, collections::BTreeSet};

use hanzo_ml::file::{self, Metadata};
use serde_json::{Map, Value};

use crate::{Error, Result};

/// Where a model's metadata come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Keys of a GGUF header.
    Gguf,
    /// Fields of a Hugging Face config.json.
    Config,
}

/// The two names of one fact: a GGUF key without its architecture prefix, and a field of config.json.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    gguf: &'static str,
    hf: &'static str,
}

impl Key {
    /// The GGUF key without its architecture.
    pub(crate) fn gguf(self) -> &'static str {
        self.gguf
    }
}

/// A fact with both names; an empty name means that this flavour does not have it.
pub(crate) const fn key(gguf: &'static str, hf: &'static str) -> Key {
    Key { gguf, hf }
}

/// The metadata of one model, or a nested object of its config.json.
pub(crate) struct Fields<'a> {
    source: Source<'a>,
    path: String,
    read: RefCell<BTreeSet<String>>,
}

enum Source<'a> {
    Gguf { metadata: &'a Metadata, architecture: &'a str },
    Config(&'a Map<String, Value>),
}

impl<'a> Fields<'a> {
    /// Metadata of a GGUF file.
    pub(crate) fn gguf(path: String, metadata: &'a Metadata, architecture: &'a str) -> Self {
        Self { source: Source::Gguf { metadata, architecture }, path, read: RefCell::default() }
    }

    /// Fields of a config.json.
    pub(crate) fn config(path: String, object: &'a Map<String, Value>) -> Self {
        Self { source: Source::Config(object), path, read: RefCell::default() }
    }

    /// Which names apply.
    pub(crate) fn flavour(&self) -> Flavour {
        match self.source {
            Source::Gguf { .. } => Flavour::Gguf,
            Source::Config(_) => Flavour::Config,
        }
    }

    /// A fault of this model's metadata.
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::model(&self.path, what)
    }

    /// The full name under which this flavour has a fact.
    pub(crate) fn name(&self, key: Key) -> String {
        match self.source {
            Source::Gguf { architecture, .. } => format!("{architecture}.{}", key.gguf),
            Source::Config(_) => key.hf.to_owned(),
        }
    }

    /// A required count.
    pub(crate) fn usize(&self, key: Key) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.missing(key))
    }

    /// An optional count.
    pub(crate) fn opt_usize(&self, key: Key) -> Result<Option<usize>> {
        match &self.source {
            Source::Gguf { metadata, .. } => self.gguf_key(key, |name| Ok(metadata.usize(name)?)),
            Source::Config(_) => {
                self.config_field(key, "a whole number", |v| v.as_u64().and_then(|n| n.try_into().ok()))
            }
        }
    }

    /// A required number.
    pub(crate) fn f64(&self, key: Key) -> Result<f64> {
        self.opt_f64(key)?.ok_or_else(|| self.missing(key))
    }

    /// An optional number.
    pub(crate) fn opt_f64(&self, key: Key) -> Result<Option<f64>> {
        match &self.source {
            Source::Gguf { metadata, .. } => {
                self.gguf_key(key, |name| Ok(metadata.f32(name)?.map(f64::from)))
            }
            Source::Config(_) => self.config_field(key, "a number", Value::as_f64),
        }
    }

    /// An optional flag.
    pub(crate) fn opt_bool(&self, key: Key) -> Result<Option<bool>> {
        match &self.source {
            Source::Gguf { metadata, .. } => self.gguf_key(key, |name| Ok(metadata.bool(name)?)),
            Source::Config(_) => self.config_field(key, "true or false", Value::as_bool),
        }
    }

    /// An optional text.
    pub(crate) fn opt_str(&self, key: Key) -> Result<Option<String>> {
        match &self.source {
            Source::Gguf { metadata, .. } => {
                self.gguf_key(key, |name| Ok(metadata.str(name)?.map(str::to_owned)))
            }
            Source::Config(_) => self.config_field(key, "a text", |v| v.as_str().map(str::to_owned)),
        }
    }

    /// An optional list of flags, GGUF only.
    pub(crate) fn opt_bools(&self, key: Key) -> Result<Option<Vec<bool>>> {
        let Source::Gguf { metadata, .. } = &self.source else { return Ok(None) };
        self.gguf_key(key, |name| {
            if matches!(metadata.get(name), Some(file::Value::Array(_))) {
                Ok(metadata.bools(name)?)
            } else {
                Ok(None)
            }
        })
    }

    /// A field of config.json as it stands.
    pub(crate) fn value(&self, name: &'static str) -> Option<&'a Value> {
        let Source::Config(object) = self.source else { return None };
        self.read.borrow_mut().insert(name.to_owned());
        object.get(name).filter(|v| !v.is_null())
    }

    /// Whether config.json has a field, if only as null.
    pub(crate) fn has(&self, name: &str) -> bool {
        matches!(self.source, Source::Config(object) if object.contains_key(name))
    }

    /// Whether an object of config.json has no fields.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.source, Source::Config(object) if object.is_empty())
    }

    /// A nested object of config.json.
    pub(crate) fn object(&self, name: &'static str) -> Result<Option<Self>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let object =
            value.as_object().ok_or_else(|| self.error(format!("{name} is {value}, not an object")))?;
        Ok(Some(Self::config(format!("{}: {name}", self.path), object)))
    }

    /// Fails on a field that nobody read.
    ///
    /// # Errors
    /// Names every such field and its value.
    pub(crate) fn finish(&self, harmless: &[&str]) -> Result<()> {
        let read = self.read.borrow();
        let unread: Vec<String> = match &self.source {
            Source::Gguf { metadata, architecture } => {
                let own = format!("{architecture}.");
                metadata
                    .iter()
                    .map(|(name, _)| name)
                    .filter(|name| name.strip_prefix(&own).is_some_and(|n| !harmless.contains(&n)))
                    .filter(|name| !read.contains(*name))
                    .map(str::to_owned)
                    .collect()
            }
            Source::Config(object) => object
                .iter()
                .filter(|(name, value)| !value.is_null() && !harmless.contains(&name.as_str()))
                .filter(|(name, _)| !read.contains(*name))
                .map(|(name, value)| format!("{name} = {value}"))
                .collect(),
        };
        if unread.is_empty() {
            return Ok(());
        }
        Err(self.error(format!("not supported, and it may change the results: {}", unread.join(", "))))
    }

    fn gguf_key<T>(&self, key: Key, get: impl FnOnce(&str) -> Result<Option<T>>) -> Result<Option<T>> {
        if key.gguf.is_empty() {
            return Ok(None);
        }
        let name = self.name(key);
        let value = get(&name)?;
        self.read.borrow_mut().insert(name);
        Ok(value)
    }

    fn config_field<T>(
        &self,
        key: Key,
        kind: &str,
        get: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        if key.hf.is_empty() {
            return Ok(None);
        }
        let Some(value) = self.value(key.hf) else { return Ok(None) };
        get(value).map(Some).ok_or_else(|| self.error(format!("{} is {value}, not {kind}", key.hf)))
    }

    fn missing(&self, key: Key) -> Error {
        self.error(format!("{} is missing", self.name(key)))
    }
}
