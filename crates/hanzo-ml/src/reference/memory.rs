//! Buffers of f64 and of indices.

use half::{bf16, f16};

use crate::{
    DType, Error, QTensor, Result,
    backend::{
        Buffer,
        slab::{Slab, unknown},
    },
};

/// The elements of a buffer.
enum Cells {
    Float(Vec<f64>),
    Index(Vec<u32>),
}

/// All buffers of the backend.
#[derive(Default)]
pub(super) struct Memory(Slab<Cells>);

impl Memory {
    pub(super) fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        if len > isize::MAX as usize / size_of::<f64>() {
            return Err(Error::op("alloc", format!("{len} elements are more than can be addressed")));
        }
        let cells = match dtype {
            DType::U32 => Cells::Index(zeros(len)?),
            DType::F32 | DType::F16 | DType::BF16 => Cells::Float(zeros(len)?),
        };
        Ok(Buffer { id: self.0.insert(cells), dtype, len })
    }

    pub(super) fn free(&mut self, buffer: &Buffer) {
        self.0.remove(buffer.id);
    }

    /// The values of a float buffer.
    pub(super) fn floats(&self, buffer: &Buffer) -> Result<&[f64]> {
        match self.0.get(buffer)? {
            Cells::Float(v) if v.len() == buffer.len => Ok(v),
            Cells::Float(_) | Cells::Index(_) => Err(unknown(buffer)),
        }
    }

    /// The values of an index buffer.
    pub(super) fn ids(&self, buffer: &Buffer) -> Result<&[u32]> {
        match self.0.get(buffer)? {
            Cells::Index(v) if v.len() == buffer.len => Ok(v),
            Cells::Float(_) | Cells::Index(_) => Err(unknown(buffer)),
        }
    }

    /// Replaces all values of a float buffer, rounded to its type.
    pub(super) fn write(&mut self, buffer: &Buffer, mut values: Vec<f64>) -> Result<()> {
        if self.floats(buffer)?.len() != values.len() {
            return Err(unknown(buffer));
        }
        match buffer.dtype {
            DType::F16 => values.iter_mut().for_each(|v| *v = f16::from_f64(*v).to_f64()),
            DType::BF16 => values.iter_mut().for_each(|v| *v = bf16::from_f64(*v).to_f64()),
            DType::F32 | DType::U32 => {}
        }
        self.0.put(buffer, Cells::Float(values));
        Ok(())
    }

    /// Replaces all values of an index buffer.
    pub(super) fn write_ids(&mut self, buffer: &Buffer, values: Vec<u32>) -> Result<()> {
        if self.ids(buffer)?.len() != values.len() {
            return Err(unknown(buffer));
        }
        self.0.put(buffer, Cells::Index(values));
        Ok(())
    }
}

fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>> {
    let mut cells = Vec::new();
    cells.try_reserve_exact(len).map_err(|_| Error::op("alloc", format!("no memory for {len} elements")))?;
    cells.resize(len, T::default());
    Ok(cells)
}

/// Row `row` of a weight, all experts' rows counted in order.
pub(super) fn decode_row(weight: &QTensor, row: usize) -> Vec<f64> {
    let k = weight.row_elems();
    let format = weight.format();
    let row_bytes = k / format.block_elems * format.block_bytes;
    let mut values = vec![0.0f32; k];
    (format.decode)(&weight.bytes()[row * row_bytes..][..row_bytes], &mut values);
    values.into_iter().map(f64::from).collect()
}
