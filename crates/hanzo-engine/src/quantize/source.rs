//! A model as the tensors and metadata of a GGUF file: those of such a file, or what [`crate::convert`] makes of a
//! Hugging Face folder.

use std::path::Path;

use hanzo_ml::{QTensor, file::Metadata};
use hanzo_quant::Format;

use crate::{
    Error, ModelFile, Result,
    convert::{self, Converted},
};

/// A model to be written as GGUF.
pub struct Source {
    file: ModelFile,
    metadata: Metadata,
    tensors: Vec<SourceTensor>,
    notes: Vec<String>,
}

/// A tensor to be written, and where its values come from.
pub(crate) struct SourceTensor {
    /// The GGUF name.
    pub name: String,
    /// The format that it has where nobody asks for another.
    pub format: &'static Format,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Where its values are.
    pub origin: Origin,
}

/// Where values come from.
pub(crate) enum Origin {
    /// Tensors of the file, one after the other (several are experts), with a change.
    File { names: Vec<String>, fix: Fix },
    /// Numbers that were derived.
    Values(Vec<f32>),
}

/// What is done to values on their way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fix {
    /// Nothing.
    None,
    /// A constant is added.
    Add(f32),
    /// Rows of each head go from two halves to adjacent pairs: row `2 i + h` was row `h · half + i`.
    Pair { head_dim: usize },
}

impl Fix {
    /// The row of the file that becomes row `row`.
    pub(crate) fn row(self, row: usize) -> usize {
        match self {
            Self::Pair { head_dim } => {
                let (head, i) = (row / head_dim, row % head_dim);
                head * head_dim + i % 2 * (head_dim / 2) + i / 2
            }
            Self::None | Self::Add(_) => row,
        }
    }
}

impl Source {
    /// Opens a GGUF file (whole or split) or a folder with config.json and safetensors.
    ///
    /// # Errors
    /// If it cannot be read, or if a folder holds a model that GGUF cannot express or we cannot convert.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(ModelFile::open(path)?)
    }

    /// Takes an open model.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn new(file: ModelFile) -> Result<Self> {
        let Converted { metadata, tensors, notes } = match file.gguf() {
            Some(gguf) => Converted {
                metadata: gguf.metadata().clone(),
                tensors: gguf.tensors().iter().map(as_it_is).collect(),
                notes: Vec::new(),
            },
            None => convert::convert(&file)?,
        };
        Ok(Self { file, metadata, tensors, notes })
    }

    /// The metadata of the file to be written.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What people should know of a conversion: sentences about what the file will lack.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn tensors(&self) -> &[SourceTensor] {
        &self.tensors
    }

    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        self.file.error(what)
    }

    /// The values of a tensor, ready to be read row by row.
    pub(super) fn rows(&self, tensor: &SourceTensor) -> Result<Rows> {
        let columns = tensor.shape.last().copied().unwrap_or(1);
        let (parts, fix) = match &tensor.origin {
            Origin::Values(values) => return Ok(Rows::Values { values: values.clone(), columns }),
            Origin::File { names, fix } => (names, *fix),
        };
        let parts = parts.iter().map(|name| self.file.tensors().tensor(name));
        let parts = parts.collect::<hanzo_ml::Result<Vec<_>>>()?;
        let first = parts.first().ok_or_else(|| self.error(format!("{} has no parts", tensor.name)))?;
        let elems: usize = tensor.shape.iter().product();
        let even = parts.iter().all(|p| p.format() == first.format() && p.elems() == first.elems());
        if !even || first.elems() * parts.len() != elems || !first.elems().is_multiple_of(columns) {
            return Err(self.error(format!("the parts of {} do not make {:?}", tensor.name, tensor.shape)));
        }
        Ok(Rows::File { parts, fix, columns })
    }
}

#[cfg(test)]
impl Source {
    /// A model of tensors that lie nowhere.
    pub(super) fn of_header(file: &Path, metadata: Metadata, tensors: Vec<SourceTensor>) -> Self {
        Self { file: ModelFile::open(file).unwrap(), metadata, tensors, notes: vec![] }
    }

    pub(super) fn set_format(&mut self, name: &str, format: &'static Format) {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap().format = format;
    }
}

fn as_it_is(info: &hanzo_ml::file::TensorInfo) -> SourceTensor {
    SourceTensor {
        name: info.name.clone(),
        format: info.format,
        shape: info.shape.clone(),
        origin: Origin::File { names: vec![info.name.clone()], fix: Fix::None },
    }
}

/// The rows of a tensor.
pub(super) enum Rows {
    File { parts: Vec<QTensor>, fix: Fix, columns: usize },
    Values { values: Vec<f32>, columns: usize },
}

impl Rows {
    /// The format of the stored values.
    pub fn stored(&self) -> Option<&'static Format> {
        match self {
            Self::File { parts, .. } => parts.first().map(QTensor::format),
            Self::Values { .. } => None,
        }
    }

    /// The bytes of each part, where they can be taken as they are in `format`.
    pub fn bytes(&self, format: &Format) -> Option<impl Iterator<Item = &[u8]>> {
        match self {
            Self::File { parts, fix: Fix::None, .. } if self.stored() == Some(format) => {
                Some(parts.iter().map(QTensor::bytes))
            }
            _ => None,
        }
    }

    /// Decodes row `row` into `out`, which has as many elements.
    pub fn read(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Values { values, columns } => out.copy_from_slice(&values[row * columns..][..*columns]),
            Self::File { parts, fix, columns } => {
                let rows = parts[0].elems() / columns;
                let (part, row) = (&parts[row / rows], row % rows);
                let row = fix.row(row);
                let row_bytes = part.bytes().len() / rows;
                (part.format().decode)(&part.bytes()[row * row_bytes..][..row_bytes], out);
                if let Fix::Add(constant) = fix {
                    out.iter_mut().for_each(|v| *v += constant);
                }
            }
        }
    }
}
