//! Writes a planned model, a slab of rows at a time.
//!
//! Invariants: memory is bounded by the slab, not by the model (stored bytes are mapped); the result does not depend on
//! the number of threads, since a row is encoded by one thread alone; the file appears whole or not at all.

use std::{ops::ControlFlow, path::Path, sync::Mutex};

use hanzo_ml::{
    file::gguf::{NewInfo, Writer},
    parallel::{Grid, Parallel},
};

use super::{
    plan::{Plan, Planned, is_quantized},
    source::{Rows, SourceTensor},
};
use crate::{Error, Result};

/// Values of a slab. Their encoded bytes are held, at most 16 MiB; between slabs the work can be ended.
const SLAB_ELEMS: usize = 1 << 22;
/// Values that a thread encodes before it asks for more.
const TILE_ELEMS: usize = 1 << 14;

/// How far a model is written.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The tensor that is being written.
    pub tensor: &'a str,
    /// Elements that are done.
    pub done: u64,
    /// Elements of the model.
    pub total: u64,
}

/// How writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is there.
    Written,
    /// The caller had enough; nothing is left.
    Stopped,
}

impl Plan<'_> {
    /// Bytes of the file before padding and metadata.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_to as u64).sum()
    }

    /// Writes the model. `progress` is called between slabs and may end the work.
    ///
    /// # Errors
    /// If a tensor lacks an importance that it needs, holds values that no number stands for, or a file cannot be read or
    /// written.
    pub fn write(
        &self,
        path: &Path,
        parallel: &Parallel,
        progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome> {
        self.check_importance()?;
        let infos: Vec<NewInfo<'_>> =
            self.tensors.iter().map(|t| NewInfo { name: &t.name, format: t.to, shape: &t.shape }).collect();
        let mut writer = Writer::create(path, &self.metadata, &infos)?;
        let mut work = Work { parallel, done: 0, total: self.elems(), slab: Vec::new(), progress };
        for (planned, tensor) in self.tensors.iter().zip(self.source.tensors()) {
            if work.tensor(&mut writer, planned, tensor, self)?.is_break() {
                return Ok(Outcome::Stopped);
            }
        }
        writer.finish()?;
        Ok(Outcome::Written)
    }

    fn elems(&self) -> u64 {
        self.tensors.iter().map(|t| t.shape.iter().product::<usize>() as u64).sum()
    }

    fn check_importance(&self) -> Result<()> {
        let mut lacking = self.tensors.iter().filter(|t| t.lacks_importance);
        let Some(first) = lacking.next() else { return Ok(()) };
        Err(Error::request(format!(
            "{} tensors, the first of them {}, would be garbage in {} without an importance matrix; make one with \
             `hanzo imatrix MODEL -f TEXT -o FILE` and give it with --imatrix FILE",
            1 + lacking.count(),
            first.name,
            first.to.name
        )))
    }
}

/// What writing needs from tensor to tensor.
struct Work<'a> {
    parallel: &'a Parallel,
    done: u64,
    total: u64,
    slab: Vec<u8>,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
}

impl Work<'_> {
    fn tensor(
        &mut self,
        writer: &mut Writer,
        planned: &Planned,
        tensor: &SourceTensor,
        plan: &Plan<'_>,
    ) -> Result<ControlFlow<()>> {
        let rows = plan.source.rows(tensor)?;
        let columns = planned.shape.last().copied().unwrap_or(1);
        if let Some(parts) = rows.bytes(planned.to) {
            for bytes in parts.flat_map(|part| part.chunks(SLAB_ELEMS)) {
                writer.append(bytes)?;
                let elems = bytes.len() / planned.to.block_bytes * planned.to.block_elems;
                if self.report(&planned.name, elems).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let n_rows = planned.shape.iter().rev().skip(1).product::<usize>();
        let slab_rows = (SLAB_ELEMS / columns).max(1);
        for first in (0..n_rows).step_by(slab_rows) {
            let n = slab_rows.min(n_rows - first);
            self.encode(&rows, planned, first, n)?;
            writer.append(&self.slab)?;
            if self.report(&planned.name, n * columns).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Encodes rows `first` to `first + n` into the slab.
    fn encode(&mut self, rows: &Rows, planned: &Planned, first: usize, n: usize) -> Result<()> {
        let Planned { name, shape, to, .. } = planned;
        let columns = shape.last().copied().unwrap_or(1);
        let bad = |what: String| Error::request(format!("tensor {name}: {what}"));
        let encode = to.encode.ok_or_else(|| bad(format!("no encoder of {}", to.name)))?;
        let row_bytes = to.bytes_of(columns).ok_or_else(|| bad(format!("{columns} columns")))?;
        let matrix_rows = if shape.len() > 1 { shape[shape.len() - 2] } else { 1 };
        self.slab.resize(n * row_bytes, 0);
        let tile_rows = (TILE_ELEMS / columns).max(1);
        let grid = Grid { rows: n, cols: row_bytes, tile_rows, tile_cols: row_bytes };
        let fault = Mutex::new(None::<(usize, f32)>);
        self.parallel.for_each_tile(
            &mut self.slab,
            grid,
            || vec![0.0; columns],
            |mut tile, values| {
                for row in tile.rows() {
                    rows.read(first + row, values);
                    if is_quantized(to)
                        && let Some(&value) = values.iter().find(|v| !v.is_finite())
                    {
                        let mut fault = fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        if fault.is_none_or(|(at, _)| first + row < at) {
                            *fault = Some((first + row, value));
                        }
                    }
                    let matrix = (first + row) / matrix_rows;
                    let importance = planned.importance().map(|all| &all[matrix * columns..][..columns]);
                    encode(values, importance, tile.row(row));
                }
            },
        );
        match fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            None => Ok(()),
            Some((row, value)) => {
                Err(bad(format!("row {row} holds {value}, which {} cannot express", to.name)))
            }
        }
    }

    fn report(&mut self, tensor: &str, elems: usize) -> ControlFlow<()> {
        self.done += elems as u64;
        (self.progress)(Progress { tensor, done: self.done, total: self.total })
    }
}
