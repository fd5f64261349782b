//! What this machine has: processor and memory, as the system tells.

use std::thread;

use hanzo_ml::cpu::{Cpu, CpuOptions};
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::error::Result;

/// The processor and the memory.
pub(crate) struct Machine {
    /// The processor's name, or its architecture where the system does not tell.
    pub(crate) cpu: String,
    /// None where the system does not tell.
    pub(crate) physical_cores: Option<usize>,
    /// Logical processors that this process may use.
    pub(crate) logical_cores: usize,
    /// Threads that `run` uses unless told otherwise.
    pub(crate) threads: usize,
    /// Instructions that the CPU backend uses.
    pub(crate) instructions: &'static str,
    /// None where the system does not tell.
    pub(crate) memory: Option<Memory>,
}

/// Bytes of memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What a program can get without swapping; within the limit of its container, where there is one.
    pub(crate) available: u64,
}

impl Machine {
    /// Asks the system.
    ///
    /// # Errors
    /// If it starts no threads.
    pub(crate) fn look() -> Result<Self> {
        let kinds = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        // Systems that it does not know are no error: then less is known.
        let system = System::new_with_specifics(kinds).ok();
        let name = system.as_ref().and_then(|system| Some(system.cpus().first()?.brand().trim().to_owned()));
        let backend = Cpu::new(CpuOptions::default())?;
        let memory = hanzo_ml::host::memory();
        Ok(Self {
            cpu: name.filter(|name| !name.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            physical_cores: System::physical_core_count().ok(),
            logical_cores: thread::available_parallelism().map_or(1, usize::from),
            threads: backend.n_threads(),
            instructions: backend.instructions(),
            memory: memory.map(|m| Memory { total: m.total as u64, available: m.free as u64 }),
        })
    }
}
