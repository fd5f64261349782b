//! The GPU backend: one operation layer over the kernels of `hanzo-kernel` and a small runtime trait.
//!
//! * [`Runtime`]: what differs between APIs: memory, copies, compiling, launches, events, capture.
//! * [`Gpu`]: implements [`crate::backend::Backend`] for any runtime; `ops/` has one file a kind of operation.
//! * `replay`: between the two where an API can record launches: what repeats is recorded once and replayed as one.
//! * [`null`]: a runtime that records and does nothing, for tests of launch geometry and pooling.
//! * [`driver`]: CUDA and ROCm, whose driver APIs are one API under two names; found at run time.
//! * [`wgpu`]: Vulkan and Metal through wgpu.
//!
//! **Invariant:** operands are checked by `backend::check` before anything is launched. What lies inside index buffers
//! is not seen here; the decoder's plan vouches for it.

mod backend;
mod blocks;
pub mod driver;
mod launcher;
mod memory;
pub mod null;
mod ops;
mod replay;
mod runtime;
mod table;
mod weights;
pub mod wgpu;

pub use backend::{Gpu, GpuOptions, Products};
pub use hanzo_kernel::Target;
pub use ops::Seen;
pub use runtime::{
    EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime,
};

/// A GPU of this machine, as it is listed.
#[derive(Clone, Debug)]
pub struct GpuInfo {
    /// Its name in `--device`: `cuda:0`.
    pub device: String,
    /// Its maker's name for it.
    pub name: String,
    /// All of its memory, where that is known.
    pub memory_bytes: Option<usize>,
    /// What of it is free, where that is known without opening the device.
    pub memory_free_bytes: Option<usize>,
    /// What it can do, in words.
    pub features: Vec<String>,
    /// Why no model can be run on it all the same.
    pub unusable: Option<String>,
}
