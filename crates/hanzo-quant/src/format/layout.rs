//! What a format file supplies, and the row decoders that are the same for all of them.
//!
//! A format implements [`Quant`] (blocks of integers) or [`Plain`] (one number a block); [`quant`] and [`plain`]
//! turn that into its row of [`crate::FORMATS`]. The row decoder of a quantised format goes through the common
//! form, so the form is proven with every decoded value.

use std::marker::PhantomData;

use super::{
    Encode, Field, Format, GROUP, Group, Number, Unpack,
    dispatch::{Job, run_baseline, run_widest},
};
use crate::lanes::PanelFill;

/// A format of integer blocks.
pub(crate) trait Quant: 'static {
    /// The name in ggml.
    const NAME: &'static str;
    /// The type id in a GGUF file.
    const GGML_TYPE: u32;
    /// Elements of a block, a multiple of [`GROUP`].
    const ELEMS: usize;
    /// The fields of a block in file order.
    const FIELDS: &'static [Field];
    /// Elements that share a scale.
    const SCALE_GROUP: usize;
    /// Whether all minima are `+0.0`.
    const SYMMETRIC: bool = true;
    /// Whether blocks written without an importance are of little use.
    const NEEDS_IMPORTANCE: bool = false;
    /// The encoder of a row.
    const ENCODE: Option<Encode> = None;
    /// The decoder of eight rows side by side.
    const PANEL: Option<PanelFill> = None;

    /// Group `group` of a block. Implementations carry `#[inline(always)]` and vectorise.
    fn unpack(block: &[u8], group: usize) -> Group;
}

/// A format whose block is one plain number.
pub(crate) trait Plain: 'static {
    /// The name in ggml.
    const NAME: &'static str;
    /// The type id in a GGUF file.
    const GGML_TYPE: u32;
    /// The number, a single field.
    const FIELDS: &'static [Field];
    /// What the number is.
    const NUMBER: Number = Number::Other;
    /// The encoder of a row.
    const ENCODE: Option<Encode> = None;

    /// The number nearest to the element, ties to even. Implementations carry `#[inline(always)]`.
    fn value(bytes: &[u8]) -> f32;
}

/// The row of a quantised format.
pub(crate) const fn quant<T: Quant>() -> Format {
    assert!(T::ELEMS.is_multiple_of(GROUP) && T::SCALE_GROUP >= GROUP / 2);
    Format {
        name: T::NAME,
        ggml_type: T::GGML_TYPE,
        block_elems: T::ELEMS,
        block_bytes: bytes_of(T::FIELDS),
        fields: T::FIELDS,
        symmetric: T::SYMMETRIC,
        scale_group: T::SCALE_GROUP,
        unpack: Unpack::Int(unpack::<T>),
        decode: decode::<QuantRow<T>>,
        decode_baseline: decode_baseline::<QuantRow<T>>,
        needs_importance: T::NEEDS_IMPORTANCE,
        encode: T::ENCODE,
        panel: T::PANEL,
    }
}

/// The row of a plain format.
pub(crate) const fn plain<T: Plain>() -> Format {
    Format {
        name: T::NAME,
        ggml_type: T::GGML_TYPE,
        block_elems: 1,
        block_bytes: bytes_of(T::FIELDS),
        fields: T::FIELDS,
        symmetric: true,
        scale_group: 1,
        unpack: Unpack::Scalar(T::NUMBER),
        decode: decode::<PlainRow<T>>,
        decode_baseline: decode_baseline::<PlainRow<T>>,
        needs_importance: false,
        encode: T::ENCODE,
        panel: None,
    }
}

/// Fields from `("name", bytes)` pairs.
pub(crate) const fn fields<const N: usize>(pairs: [(&'static str, usize); N]) -> [Field; N] {
    let mut fields = [Field { name: "", bytes: 0 }; N];
    let mut i = 0;
    while i < N {
        fields[i] = Field { name: pairs[i].0, bytes: pairs[i].1 };
        i += 1;
    }
    fields
}

/// Bytes of a block with these fields.
pub(crate) const fn bytes_of(fields: &[Field]) -> usize {
    let (mut bytes, mut i) = (0, 0);
    while i < fields.len() {
        bytes += fields[i].bytes;
        i += 1;
    }
    bytes
}

fn unpack<T: Quant>(block: &[u8], group: usize) -> Group {
    assert!(group < T::ELEMS / GROUP, "group {group} of a block of {} elements", T::ELEMS);
    T::unpack(&block[..const { bytes_of(T::FIELDS) }], group)
}

/// The two kinds of row, seen by the loop over blocks.
trait Row: 'static {
    const ELEMS: usize;
    const BYTES: usize;
    fn decode_block(block: &[u8], out: &mut [f32]);
}

struct QuantRow<T>(PhantomData<T>);

impl<T: Quant> Row for QuantRow<T> {
    const ELEMS: usize = T::ELEMS;
    const BYTES: usize = bytes_of(T::FIELDS);

    #[inline(always)]
    fn decode_block(block: &[u8], out: &mut [f32]) {
        for (group, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            T::unpack(block, group).values(out);
        }
    }
}

struct PlainRow<T>(PhantomData<T>);

impl<T: Plain> Row for PlainRow<T> {
    const ELEMS: usize = 1;
    const BYTES: usize = bytes_of(T::FIELDS);

    #[inline(always)]
    fn decode_block(block: &[u8], out: &mut [f32]) {
        out[0] = T::value(block);
    }
}

struct DecodeRow<'a, R> {
    bytes: &'a [u8],
    out: &'a mut [f32],
    row: PhantomData<R>,
}

impl<'a, R: Row> DecodeRow<'a, R> {
    fn new(bytes: &'a [u8], out: &'a mut [f32]) -> Self {
        assert!(
            out.len().is_multiple_of(R::ELEMS) && bytes.len() == out.len() / R::ELEMS * R::BYTES,
            "{} bytes are not the blocks of {} elements",
            bytes.len(),
            out.len()
        );
        Self { bytes, out, row: PhantomData }
    }
}

impl<R: Row> Job for DecodeRow<'_, R> {
    #[inline(always)]
    fn run(self) {
        let blocks = self.bytes.chunks_exact(R::BYTES);
        for (block, out) in blocks.zip(self.out.chunks_exact_mut(R::ELEMS)) {
            R::decode_block(block, out);
        }
    }
}

fn decode<R: Row>(bytes: &[u8], out: &mut [f32]) {
    run_widest(DecodeRow::<R>::new(bytes, out));
}

fn decode_baseline<R: Row>(bytes: &[u8], out: &mut [f32]) {
    run_baseline(DecodeRow::<R>::new(bytes, out));
}

/// A format that can be written: one block from its elements.
pub(crate) trait EncodeBlock: 'static {
    /// Elements of a block.
    const ELEMS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether `encode_block` looks at its weights.
    const WEIGHED: bool = false;

    /// Writes a block. `weights` are those of [`relative`], one an element. Implementations carry `#[inline(always)]`.
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]);
}

struct EncodeRow<'a, T> {
    values: &'a [f32],
    importance: Option<&'a [f32]>,
    out: &'a mut [u8],
    format: PhantomData<T>,
}

impl<T: EncodeBlock> Job for EncodeRow<'_, T> {
    #[inline(always)]
    fn run(self) {
        let blocks = self.out.chunks_exact_mut(T::BYTES);
        let mut columns = self.importance.map(|row| row.chunks_exact(T::ELEMS).cycle());
        let mut weights = [1.0; 256];
        for (values, block) in self.values.chunks_exact(T::ELEMS).zip(blocks) {
            let weights = columns.as_mut().and_then(Iterator::next).map(|importance| {
                let weights = &mut weights[..T::ELEMS];
                relative(importance, weights);
                &*weights
            });
            T::encode_block(values, weights, block);
        }
    }
}

/// The least weight of an element beside the greatest of its block: what no calibration text has touched is not free to
/// become anything.
const WEIGHT_MIN: f32 = 1e-6;

/// Importance in units of the greatest of the block, from [`WEIGHT_MIN`] to 1, so that no sum of products overflows or
/// vanishes. What is no positive finite number counts as the least; if nothing is, all count the same.
#[inline(always)]
fn relative(importance: &[f32], weights: &mut [f32]) {
    let finite = |v: f32| if v > 0.0 && v < f32::INFINITY { v } else { 0.0 };
    let greatest = importance.iter().fold(0f32, |a, &v| a.max(finite(v)));
    if greatest < f32::MIN_POSITIVE {
        weights.fill(1.0);
        return;
    }
    for (weight, &v) in weights.iter_mut().zip(importance) {
        *weight = (finite(v) / greatest).max(WEIGHT_MIN);
    }
}

/// The row encoder of a format, for [`Quant::ENCODE`] and [`Plain::ENCODE`].
pub(crate) fn encode<T: EncodeBlock>(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    assert!(
        values.len().is_multiple_of(T::ELEMS) && out.len() == values.len() / T::ELEMS * T::BYTES,
        "{} bytes are not the blocks of {} elements",
        out.len(),
        values.len()
    );
    if let Some(row) = importance {
        assert!(
            row.len().is_multiple_of(T::ELEMS) && values.len().is_multiple_of(row.len()),
            "{} elements are not whole rows of {} columns",
            values.len(),
            row.len()
        );
    }
    let importance = importance.filter(|_| T::WEIGHED);
    run_widest(EncodeRow::<T> { values, importance, out, format: PhantomData });
}
