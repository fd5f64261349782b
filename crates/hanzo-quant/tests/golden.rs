//! Bit-exactness of every row of `FORMATS` against the golden vectors in `testdata/golden`.
//!
//! Oracles: the decoders and encoders of the PyPI packages `gguf` (numpy) and `libgguf` (C), which follow ggml, and
//! numpy for what they lack; `tools/oracle/golden_formats.py` made the files and compared the oracles with each other.
//! Any NaN equals any NaN; those are counted apart.

use std::path::PathBuf;

use hanzo_quant::{FORMATS, Format, GROUP, Unpack};

/// A golden file: for decoding the blocks and their f32 values, for encoding the f32 values and their blocks.
struct Golden {
    blocks: Vec<u8>,
    values: Vec<f32>,
}

fn read(format: &Format, encoder: bool) -> Golden {
    let suffix = if encoder { "enc.bin" } else { "bin" };
    let name = format!("{}.{suffix}", format.name);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden").join(&name);
    let raw = std::fs::read(&path)
        .unwrap_or_else(|e| panic!("{name}: {e}; tools/oracle/golden_formats.py makes it"));
    let word =
        |i: usize| u32::from_le_bytes(*raw[4 * i..].first_chunk().expect("a header of 12 bytes")) as usize;
    let (n_elems, n_bytes, n_blocks) = (word(0), word(1), word(2));
    // The sizes in the file are gguf's: this is also the test of the block layouts' sizes.
    assert_eq!((n_elems, n_bytes), (format.block_elems, format.block_bytes), "{name}");
    assert!(n_blocks >= 20, "{name} has {n_blocks} blocks only");
    let (n_block_bytes, n_value_bytes) = (n_blocks * n_bytes, n_blocks * n_elems * 4);
    let body = &raw[12..];
    assert_eq!(body.len(), n_block_bytes + n_value_bytes, "{name}");
    let (first, second) = body.split_at(if encoder { n_value_bytes } else { n_block_bytes });
    let (blocks, values) = if encoder { (second, first) } else { (first, second) };
    let values = values.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    Golden { blocks: blocks.to_vec(), values }
}

/// Counts (compared, differing, NaN) of two rows.
fn compare(ours: &[f32], theirs: &[f32]) -> (usize, usize, usize) {
    assert_eq!(ours.len(), theirs.len());
    let (mut n_bad, mut n_nan) = (0, 0);
    for (a, b) in ours.iter().zip(theirs) {
        if a.is_nan() && b.is_nan() {
            n_nan += 1;
        } else if a.to_bits() != b.to_bits() {
            n_bad += 1;
        }
    }
    (ours.len(), n_bad, n_nan)
}

/// The values by way of the public `unpack`, or nothing for plain numbers.
fn by_unpack(format: &Format, blocks: &[u8]) -> Option<Vec<f32>> {
    let Unpack::Int(unpack) = format.unpack else { return None };
    let mut out = Vec::new();
    for block in blocks.chunks(format.block_bytes) {
        for group in 0..format.block_elems / GROUP {
            let g = unpack(block, group);
            let value = |i: usize| g.scales[i / 16] * f32::from(g.quants[i]) - g.minima[i / 16];
            out.extend((0..GROUP).map(value));
        }
    }
    Some(out)
}

#[test]
fn every_format_decodes_to_the_golden_bits() {
    let (mut n_all, mut nbad_all, mut n_nan_all) = (0, 0, 0);
    for format in FORMATS {
        let golden = read(format, false);
        let decode = |decode: hanzo_quant::Decode| {
            let mut out = vec![f32::from_bits(0x7fa5_a5a5); golden.values.len()];
            decode(&golden.blocks, &mut out);
            out
        };
        let mut rows = vec![decode(format.decode), decode(format.decode_baseline)];
        rows.extend(by_unpack(format, &golden.blocks));
        let (mut n, mut nbad, mut n_nan) = (0, 0, 0);
        for row in &rows {
            let counts = compare(row, &golden.values);
            (n, nbad, n_nan) = (n + counts.0, nbad + counts.1, n_nan + counts.2);
        }
        println!("{:8} {n:7} values compared, {n_nan:6} NaN, nbad = {nbad}", format.name);
        (n_all, nbad_all, n_nan_all) = (n_all + n, nbad_all + nbad, n_nan_all + n_nan);
    }
    println!("{} formats, {n_all} values compared, {n_nan_all} NaN, nbad = {nbad_all}", FORMATS.len());
    assert_eq!(nbad_all, 0);
    assert!(n_all > 700_000 && n_nan_all < n_all / 4, "most values are numbers");
}

/// The encoders that search for the least error, where ggml searches in another way; `encoders.rs` measures them.
#[rustfmt::skip]
const SEARCHING: [&str; 15] = [
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL",
    "IQ4_XS", "NVFP4",
];

#[test]
fn every_encoder_without_a_search_writes_the_golden_blocks() {
    let mut n_all = 0;
    for format in FORMATS.iter().filter(|f| !SEARCHING.contains(&f.name)) {
        let Some(encode) = format.encode else { continue };
        let golden = read(format, true);
        let mut ours = vec![0xa5; golden.blocks.len()];
        encode(&golden.values, None, &mut ours);
        let n_blocks = ours.len() / format.block_bytes;
        for block in 0..n_blocks {
            let range = block * format.block_bytes..(block + 1) * format.block_bytes;
            assert_eq!(ours[range.clone()], golden.blocks[range], "{} block {block}", format.name);
        }
        println!("{:8} {n_blocks:6} blocks encoded, nbad = 0", format.name);
        n_all += n_blocks;
    }
    println!("{n_all} blocks encoded, nbad = 0");
    // Whole numbers and F64 are the types of a model's tables, and weights are never made from them.
    let without: Vec<_> = FORMATS.iter().filter(|f| f.encode.is_none()).map(|f| f.name).collect();
    assert_eq!(without, ["I8", "I16", "I32", "I64", "F64"]);
}
