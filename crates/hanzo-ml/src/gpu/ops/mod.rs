//! The operations as launches, one file a kind. Each checks its operands, says which kernel, and how many workgroups.

mod attention;
mod matmul;
mod moe;
mod quantise;
mod rows;

pub(super) use quantise::Quantised;
pub use quantise::Seen;
