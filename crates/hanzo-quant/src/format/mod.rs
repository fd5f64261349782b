//! The traits row of a format and the common intermediate form that every integer format decodes to.
//!
//! Each format is one type in one file of this folder that implements `Quant` or `Plain` (see `layout`), and one row
//! of [`crate::FORMATS`]. Sources: ggml's `src/ggml-common.h` for the blocks, `src/ggml-quants.c` and the PyPI package
//! `gguf` for the order of operations.
//!
//! The common form is exact: for every format and every block it gives the very bits of ggml's own expression, for
//! subnormal, negative, zero and infinite scales too, signed zeros included. Why, where the expressions differ:
//! a minimum of `+0.0` subtracted changes no value (`−0.0 − 0.0` is `−0.0`); `d·q + m` of Q4_1 and Q5_1 is
//! `d·q − (−m)`; a sign moves from a product to a quant (i-quants); a shift of ±1/8 with its factor 8 moves from
//! quant to scale (IQ1), a power of two in range. The one corner it leaves open is which NaN stands for NaN: a
//! processor chooses sign and payload, so NaN equals NaN in the tests.

pub(crate) mod bits;
mod dispatch;
mod fp4;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k_quants;
mod lattice;
mod lattice_block;
pub(crate) mod layout;
mod legacy;
mod plain;
mod q8;
mod search;
mod super_block;
mod ternary;

pub(crate) use self::{
    fp4::{Mxfp4, Nvfp4},
    iq1::{Iq1M, Iq1S},
    iq2::{Iq2S, Iq2Xs, Iq2Xxs},
    iq3::{Iq3S, Iq3Xxs},
    iq4::{Iq4Nl, Iq4Xs},
    k_quants::{Q2K, Q3K, Q4K, Q5K, Q6K},
    legacy::{Q4_0, Q4_1, Q5_0, Q5_1},
    plain::{Bf16, F16, F32, F64, I8, I16, I32, I64},
    q8::{Q8_0, Q8_1, Q8K},
    ternary::{Tq1_0, Tq2_0},
};

use std::fmt;

use crate::lanes::PanelFill;

/// Elements of one group of the common form.
pub const GROUP: usize = 32;

/// The common form: 32 elements as packed signed quants with two scales and two minima, one pair per 16.
///
/// `value[i] = scales[i / 16] · quants[i] − minima[i / 16]`, each product and difference rounded to f32 (no
/// fused multiply-add). A symmetric format has minima of `+0.0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Signed 8-bit quants.
    pub quants: [i8; GROUP],
    /// One scale per 16 quants.
    pub scales: [f32; 2],
    /// One minimum per 16 quants, subtracted.
    pub minima: [f32; 2],
}

impl Group {
    /// A group of a symmetric format.
    #[inline(always)]
    pub(crate) fn symmetric(quants: [i8; GROUP], scales: [f32; 2]) -> Self {
        Self { quants, scales, minima: [0.0; 2] }
    }

    /// The 32 values.
    #[inline(always)]
    pub fn values(&self, out: &mut [f32; GROUP]) {
        let quants = self.quants.as_chunks::<16>().0;
        for (half, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            for (value, &quant) in out.iter_mut().zip(&quants[half]) {
                *value = self.scales[half] * f32::from(quant) - self.minima[half];
            }
        }
    }
}

/// How a format turns the bytes of one block into 32 elements.
#[derive(Clone, Copy)]
pub enum Unpack {
    /// Integer formats: `(block, group index)` to the common form. Panics on a block shorter than `block_bytes` and
    /// on a group that the block does not have.
    Int(fn(block: &[u8], group: usize) -> Group),
    /// Plain numbers (`F32`, `BF16`, `I8` …): a block is one element, and [`Format::decode`] gives the values.
    Scalar(Number),
}

/// What a plain number is, as far as products read it without a decoder; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The high half of a binary32.
    Bf16,
    /// A type that tables have, not weights.
    Other,
}

/// Decodes whole blocks: `bytes` holds `out.len() / block_elems` blocks; panics if it does not.
pub type Decode = fn(bytes: &[u8], out: &mut [f32]);

/// Encodes whole blocks, the inverse of [`Decode`]: `out` holds `values.len() / block_elems` blocks; panics if it does
/// not. Values that are not finite give some block, never a panic.
///
/// `importance` says how much the squared error of each column counts, for example the mean square of what a matrix
/// product multiplies the column with (llama.cpp's importance matrix). It has one number a column of a row, whole blocks
/// of them, and serves each row of `values`; panics if those are not whole rows. Only the ratios within a block matter;
/// numbers that are not positive and finite count as next to nothing, and if all of a block are such, its elements count
/// the same, as they do without an importance. A format without a search takes no notice of it.
pub type Encode = fn(values: &[f32], importance: Option<&[f32]>, out: &mut [u8]);

/// One field of a block, in file order: the unit in which a device re-lays a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name in ggml (`d`, `dmin`, `scales`, `qs`, `qh` …).
    pub name: &'static str,
    /// Bytes of the field in one block.
    pub bytes: usize,
}

/// The traits row of a weight format. There is exactly one per format, in [`crate::FORMATS`].
pub struct Format {
    /// The name in ggml, for example `Q4_K`.
    pub name: &'static str,
    /// The type id in a GGUF file.
    pub ggml_type: u32,
    /// Elements of one block.
    pub block_elems: usize,
    /// Bytes of one block.
    pub block_bytes: usize,
    /// The fields of a block; their bytes add up to `block_bytes`.
    pub fields: &'static [Field],
    /// Whether the minima are all zero.
    pub symmetric: bool,
    /// Elements that share a scale (1 for plain numbers).
    pub scale_group: usize,
    /// The decoder of one group.
    pub unpack: Unpack,
    /// The decoder of a row, with the widest instructions of this processor.
    pub decode: Decode,
    /// The same decoder with the target's baseline instructions: the same bits.
    pub decode_baseline: Decode,
    /// Whether blocks written without an importance are of little use, so that a caller should refuse to: ggml does for
    /// the same formats (`ggml_quantize_requires_imatrix`). The encoder itself does not refuse.
    pub needs_importance: bool,
    /// The encoder of a row. Whole numbers and F64 have none: they hold a model's tables, and weights are never made from
    /// them.
    pub encode: Option<Encode>,
    /// How eight rows are decoded side by side, where the format has a function for it.
    pub panel: Option<PanelFill>,
}

/// A type id or name that no format carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeError {
    /// An id that ggml once used and removed.
    Removed {
        /// The id in the file.
        id: u32,
        /// What the id used to mean.
        was: &'static str,
    },
    /// An id that ggml does not define.
    Unknown {
        /// The id in the file.
        id: u32,
    },
}

/// Type ids that ggml once wrote and no longer reads (`enum ggml_type` in `ggml.h`).
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed { id, was } => {
                write!(f, "ggml type {id} ({was}) was removed from the format; convert the model again")
            }
            Self::Unknown { id } => write!(f, "ggml type {id} is unknown"),
        }
    }
}

impl std::error::Error for TypeError {}

impl Format {
    /// The format of a GGUF type id.
    ///
    /// # Errors
    /// [`TypeError`] for removed and unknown ids.
    pub fn from_ggml_type(id: u32) -> Result<&'static Self, TypeError> {
        let removed = || match REMOVED.iter().find(|row| row.0 == id) {
            Some(&(id, was)) => TypeError::Removed { id, was },
            None => TypeError::Unknown { id },
        };
        crate::FORMATS.iter().find(|f| f.ggml_type == id).ok_or_else(removed)
    }

    /// The format of a ggml name, in any case.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        crate::FORMATS.iter().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    /// Bytes of `elems` elements; `None` if they are not whole blocks or the size overflows.
    pub fn bytes_of(&self, elems: usize) -> Option<usize> {
        if !elems.is_multiple_of(self.block_elems) {
            return None;
        }
        (elems / self.block_elems).checked_mul(self.block_bytes)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.ggml_type == other.ggml_type
    }
}

impl Eq for Format {}
