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
        if !len.is_multiple_of(dtype.block_elems()) {
            return Err(Error::op("alloc", format!("{len} elements are not whole blocks of {dtype:?}")));
        }
        let cells = match dtype {
            DType::U32 => Cells::Index(zeros(len)?),
            DType::F32 | DType::F16 | DType::BF16 | DType::Q8_0 => Cells::Float(zeros(len)?),
        };
        Ok(Buffer { id: self.0.insert(cells), dtype, len })
    }

    pub(super) fn free(&mut self, buffer: &Buffer) {
        self.0.remove(buffer.id);
    }

    pub(super) fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        self.0.swap(a, b)
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
            DType::F16 => values.iter_mut().for_each(|v| *v = round_to(*v, 10, -14, f16::MAX.to_f64())),
            DType::BF16 => values.iter_mut().for_each(|v| *v = round_to(*v, 7, -126, bf16::MAX.to_f64())),
            DType::Q8_0 => values.chunks_exact_mut(DType::Q8_0.block_elems()).for_each(round_to_block),
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

/// The nearest number (ties to even) with `digits` binary digits after the first, exponents from `exponent_min` on
/// and magnitudes up to `max`. Written out because `f16::from_f64` looks at the high half of the f64 alone and so
/// takes numbers near a tie for a tie.
fn round_to(v: f64, digits: i32, exponent_min: i32, max: f64) -> f64 {
    if v == 0.0 || !v.is_finite() {
        return v;
    }
    let exponent = ((v.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let quantum = 2f64.powi(exponent.max(exponent_min) - digits);
    let rounded = (v / quantum).round_ties_even() * quantum;
    if rounded.abs() > max { f64::INFINITY.copysign(v) } else { rounded }
}

/// What 32 values are after a round through the format: a scale of 1/127 of the largest magnitude, kept as f16, and
/// quants that are rounded with the scale before that. Rounding again changes nothing.
fn round_to_block(values: &mut [f64]) {
    let largest = values.iter().fold(0.0, |max, v| f64::max(max, v.abs())) as f32;
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let stored = f16::from_f32(scale).to_f64();
    for v in values {
        *v = stored * f64::from((*v as f32 * inverse).round());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The format's own code, whose golden vectors are other people's, on blocks of all sizes.
    #[test]
    fn rounding_to_a_block_equals_the_format() {
        let format = DType::Q8_0.format().unwrap();
        let mut bits = 7u32;
        for exponent in -40..20 {
            let x: [f32; 32] = std::array::from_fn(|_| {
                bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (bits as i32 as f32 / i32::MAX as f32) * 2f32.powi(exponent)
            });
            let (mut bytes, mut want) = ([0; 34], [0.0; 32]);
            format.encode.unwrap()(&x, None, &mut bytes);
            (format.decode)(&bytes, &mut want);
            let mut got = x.map(f64::from);
            for _ in 0..2 {
                round_to_block(&mut got);
                assert_eq!(got, want.map(f64::from), "2^{exponent}");
            }
        }
    }

    /// f32 to f16 and bf16 in one rounding, by `half`, on f32 values that include ties, subnormals and overflow.
    #[test]
    fn rounding_equals_the_conversion_from_f32() {
        let mut bits = 1u32;
        let near_ties =
            (0..1 << 16).flat_map(|high: u32| [0, 1, 0x1000, 0x1001, 0x7fff, 0x8000].map(|l| high << 16 | l));
        let random = (0..200_000).map(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bits
        });
        for v in near_ties.chain(random).map(f32::from_bits).filter(|v| !v.is_nan()) {
            let f16_max = f16::MAX.to_f64();
            assert_eq!(round_to(v.into(), 10, -14, f16_max), f16::from_f32(v).to_f64(), "f16 of {v}");
            assert_eq!(
                round_to(v.into(), 7, -126, bf16::MAX.to_f64()),
                bf16::from_f32(v).to_f64(),
                "bf16 of {v}"
            );
        }
    }
}
