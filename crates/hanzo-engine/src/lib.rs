//! Models, tokenization, KV cache and generation.

mod error;

pub use error::{Error, Result};
