//! Whether a device computes what it should: every weight format in every product and lookup, and every other operation of
//! [`Backend`](crate::backend::Backend), on odd shapes with random operands.
//!
//! * Decoding and lookups give the bits of the formats' scalar decoders. A device that has no subnormal numbers is not
//!   wrong: what it flushed to zero is counted apart.
//! * Products are compared with sums in f64 over what the device itself multiplies ([`Seen`](crate::gpu::Seen)): floats as it
//!   rounded them, or the signed bytes that it made of them, whose partial sums are integers and exact. So what is left
//!   is the rounding of the sums, and the bound follows from their number. How the bytes were made is a check of its own.
//! * Everything else is compared with [`crate::reference`], in f64.
//!
//! The same code serves the tests of this crate and `hanzo doctor --numerics`. Operands depend on no clock: a device that
//! passes once passes again.

mod activations;
mod attention;
mod bench;
mod formats;
mod products;
mod random;
mod report;
mod rows;
mod subject;
mod weight;

pub use random::Random;
pub use report::{Outcome, Report};
pub use subject::{Arithmetic, Processor, Subject};

use bench::Bench;
use hanzo_quant::FORMATS;

use crate::Result;

/// How many shapes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// One shape of each product of each format, another for each format: for devices that are programs.
    Brief,
    /// Every shape of each: small and large batches, with and without bias, for each way that the kernels cut them.
    Thorough,
}

impl Depth {
    /// What a device of this name can do in a minute or two.
    pub fn for_device(name: &str) -> Self {
        // Mesa's, Microsoft's and Google's devices that are programs.
        let software = ["llvmpipe", "lavapipe", "Basic Render", "SwiftShader"];
        if software.iter().any(|s| name.contains(s)) { Self::Brief } else { Self::Thorough }
    }
}

/// Checks a device; `progress` is told what is next, of how many things.
///
/// # Errors
/// A device that cannot be set to one of the kinds of arithmetic that it names. An operation that fails is no error but a
/// failed check.
pub fn check(
    subject: &mut dyn Subject,
    depth: Depth,
    progress: &mut dyn FnMut(&str, usize),
) -> Result<Report> {
    let formats: Vec<_> = FORMATS.iter().filter(|format| subject.reads(format)).collect();
    let n_steps = formats.len() + 2;
    let mut bench = Bench::new(subject, depth);
    for (i, format) in formats.into_iter().enumerate() {
        progress(format.name, n_steps);
        formats::check(&mut bench, format, i as u64);
        products::check(&mut bench, format, i)?;
    }
    progress("activations and rows", n_steps);
    activations::check(&mut bench)?;
    rows::check(&mut bench);
    progress("attention", n_steps);
    attention::check(&mut bench);
    Ok(bench.report)
}
