//! Element types of activation buffers and caches.

use hanzo_quant::Format;

/// The element type of a [`crate::backend::Buffer`]. Weights have a format instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    BF16,
    /// Blocks of 32 signed bytes with one scale, for key/value caches: the weight format of that name.
    Q8_0,
    /// Unsigned 32-bit integer: token ids, positions, block tables, row indices.
    U32,
}

impl DType {
    /// Elements of a block: a buffer holds whole blocks, and so does each head of a cache.
    pub const fn block_elems(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::F32 | Self::F16 | Self::BF16 | Self::U32 => 1,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
        }
    }

    /// Bytes of `len` elements; `None` if they are not whole blocks or the size overflows.
    pub const fn bytes_of(self, len: usize) -> Option<usize> {
        if !len.is_multiple_of(self.block_elems()) {
            return None;
        }
        (len / self.block_elems()).checked_mul(self.block_bytes())
    }

    /// The format that says what the bytes of blocks mean, where there are blocks.
    pub(crate) fn format(self) -> Option<&'static Format> {
        match self {
            // Its id in GGML.
            Self::Q8_0 => Format::from_ggml_type(8).ok(),
            Self::F32 | Self::F16 | Self::BF16 | Self::U32 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_format() {
        let format = DType::Q8_0.format().unwrap();
        assert_eq!(format.name, "Q8_0");
        assert_eq!(DType::Q8_0.block_elems(), format.block_elems);
        assert_eq!(DType::Q8_0.block_bytes(), format.block_bytes);
        assert_eq!(DType::Q8_0.bytes_of(64), Some(68));
        assert_eq!(DType::Q8_0.bytes_of(33), None);
        assert_eq!(DType::F32.bytes_of(usize::MAX), None);
    }
}
