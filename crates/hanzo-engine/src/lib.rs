//! Models, tokenization, KV cache and generation.
//!
//! * [`ModelFile`]: a model on disk; [`spec::DecoderSpec`]: what it is made of.
//! * [`family`]: one file per family, metadata to spec.
//! * [`decoder`]: the one forward pass over a ragged batch; [`cache`]: its bookkeeping.
//! * [`Engine`]: the thread that runs requests.
//! * [`sample`]: how the next token is chosen.
//! * [`Importance`]: which columns of the weights matter for a text.
//! * [`score`]: how well a model predicts a text, and how two models differ.
//! * [`quantize`]: a model in a smaller format, or a folder as a GGUF file.
//! * [`text`]: tokenizer, streaming detokenizer, chat template.

pub mod cache;
mod convert;
pub mod decoder;
mod engine;
mod error;
pub mod family;
mod importance;
mod model_file;
pub mod quantize;
pub mod rope;
pub mod sample;
pub mod score;
pub mod spec;
pub mod text;

#[cfg(test)]
mod testing;

pub use engine::{
    CancelToken, DEFAULT_CONTEXT, Engine, Event, FinishReason, Generation, LoadOptions, Model, PromptStats,
    Request, Summary, check, load_template, load_tokenizer,
};
pub use error::{Error, Result};
pub use importance::Importance;
pub use model_file::ModelFile;
