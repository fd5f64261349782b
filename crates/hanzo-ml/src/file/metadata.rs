//! Typed key-value metadata of a model file.
//!
//! Source: the GGUF specification (value types and their ids). Invariants: keys are unique and keep the file's order;
//! a value is only reached through an accessor that checks its type, so no caller can confuse two types. Arrays of
//! arrays are refused by the reader, as llama.cpp refuses them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of metadata values of one type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Value {
    /// The type's name, for messages: `u32`, `array of string`.
    pub fn type_name(&self) -> String {
        let name = match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => return format!("array of {}", array.type_name()),
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        };
        name.into()
    }

    /// The value of any integer type.
    fn int(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => return None,
        })
    }
}

impl Array {
    /// The element type's name, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements as integers; `None` if the element type is no integer.
    fn ints(&self) -> Option<Vec<i128>> {
        fn widen<T: Copy + Into<i128>>(values: &[T]) -> Vec<i128> {
            values.iter().map(|&v| v.into()).collect()
        }
        Some(match self {
            Self::U8(v) => widen(v),
            Self::I8(v) => widen(v),
            Self::U16(v) => widen(v),
            Self::I16(v) => widen(v),
            Self::U32(v) => widen(v),
            Self::I32(v) => widen(v),
            Self::U64(v) => widen(v),
            Self::I64(v) => widen(v),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => return None,
        })
    }
}

/// The largest integer up to which every integer is an exact `f32`.
const F32_EXACT_INT: i128 = 1 << 24;

fn int_to_f32(value: i128) -> Option<f32> {
    (value.abs() <= F32_EXACT_INT).then_some(value as f32)
}

/// Ordered key-value metadata.
///
/// Typed accessors give `Ok(None)` where the key is absent, and an error that names the file, the key and what was
/// found where the value has another type or does not fit. Integers of any width convert when the value fits.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Empty metadata; `path` is the file that error messages name (empty for metadata that is yet to be written).
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Adds a key, or replaces its value in place; the old value comes back.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        let key = key.into();
        if let Some(&i) = self.index.get(&key) {
            return Some(std::mem::replace(&mut self.entries[i].1, value));
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    /// The file that the metadata came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a key, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// All entries, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn mismatch(&self, key: &str, want: &str, value: &Value) -> Error {
        Error::file(&self.path, format!("metadata key {key:?} should be {want}, found {}", value.type_name()))
    }

    fn misfit(&self, key: &str, want: &str, value: impl std::fmt::Display) -> Error {
        Error::file(&self.path, format!("metadata key {key:?} should be {want}, found the value {value}"))
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, want: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let int = value.int().ok_or_else(|| self.mismatch(key, want, value))?;
        T::try_from(int).map(Some).map_err(|_| self.misfit(key, want, int))
    }

    /// An integer that fits `u32`.
    ///
    /// # Errors
    /// If the value is no integer or does not fit.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.integer(key, "u32")
    }

    /// An integer that fits `i32`.
    ///
    /// # Errors
    /// If the value is no integer or does not fit.
    pub fn i32(&self, key: &str) -> Result<Option<i32>> {
        self.integer(key, "i32")
    }

    /// An integer that fits `u64`.
    ///
    /// # Errors
    /// If the value is no integer or is negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.integer(key, "u64")
    }

    /// An integer that fits `usize`.
    ///
    /// # Errors
    /// If the value is no integer or does not fit.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.integer(key, "a size")
    }

    /// A number: `f32`, `f64` (rounded), or an integer that `f32` holds exactly.
    ///
    /// # Errors
    /// If the value is no number or does not fit.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::F32(v)) => Ok(Some(v)),
            Some(&Value::F64(v)) => Ok(Some(v as f32)),
            Some(value) => {
                let int = value.int().ok_or_else(|| self.mismatch(key, "f32", value))?;
                int_to_f32(int).map(Some).ok_or_else(|| self.misfit(key, "f32", int))
            }
        }
    }

    /// A boolean; integers do not convert.
    ///
    /// # Errors
    /// If the value is no boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Bool(v)) => Ok(Some(v)),
            Some(value) => Err(self.mismatch(key, "bool", value)),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// If the value is no string.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(value) => Err(self.mismatch(key, "string", value)),
        }
    }

    fn array(&self, key: &str, want: &str) -> Result<Option<(&Value, &Array)>> {
        match self.get(key) {
            None => Ok(None),
            Some(value @ Value::Array(array)) => Ok(Some((value, array))),
            Some(value) => Err(self.mismatch(key, want, value)),
        }
    }

    /// An array of strings.
    ///
    /// # Errors
    /// If the value is no array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>> {
        match self.array(key, "array of string")? {
            None => Ok(None),
            Some((_, Array::String(v))) => Ok(Some(v)),
            Some((value, _)) => Err(self.mismatch(key, "array of string", value)),
        }
    }

    fn integers<T: TryFrom<i128>>(&self, key: &str, want: &str) -> Result<Option<Vec<T>>> {
        let Some((value, array)) = self.array(key, want)? else { return Ok(None) };
        let ints = array.ints().ok_or_else(|| self.mismatch(key, want, value))?;
        let fit =
            |(i, v)| T::try_from(v).map_err(|_| self.misfit(key, want, format_args!("{v} at index {i}")));
        ints.into_iter().enumerate().map(fit).collect::<Result<_>>().map(Some)
    }

    /// An array of integers that all fit `i32`.
    ///
    /// # Errors
    /// If the value is no array of integers or one does not fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.integers(key, "array of i32")
    }

    /// An array of integers that all fit `u32`.
    ///
    /// # Errors
    /// If the value is no array of integers or one does not fit.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.integers(key, "array of u32")
    }

    /// An array of numbers, converted as [`Self::f32`] does.
    ///
    /// # Errors
    /// If the value is no array of numbers or one does not fit.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        const WANT: &str = "array of f32";
        match self.array(key, WANT)? {
            None => Ok(None),
            Some((_, Array::F32(v))) => Ok(Some(v.clone())),
            Some((_, Array::F64(v))) => Ok(Some(v.iter().map(|&v| v as f32).collect())),
            Some((value, array)) => {
                let ints = array.ints().ok_or_else(|| self.mismatch(key, WANT, value))?;
                let fit = |(i, v)| {
                    int_to_f32(v).ok_or_else(|| self.misfit(key, WANT, format_args!("{v} at index {i}")))
                };
                ints.into_iter().enumerate().map(fit).collect::<Result<_>>().map(Some)
            }
        }
    }

    /// An array of booleans, or of integers that are all 0 or 1 (converters write layer patterns either way).
    ///
    /// # Errors
    /// If the value is no such array.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        const WANT: &str = "array of bool";
        match self.array(key, WANT)? {
            None => Ok(None),
            Some((_, Array::Bool(v))) => Ok(Some(v.clone())),
            Some((value, array)) => {
                let ints = array.ints().ok_or_else(|| self.mismatch(key, WANT, value))?;
                let fit = |(i, v)| match v {
                    0 => Ok(false),
                    1 => Ok(true),
                    v => Err(self.misfit(key, WANT, format_args!("{v} at index {i}"))),
                };
                ints.into_iter().enumerate().map(fit).collect::<Result<_>>().map(Some)
            }
        }
    }
}
