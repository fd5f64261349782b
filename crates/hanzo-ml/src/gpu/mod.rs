//! The GPU backend: one operation layer over the kernels of `hanzo-kernel` and a small runtime trait.
//!
//! * [`Runtime`]: what differs between APIs: memory, copies, compiling, launches, events, capture.
//! * [`Gpu`]: implements [`crate::backend::Backend`] for any runtime; `ops/` has one file a kind of operation.
//! * [`null`]: a runtime that records and does nothing, for tests of launch geometry and pooling.
//! * [`driver`]: CUDA and ROCm, whose driver APIs are one API under two names; found at run time.
//! * [`vulkan`]: Vulkan through wgpu.
//!
//! **Invariant:** operands are checked by `backend::check` before anything is launched. What lies inside index buffers
//! is not seen here; the decoder's plan vouches for it.

mod backend;
pub mod driver;
mod launcher;
mod memory;
pub mod null;
mod ops;
mod runtime;
pub mod vulkan;
mod weights;

pub use backend::{Gpu, GpuOptions, Products};
pub use runtime::{
    EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime,
};
