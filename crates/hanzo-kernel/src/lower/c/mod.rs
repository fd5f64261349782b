//! CUDA C++ and HIP C++ from validated naga IR.
//!
//! One writer, and two rows of differences over it ([`Dialect`]): attributes, ids, math, subgroups and matrices are
//! functions and macros of the rows' preludes, which include no header, because NVRTC carries none and HIP compiles four
//! times faster without. One file for each family of the IR.
//!
//! The text relies on what our kernels promise: indices are in range, shift amounts are below the width, divisors are
//! not zero, signed arithmetic does not overflow, subgroup operations stand in uniform control flow of a workgroup of
//! whole subgroups.
//!
//! **Invariant:** a node that the writer does not know is an error that names it, never a comment or a guess.

mod body;
mod dialect;
mod entry;
mod expr;
mod loops;
mod math;
mod matrix;
mod stmt;
mod subgroup;
mod types;

#[cfg(test)]
mod tests;

use std::{fmt, sync::LazyLock};

use naga::{
    FastHashMap, Module,
    proc::{KeywordSet, NameKey, Namer},
    valid::ModuleInfo,
};

pub(super) use dialect::{CUDA, Dialect, HIP};

use super::Checks;
use crate::{Error, Valid};

/// A node of the IR that has no form in C++.
struct Unsupported {
    kind: &'static str,
    value: String,
}

type Result<T> = std::result::Result<T, Unsupported>;

/// The error for a node of some kind.
fn unsupported<T>(kind: &'static str, value: impl fmt::Debug) -> Result<T> {
    Err(Unsupported { kind, value: format!("{value:?}") })
}

/// The kernel of a module, called by the module's name. Its parameters are the buffers of the interface in the order
/// of their slots, then the immediate data as a struct by value.
pub(super) fn write(valid: &Valid, dialect: &Dialect) -> crate::Result<String> {
    let text = Writer::new(valid.module(), valid.info(), dialect).module(valid.name());
    text.map_err(|e| Error::unsupported(valid.name(), dialect.name, e.kind, e.value))
}

/// A translation unit: the prelude once, then each kernel in a namespace of its own, so that many compile at once.
pub(super) fn unit(dialect: &Dialect, kernels: &[&str], checks: Checks) -> String {
    let mut text = format!("#define CHECKS {}\n", u8::from(checks == Checks::Debug));
    text.push_str(&dialect.prelude());
    if kernels.iter().any(|k| k.contains("coop_")) {
        text.push_str(dialect.matrices);
    }
    for (i, kernel) in kernels.iter().enumerate() {
        text.push_str(&format!("\nnamespace k{i} {{\n{kernel}}}\n"));
    }
    text
}

/// Names that a kernel may not use for itself: words of C++ and what the preludes define outside `w_`, `sg_`, `coop_`.
static RESERVED: LazyLock<KeywordSet> = LazyLock::new(|| {
    const WORDS: &str = "alignas alignof and asm auto bool break case catch char class const constexpr continue \
        decltype default delete do double else enum explicit extern false float for friend goto half if inline int \
        long main mutable namespace new noexcept not operator or private protected public register return short \
        signed sizeof static struct switch template this throw true try typedef typename union unsigned using \
        virtual void volatile while xor wchar_t u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64 vec2 vec3 vec4 array \
        WAVE DEV KERNEL SHARED RESTRICT BY_VALUE MEMBER TABLE OFFSET CHECKS MAP UNROLL barrier wave_barrier fence thread_x thread_y thread_z \
        group_x group_y group_z groups_x groups_y groups_z lane_id bits splat2 splat3 splat4 join3 join4 select \
        shared_bytes threadIdx blockIdx blockDim gridDim warpSize";
    KeywordSet::from_iter(WORDS.split_whitespace())
});

/// A module being written.
struct Writer<'a> {
    module: &'a Module,
    info: &'a ModuleInfo,
    dialect: &'a Dialect,
    namer: Namer,
    names: FastHashMap<NameKey, String>,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(module: &'a Module, info: &'a ModuleInfo, dialect: &'a Dialect) -> Self {
        let (mut namer, mut names) = (Namer::default(), FastHashMap::default());
        let prefixes = &["w_", "sg_", "coop_", "atomic_"];
        namer.reset(module, &RESERVED, KeywordSet::empty(), Default::default(), prefixes, &mut names);
        Self { module, info, dialect, namer, names, out: String::new() }
    }

    fn module(mut self, name: &str) -> Result<String> {
        self.structs()?;
        self.constants()?;
        self.functions()?;
        self.kernel(name)?;
        Ok(self.out)
    }

    fn name(&self, key: &NameKey) -> &str {
        self.names.get(key).expect("the namer names every part of a module")
    }

    fn line(&mut self, level: usize, text: impl fmt::Display) {
        for _ in 0..level {
            self.out.push_str("    ");
        }
        self.out.push_str(&text.to_string());
        self.out.push('\n');
    }
}
