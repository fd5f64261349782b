//! Tensors, model files and compute backends.
//!
//! * [`file`]: readers and writers of GGUF and safetensors; every file is hostile input.
//! * [`QTensor`]: a weight as it lies in the file, in any format of `hanzo-quant`.
//! * [`backend`]: the operations a model is made of, as one trait; [`reference`] is its naive f64 definition,
//!   [`cpu`] the multi-threaded one, [`gpu`] the one of every GPU.
//! * [`limits`]: what the machine can do at most, measured.
//! * [`numerics`]: whether a device computes what it should.
//! * [`host`]: the machine's memory.
//! * [`parallel`]: the only place that starts threads for computing.
//!
//! Knows nothing of architectures, tokenizers or requests.

pub mod backend;
pub mod cpu;
mod device;
mod dtype;
mod error;
pub mod file;
pub mod gpu;
pub mod host;
pub mod limits;
pub mod numerics;
pub mod parallel;
mod qtensor;
pub mod reference;

pub use device::Device;
pub use dtype::DType;
pub use error::{Error, Result};
pub use qtensor::{Bytes, QTensor};
