//! The error that every encoder of `FORMATS` leaves, against that of `libgguf` (ggml's own encoders) on the same rows.
//!
//! Oracle: `testdata/golden/encoders`, made by `tools/oracle/golden_encoders.py`. Rows are cut from real weights or made:
//! gaussian, laplace, outliers, one spike, constants … An encoder may leave at most 2% more.

use std::path::PathBuf;

use hanzo_quant::FORMATS;

/// What an encoder may leave, as a multiple of libgguf's.
const RATIO_MAX: f64 = 1.02;

fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/encoders").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{name}: {e}; tools/oracle/golden_encoders.py makes it"))
}

/// A line of `errors.tsv`: its first cell and the others.
fn cells(line: &str) -> (&str, Vec<&str>) {
    let (name, cells) = line.split_once('\t').expect("cells are parted by tabs");
    (name, cells.split('\t').collect())
}

fn root_mean_square(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    (values.map(|v| v * v).sum::<f64>() / n).sqrt()
}

#[test]
fn every_encoder_reconstructs_as_well_as_libgguf() {
    let table = String::from_utf8(read("errors.tsv")).unwrap();
    let mut lines = table.lines().map(cells);
    let (names, n_rows) = (lines.next().unwrap().1, lines.next().unwrap().1);
    let rows: Vec<f32> = read("rows.bin").as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let mut sets = Vec::new();
    let mut at = 0;
    for (name, n_rows) in names.iter().zip(&n_rows) {
        let len = 256 * n_rows.parse::<usize>().unwrap();
        sets.push((*name, &rows[at..at + len]));
        at += len;
    }
    assert!(at == rows.len() && sets.len() >= 15, "the sets are all rows");

    let mut measured = Vec::new();
    let mut too_many = Vec::new();
    for (name, errors) in lines {
        let format = FORMATS.iter().find(|f| f.name == name).unwrap();
        let Some(encode) = format.encode else { continue };
        measured.push(name);
        assert_eq!(errors.len(), sets.len(), "{name}");
        let mut ratios = Vec::new();
        for (&(set, values), theirs) in sets.iter().zip(&errors) {
            let theirs: f64 = theirs.parse().unwrap();
            let mut bytes = vec![0xa5; format.bytes_of(values.len()).unwrap()];
            encode(values, None, &mut bytes);
            let mut decoded = vec![f32::NAN; values.len()];
            (format.decode)(&bytes, &mut decoded);
            let rest = values.iter().zip(&decoded).map(|(&v, &d)| f64::from(v) - f64::from(d));
            let ours = root_mean_square(rest);
            // A half-float scale is good to 2⁻¹¹: what it leaves is not the encoder's, and can be zero by luck.
            let floor = root_mean_square(values.iter().map(|&v| f64::from(v))) * 2f64.powi(-11);
            if ours.is_nan() || ours > theirs.max(floor) * RATIO_MAX {
                too_many.push(format!("{name} {set}: {ours:e}, libgguf {theirs:e}"));
            }
            ratios.push(if theirs > floor { format!("{:.3}", ours / theirs) } else { "-".to_owned() });
        }
        println!("{name:7} {}", ratios.join(" "));
    }
    println!("sets: {}", names.join(" "));
    assert!(too_many.is_empty(), "{}", too_many.join("\n"));
    // Q8_1 and Q8_K are activation formats, which libgguf does not write.
    let others = ["F32", "F16", "Q8_1", "Q8_K", "BF16"];
    let encoders = FORMATS.iter().filter(|f| f.encode.is_some() && !others.contains(&f.name));
    let mut encoders: Vec<_> = encoders.map(|f| f.name).collect();
    encoders.sort_unstable();
    measured.sort_unstable();
    assert_eq!(measured, encoders);
}
