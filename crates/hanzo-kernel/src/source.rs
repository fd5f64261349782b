//! The WGSL files, embedded: a program needs no folder of kernels beside it.

/// One WGSL file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Path below `wgsl/` without the extension: what an import names.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(Source { name: $name, text: include_str!(concat!("../wgsl/", $name, ".wgsl")) }),*]
    };
}

/// Every file of `wgsl/`, in the order of their names.
pub static SOURCES: &[Source] = sources![
    "add",
    "dequantize",
    "format/fp4",
    "format/iq1",
    "format/iq2",
    "format/iq3",
    "format/iq4",
    "format/k_quants",
    "format/legacy",
    "format/plain",
    "format/ternary",
    "grid",
    "group",
    "levels",
    "number/bf16",
    "number/f16",
    "number/f32",
    "signs",
    "tables",
    "weight",
];

/// The file of a name.
pub(crate) fn find(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.name == name)
}
