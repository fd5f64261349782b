//! Device memory of buffers: freed pieces are kept by size and used again.
//!
//! All work is in order on one queue, so memory may be given to the next operation while the last one still runs.

use std::collections::BTreeMap;

use super::{
    blocks,
    runtime::{MemoryId, Runtime},
};
use crate::{
    DType, Error, Result,
    backend::{
        Buffer,
        slab::{Slab, unknown},
    },
};

/// Pieces are multiples of this, and of an eighth of their size's power of two, so that few sizes occur.
const GRAIN: usize = 512;

/// The memory of a buffer.
struct Piece {
    memory: MemoryId,
    bytes: usize,
    dtype: DType,
    len: usize,
}

/// All buffers, and freed memory by size.
#[derive(Default)]
pub(super) struct Memory {
    slab: Slab<Piece>,
    pool: BTreeMap<usize, Vec<MemoryId>>,
    pool_bytes: usize,
}

/// The size of the piece for so many bytes.
fn piece_bytes(bytes: usize) -> Option<usize> {
    let grain = (bytes.checked_next_power_of_two()? / 16).max(GRAIN);
    bytes.max(1).checked_next_multiple_of(grain)
}

impl Memory {
    /// Bytes that a buffer takes.
    pub(super) fn bytes(dtype: DType, len: usize) -> Option<usize> {
        dtype.bytes_of(len.next_multiple_of(dtype.block_elems())).and_then(piece_bytes)
    }

    pub(super) fn alloc(&mut self, runtime: &mut dyn Runtime, dtype: DType, len: usize) -> Result<Buffer> {
        let error = |what: String| Error::op("alloc", what);
        let used = blocks::bytes_of(dtype, len);
        let (used, bytes) = used.zip(used.and_then(piece_bytes)).ok_or_else(|| {
            error(format!("{len} elements of {dtype:?} are not whole blocks, or more than can be addressed"))
        })?;
        let max = runtime.limits().buffer_bytes;
        if used > max {
            let name = runtime.name();
            return Err(error(format!(
                "{len} elements of {dtype:?} are {used} bytes; the largest buffer of {name} has {max} (a smaller \
                 context or fewer rows at a time take less)"
            )));
        }
        // What is kept for reuse may be larger than what is asked for, but not than a buffer.
        let bytes = bytes.min(max);
        let memory = self.take(runtime, bytes)?;
        Ok(Buffer { id: self.slab.insert(Piece { memory, bytes, dtype, len }), dtype, len })
    }

    fn take(&mut self, runtime: &mut dyn Runtime, bytes: usize) -> Result<MemoryId> {
        // The lowest first: a step that asks for the same sizes gets the same memory each time, whatever the order in which it
        // was given back, and so its launches are the same (see `replay`).
        let lowest = |list: &mut Vec<MemoryId>| {
            let place = (0..list.len()).min_by_key(|i| list[*i].0)?;
            Some(list.swap_remove(place))
        };
        if let Some(memory) = self.pool.get_mut(&bytes).and_then(lowest) {
            self.pool_bytes -= bytes;
            return Ok(memory);
        }
        match runtime.alloc(bytes) {
            Ok(memory) => Ok(memory),
            // What is kept for reuse may be what is missing.
            Err(_) if self.pool_bytes > 0 => {
                self.trim(runtime)?;
                runtime.alloc(bytes)
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn free(&mut self, buffer: &Buffer) {
        if let Some(piece) = self.slab.remove(buffer.id) {
            self.pool.entry(piece.bytes).or_default().push(piece.memory);
            self.pool_bytes += piece.bytes;
        }
    }

    pub(super) fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        self.slab.swap(a, b)
    }

    /// Gives all freed memory back to the device.
    pub(super) fn trim(&mut self, runtime: &mut dyn Runtime) -> Result<()> {
        runtime.synchronize()?;
        for memory in std::mem::take(&mut self.pool).into_values().flatten() {
            runtime.free(memory);
        }
        self.pool_bytes = 0;
        Ok(())
    }

    /// Where a buffer lies.
    pub(super) fn get(&self, buffer: &Buffer) -> Result<MemoryId> {
        let piece = self.slab.get(buffer)?;
        if piece.dtype == buffer.dtype && piece.len == buffer.len {
            Ok(piece.memory)
        } else {
            Err(unknown(buffer))
        }
    }
}
