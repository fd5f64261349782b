//! The traits row of a format and the common intermediate form that every integer format decodes to.

use std::fmt;

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

/// How a format turns the bytes of one block into 32 elements.
#[derive(Clone, Copy)]
pub enum Unpack {
    /// Integer formats: `(block, group index)` to the common form.
    Int(fn(block: &[u8], group: usize) -> Group),
    /// Plain numbers (`F32`, `BF16`, `I8` …): a block is one element, and [`Format::decode`] gives the values.
    Scalar,
}

/// Decodes whole blocks: `bytes` holds `out.len() / block_elems` blocks.
pub type Decode = fn(bytes: &[u8], out: &mut [f32]);

/// Encodes whole blocks, the inverse of [`Decode`].
pub type Encode = fn(values: &[f32], out: &mut [u8]);

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
    /// The decoder of a row.
    pub decode: Decode,
    /// The encoder of a row, where there is one.
    pub encode: Option<Encode>,
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
        crate::FORMATS.iter().find(|f| f.ggml_type == id).ok_or(TypeError::Unknown { id })
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
