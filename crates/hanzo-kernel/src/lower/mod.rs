//! From a valid module to the text or words that a backend compiles.
//!
//! SPIR-V and MSL come from naga's writers, CUDA C++ and HIP C++ from the one writer of [`c`]. The kernels are ours, so
//! bounds checks, bounds on loops, checks of divisors and the clearing of workgroup memory are left out;
//! [`Checks::Debug`] puts them in.

mod c;
mod msl;
mod spirv;

use std::panic::{AssertUnwindSafe, catch_unwind};

use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};

use crate::{Error, Result, Valid};

/// A language that kernels are written in for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Vulkan.
    SpirV,
    /// Metal Shading Language.
    Msl,
    /// CUDA C++ for NVRTC.
    Cuda,
    /// HIP C++ for hipRTC.
    Hip,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 4] = [Self::SpirV, Self::Msl, Self::Cuda, Self::Hip];

    /// Its name in errors and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::SpirV => "spirv",
            Self::Msl => "msl",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    /// The name of every kernel's entry point; `None` where a kernel's own name is it.
    pub fn entry(self) -> Option<&'static str> {
        match self {
            Self::SpirV => Some("main"),
            Self::Msl => Some(msl::ENTRY),
            Self::Cuda | Self::Hip => None,
        }
    }
}

/// What is checked while a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checks {
    /// Nothing: the kernels are ours and are proven by tests.
    Trusted,
    /// Indices, loops, divisors; workgroup memory starts as zeros.
    Debug,
}

impl Checks {
    /// The same policy for everything that is indexed.
    fn bounds(self) -> BoundsCheckPolicies {
        let policy = match self {
            Self::Trusted => BoundsCheckPolicy::Unchecked,
            Self::Debug => BoundsCheckPolicy::Restrict,
        };
        BoundsCheckPolicies { index: policy, buffer: policy, image_load: policy, binding_array: policy }
    }
}

/// A lowered kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// SPIR-V.
    Words(Vec<u32>),
    /// Source text of the other targets. That of CUDA and HIP is a kernel without the prelude: see [`unit`].
    Text(String),
}

/// Writes a kernel for a target. A panic inside a writer is an error that names the kernel.
///
/// # Errors
/// A construct that the writer does not know; a fault of the writer.
pub fn lower(valid: &Valid, target: Target, checks: Checks) -> Result<Code> {
    let write = || match target {
        Target::SpirV => spirv::write(valid, checks).map(Code::Words),
        Target::Msl => msl::write(valid, checks).map(Code::Text),
        Target::Cuda => c::write(valid, &c::CUDA).map(Code::Text),
        Target::Hip => c::write(valid, &c::HIP).map(Code::Text),
    };
    // The closure only reads the module, so nothing half-written outlives a panic.
    catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Error::lower(valid.name(), target.name(), format!("the writer panicked: {what}")))
    })
}

/// A translation unit of CUDA or HIP from the texts of several kernels, which must have different names; `None` for
/// targets whose kernels stand alone.
pub fn unit(target: Target, kernels: &[&str], checks: Checks) -> Option<String> {
    match target {
        Target::SpirV | Target::Msl => None,
        Target::Cuda => Some(c::unit(&c::CUDA, kernels, checks)),
        Target::Hip => Some(c::unit(&c::HIP, kernels, checks)),
    }
}

/// Workgroup memory that a kernel of CUDA or HIP may declare statically; a launch asks for all of it where it is more.
pub fn static_workgroup_bytes_max(target: Target) -> u32 {
    match target {
        Target::SpirV | Target::Msl => u32::MAX,
        Target::Cuda => c::CUDA.static_shared_bytes_max,
        Target::Hip => c::HIP.static_shared_bytes_max,
    }
}
