//! The lattices and levels of the formats as a device sees them, from the constants that the CPU uses.
//!
//! Lattices are one storage buffer for all formats, uploaded once a device; a `const` of that size would be copied at
//! every access. Sixteen levels fit into a vector constant.

use std::fmt::Write;

use hanzo_quant::grids;

use crate::Slot;

/// Signed bytes as little-endian words.
fn words<const LEN: usize>(points: &[[i8; LEN]]) -> impl Iterator<Item = u32> {
    let bytes = points.as_flattened().as_chunks::<4>().0;
    bytes.iter().map(|b| u32::from_le_bytes(b.map(|byte| byte as u8)))
}

/// Each lattice with the name of the constant that says where it begins.
fn lattices() -> [(&'static str, Vec<u32>); 6] {
    [
        ("GRID_IQ1", words(&grids::IQ1).collect()),
        ("GRID_IQ2_XXS", words(&grids::IQ2_XXS).collect()),
        ("GRID_IQ2_XS", words(&grids::IQ2_XS).collect()),
        ("GRID_IQ2_S", words(&grids::IQ2_S).collect()),
        ("GRID_IQ3_XXS", words(&grids::IQ3_XXS).collect()),
        ("GRID_IQ3_S", words(&grids::IQ3_S).collect()),
    ]
}

/// The contents of the storage buffer `tables` (binding 1).
pub fn table_words() -> Vec<u32> {
    lattices().into_iter().flat_map(|(_, words)| words).collect()
}

/// The text of the slot `tables`: where each lattice begins, and the vectors of levels.
pub(crate) fn slot() -> Slot {
    let mut text = String::new();
    let mut at = 0;
    for (name, words) in lattices() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "const {name}: u32 = {at}u;");
        at += words.len();
    }
    for (name, levels) in [("IQ4_LEVELS", grids::IQ4_LEVELS), ("FP4_LEVELS", grids::FP4_LEVELS)] {
        let w: Vec<String> = words(&[levels]).map(|word| format!("{word:#010x}u")).collect();
        let _ = writeln!(text, "const {name}: vec4<u32> = vec4<u32>({});", w.join(", "));
    }
    Slot::Text { name: "tables of the formats".into(), text }
}
