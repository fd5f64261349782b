//! Every GGUF weight format as one row of one table: block layout, scalar decode, encoder.
//!
//! This is the leaf of the workspace. Loaders, kernels, the command line, the docs and the tests walk
//! [`FORMATS`]; nothing outside this crate matches over formats. The scalar decoders here are the definition
//! that every other implementation is measured against, bit for bit.
//!
//! The layouts follow ggml (<https://github.com/ggml-org/ggml>, `src/ggml-common.h`).

mod format;

pub use format::{Decode, Encode, Field, Format, Group, TypeError, Unpack};

/// Every format, in the order of the ggml type ids.
pub static FORMATS: &[Format] = &[];
