//! The operations a model is made of, as one narrow trait.
//!
//! A backend owns all memory behind [`Buffer`] and [`Weight`] handles. Operations are enqueued: they write to
//! buffers that the caller allocated, and only [`Backend::download`] reads back. Operands of one call never
//! alias; an operation that works in place has its own signature (`&Buffer` named `acc` or `x`). Shapes depend
//! on the batch plan, never on tensor values. Activations are f32 today; accumulation and softmax are always
//! f32 or wider.
//!
//! Alphabet: T rows of the batch (tokens of all its sequences), B sequences, D model width, H query heads, K
//! key/value heads, Hd head width, F feed-forward width, V vocabulary, E experts, S experts chosen per token.

mod args;
pub(crate) mod check;
mod counting;
pub(crate) mod definition;
mod footprint;
pub(crate) mod slab;

pub use args::{
    Activation, Attention, AttentionPlan, Embed, GatedActivation, GatherRows, KvAppend, MatMul, MoeCombine,
    MoeMatMul, QkNorm, RmsNorm, Rope, RopeAngles, RopeAppend, RopePairing, Route, RouteKind, ScatterRows,
};

pub use counting::{Counting, Ledger};
pub use footprint::{Footprint, MemoryInfo, WeightShape};

use hanzo_quant::Format;

use crate::{DType, QTensor, Result};

/// Tokens of one block of the paged key/value cache.
pub const KV_BLOCK: usize = 32;

/// A handle of device memory: `len` elements of one type. Made by [`Backend::alloc`] and given back with
/// [`Backend::free`]; backends reuse the memory.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The backend's own index of the memory.
    pub(crate) id: usize,
    /// Element type.
    pub(crate) dtype: DType,
    /// Elements.
    pub(crate) len: usize,
}

impl Buffer {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A handle of a weight matrix on a device: `[N, K]`, or `[E, N, K]` for experts; its bits stay in `format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The backend's own index of the weight.
    pub(crate) id: usize,
    /// The weight format.
    pub format: &'static Format,
    /// Experts; 1 for a dense matrix.
    pub n_experts: usize,
    /// Output features of a row of results.
    pub n: usize,
    /// Input features.
    pub k: usize,
}

/// What a device can do. See the module's documentation for the rules of operands.
///
/// Every operation returns [`crate::Error`] when operands do not fit together (checked before any work, the same for
/// every backend) and never panics on their values.
pub trait Backend: Send {
    /// Name for people: `cpu (2 threads, avx2)`.
    fn name(&self) -> String;

    /// The device's memory, where it is known.
    fn memory(&self) -> Option<MemoryInfo> {
        None
    }

    /// Whether its memory is the program's own, as downloads are.
    fn is_host(&self) -> bool {
        true
    }

    /// What [`Backend::load`] of a weight takes, or, of a `table`, [`Backend::load_table`]. Here: the file's pages.
    fn footprint(&self, shape: &WeightShape, _table: bool) -> Footprint {
        Footprint { own: 0, mapped: shape.file_bytes() }
    }

    /// What [`Backend::alloc`] takes; `None` if that overflows.
    fn buffer_bytes(&self, dtype: DType, len: usize) -> Option<usize> {
        dtype.bytes_of(len.next_multiple_of(dtype.block_elems()))
    }

    /// Memory for `len` elements; its contents are unspecified.
    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer>;

    /// Gives memory back for reuse.
    fn free(&mut self, buffer: Buffer);

    /// Exchanges the contents of two buffers of one type and length; nothing is copied.
    fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()>;

    /// Copies floats to a float buffer of the same length, converting to its type.
    fn upload_f32(&mut self, dst: &Buffer, data: &[f32]) -> Result<()>;

    /// Copies integers to a `U32` buffer of the same length.
    fn upload_u32(&mut self, dst: &Buffer, data: &[u32]) -> Result<()>;

    /// Waits for all work and copies a float buffer back, converted to f32.
    fn download_f32(&mut self, src: &Buffer, out: &mut [f32]) -> Result<()>;

    /// Waits for all work and copies a `U32` buffer back.
    fn download_u32(&mut self, src: &Buffer, out: &mut [u32]) -> Result<()>;

    /// Makes a weight `[N, K]` or `[E, N, K]` available to the device.
    fn load(&mut self, tensor: &QTensor) -> Result<Weight>;

    /// The same for a table that only [`Backend::embed`] reads, so that nothing need be prepared for products.
    ///
    /// # Errors
    /// As [`Backend::load`].
    fn load_table(&mut self, tensor: &QTensor) -> Result<Weight> {
        self.load(tensor)
    }

    /// `out[t] = scale · table[ids[t]]`; out `[T, D]` f32.
    fn embed(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()>;

    /// `out[i] = src[rows[i]]`; out `[R, D]`.
    fn gather_rows(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()>;

    /// `out[rows[i]] = src[i]`, other rows untouched; out `[T, D]`.
    fn scatter_rows(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()>;

    /// `out = x · weightᵀ + bias`; out `[T, N]`.
    fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()>;

    /// `acc += x`, element by element.
    fn add(&mut self, acc: &Buffer, x: &Buffer) -> Result<()>;

    /// Root-mean-square norm of each row: `out = x / sqrt(mean(x²) + eps) · weight`; out `[R, dim]`.
    fn rms_norm(&mut self, out: &Buffer, args: &RmsNorm<'_>) -> Result<()>;

    /// Fused residual and norm: `acc += args.x`, then the norm of `acc`. This body is its definition; a backend that
    /// has a faster form gives the same bits.
    fn add_rms_norm(&mut self, out: &Buffer, acc: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        args.check_add(out, acc)?;
        self.add(acc, args.x)?;
        self.rms_norm(out, &RmsNorm { x: acc, ..*args })
    }

    /// [`Backend::rms_norm`], or with `acc` [`Backend::add_rms_norm`], of rows that products read next: a backend may make at
    /// once what its products make of them. This body is its definition, up to the order of the sum of squares.
    fn norm_for_products(&mut self, out: &Buffer, acc: Option<&Buffer>, args: &RmsNorm<'_>) -> Result<()> {
        match acc {
            Some(acc) => self.add_rms_norm(out, acc, args),
            None => self.rms_norm(out, args),
        }
    }

    /// The rotations of a step, computed once for all layers that share them; out `[T, pairs, 2]` f32 holds
    /// `(cos, sin) · magnitude` of `positions[t, axis[p]] · inv_freq[p]`, the angle taken in f64.
    fn rope_angles(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()>;

    /// Rotates the first `2 · pairs` elements of each head in place; x `[T, heads, Hd]`.
    fn rope(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()>;

    /// Writes rows to their cache slots; cache `[block, K, 32, Hd]` of f32, f16, bf16 or, with heads
    /// of whole blocks, q8_0.
    fn kv_append(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()>;

    /// What lies between the products of a layer and its attention: norm of each query and key head, rotation, and the keys
    /// and values to their cache slots; q `[T, H, Hd]` in place. This body is its definition, up to the order of the
    /// sums of squares.
    fn rope_append(&mut self, q: &Buffer, args: &RopeAppend<'_>) -> Result<()> {
        definition::rope_append(self, q, args)
    }

    /// Attention of each row over its range of the paged cache; out `[T, H, Hd]`.
    fn attention(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()>;

    /// `out = activation(gate) · up`; out `[T, F]`.
    fn gated_activation(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()>;

    /// `x = cap · tanh(x / cap)` in place.
    fn softcap(&mut self, x: &Buffer, cap: f32) -> Result<()>;

    /// Chooses experts; ids `[T, S]` U32 by falling weight (ties: lower id first), weights `[T, S]` f32.
    fn route(&mut self, ids: &Buffer, weights: &Buffer, args: &Route<'_>) -> Result<()>;

    /// Product with the chosen experts' matrices; out `[T, S, N]`.
    fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()>;

    /// `out[t] = Σ_s weights[t, s] · y[t, s]` in the order of `s`; out `[T, D]`.
    fn moe_combine(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()>;
}
