//! Element types of activation buffers and caches.

/// The element type of a [`crate::backend::Buffer`]. Weights have a format instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    BF16,
    /// Unsigned 32-bit integer: token ids, positions, block tables, row indices.
    U32,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }
}
