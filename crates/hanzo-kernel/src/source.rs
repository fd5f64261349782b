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
    "activate",
    "activation",
    "activations",
    "add",
    "argmax",
    "attention_combine",
    "attention_decode",
    "attention_prefill",
    "binary",
    "cast",
    "cast_strided",
    "conv",
    "copy_strided",
    "dequantize",
    "dot",
    "eight",
    "embed",
    "format/fp4",
    "format/iq1",
    "format/iq2",
    "format/iq3",
    "format/iq4",
    "format/k_quants",
    "format/legacy",
    "format/plain",
    "format/ternary",
    "gated_activation",
    "gather_rows",
    "grid",
    "group",
    "int8",
    "kv_append",
    "lane",
    "layer_norm",
    "levels",
    "moe_combine",
    "moe_plan",
    "number/bf16",
    "number/f16",
    "number/f32",
    "number/q8",
    "paged",
    "q8",
    "qmatmul",
    "qmatvec",
    "quantize",
    "quotient",
    "reduce",
    "reduce_rows",
    "rms_norm",
    "rope",
    "rope_angles",
    "rope_append",
    "rotate",
    "route",
    "scaled",
    "scaled_subnormal",
    "scatter_rows",
    "signs",
    "softcap",
    "softmax",
    "strided",
    "tables",
    "tanh",
    "team",
    "tile/fma",
    "tile/int8",
    "tile/matrix",
    "top_k",
    "weight",
];

/// The file of a name.
pub(crate) fn find(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn walk(folder: &Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, names);
            } else {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("wgsl");
                let name = path.strip_prefix(root).unwrap().with_extension("");
                names.push(name.to_str().unwrap().replace('\\', "/"));
            }
        }
    }

    #[test]
    fn every_file_is_embedded() {
        let mut names = Vec::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("wgsl"), &mut names);
        names.sort();
        assert_eq!(SOURCES.iter().map(|s| s.name).collect::<Vec<_>>(), names);
    }
}
