//! What things take of a device's memory, known before they are there.

use std::ops::AddAssign;

use hanzo_quant::Format;

use super::Weight;

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free now, to all programs; of the processor, what can be had without swapping, within the limit of a container.
    pub free: usize,
    /// All.
    pub total: usize,
}

/// What a weight takes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes that are the device's own.
    pub own: usize,
    /// Bytes of the mapped file that are read where they lie; the system may drop them and read them again.
    pub mapped: usize,
}

impl Footprint {
    /// Both together, at most `usize::MAX`.
    pub fn total(self) -> usize {
        self.own.saturating_add(self.mapped)
    }
}

impl AddAssign for Footprint {
    fn add_assign(&mut self, other: Self) {
        self.own = self.own.saturating_add(other.own);
        self.mapped = self.mapped.saturating_add(other.mapped);
    }
}

/// The format and dimensions of a weight `[E, N, K]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightShape {
    /// The weight format.
    pub format: &'static Format,
    /// Experts; 1 for a dense matrix.
    pub n_experts: usize,
    /// Rows of a matrix.
    pub n: usize,
    /// Elements of a row.
    pub k: usize,
}

impl WeightShape {
    /// Of dimensions `[N, K]` or `[E, N, K]`; `None` for others.
    pub fn new(format: &'static Format, dims: &[usize]) -> Option<Self> {
        let (n_experts, n, k) = match *dims {
            [n, k] => (1, n, k),
            [e, n, k] => (e, n, k),
            _ => return None,
        };
        Some(Self { format, n_experts, n, k })
    }

    /// Bytes of a row in a file, at most `usize::MAX`.
    pub fn row_bytes(&self) -> usize {
        self.k.div_ceil(self.format.block_elems).saturating_mul(self.format.block_bytes)
    }

    /// Bytes of the weight in a file, at most `usize::MAX`.
    pub fn file_bytes(&self) -> usize {
        self.n_experts.saturating_mul(self.n).saturating_mul(self.row_bytes())
    }

    /// A handle that no backend but [`super::Counting`] takes.
    pub fn unloaded(&self) -> Weight {
        let Self { format, n_experts, n, k } = *self;
        Weight { id: usize::MAX, format, n_experts, n, k }
    }
}
