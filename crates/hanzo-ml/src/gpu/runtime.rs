//! What a GPU API must offer.
//!
//! Memory, programs, events and graphs are plain numbers that the runtime gives meaning to. A number that it did not give
//! out, or that was given back, is an error, and so are bytes outside of a piece of memory. Work is enqueued in order on one
//! queue; only downloads, [`Runtime::synchronize`] and [`Runtime::elapsed_ms`] wait.

use hanzo_kernel::{Code, Interface, Target};

pub use crate::backend::MemoryInfo;
use crate::{Error, Result};

/// A piece of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryId(pub u64);

/// A compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProgramId(pub usize);

/// A point of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// Recorded launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphId(pub u64);

/// What a device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads of the smallest and of the largest subgroup.
    pub subgroup: (u32, u32),
    /// Workgroup memory of one workgroup, in bytes.
    pub workgroup_bytes: u32,
    /// Workgroups along each axis.
    pub grid: [u32; 3],
    /// Workgroups that run at the same time: multiprocessors, compute units.
    pub n_processors: u32,
    /// Bytes of the largest buffer that a kernel can be given.
    pub buffer_bytes: usize,
    /// Side of the cooperative matrices (f16 factors, f32 sums), if there are any.
    pub matrix_side: Option<u32>,
}

impl Limits {
    /// What there is to say to people.
    pub(super) fn features(&self) -> Vec<String> {
        let subgroup = match self.subgroup {
            (min, max) if min == max => format!("subgroups of {min}"),
            (min, max) => format!("subgroups of {min} to {max}"),
        };
        let mut features = vec![subgroup, format!("{} KiB a workgroup", self.workgroup_bytes >> 10)];
        features.extend(self.matrix_side.map(|side| format!("matrices of {side} × {side}")));
        if self.buffer_bytes != usize::MAX {
            features.push(format!("{} MiB a buffer", self.buffer_bytes >> 20));
        }
        features
    }
}

/// A kernel to compile.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSource<'a> {
    /// Its name, which is that of its entry point in CUDA and HIP.
    pub name: &'a str,
    /// Its text or words.
    pub code: &'a Code,
    /// What a launch supplies.
    pub interface: &'a Interface,
}

impl ProgramSource<'_> {
    /// Refuses a kernel that the device has no workgroup memory for, before anything is compiled.
    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        let (bytes, max) = (self.interface.workgroup_bytes, limits.workgroup_bytes);
        if bytes <= max {
            return Ok(());
        }
        let name = self.name;
        Err(Error::op(
            "compile",
            format!("kernel {name} wants {bytes} bytes a workgroup, the device has {max}"),
        ))
    }
}

/// One launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub program: ProgramId,
    /// Workgroups along each axis, none of them 0.
    pub grid: [u32; 3],
    /// Buffers in the order of the kernel's interface; no two are the same memory.
    pub buffers: &'a [MemoryId],
    /// The immediate data, of the interface's length.
    pub immediates: &'a [u8],
}

impl Launch<'_> {
    /// Refuses operands of another kernel or the same memory twice, and a grid that the device has not.
    pub(super) fn check(
        &self,
        kernel: &str,
        n_buffers: usize,
        immediate_bytes: usize,
        limits: &Limits,
    ) -> Result<()> {
        let fits = self.buffers.len() == n_buffers
            && self.immediates.len() == immediate_bytes
            && self.grid.iter().zip(&limits.grid).all(|(n, max)| (1..=*max).contains(n));
        if !fits {
            let what = format!("{kernel}: operands of another kernel, or {:?} workgroups", self.grid);
            return Err(Error::op("launch", what));
        }
        let is_twice = |i: usize| self.buffers[..i].contains(&self.buffers[i]);
        match (1..n_buffers).find(|i| is_twice(*i)) {
            Some(i) => Err(Error::op("launch", format!("{kernel}: {:?} is given twice", self.buffers[i]))),
            None => Ok(()),
        }
    }
}

/// The error for memory that a runtime did not give out, or was given back.
pub(super) fn unknown(op: &'static str, memory: MemoryId) -> Error {
    Error::op(op, format!("{memory:?} is no memory of this device"))
}

/// Refuses bytes outside of memory of `size` bytes.
pub(super) fn expect_inside(op: &'static str, offset: usize, len: usize, size: usize) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::op(op, format!("{len} bytes from byte {offset} of memory of {size}")))
}

/// A GPU API with one device and one queue.
pub trait Runtime: Send {
    /// Name for people: `cuda:0 NVIDIA H200`.
    fn name(&self) -> String;

    /// The language that it compiles.
    fn target(&self) -> Target;

    /// What the device can do.
    fn limits(&self) -> &Limits;

    /// Free and total memory.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Memory of at least one byte, aligned to 256; its contents are unspecified.
    fn alloc(&mut self, bytes: usize) -> Result<MemoryId>;

    /// Gives memory back. The caller has waited for the work that uses it.
    fn free(&mut self, memory: MemoryId);

    /// Copies from the host to a multiple of 4 bytes; `data` may be changed as soon as this returns. A last word that is
    /// not whole may be filled up with zeros.
    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()>;

    /// Waits for all work and copies to the host, from a multiple of 4 bytes.
    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()>;

    /// Copies on the device, between different memory, from byte to byte (both multiples of 4).
    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()>;

    /// Fills with a byte.
    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()>;

    /// Compiles kernels, from a cache where there is one; one id for each.
    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>>;

    /// Enqueues a launch.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<()>;

    /// Waits for all work.
    fn synchronize(&mut self) -> Result<()>;

    /// Marks this point of the queue.
    fn record(&mut self) -> Result<EventId>;

    /// Waits for the later of two points; milliseconds between them. Both are given back.
    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32>;

    /// Whether [`Runtime::begin_capture`] works; a caller without it enqueues again.
    fn can_capture(&self) -> bool {
        false
    }

    /// From now on launches and copies on the device are recorded and not run.
    fn begin_capture(&mut self) -> Result<()> {
        Err(Error::op("capture", "this device cannot record launches"))
    }

    /// Ends the recording.
    fn end_capture(&mut self) -> Result<GraphId> {
        Err(Error::op("capture", "this device cannot record launches"))
    }

    /// Enqueues everything that was recorded.
    fn replay(&mut self, _graph: GraphId) -> Result<()> {
        Err(Error::op("capture", "this device cannot record launches"))
    }

    /// Gives a recording back.
    fn free_graph(&mut self, _graph: GraphId) {}
}
