//! Models, tokenization, KV cache and generation.
//!
//! * [`ModelFile`]: a model on disk; [`spec::DecoderSpec`]: what it is made of.
//! * [`family`]: one file per family, metadata to spec.
//! * [`decoder`]: the one forward pass over a ragged batch; [`cache`]: its bookkeeping.
//! * [`text`]: tokenizer, streaming detokenizer, chat template.

pub mod cache;
pub mod decoder;
mod error;
pub mod family;
mod model_file;
pub mod rope;
pub mod spec;
pub mod text;

#[cfg(test)]
mod testing;

pub use error::{Error, Result};
pub use model_file::ModelFile;
