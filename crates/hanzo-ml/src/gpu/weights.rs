//! Weights on the device, field by field (see [`hanzo_kernel::Planes`]), in as many parts as the device's largest buffer asks
//! for: runs of rows of a matrix, of experts whole ones.
//!
//! A thread reads the file and lays its bytes out while those before them are copied to the device; pages of a mapped file
//! are given back as it goes.

use std::{ops::Range, sync::mpsc, thread};

use hanzo_kernel::{Planes, is_supported};
use hanzo_quant::Format;

use super::runtime::{MemoryId, Runtime};
use crate::{
    Error, QTensor, Result,
    backend::{
        Weight, WeightShape,
        slab::{dims_of, unknown_weight},
    },
};

/// Bytes of a file that are laid out and copied at a time.
const CHUNK_BYTES: usize = 8 << 20;

/// Rows of a chunk are a multiple of this, so that each field's bytes begin at a whole word.
const CHUNK_ROWS: usize = 4;

/// Rows of a part are a multiple of this where they are as many: whole tiles of products.
const PART_ROWS: usize = 64;

/// A run of rows, or of experts, in a buffer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub memory: MemoryId,
    /// Blocks, the padding of plain rows included.
    pub n_blocks: u32,
    /// The first row of the matrix, or the first expert.
    pub first: usize,
    /// Rows, or experts.
    pub n: usize,
}

/// A weight's place and layout.
pub(super) struct DeviceWeight {
    /// In the order of rows or experts; most weights are one part.
    pub parts: Vec<Part>,
    /// Groups of 32 of a row.
    pub row_groups: u32,
    format: &'static Format,
    dims: [usize; 3],
}

/// All weights of a device.
#[derive(Default)]
pub(super) struct Weights(Vec<DeviceWeight>);

impl Weights {
    /// Bytes of a weight in this layout; of one that cannot have it, the file's.
    pub(super) fn bytes(shape: &WeightShape) -> usize {
        let n_rows = shape.n_experts.saturating_mul(shape.n);
        Planes::new(shape.format, n_rows, shape.k).map_or(shape.file_bytes(), |planes| planes.bytes())
    }

    /// Re-lays and uploads a tensor `[N, K]` or `[E, N, K]`.
    pub(super) fn load(&mut self, runtime: &mut dyn Runtime, tensor: &QTensor) -> Result<Weight> {
        let error = |what: String| Error::tensor(tensor.name(), what);
        let dims @ [n_experts, n, k] = dims_of(tensor)?;
        let format = tensor.format();
        if !is_supported(format) {
            return Err(error(format!("no kernel reads weights of format {}", format.name)));
        }
        let (count, rows_each) = if n_experts > 1 { (n_experts, n) } else { (n, 1) };
        let each = split(format, dims, runtime.limits().buffer_bytes).map_err(error)?;
        let mut parts = Vec::new();
        let mut row_groups = 0;
        for first in (0..count).step_by(each) {
            let part = first..(first + each).min(count);
            let rows = part.start * rows_each..part.end * rows_each;
            let planes = Planes::new(format, rows.len(), k).map_err(|e| error(e.to_string()))?;
            let narrow = |v: usize| u32::try_from(v).map_err(|_| error(format!("{v} blocks are too many")));
            let n_blocks = narrow(planes.n_blocks())?;
            row_groups = narrow(planes.row_groups())?;
            let memory = runtime.alloc(planes.bytes());
            let filled = memory.and_then(|memory| {
                parts.push(Part { memory, n_blocks, first: part.start, n: part.len() });
                fill(runtime, memory, &planes, tensor, rows)
            });
            if let Err(e) = filled {
                parts.iter().for_each(|part| runtime.free(part.memory));
                return Err(error(e.to_string()));
            }
        }
        self.0.push(DeviceWeight { parts, row_groups, format, dims });
        Ok(Weight { id: self.0.len() - 1, format, n_experts, n, k })
    }

    /// The weight of a handle, in the shape that the handle claims.
    pub(super) fn get(&self, weight: &Weight) -> Result<&DeviceWeight> {
        let dims = [weight.n_experts, weight.n, weight.k];
        let found = self.0.get(weight.id).filter(|w| w.format == weight.format && w.dims == dims);
        found.ok_or_else(|| unknown_weight(weight))
    }
}

/// How many rows, or experts, a part has at most, so that each fits a buffer.
fn split(
    format: &'static Format,
    [n_experts, n, k]: [usize; 3],
    bytes_max: usize,
) -> std::result::Result<usize, String> {
    let fits = |rows: usize| Planes::new(format, rows, k).is_ok_and(|planes| planes.bytes() <= bytes_max);
    let (count, rows_each, what) = if n_experts > 1 { (n_experts, n, "an expert") } else { (n, 1, "a row") };
    if n_experts.checked_mul(n).is_some_and(fits) {
        return Ok(count);
    }
    // Places in a plane are 32-bit words, so a part that fits these bytes can be laid out.
    let bytes_max = bytes_max.min(u32::MAX as usize);
    let one = Planes::new(format, rows_each, k).map_err(|e| e.to_string())?;
    let mut each = (bytes_max / (one.n_blocks() * format.block_bytes).max(1)).min(count);
    // What pads each plane to 16 bytes may take the last row.
    while each > 0 && !fits(each * rows_each) {
        each -= 1;
    }
    if each == 0 {
        let bytes = one.bytes();
        return Err(format!("{what} is {bytes} bytes; this device's largest buffer has {bytes_max}"));
    }
    if rows_each == 1 && each > PART_ROWS {
        each -= each % PART_ROWS;
    }
    Ok(each)
}

/// Copies rows of a tensor to where their planes are.
fn fill(
    runtime: &mut dyn Runtime,
    memory: MemoryId,
    planes: &Planes,
    tensor: &QTensor,
    rows: Range<usize>,
) -> Result<()> {
    let row_bytes = tensor.bytes().len() / tensor.shape().iter().rev().skip(1).product::<usize>();
    let chunk_rows = (CHUNK_BYTES / row_bytes.max(1)).max(1).next_multiple_of(CHUNK_ROWS);
    let chunks: Vec<Range<usize>> =
        rows.clone().step_by(chunk_rows).map(|first| first..(first + chunk_rows).min(rows.end)).collect();
    let lay = |chunk: &Range<usize>, mut laid: Vec<u8>| {
        let range = chunk.start * row_bytes..chunk.end * row_bytes;
        let places = planes.lay_rows(chunk.start - rows.start, &tensor.bytes()[range.clone()], &mut laid);
        tensor.release(range);
        places.map(|places| (places, laid)).map_err(|e| Error::op("load", e.to_string()))
    };
    let mut put = |(places, laid): (Vec<(usize, Range<usize>)>, Vec<u8>)| {
        for (at, place) in places {
            runtime.upload(memory, at, &laid[place])?;
        }
        Ok(laid)
    };
    if let [chunk] = &chunks[..] {
        return put(lay(chunk, Vec::new())?).map(|_| ());
    }
    thread::scope(|scope| {
        // One chunk is copied, one waits, one is laid out.
        let (to_copy, laid) = mpsc::sync_channel(1);
        let (give_back, empty) = mpsc::channel::<Vec<u8>>();
        scope.spawn(move || {
            for chunk in &chunks {
                let buffer = empty.try_recv().unwrap_or_default();
                // The other side is gone when a copy failed.
                if to_copy.send(lay(chunk, buffer)).is_err() {
                    return;
                }
            }
        });
        for chunk in laid {
            // The reader may have ended already.
            let _ = give_back.send(put(chunk?)?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(format: &str, dims: [usize; 3], bytes_max: usize) -> std::result::Result<usize, String> {
        split(Format::from_name(format).unwrap(), dims, bytes_max)
    }

    #[test]
    fn rows_and_experts_are_cut_to_what_a_buffer_holds() {
        // 34 bytes a block of Q8_0, two blocks a row.
        assert_eq!(each("Q8_0", [1, 300, 64], 300 * 68), Ok(300));
        assert_eq!(each("Q8_0", [1, 300, 64], 299 * 68), Ok(256));
        assert_eq!(each("Q8_0", [1, 300, 64], 200 * 68), Ok(192));
        assert_eq!(each("Q8_0", [1, 20, 64], 12 * 68), Ok(12));
        // Whole experts of 10 rows, 680 bytes and padding.
        assert_eq!(each("Q8_0", [5, 10, 64], 2 * 688), Ok(2));
        let error = each("Q8_0", [5, 10, 64], 600).unwrap_err();
        assert_eq!(error, "an expert is 688 bytes; this device's largest buffer has 600");
        assert!(each("Q8_0", [1, 10, 1 << 20], 1 << 16).unwrap_err().starts_with("a row is "));
        // More than 32-bit places reach, on a device without a limit.
        assert_eq!(each("Q8_0", [1, 1 << 20, 1 << 13], usize::MAX), Ok(493_440));
        let format = Format::from_name("Q6_K").unwrap();
        for bytes_max in [700, 1000, 5000, 12_345] {
            let each = each("Q6_K", [1, 500, 256], bytes_max).unwrap();
            assert!(Planes::new(format, each, 256).unwrap().bytes() <= bytes_max);
            assert!(each >= 64 || Planes::new(format, each + 1, 256).unwrap().bytes() > bytes_max);
        }
    }
}
