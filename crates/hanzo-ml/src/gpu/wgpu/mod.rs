//! Vulkan and Metal through wgpu, with kernels in the language of each passed through as they are.
//!
//! One runtime with two rows ([`Api`]). What differs: Vulkan takes SPIR-V and binds buffers by the numbers in it; Metal takes
//! text, and wgpu binds its buffers as `hanzo-kernel` wrote them (immediate data first). Metal exists on macOS alone, and
//! there Vulkan does not.
#![expect(
    unsafe_code,
    reason = "wgpu takes foreign kernels and gives the API's own objects through unsafe functions"
)]

mod memory;
mod runtime;

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use hanzo_kernel::Target;
pub use runtime::Wgpu;

use super::{GpuInfo, runtime::Limits};
use crate::{Error, Result};

/// An API behind wgpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Vulkan, with SPIR-V.
    Vulkan,
    /// Metal, with its shading language.
    Metal,
}

impl Api {
    /// Every API.
    pub const ALL: [Self; 2] = [Self::Vulkan, Self::Metal];

    /// The name in `--device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
        }
    }

    /// The language of its kernels.
    fn target(self) -> Target {
        match self {
            Self::Vulkan => Target::SpirV,
            Self::Metal => Target::Msl,
        }
    }

    fn backends(self) -> wgpu::Backends {
        match self {
            Self::Vulkan => wgpu::Backends::VULKAN,
            Self::Metal => wgpu::Backends::METAL,
        }
    }

    /// Why there is no device at all.
    fn no_device(self) -> &'static str {
        match self {
            Self::Vulkan if cfg!(target_vendor = "apple") => "on macOS use metal",
            Self::Vulkan => "the loader finds no device (is a driver for Vulkan installed?)",
            Self::Metal if cfg!(target_vendor = "apple") => "the system has no device",
            Self::Metal => "only macOS has it",
        }
    }

    /// Threads of the smallest and of the largest subgroup.
    fn subgroup(self, info: &wgpu::AdapterInfo) -> (u32, u32) {
        match self {
            Self::Vulkan => (info.subgroup_min_size, info.subgroup_max_size),
            // wgpu gives the bounds of every device. Apple's own have 32, those of older Macs (Intel, AMD) 8 to 64.
            Self::Metal if info.name.starts_with("Apple") => (32, 32),
            Self::Metal => (8, 64),
        }
    }

    fn adapters(self) -> Vec<wgpu::Adapter> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = self.backends();
        wait(wgpu::Instance::new(descriptor).enumerate_adapters(self.backends()))
    }

    fn unavailable(self, reason: impl std::fmt::Display) -> Error {
        Error::op("device", format!("{} is not available: {reason}", self.name()))
    }

    /// All devices.
    ///
    /// # Errors
    /// Why there is none.
    pub fn list(self) -> Result<Vec<GpuInfo>> {
        let info = |(adapter, i): (&wgpu::Adapter, usize)| {
            let memory = memory::of_adapter(adapter);
            GpuInfo {
                device: format!("{}:{i}", self.name()),
                name: adapter.get_info().name,
                memory_bytes: memory.map(|(_, total)| total),
                memory_free_bytes: memory.and_then(|(free, _)| free),
                features: self.limits(adapter).features(),
                unusable: self.missing(adapter),
            }
        };
        let found: Vec<GpuInfo> = self.adapters().iter().zip(0..).map(info).collect();
        if found.is_empty() { Err(self.unavailable(self.no_device())) } else { Ok(found) }
    }

    /// What the kernels need and a device lacks.
    fn missing(self, adapter: &wgpu::Adapter) -> Option<String> {
        let missing = NEEDED - adapter.features();
        if !missing.is_empty() {
            let names: Vec<&str> = missing.iter_names().map(|(name, _)| name).collect();
            return Some(format!("it lacks {}", names.join(", ")));
        }
        let size = self.subgroup(&adapter.get_info()).0;
        (size < SUBGROUP_MIN).then(|| format!("its subgroups of {size} are less than {SUBGROUP_MIN}"))
    }

    fn limits(self, adapter: &wgpu::Adapter) -> Limits {
        let (info, max) = (adapter.get_info(), adapter.limits());
        let subgroup = self.subgroup(&info);
        Limits {
            subgroup,
            workgroup_bytes: max.max_compute_workgroup_storage_size,
            grid: [max.max_compute_workgroups_per_dimension; 3],
            // Neither API tells.
            n_processors: if info.device_type == wgpu::DeviceType::Cpu { 4 } else { 32 },
            buffer_bytes: usize::try_from(max.max_buffer_size.min(max.max_storage_buffer_binding_size))
                .unwrap_or(usize::MAX),
            matrix_side: matrix_side(adapter, subgroup),
        }
    }
}

/// What every kernel or launch may use.
const NEEDED: wgpu::Features = wgpu::Features::IMMEDIATES
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::SUBGROUP_BARRIER)
    .union(wgpu::Features::PASSTHROUGH_SHADERS);

/// Threads of a subgroup that the kernels need at least.
const SUBGROUP_MIN: u32 = 8;

/// The largest side of cooperative matrices, f16 to f32 in subgroups of 32.
fn matrix_side(adapter: &wgpu::Adapter, subgroup: (u32, u32)) -> Option<u32> {
    let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
    let fits = |p: &&wgpu::CooperativeMatrixProperties| {
        subgroup == (32, 32) && p.ab_type == half && p.cr_type == single && matches!(p.m_size, 8 | 16)
    };
    adapter.cooperative_matrix_properties().iter().filter(fits).map(|p| p.m_size).max()
}

/// Native futures of wgpu are ready at once, or after the device was polled.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not there says why, and neither API is missing from the list.
    #[test]
    fn each_api_has_devices_or_a_reason() {
        for api in Api::ALL {
            match api.list() {
                Ok(found) => assert!(found[0].device == format!("{}:0", api.name()), "{found:?}"),
                Err(e) => {
                    let start = format!("device: {} is not available: ", api.name());
                    assert!(e.to_string().starts_with(&start), "{e}");
                }
            }
        }
        if !cfg!(target_vendor = "apple") {
            let error = Api::Metal.list().unwrap_err().to_string();
            assert_eq!(error, "device: metal is not available: only macOS has it");
            assert!(Wgpu::open(Api::Metal, 0).is_err_and(|e| e.to_string() == error));
        }
    }
}
