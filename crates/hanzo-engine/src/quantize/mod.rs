//! From a model to a smaller one: which format each tensor gets, and the file that holds them.
//!
//! * [`Source`]: a model as the tensors and metadata of a GGUF file, whatever it is on disk.
//! * [`Plan`]: for each tensor its format, chosen as llama.cpp's `llama-quantize` chooses, and what that takes.
//! * [`Plan::write`]: the file, written piece by piece with bounded memory.

mod parts;
mod plan;
mod source;
#[cfg(test)]
mod tests;
mod write;

pub use plan::{Options, Plan, Planned, Target, TensorRule};
pub use source::Source;
pub(crate) use source::{Fix, Origin, SourceTensor};
pub use write::{Outcome, Progress};
