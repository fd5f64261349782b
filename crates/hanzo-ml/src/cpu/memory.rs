//! Buffers of the CPU: typed, aligned, and reused after `free`.

use std::collections::BTreeMap;

use half::{bf16, f16, slice::HalfBitsSliceExt};

use crate::{
    DType, Error, Result,
    backend::{
        Buffer,
        slab::{Slab, unknown},
    },
};

/// Bytes that freed buffers may hold in all; what does not fit goes back to the system.
const POOL_BYTES_MAX: usize = 64 << 20;

/// A reused buffer may be this many times larger than asked for.
const WASTE_MAX: usize = 2;

/// Buffers of fewer bytes are taken without a question, as every other piece of memory is: an allocator would keep the piece
/// that was asked for, and clear it, page after page, when it is taken. glibc gives larger ones back to the system at once
/// (`DEFAULT_MMAP_THRESHOLD_MAX` in mallopt(3)).
const ASK_BYTES_MIN: usize = 32 << 20;

/// Bytes of a cache line.
const ALIGN: usize = 64;

/// A slice that starts at a cache line, so that vector loads do not straddle two.
pub(super) struct Aligned<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// `len` zeros, for small scratch.
    pub(super) fn zeros(len: usize) -> Self {
        let spare = ALIGN / size_of::<T>();
        let data = vec![T::default(); len + spare];
        let start = data.as_ptr().align_offset(ALIGN).min(spare);
        Self { data, start, len }
    }

    /// `len` zeros.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new(len: usize) -> Result<Self> {
        // `vec!` of zeros takes untouched pages from the system but aborts without memory: ask first.
        let spare = ALIGN / size_of::<T>();
        let all = len.checked_add(spare).filter(|all| all.checked_mul(size_of::<T>()).is_some());
        let is_small = |all: usize| all * size_of::<T>() < ASK_BYTES_MIN;
        let ok = |all: usize| is_small(all) || Vec::<T>::new().try_reserve_exact(all).is_ok();
        if !all.is_some_and(ok) {
            return Err(Error::op("alloc", format!("no memory for {len} elements")));
        }
        Ok(Self::zeros(len))
    }

    fn capacity(&self) -> usize {
        self.data.len() - ALIGN / size_of::<T>()
    }
}

impl<T> std::ops::Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.data[self.start..self.start + self.len]
    }
}

impl<T> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..self.start + self.len]
    }
}

/// The elements of a buffer; half floats by their bits, blocks by their bytes.
pub(super) enum Cells {
    F32(Aligned<f32>),
    F16(Aligned<u16>),
    BF16(Aligned<u16>),
    Q8_0(Aligned<u8>),
    U32(Aligned<u32>),
}

/// The elements of a float buffer.
#[derive(Clone, Copy)]
pub(super) enum Floats<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    BF16(&'a [bf16]),
    /// Blocks of the format of that name.
    Q8_0(&'a [u8]),
}

impl Cells {
    /// `len` elements in whole blocks.
    fn new(dtype: DType, len: usize) -> Result<Self> {
        let whole =
            || Error::op("alloc", format!("{len} elements are not whole blocks of {dtype:?}, or too many"));
        Ok(match dtype {
            DType::F32 => Self::F32(Aligned::new(len)?),
            DType::F16 => Self::F16(Aligned::new(len)?),
            DType::BF16 => Self::BF16(Aligned::new(len)?),
            DType::Q8_0 => Self::Q8_0(Aligned::new(dtype.bytes_of(len).ok_or_else(whole)?)?),
            DType::U32 => Self::U32(Aligned::new(len)?),
        })
    }

    fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::BF16(_) => DType::BF16,
            Self::Q8_0(_) => DType::Q8_0,
            Self::U32(_) => DType::U32,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len,
            Self::F16(v) | Self::BF16(v) => v.len,
            Self::Q8_0(v) => v.len / DType::Q8_0.block_bytes() * DType::Q8_0.block_elems(),
            Self::U32(v) => v.len,
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::F32(v) => v.capacity(),
            Self::F16(v) | Self::BF16(v) => v.capacity(),
            Self::Q8_0(v) => v.capacity() / DType::Q8_0.block_bytes() * DType::Q8_0.block_elems(),
            Self::U32(v) => v.capacity(),
        }
    }

    fn bytes(&self) -> usize {
        self.capacity() / self.dtype().block_elems() * self.dtype().block_bytes()
    }

    /// Shortens or lengthens within the capacity, to whole blocks.
    fn set_len(&mut self, len: usize) {
        match self {
            Self::F32(v) => v.len = len,
            Self::F16(v) | Self::BF16(v) => v.len = len,
            Self::Q8_0(v) => v.len = len / DType::Q8_0.block_elems() * DType::Q8_0.block_bytes(),
            Self::U32(v) => v.len = len,
        }
    }
}

/// Turns floats into blocks of a type that has some; both hold whole blocks.
pub(super) fn encode_blocks(dtype: DType, x: &[f32], to: &mut [u8]) {
    if let Some(encode) = dtype.format().and_then(|format| format.encode) {
        encode(x, None, to);
    }
}

/// The inverse of [`encode_blocks`].
pub(super) fn decode_blocks(dtype: DType, x: &[u8], to: &mut [f32]) {
    if let Some(format) = dtype.format() {
        (format.decode)(x, to);
    }
}

/// All buffers in use, and freed ones by type and capacity.
#[derive(Default)]
pub(super) struct Memory {
    slab: Slab<Cells>,
    pool: BTreeMap<(u8, usize), Vec<Cells>>,
    pool_bytes: usize,
}

/// Orders types for the pool.
fn type_key(dtype: DType) -> u8 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::BF16 => 2,
        DType::U32 => 3,
        DType::Q8_0 => 4,
    }
}

impl Memory {
    pub(super) fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        let reused = if len.is_multiple_of(dtype.block_elems()) { self.reuse(dtype, len) } else { None };
        let cells = match reused {
            Some(cells) => cells,
            None => Cells::new(dtype, len)?,
        };
        Ok(Buffer { id: self.slab.insert(cells), dtype, len })
    }

    /// The smallest freed buffer that is large enough and not much too large.
    fn reuse(&mut self, dtype: DType, len: usize) -> Option<Cells> {
        let key = type_key(dtype);
        let range = (key, len)..=(key, len.saturating_mul(WASTE_MAX));
        let mut entry = self.pool.range_mut(range).next()?;
        let (&found, list) = (entry.0, &mut entry.1);
        let mut cells = list.pop()?;
        if list.is_empty() {
            self.pool.remove(&found);
        }
        self.pool_bytes -= cells.bytes();
        cells.set_len(len);
        Some(cells)
    }

    pub(super) fn free(&mut self, buffer: &Buffer) {
        let Some(cells) = self.slab.remove(buffer.id) else { return };
        let bytes = cells.bytes();
        if self.pool_bytes + bytes <= POOL_BYTES_MAX {
            self.pool_bytes += bytes;
            self.pool.entry((type_key(cells.dtype()), cells.capacity())).or_default().push(cells);
        }
    }

    pub(super) fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        self.slab.swap(a, b)
    }

    fn cells(&self, buffer: &Buffer) -> Result<&Cells> {
        let cells = self.slab.get(buffer)?;
        if cells.dtype() == buffer.dtype && cells.len() == buffer.len {
            Ok(cells)
        } else {
            Err(unknown(buffer))
        }
    }

    pub(super) fn f32(&self, buffer: &Buffer) -> Result<&[f32]> {
        match self.cells(buffer)? {
            Cells::F32(v) => Ok(v),
            Cells::F16(_) | Cells::BF16(_) | Cells::Q8_0(_) | Cells::U32(_) => Err(unknown(buffer)),
        }
    }

    pub(super) fn u32(&self, buffer: &Buffer) -> Result<&[u32]> {
        match self.cells(buffer)? {
            Cells::U32(v) => Ok(v),
            Cells::F32(_) | Cells::F16(_) | Cells::BF16(_) | Cells::Q8_0(_) => Err(unknown(buffer)),
        }
    }

    pub(super) fn floats(&self, buffer: &Buffer) -> Result<Floats<'_>> {
        match self.cells(buffer)? {
            Cells::F32(v) => Ok(Floats::F32(v)),
            Cells::F16(v) => Ok(Floats::F16(v.reinterpret_cast())),
            Cells::BF16(v) => Ok(Floats::BF16(v.reinterpret_cast())),
            Cells::Q8_0(v) => Ok(Floats::Q8_0(v)),
            Cells::U32(_) => Err(unknown(buffer)),
        }
    }

    /// Takes a buffer out while an operation writes it; [`Memory::put`] brings it back.
    pub(super) fn take(&mut self, buffer: &Buffer) -> Result<Cells> {
        self.cells(buffer)?;
        self.slab.take(buffer)
    }

    pub(super) fn put(&mut self, buffer: &Buffer, cells: Cells) {
        self.slab.put(buffer, cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(memory: &Memory, buffer: &Buffer) -> usize {
        memory.f32(buffer).unwrap().as_ptr() as usize
    }

    #[test]
    fn freed_memory_is_reused_and_bounded() {
        let mut memory = Memory::default();
        let a = memory.alloc(DType::F32, 1000).unwrap();
        let at = address(&memory, &a);
        assert_eq!(at % ALIGN, 0);
        memory.free(&a);
        let b = memory.alloc(DType::F32, 600).unwrap();
        assert_eq!(address(&memory, &b), at, "600 of 1000 elements fit");
        assert_eq!(memory.f32(&b).unwrap().len(), 600);
        memory.free(&b);
        let c = memory.alloc(DType::F32, 100).unwrap();
        assert_ne!(address(&memory, &c), at, "100 of 1000 elements waste too much");
        let d = memory.alloc(DType::U32, 1000).unwrap();
        assert!(memory.f32(&d).is_err());
        let large = memory.alloc(DType::F32, POOL_BYTES_MAX).unwrap();
        memory.free(&large);
        assert_eq!(memory.pool_bytes, 4000);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let mut memory = Memory::default();
        assert!(memory.alloc(DType::F32, usize::MAX).is_err());
        assert!(memory.alloc(DType::F16, usize::MAX / 4).is_err());
        assert!(memory.alloc(DType::Q8_0, usize::MAX / 32 * 32).is_err());
    }

    #[test]
    fn blocks_are_whole() {
        let mut memory = Memory::default();
        let buffer = memory.alloc(DType::Q8_0, 128).unwrap();
        assert_eq!(memory.cells(&buffer).unwrap().bytes(), 4 * 34);
        memory.free(&buffer);
        assert_eq!(memory.pool_bytes, 4 * 34);
        for len in [1, 33, 127] {
            assert!(memory.alloc(DType::Q8_0, len).is_err(), "{len}");
        }
        let reused = memory.alloc(DType::Q8_0, 96).unwrap();
        assert_eq!((memory.cells(&reused).unwrap().len(), memory.pool_bytes), (96, 0));
    }
}
