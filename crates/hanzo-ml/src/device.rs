//! Where operations run, by the names that people give.

use std::{fmt, str::FromStr};

use crate::{
    Error, Result,
    backend::Backend,
    cpu::{Cpu, CpuOptions},
    gpu::{
        Gpu, GpuInfo, GpuOptions, Runtime,
        driver::{Driver, DriverOptions, Kind},
        wgpu::{Api, Wgpu},
    },
};

/// A device: `cpu`, `cuda:0`, `rocm:1`, `vulkan:0`, `metal:0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// A GPU behind a driver.
    Driver {
        /// Its API.
        kind: Kind,
        /// Its number there.
        index: usize,
    },
    /// A GPU behind wgpu.
    Wgpu {
        /// Its API.
        api: Api,
        /// Its number there.
        index: usize,
    },
}

impl Device {
    /// Its backend.
    ///
    /// # Errors
    /// A device that is not available, with the reason.
    pub fn open(self, cpu: CpuOptions, gpu: GpuOptions) -> Result<Box<dyn Backend>> {
        match self {
            Self::Cpu => Ok(Box::new(Cpu::new(cpu)?)),
            Self::Wgpu { .. } | Self::Driver { .. } => Ok(Box::new(self.open_gpu(gpu)?)),
        }
    }

    /// Its backend as that of a GPU.
    ///
    /// # Errors
    /// The processor; a device that is not available, with the reason.
    pub fn open_gpu(self, options: GpuOptions) -> Result<Gpu> {
        let runtime: Box<dyn Runtime> = match self {
            Self::Cpu => return Err(Error::op("device", "the processor is no GPU")),
            Self::Wgpu { api, index } => Box::new(Wgpu::open(api, index)?),
            Self::Driver { kind, index } => Box::new(Driver::open(kind, index, &options.driver)?),
        };
        Gpu::new(runtime, options)
    }

    /// The GPUs of every API by its name, or why it has none here.
    pub fn gpus(options: &DriverOptions) -> Vec<(&'static str, Result<Vec<GpuInfo>>)> {
        let drivers = Kind::ALL.into_iter().map(|kind| (kind.name(), Driver::list(kind, options)));
        drivers.chain(Api::ALL.into_iter().map(|api| (api.name(), api.list()))).collect()
    }

    /// The device of another number behind the same API; `None` for the processor, which has no numbers.
    pub fn sibling(self, index: usize) -> Option<Self> {
        match self {
            Self::Cpu => None,
            Self::Wgpu { api, .. } => Some(Self::Wgpu { api, index }),
            Self::Driver { kind, .. } => Some(Self::Driver { kind, index }),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == "cpu" {
            return Ok(Self::Cpu);
        }
        let (prefix, index) = name.split_once(':').unwrap_or((name, "0"));
        let error = || {
            Error::op(
                "device",
                format!("`{name}` is no device; try cpu, cuda:0, rocm:0, vulkan:0 or metal:0"),
            )
        };
        let index = index.parse().map_err(|_| error())?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == prefix);
        let api = Api::ALL.into_iter().find(|api| api.name() == prefix);
        let driver = kind.map(|kind| Self::Driver { kind, index });
        driver.or(api.map(|api| Self::Wgpu { api, index })).ok_or_else(error)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Driver { kind, index } => write!(f, "{}:{index}", kind.name()),
            Self::Wgpu { api, index } => write!(f, "{}:{index}", api.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    #[test]
    fn names_of_devices() {
        let device = |name: &str| name.parse::<Device>();
        assert_eq!(device("cpu").unwrap(), Device::Cpu);
        assert_eq!(device("cuda").unwrap(), Device::Driver { kind: Kind::Cuda, index: 0 });
        assert_eq!(device("vulkan:1").unwrap(), Device::Wgpu { api: Api::Vulkan, index: 1 });
        for name in ["rocm:3", "vulkan:2", "metal:0"] {
            assert_eq!(device(name).unwrap().to_string(), name);
        }
        for bad in ["", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "metal:", "wgpu:0"] {
            assert!(device(bad).unwrap_err().to_string().contains("is no device"), "{bad}");
        }
    }
}
