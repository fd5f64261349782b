//! Activations as products read them: floats of the options' type, or signed bytes.
//!
//! What was quantised last is kept until its floats change, so that the products that share an input quantise it once,
//! and not at all where the norm before them did (`norm_for_products`).

use hanzo_kernel::Number;
use hanzo_quant::{Format, GROUP, Unpack};

use crate::{
    DType, Error, Result,
    backend::Buffer,
    gpu::{
        backend::{Gpu, Products, floats_of, stride_groups, word},
        launcher::{Which, number},
        runtime::MemoryId,
    },
};

/// Signed bytes that a buffer's floats were quantised to.
pub(in crate::gpu) struct Quantised {
    /// Where the floats lie.
    pub of: MemoryId,
    /// Floats.
    pub len: usize,
    /// Four quants a word, U32.
    pub quants: Buffer,
    /// Scale and sums of each group of 32, two words, U32.
    pub meta: Buffer,
}

/// Activations as the product's kernel wants them.
pub(super) struct Activations {
    /// Named buffers.
    pub places: Vec<(&'static str, MemoryId)>,
    /// Their type; none for signed bytes.
    pub number: Option<Number>,
}

/// Whether a format's products can be of integers.
fn has_int8(format: &Format) -> bool {
    matches!(format.unpack, Unpack::Int(_))
}

impl Gpu {
    /// The activations of a product, as the options and the format say. x: `[rows, K]` f32.
    pub(super) fn activations(&mut self, format: &Format, x: &Buffer) -> Result<Activations> {
        let number = number("products", self.options.activations)?;
        if self.options.products == Products::Int8 && has_int8(format) {
            let places = self.quantised(x, number)?;
            return Ok(Activations { places, number: None });
        }
        Ok(Activations { places: vec![("x", self.rounded(x, number)?)], number: Some(number) })
    }

    /// Whether a norm of rows of `dim` elements gives the bytes that products will read.
    pub(super) fn quantises_rows(&self, dim: usize) -> bool {
        let options = &self.options;
        options.products == Products::Int8 && options.activations == DType::F32 && dim.is_multiple_of(GROUP)
    }

    /// x rounded to a type; x itself for f32.
    fn rounded(&mut self, x: &Buffer, number: Number) -> Result<MemoryId> {
        let dtype = self.options.activations;
        if number == Number::F32 {
            return self.place(x);
        }
        let out = self.scratch(dtype, x.len)?;
        let n_fours = x.len.div_ceil(4);
        let constants = [("FROM_F32", hanzo_kernel::Value::Bool(true))];
        let which = Which { number: Some(number), ..Which::plain("cast", &constants) };
        let places = [("src", self.place(x)?), ("out", out)];
        self.launch(&which, &places, &[word("cast", n_fours)?], [stride_groups(n_fours), 1, 1])?;
        Ok(out)
    }

    /// The signed bytes of x, made now unless they are those that were made last.
    fn quantised(&mut self, x: &Buffer, number: Number) -> Result<Vec<(&'static str, MemoryId)>> {
        let place = self.place(x)?;
        if !self.quantised.as_ref().is_some_and(|q| q.of == place && q.len == x.len) {
            let op = "quantize";
            let floats = self.rounded(x, number)?;
            let which = Which { number: Some(number), ..Which::plain(op, &[]) };
            let params = [word(op, x.len / GROUP)?];
            let grid = [stride_groups(x.len / 4), 1, 1];
            self.quantising(x, |gpu, bytes| {
                gpu.launch(&which, &[bytes[0], bytes[1], ("x", floats)], &params, grid)
            })?;
        }
        Ok(match &self.quantised {
            Some(q) => vec![("x_q", self.place(&q.quants)?), ("x_meta", self.place(&q.meta)?)],
            None => Vec::new(),
        })
    }

    /// Lets a launch fill the signed bytes of x, whose places it is given, and keeps them.
    pub(super) fn quantising(
        &mut self,
        x: &Buffer,
        launch: impl FnOnce(&mut Self, [(&'static str, MemoryId); 2]) -> Result<()>,
    ) -> Result<()> {
        self.forget_quantised();
        let of = self.place(x)?;
        let (quants, meta) =
            (self.scratch(DType::U32, x.len / 4)?, self.scratch(DType::U32, x.len / GROUP * 2)?);
        launch(self, [("x_q", quants), ("x_meta", meta)])?;
        if let (Some(quants), Some(meta)) = (self.keep_scratch(quants), self.keep_scratch(meta)) {
            self.quantised = Some(Quantised { of, len: x.len, quants, meta });
        }
        Ok(())
    }

    /// Gives back what is kept.
    pub(in crate::gpu) fn forget_quantised(&mut self) {
        if let Some(q) = self.quantised.take() {
            self.memory.free(&q.quants);
            self.memory.free(&q.meta);
        }
    }

    /// The same if it is of this buffer, which is about to change or to go.
    pub(in crate::gpu) fn forget_quantised_of(&mut self, buffer: &Buffer) {
        if let Ok(memory) = self.place(buffer) {
            self.forget_quantised_at(memory);
        }
    }

    /// The same for memory that is about to change.
    pub(in crate::gpu) fn forget_quantised_at(&mut self, memory: MemoryId) {
        if self.quantised.as_ref().is_some_and(|q| q.of == memory) {
            self.forget_quantised();
        }
    }

    /// What products with a weight of this format make of x: the floats that they read, or the bytes that they dot with their
    /// scales. Read back from the device, for comparisons with exact sums.
    ///
    /// # Errors
    /// As products.
    pub fn activations_seen(&mut self, format: &Format, x: &Buffer) -> Result<Seen> {
        self.scoped(|gpu| {
            let dtype = gpu.options.activations;
            let Activations { places, number } = gpu.activations(format, x)?;
            let mut read = |i: usize, n_bytes: usize| {
                let mut bytes = vec![0; n_bytes];
                places.get(i).map_or(Ok(()), |place| gpu.runtime.download(place.1, 0, &mut bytes))?;
                Ok::<_, Error>(bytes)
            };
            if number.is_some() {
                let bytes = read(0, x.len * dtype.block_bytes())?;
                return Ok(Seen::Floats(floats_of(dtype, &bytes)));
            }
            let quants = read(0, x.len)?.iter().map(|b| b.cast_signed()).collect();
            let meta = read(1, x.len / GROUP * 8)?;
            let scales =
                meta.as_chunks::<8>().0.iter().map(|&[a, b, c, d, ..]| f32::from_le_bytes([a, b, c, d]));
            let half = |[a, b]: [u8; 2]| i16::from_le_bytes([a, b]);
            let sums = meta.as_chunks::<8>().0.iter().map(|&[.., a, b, c, d]| [half([a, b]), half([c, d])]);
            Ok(Seen::Bytes { quants, scales: scales.collect(), sums: sums.collect() })
        })
    }
}

/// Activations as products read them.
#[derive(Clone, Debug)]
pub enum Seen {
    /// As floats.
    Floats(Vec<f32>),
    /// As signed bytes in groups of 32.
    Bytes {
        /// Of each element.
        quants: Vec<i8>,
        /// Of each group: value = scale · quant.
        scales: Vec<f32>,
        /// Sums of quants 0 to 15 and 16 to 31 of each group.
        sums: Vec<[i16; 2]>,
    },
}
