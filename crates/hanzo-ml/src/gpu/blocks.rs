//! Buffers of blocks on a device, which caches of q8_0 are. They lie as a tensor of the format does, field by field
//! ([`hanzo_kernel::Planes`]): the scales of all blocks, then their bytes. Buffers of numbers lie as they are.

use hanzo_kernel::Planes;
use hanzo_quant::Format;

use crate::{DType, Error, Result, backend::Buffer};

/// Planes begin at multiples of this many bytes, as those of weights do.
const ALIGN: usize = 16;

/// First byte of each field's plane, and the end.
fn starts(format: &Format, n_blocks: usize) -> Option<Vec<usize>> {
    let mut starts = vec![0usize];
    for field in format.fields {
        let bytes = n_blocks.checked_mul(field.bytes)?.checked_next_multiple_of(ALIGN)?;
        starts.push(starts.last()?.checked_add(bytes)?);
    }
    Some(starts)
}

/// Bytes of `len` elements on a device; `None` if they are not whole blocks or the size overflows.
pub(super) fn bytes_of(dtype: DType, len: usize) -> Option<usize> {
    let bytes = dtype.bytes_of(len)?;
    match dtype.format() {
        Some(format) => starts(format, len / dtype.block_elems())?.pop(),
        None => Some(bytes),
    }
}

/// The first word of quants in a cache of blocks, as the kernels take it; nothing for a cache of numbers.
///
/// # Errors
/// A cache that kernels cannot count.
pub(super) fn quants_word(op: &'static str, cache: &Buffer) -> Result<Option<u32>> {
    let Some(format) = cache.dtype.format() else { return Ok(None) };
    let starts = starts(format, cache.len / cache.dtype.block_elems()).unwrap_or_default();
    let word = starts.get(1).and_then(|start| u32::try_from(start / 4).ok());
    word.map(Some).ok_or_else(|| Error::op(op, format!("a cache of {} elements is too large", cache.len)))
}

/// Floats as a device's blocks.
pub(super) fn lay(dtype: DType, format: &'static Format, values: &[f32]) -> Result<Vec<u8>> {
    let error = |what: String| Error::op("upload_f32", what);
    let encode = format.encode.ok_or_else(|| error(format!("{dtype:?} is not written")))?;
    let mut file = vec![0; dtype.bytes_of(values.len()).ok_or_else(|| error("not whole blocks".into()))?];
    encode(values, None, &mut file);
    let planes = Planes::new(format, 1, values.len()).map_err(|e| error(e.to_string()))?;
    let mut device = vec![0; planes.bytes()];
    planes.lay(&file, &mut device).map_err(|e| error(e.to_string()))?;
    Ok(device)
}

/// The values of a device's blocks.
pub(super) fn values(format: &Format, device: &[u8], len: usize) -> Vec<f32> {
    let n_blocks = len / format.block_elems;
    let mut file = vec![0; n_blocks * format.block_bytes];
    let mut in_block = 0;
    for (field, start) in format.fields.iter().zip(starts(format, n_blocks).unwrap_or_default()) {
        let plane = device[start..].chunks_exact(field.bytes);
        for (block, bytes) in file.chunks_exact_mut(format.block_bytes).zip(plane) {
            block[in_block..in_block + field.bytes].copy_from_slice(bytes);
        }
        in_block += field.bytes;
    }
    let mut values = vec![0.0; len];
    (format.decode)(&file, &mut values);
    values
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    #[test]
    fn blocks_lie_as_a_tensor_does_and_come_back() {
        let format = DType::Q8_0.format().unwrap();
        for n_blocks in [1, 7, 8, 33] {
            let len = n_blocks * 32;
            let x: Vec<f32> = (0..len).map(|i| ((i * 37) % 255) as f32 - 127.0).collect();
            let device = lay(DType::Q8_0, format, &x).unwrap();
            assert_eq!(Some(device.len()), bytes_of(DType::Q8_0, len));
            let (mut file, mut want) = (vec![0; n_blocks * 34], vec![0.0; len]);
            format.encode.unwrap()(&x, None, &mut file);
            (format.decode)(&file, &mut want);
            assert_eq!(values(format, &device, len), want);
            // The quants begin where the kernels are told.
            let cache = Buffer { id: 0, dtype: DType::Q8_0, len };
            let word = quants_word("test", &cache).unwrap().unwrap() as usize;
            assert_eq!(device[4 * word..4 * word + 32], file[2..34]);
        }
        assert_eq!(bytes_of(DType::Q8_0, 33), None);
        assert_eq!(bytes_of(DType::F16, 33), Some(66));
        assert_eq!(quants_word("test", &Buffer { id: 0, dtype: DType::F16, len: 32 }).unwrap(), None);
    }
}
