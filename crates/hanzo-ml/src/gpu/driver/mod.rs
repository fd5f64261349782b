//! CUDA and ROCm through their driver APIs, which are one API under two names (see `api`).
//!
//! Libraries are opened at run time: the driver's own, and its run-time compiler (NVRTC, hipRTC), which is no part of a
//! driver. Compiled kernels are kept on disk, so the compiler is needed once. What is missing is an error with the reason
//! and the places that were looked at.
#![expect(unsafe_code, reason = "functions of the driver are called through pointers")]

mod api;
mod cache;
mod compiler;
mod library;
mod runtime;

use std::path::PathBuf;

pub use runtime::Driver;

use crate::Error;

/// An API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NVIDIA.
    Cuda,
    /// AMD.
    Rocm,
}

/// Where libraries and compiled kernels are.
#[derive(Clone, Debug, Default)]
pub struct DriverOptions {
    /// Folders to look for libraries in, before the usual ones.
    pub library_folders: Vec<PathBuf>,
    /// The folder of compiled kernels; without one they are compiled in every run.
    pub kernel_cache: Option<PathBuf>,
}

impl Kind {
    /// Every API.
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Rocm];

    /// The name in `--device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
        }
    }
}

/// The error of a backend that cannot be used on this machine.
fn unavailable(kind: Kind, reason: impl std::fmt::Display) -> Error {
    Error::op("device", format!("{} is not available: {reason}", kind.name()))
}
