//! Operands of each operation, as plain data; `check` says whether they fit together.

use super::{Buffer, Weight};

/// Operands of [`super::Backend::embed`].
#[derive(Debug)]
pub struct Embed<'a> {
    /// `[V, D]`, any format.
    pub table: &'a Weight,
    /// `[T]` U32. An id of V or more is an error where the backend can see it, else a row of zeros.
    pub ids: &'a Buffer,
    /// Factor on each value.
    pub scale: f32,
}

/// Operands of [`super::Backend::gather_rows`].
#[derive(Debug)]
pub struct GatherRows<'a> {
    /// `[T, D]` f32.
    pub src: &'a Buffer,
    /// `[R]` U32.
    pub rows: &'a Buffer,
}

/// Operands of [`super::Backend::scatter_rows`].
#[derive(Debug)]
pub struct ScatterRows<'a> {
    /// `[R, D]` f32.
    pub src: &'a Buffer,
    /// `[R]` U32, distinct.
    pub rows: &'a Buffer,
}

/// Operands of [`super::Backend::matmul`].
#[derive(Debug)]
pub struct MatMul<'a> {
    /// `[T, K]` f32.
    pub x: &'a Buffer,
    /// `[N, K]`, any format.
    pub weight: &'a Weight,
    /// `[N]` f32.
    pub bias: Option<&'a Buffer>,
}

/// Operands of [`super::Backend::rms_norm`] and [`super::Backend::add_rms_norm`].
#[derive(Debug)]
pub struct RmsNorm<'a> {
    /// `[R, dim]` f32.
    pub x: &'a Buffer,
    /// `[dim]` f32; `None` is a norm without weight.
    pub weight: Option<&'a Buffer>,
    /// Elements of a row.
    pub dim: usize,
    /// Added to the mean of squares.
    pub eps: f32,
}

/// Operands of [`super::Backend::rope_angles`].
#[derive(Debug)]
pub struct RopeAngles<'a> {
    /// `[T, n_axes]` U32.
    pub positions: &'a Buffer,
    /// Position axes of a row, 1 to 3.
    pub n_axes: usize,
    /// `[pairs]` f32: radians per position of each rotated pair.
    pub inv_freq: &'a Buffer,
    /// `[pairs]` U32: the axis whose position turns each pair.
    pub axis: &'a Buffer,
    /// Factor on cosine and sine (YaRN's and LongRoPE's attention factor; 1 otherwise).
    pub magnitude: f32,
}

/// Which elements of a head form a rotated pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// `(i, i + pairs)`, called NeoX.
    Half,
    /// `(2i, 2i + 1)`, called GPT-J or NORM.
    Adjacent,
}

/// Operands of [`super::Backend::rope`].
#[derive(Debug)]
pub struct Rope<'a> {
    /// `[T, pairs, 2]` f32 of [`super::Backend::rope_angles`].
    pub angles: &'a Buffer,
    /// Heads of `x`.
    pub n_heads: usize,
    /// Elements of a head; `2 · pairs` of them are rotated.
    pub head_dim: usize,
    /// Which elements form a pair.
    pub pairing: RopePairing,
}

/// Operands of [`super::Backend::kv_append`].
#[derive(Debug)]
pub struct KvAppend<'a> {
    /// `[T, K, Hd]` f32.
    pub x: &'a Buffer,
    /// `[T]` U32: physical block · 32 + offset in the block.
    pub slots: &'a Buffer,
    /// K.
    pub n_kv_heads: usize,
    /// Hd.
    pub head_dim: usize,
}

/// Norms of query and key heads.
#[derive(Clone, Copy, Debug)]
pub struct QkNorm<'a> {
    /// `[Hd]` f32; `None` is a norm without weight.
    pub q_weight: Option<&'a Buffer>,
    /// The same for keys; another buffer.
    pub k_weight: Option<&'a Buffer>,
    /// Added to the mean of squares.
    pub eps: f32,
}

/// Operands of [`super::Backend::rope_append`].
#[derive(Debug)]
pub struct RopeAppend<'a> {
    /// `[T, K, Hd]` f32; unspecified afterwards.
    pub k: &'a Buffer,
    /// `[T, K, Hd]` f32.
    pub v: &'a Buffer,
    /// Whether heads of q and k are normed first.
    pub norm: Option<QkNorm<'a>>,
    /// `[T, pairs, 2]` f32 of [`super::Backend::rope_angles`]; `None` leaves heads as they are.
    pub angles: Option<&'a Buffer>,
    /// Which elements form a pair.
    pub pairing: RopePairing,
    /// `[block, K, 32, Hd]`.
    pub k_cache: &'a Buffer,
    /// `[block, K, 32, Hd]`.
    pub v_cache: &'a Buffer,
    /// `[T]` U32: physical block · 32 + offset in the block.
    pub slots: &'a Buffer,
    /// H.
    pub n_heads: usize,
    /// K.
    pub n_kv_heads: usize,
    /// Hd.
    pub head_dim: usize,
}

/// Where each row's keys and values lie, for one cache group.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPlan<'a> {
    /// `[B, max_blocks]` U32: the physical block of each logical block of each sequence.
    pub tables: &'a Buffer,
    /// Columns of `tables`.
    pub max_blocks: usize,
    /// `[T]` U32: the row of `tables` for each batch row.
    pub row_seq: &'a Buffer,
    /// `[T]` U32: first cache index that the row sees.
    pub row_begin: &'a Buffer,
    /// `[T]` U32: one past the last cache index that the row sees; more than `row_begin`.
    pub row_end: &'a Buffer,
}

/// Operands of [`super::Backend::attention`].
#[derive(Debug)]
pub struct Attention<'a> {
    /// `[T, H, Hd]` f32, after RoPE.
    pub q: &'a Buffer,
    /// `[block, K, 32, Hd]`.
    pub k_cache: &'a Buffer,
    /// `[block, K, 32, Hd]`.
    pub v_cache: &'a Buffer,
    /// Where to look.
    pub plan: AttentionPlan<'a>,
    /// H, a multiple of K.
    pub n_heads: usize,
    /// K.
    pub n_kv_heads: usize,
    /// Hd.
    pub head_dim: usize,
    /// Factor on q · k.
    pub scale: f32,
    /// `cap · tanh(score / cap)` after the scale.
    pub softcap: Option<f32>,
    /// `[H]` f32: one more score in each head's softmax denominator, without a value.
    pub sinks: Option<&'a Buffer>,
}

/// Activation functions of gated feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · σ(x)`.
    Silu,
    /// `x · Φ(x)` by the error function.
    GeluErf,
    /// `x · Φ(x)` by the usual tanh approximation.
    GeluTanh,
}

/// Operands of [`super::Backend::gated_activation`].
#[derive(Debug)]
pub struct GatedActivation<'a> {
    /// `[T, F]` f32.
    pub gate: &'a Buffer,
    /// `[T, F]` f32.
    pub up: &'a Buffer,
    /// The function on the gate.
    pub activation: Activation,
}

/// How router scores become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Softmax over all experts, then the S largest; `renormalize` divides them by their sum.
    SoftmaxTopK {
        /// Whether the chosen weights add up to 1.
        renormalize: bool,
    },
}

/// Operands of [`super::Backend::route`].
#[derive(Debug)]
pub struct Route<'a> {
    /// `[T, E]` f32.
    pub logits: &'a Buffer,
    /// E.
    pub n_experts: usize,
    /// S, at most E.
    pub n_used: usize,
    /// Scores to weights.
    pub kind: RouteKind,
}

/// Operands of [`super::Backend::moe_matmul`].
#[derive(Debug)]
pub struct MoeMatMul<'a> {
    /// `[T, K]` f32 shared by a token's experts, or `[T, S, K]` f32 one row each: told apart by its length.
    pub x: &'a Buffer,
    /// `[T, S]` U32.
    pub ids: &'a Buffer,
    /// S.
    pub n_used: usize,
    /// `[E, N, K]`, any format.
    pub weight: &'a Weight,
}

/// Operands of [`super::Backend::moe_combine`].
#[derive(Debug)]
pub struct MoeCombine<'a> {
    /// `[T, S, D]` f32.
    pub y: &'a Buffer,
    /// `[T, S]` f32.
    pub weights: &'a Buffer,
    /// S.
    pub n_used: usize,
}
