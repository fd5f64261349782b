//! The tensors of a file that is yet to be written, as its reader will see them: names, shapes, and derived values.

use std::path::{Path, PathBuf};

use hanzo_ml::{
    Bytes, Error, QTensor, Result,
    file::{TensorInfo, TensorSource},
};

use crate::quantize::{Origin, SourceTensor};

/// Tensors without a place.
pub(super) struct Made<'a> {
    path: PathBuf,
    infos: Vec<TensorInfo>,
    tensors: &'a [SourceTensor],
}

impl<'a> Made<'a> {
    pub(super) fn new(path: &Path, tensors: &'a [SourceTensor]) -> Self {
        let info = |tensor: &SourceTensor| TensorInfo {
            name: tensor.name.clone(),
            format: tensor.format,
            shape: tensor.shape.clone(),
            part: 0,
            range: 0..0,
        };
        Self { path: path.to_owned(), infos: tensors.iter().map(info).collect(), tensors }
    }
}

impl TensorSource for Made<'_> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.infos.iter().find(|info| info.name == name)
    }

    fn tensor(&self, name: &str) -> Result<QTensor> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name);
        match tensor {
            Some(SourceTensor { name, format, shape, origin: Origin::Values(values) }) => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                QTensor::new(name, format, shape.clone(), Bytes::owned(bytes))
            }
            _ => Err(Error::tensor(name, "it has no values of its own")),
        }
    }
}
