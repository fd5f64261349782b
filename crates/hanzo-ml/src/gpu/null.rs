//! A runtime that records what it is asked for and does nothing: launch geometry, pooling and capture are tested with it
//! on any machine. Downloads give zeros.

use std::sync::{Arc, Mutex, PoisonError};

use hanzo_kernel::Target;

use super::runtime::{
    EventId, GraphId, Launch, Limits, MemoryId, MemoryInfo, ProgramId, ProgramSource, Runtime, expect_inside,
    unknown,
};
use crate::{Error, Result};

/// Something a runtime was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Memory of some bytes.
    Alloc(MemoryId, usize),
    /// Memory given back.
    Free(MemoryId),
    /// Bytes from the host, to a first byte.
    Upload {
        /// The memory.
        to: MemoryId,
        /// Its first byte that is written.
        at: usize,
        /// How many.
        bytes: usize,
    },
    /// Bytes to the host.
    Download(MemoryId, usize),
    /// A copy on the device.
    Copy {
        /// The memory that is written.
        to: MemoryId,
        /// Its first byte that is written.
        at: usize,
        /// How many.
        bytes: usize,
    },
    /// Bytes filled on the device.
    Fill(MemoryId, usize),
    /// A kernel compiled, by name.
    Compile(String),
    /// A launch: kernel, grid, buffers, words of immediate data.
    Launch(String, [u32; 3], Vec<MemoryId>, Vec<u32>),
    /// A wait for all work.
    Synchronize,
    /// Launches are recorded from here on.
    BeginCapture,
    /// To here, as this recording.
    EndCapture(GraphId),
    /// A recording run.
    Replay(GraphId),
}

/// The recording runtime.
pub struct Null {
    limits: Limits,
    target: Target,
    records: Arc<Mutex<Vec<Record>>>,
    sizes: Vec<usize>,
    programs: Vec<(String, usize, usize)>,
    bytes_in_use: usize,
    bytes_max: usize,
    n_graphs: u64,
}

/// What was recorded, seen from outside.
#[derive(Clone)]
pub struct Records(Arc<Mutex<Vec<Record>>>);

impl Records {
    /// Everything since the last call.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Null {
    /// A device with subgroups of 32 and this much memory.
    pub fn new(target: Target, bytes_max: usize) -> (Self, Records) {
        let records = Arc::new(Mutex::new(Vec::new()));
        let limits = Limits {
            subgroup: (32, 32),
            workgroup_bytes: 48 << 10,
            grid: [u32::MAX >> 1, 65_535, 65_535],
            n_processors: 16,
            buffer_bytes: usize::MAX,
            matrix_side: Some(16),
        };
        let null = Self {
            limits,
            target,
            records: records.clone(),
            sizes: vec![0],
            programs: Vec::new(),
            bytes_in_use: 0,
            bytes_max,
            n_graphs: 0,
        };
        (null, Records(records))
    }

    fn push(&self, record: Record) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// The same device with buffers of at most so many bytes.
    #[must_use]
    pub fn with_buffer_bytes(mut self, buffer_bytes: usize) -> Self {
        self.limits.buffer_bytes = buffer_bytes;
        self
    }

    /// Memory in use has room for the bytes.
    fn check(&self, op: &'static str, memory: MemoryId, offset: usize, len: usize) -> Result<()> {
        match self.sizes.get(memory.0 as usize) {
            Some(&size) if size > 0 => expect_inside(op, offset, len, size),
            _ => Err(unknown(op, memory)),
        }
    }
}

impl Runtime for Null {
    fn name(&self) -> String {
        "null".into()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: self.bytes_max - self.bytes_in_use, total: self.bytes_max })
    }

    fn alloc(&mut self, bytes: usize) -> Result<MemoryId> {
        if bytes > self.limits.buffer_bytes {
            let max = self.limits.buffer_bytes;
            return Err(Error::op("alloc", format!("{bytes} bytes for a buffer of at most {max}")));
        }
        if bytes == 0 || bytes > self.bytes_max - self.bytes_in_use {
            return Err(Error::op("alloc", format!("no memory for {bytes} bytes")));
        }
        self.bytes_in_use += bytes;
        let id = MemoryId(self.sizes.len() as u64);
        self.sizes.push(bytes);
        self.push(Record::Alloc(id, bytes));
        Ok(id)
    }

    fn free(&mut self, memory: MemoryId) {
        if let Some(size) = self.sizes.get_mut(memory.0 as usize) {
            self.bytes_in_use -= std::mem::take(size);
        }
        self.push(Record::Free(memory));
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        self.check("upload", dst, offset, data.len())?;
        self.push(Record::Upload { to: dst, at: offset, bytes: data.len() });
        Ok(())
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check("download", src, offset, out.len())?;
        out.fill(0);
        self.push(Record::Download(src, out.len()));
        Ok(())
    }

    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()> {
        self.check("copy", dst.0, dst.1, bytes)?;
        self.check("copy", src.0, src.1, bytes)?;
        self.push(Record::Copy { to: dst.0, at: dst.1, bytes });
        Ok(())
    }

    fn fill(&mut self, dst: MemoryId, _value: u8, bytes: usize) -> Result<()> {
        self.check("fill", dst, 0, bytes)?;
        self.push(Record::Fill(dst, bytes));
        Ok(())
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        let mut ids = Vec::with_capacity(sources.len());
        for source in sources {
            source.check(&self.limits)?;
            self.push(Record::Compile(source.name.into()));
            let interface = source.interface;
            let n_bytes = interface.immediate_bytes as usize;
            self.programs.push((source.name.into(), interface.bindings.len(), n_bytes));
            ids.push(ProgramId(self.programs.len() - 1));
        }
        Ok(ids)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        let op = "launch";
        let program = self.programs.get(launch.program.0);
        let (name, n_buffers, n_bytes) = program.ok_or_else(|| Error::op(op, "an unknown kernel"))?;
        launch.check(name, *n_buffers, *n_bytes, &self.limits)?;
        for memory in launch.buffers {
            self.check(op, *memory, 0, 1)?;
        }
        let words = launch.immediates.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        self.push(Record::Launch(name.clone(), launch.grid, launch.buffers.to_vec(), words));
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.push(Record::Synchronize);
        Ok(())
    }

    fn record(&mut self) -> Result<EventId> {
        Ok(EventId(0))
    }

    fn elapsed_ms(&mut self, _from: EventId, _to: EventId) -> Result<f32> {
        Ok(0.0)
    }

    fn can_capture(&self) -> bool {
        true
    }

    fn begin_capture(&mut self) -> Result<()> {
        self.push(Record::BeginCapture);
        Ok(())
    }

    fn end_capture(&mut self) -> Result<GraphId> {
        let graph = GraphId(self.n_graphs);
        self.n_graphs += 1;
        self.push(Record::EndCapture(graph));
        Ok(graph)
    }

    fn replay(&mut self, graph: GraphId) -> Result<()> {
        self.push(Record::Replay(graph));
        Ok(())
    }
}
