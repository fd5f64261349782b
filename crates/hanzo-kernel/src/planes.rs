//! How a weight tensor lies in device memory: field by field.
//!
//! A block of a file mixes fields of many sizes, none of them aligned. On a device each field of
//! [`hanzo_quant::Format::fields`] is a plane, contiguous over all blocks of the tensor in row order and padded to 16
//! bytes, so that neighbouring threads load neighbouring, aligned bytes. Nothing is dequantised. Rows of plain numbers are
//! padded with zeros to whole groups of 32, so that a group never spans two rows.
//!
//! The same list of fields gives the accessors that the kernels read planes with ([`fields_slot`]).

use std::{fmt::Write, ops::Range};

use hanzo_quant::{Format, GROUP, Unpack};

use crate::{Error, Result, Slot};

/// Planes begin at multiples of this many bytes.
const ALIGN: usize = 16;

/// Where the planes of a tensor lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    format: &'static Format,
    n_rows: usize,
    row_blocks: usize,
    /// Blocks of a row of the file; fewer than `row_blocks` for padded plain numbers.
    file_row_blocks: usize,
    /// First byte of each plane, and the end.
    starts: Vec<usize>,
}

impl Planes {
    /// The layout of `n_rows` rows of `k` elements (the rows of all experts counted together).
    ///
    /// # Errors
    /// Rows that are not whole blocks; a tensor that 32-bit indices of a kernel cannot reach.
    pub fn new(format: &'static Format, n_rows: usize, k: usize) -> Result<Self> {
        let error = |what: &str| {
            Error::kernel("planes", format!("{n_rows} rows of {k} elements of {}: {what}", format.name))
        };
        if !k.is_multiple_of(format.block_elems) {
            return Err(error("rows are not whole blocks"));
        }
        let too_large = || error("too large for one buffer");
        let file_row_blocks = k / format.block_elems;
        let row_blocks = match format.unpack {
            Unpack::Int(_) => file_row_blocks,
            Unpack::Scalar(_) => k.checked_next_multiple_of(GROUP).ok_or_else(too_large)?,
        };
        let n_blocks = n_rows.checked_mul(row_blocks).ok_or_else(too_large)?;
        let mut starts = vec![0usize];
        for field in format.fields {
            let bytes = n_blocks.checked_mul(field.bytes).ok_or_else(too_large)?;
            // Kernels compute the length of a plane in bytes, and places in half words.
            let end = starts[starts.len() - 1].checked_add(bytes.next_multiple_of(ALIGN));
            starts.push(end.filter(|_| u32::try_from(bytes).is_ok()).ok_or_else(too_large)?);
        }
        if starts[starts.len() - 1] > 2 * u32::MAX as usize {
            return Err(too_large());
        }
        Ok(Self { format, n_rows, row_blocks, file_row_blocks, starts })
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Blocks of the tensor, the padding of plain rows included: the kernels' `w_blocks`.
    pub fn n_blocks(&self) -> usize {
        self.n_rows * self.row_blocks
    }

    /// Groups of 32 in a row: the kernels' `row_groups`.
    pub fn row_groups(&self) -> usize {
        self.row_blocks * self.format.block_elems / GROUP
    }

    /// Whether the bytes of the file are the bytes of the device.
    pub fn is_identity(&self) -> bool {
        self.format.fields.len() == 1 && self.row_blocks == self.file_row_blocks && self.padding(0) == 0
    }

    fn padding(&self, field: usize) -> usize {
        self.starts[field + 1] - self.starts[field] - self.n_blocks() * self.format.fields[field].bytes
    }

    /// Re-lays the bytes of a file.
    ///
    /// # Errors
    /// `file` or `device` of another length than this layout says.
    pub fn lay(&self, file: &[u8], device: &mut [u8]) -> Result<()> {
        if device.len() != self.bytes() || file.len() != self.n_rows * self.file_row_bytes() {
            let what = format!("{} bytes to {} for {self:?}", file.len(), device.len());
            return Err(Error::kernel("planes", what));
        }
        for field in 0..self.format.fields.len() {
            let plane = &mut device[self.starts[field]..self.starts[field + 1]];
            let (plane, padding) = plane.split_at_mut(self.n_blocks() * self.format.fields[field].bytes);
            self.lay_field(field, file, plane);
            padding.fill(0);
        }
        Ok(())
    }

    /// Re-lays some rows of a file, from row `first` on. Gives for each field where in the planes its bytes belong, and
    /// where they are in `laid`, whose contents go. What pads a plane to 16 bytes is in none of them.
    ///
    /// # Errors
    /// `file` is not whole rows, or more than there are.
    pub fn lay_rows(
        &self,
        first: usize,
        file: &[u8],
        laid: &mut Vec<u8>,
    ) -> Result<Vec<(usize, Range<usize>)>> {
        let row_bytes = self.file_row_bytes().max(1);
        let n_rows = file.len() / row_bytes;
        let end = first.checked_add(n_rows).filter(|&end| end <= self.n_rows);
        if end.is_none() || !file.len().is_multiple_of(row_bytes) {
            let what = format!("{} bytes from row {first} for {self:?}", file.len());
            return Err(Error::kernel("planes", what));
        }
        // Every byte of it is written below.
        laid.resize(n_rows * self.row_blocks * self.format.block_bytes, 0);
        let mut places = Vec::with_capacity(self.format.fields.len());
        let mut start = 0;
        for (i, field) in self.format.fields.iter().enumerate() {
            let bytes = start..start + n_rows * self.row_blocks * field.bytes;
            self.lay_field(i, file, &mut laid[bytes.clone()]);
            start = bytes.end;
            places.push((self.starts[i] + first * self.row_blocks * field.bytes, bytes));
        }
        Ok(places)
    }

    fn file_row_bytes(&self) -> usize {
        self.file_row_blocks * self.format.block_bytes
    }

    /// The bytes of one field of whole rows.
    fn lay_field(&self, idx: usize, file: &[u8], plane: &mut [u8]) {
        let field = &self.format.fields[idx];
        let offset: usize = self.format.fields[..idx].iter().map(|field| field.bytes).sum();
        let rows = plane.chunks_exact_mut((self.row_blocks * field.bytes).max(1));
        for (row, plane) in file.chunks_exact(self.file_row_bytes().max(1)).zip(rows) {
            let (filled, padding) = plane.split_at_mut(self.file_row_blocks * field.bytes);
            let blocks = row.chunks_exact(self.format.block_bytes);
            for (block, to) in blocks.zip(filled.chunks_exact_mut(field.bytes)) {
                to.copy_from_slice(&block[offset..offset + field.bytes]);
            }
            padding.fill(0);
        }
    }
}

/// The text of the slot `fields`: for each field `w_FIELD_u8`, and `_u16`, `_u32`, `_u128` where its bytes are multiples
/// of those. They take a block and the index within the block's field, in their own unit.
pub(crate) fn fields_slot(format: &Format) -> Slot {
    let mut text = String::new();
    let mut start = "0u".to_string();
    for field in format.fields {
        let (name, bytes) = (field.name, field.bytes);
        // Writing to a string cannot fail. Starts are in units of 16 bytes.
        let _ = writeln!(text, "fn w_{name}_start() -> u32 {{ return {start}; }}");
        for (unit, ty, load, per_start) in [
            (1, "u8", "w_byte", 16),
            (2, "u16", "w_half_word", 8),
            (4, "u32", "w_word", 4),
            (16, "u128", "w", 1),
        ] {
            if bytes % unit == 0 {
                let at = format!("w_{name}_start() * {per_start}u + block * {}u + i", bytes / unit);
                let (result, body) = if unit == 16 {
                    ("vec4<u32>", format!("w[{at}]"))
                } else {
                    ("u32", format!("{load}({at})"))
                };
                let _ =
                    writeln!(text, "fn w_{name}_{ty}(block: u32, i: u32) -> {result} {{ return {body}; }}");
            }
        }
        start = format!("w_{name}_start() + (p.w_blocks * {bytes}u + 15u) / 16u");
    }
    Slot::Text { name: format!("fields of {}", format.name), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str) -> &'static Format {
        Format::from_name(name).unwrap()
    }

    #[test]
    fn fields_lie_one_after_the_other() {
        // Three blocks of a scale and 16 bytes; planes of 6 and 48 bytes.
        let planes = Planes::new(format("Q4_0"), 3, 32).unwrap();
        let file: Vec<u8> = (0..3 * 18).collect();
        let mut device = vec![0xff; planes.bytes()];
        planes.lay(&file, &mut device).unwrap();
        let scales = [0, 1, 18, 19, 36, 37];
        let quants = [2..18, 20..36, 38..54].into_iter().flatten();
        let want: Vec<u8> = scales.into_iter().chain([0; 10]).chain(quants).collect();
        assert_eq!(device, want);
        assert_eq!((planes.n_blocks(), planes.row_groups(), planes.is_identity()), (3, 1, false));
    }

    #[test]
    fn plain_rows_are_padded_to_groups() {
        let planes = Planes::new(format("F32"), 2, 3).unwrap();
        let file: Vec<u8> = (1..=24).collect();
        let mut device = vec![0xff; planes.bytes()];
        planes.lay(&file, &mut device).unwrap();
        let row = |bytes: std::ops::RangeInclusive<u8>| bytes.chain([0; 116]).collect::<Vec<u8>>();
        assert_eq!(device, [row(1..=12), row(13..=24)].concat());
        assert_eq!((planes.n_blocks(), planes.row_groups(), planes.is_identity()), (64, 1, false));
        assert!(Planes::new(format("F32"), 2, 64).unwrap().is_identity());
    }

    #[test]
    fn rows_in_turn_are_all_rows() {
        for (name, k) in [("Q4_K", 512), ("Q6_K", 256), ("F16", 45), ("F32", 64)] {
            let (format, n_rows) = (format(name), 7);
            let file: Vec<u8> =
                (0..format.bytes_of(k).unwrap() * n_rows).map(|i| (i * 37 % 251) as u8).collect();
            let planes = Planes::new(format, n_rows, k).unwrap();
            let mut whole = vec![0; planes.bytes()];
            planes.lay(&file, &mut whole).unwrap();
            let (mut parts, mut laid) = (vec![0; planes.bytes()], vec![0xff; 3]);
            let row_bytes = file.len() / n_rows;
            for (first, n) in [(4, 3), (0, 4)] {
                let rows = &file[first * row_bytes..(first + n) * row_bytes];
                for (at, place) in planes.lay_rows(first, rows, &mut laid).unwrap() {
                    parts[at..at + place.len()].copy_from_slice(&laid[place]);
                }
            }
            assert_eq!(parts, whole, "{name}");
            assert!(planes.lay_rows(6, &file[..2 * row_bytes], &mut laid).is_err());
            assert!(planes.lay_rows(0, &file[..row_bytes - 1], &mut laid).is_err());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (name, n_rows, k, what) in [
            ("Q4_K", 2, 300, "2 rows of 300 elements of Q4_K: rows are not whole blocks"),
            ("Q8_0", 1 << 20, 1 << 12, "too large for one buffer"),
            ("F16", usize::MAX, 2, "too large for one buffer"),
            ("F16", 1, usize::MAX, "too large for one buffer"),
        ] {
            let error = Planes::new(format(name), n_rows, k).unwrap_err().to_string();
            assert!(error.ends_with(what), "{error}");
        }
        // A plane of 2³² bytes less a block's is the most that 32-bit places reach.
        assert!(Planes::new(format("Q8_0"), (1 << 20) - 1, 1 << 12).is_ok());
        let planes = Planes::new(format("Q4_0"), 1, 32).unwrap();
        assert!(planes.lay(&[0; 17], &mut vec![0; planes.bytes()]).is_err());
        assert!(planes.lay(&[0; 18], &mut [0; 16]).is_err());
    }
}
