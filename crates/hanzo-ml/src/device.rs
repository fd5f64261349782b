//! Where operations run, by the names that people give.

use std::{fmt, str::FromStr};

use crate::{
    Error, Result,
    backend::Backend,
    cpu::{Cpu, CpuOptions},
    gpu::{self, GpuOptions, driver::Kind},
};

/// A device: `cpu`, `cuda:0`, `rocm:1`, `vulkan:0`.
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
    /// A device of Vulkan, by its number.
    Vulkan(usize),
}

impl Device {
    /// Its backend.
    ///
    /// # Errors
    /// A device that is not available, with the reason.
    pub fn open(self, cpu: CpuOptions, gpu: GpuOptions) -> Result<Box<dyn Backend>> {
        Ok(match self {
            Self::Cpu => Box::new(Cpu::new(cpu)?),
            Self::Vulkan(index) => Box::new(gpu::Gpu::new(Box::new(gpu::vulkan::Vulkan::open(index)?), gpu)?),
            Self::Driver { kind, index } => {
                let runtime = gpu::driver::Driver::open(kind, index, &gpu.driver)?;
                Box::new(gpu::Gpu::new(Box::new(runtime), gpu)?)
            }
        })
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == "cpu" {
            return Ok(Self::Cpu);
        }
        let (api, index) = name.split_once(':').unwrap_or((name, "0"));
        let kind = Kind::ALL.into_iter().find(|k| k.name() == api);
        match (kind, index.parse()) {
            (Some(kind), Ok(index)) => Ok(Self::Driver { kind, index }),
            (None, Ok(index)) if api == "vulkan" => Ok(Self::Vulkan(index)),
            _ => Err(Error::op(
                "device",
                format!("`{name}` is no device; try cpu, cuda:0, rocm:0 or vulkan:0"),
            )),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Driver { kind, index } => write!(f, "{}:{index}", kind.name()),
            Self::Vulkan(index) => write!(f, "vulkan:{index}"),
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
        assert_eq!(device("vulkan:1").unwrap(), Device::Vulkan(1));
        assert_eq!(device("rocm:3").unwrap().to_string(), "rocm:3");
        for bad in ["", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "metal:0"] {
            assert!(device(bad).unwrap_err().to_string().contains("is no device"), "{bad}");
        }
    }
}
