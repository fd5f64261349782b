//! GPU kernels as data: WGSL written once, composed, validated, and lowered to each backend's language.
//!
//! `wgsl/` holds every kernel. [`compose`] joins a kernel with its imports, the preludes of a weight format and of an
//! activation type, and constants, to one module. Only [`Valid::new`] makes a [`Valid`], and only a `Valid` can be
//! [`lower`]ed. There is no device code here: all of it works, and is tested, on any machine.
//!
//! Left out on purpose: memory, launches, the choice of a kernel (`hanzo-ml`).

mod compose;
mod error;
mod kernels;
mod lower;
mod planes;
mod source;
mod tables;
mod valid;

pub use compose::{Composed, Origin, Recipe, Slot, Value, compose};
pub use error::{Error, Result};
pub use kernels::{Choice, Formats, KERNELS, Kernel, Number, Spec, is_supported, specs};
pub use lower::{Checks, Code, Target, lower, static_workgroup_bytes_max, unit};
pub use planes::Planes;
pub use source::{SOURCES, Source};
pub use tables::table_words;
pub use valid::{Binding, Interface, Valid};
