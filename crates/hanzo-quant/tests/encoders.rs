//! The error that every encoder of `FORMATS` leaves, against that of `libgguf` (ggml's own encoders) on the same rows.
//!
//! Oracle: `testdata/golden/encoders`, made by `tools/oracle/golden_encoders.py`. Rows are cut from real weights or made:
//! gaussian, laplace, outliers, one spike, constants … An encoder may leave at most 2% more, with every value counting alike and
//! with squares weighted by an importance that both were given.

use std::path::PathBuf;

use hanzo_quant::{Encode, FORMATS, Format};

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

/// Rows of one kind, and an importance of their columns.
struct Set<'a> {
    name: &'a str,
    importance: &'a [f32],
    values: &'a [f32],
}

fn sets<'a>(names: &[&'a str], n_rows: &[&str], n_columns: &[&str], all: &'a [f32]) -> Vec<Set<'a>> {
    let number = |cell: &str| cell.parse::<usize>().expect("errors.tsv counts rows and columns");
    let mut rest = all;
    let mut take = |n: usize| {
        let (head, tail) = rest.split_at(n);
        rest = tail;
        head
    };
    let numbers = n_rows.iter().zip(n_columns).map(|(n, k)| (number(n), number(k)));
    let sets = names.iter().zip(numbers).map(|(name, (n, k))| {
        let importance = take(k);
        Set { name, importance, values: take(n * k) }
    });
    let sets: Vec<_> = sets.collect();
    assert!(rest.is_empty() && sets.len() >= 15, "the sets are all rows");
    sets
}

/// The root of the weighted mean of squares.
fn root_mean_square(values: impl Iterator<Item = f64>, weights: &[f32]) -> f64 {
    let (mut sum, mut sum_of_weights) = (0.0, 0.0);
    for (value, &weight) in values.zip(weights.iter().cycle()) {
        sum += f64::from(weight) * value * value;
        sum_of_weights += f64::from(weight);
    }
    (sum / sum_of_weights).sqrt()
}

/// Our error on a set, and what a half-float scale leaves, which is good to 2⁻¹¹: that is not the encoder's, and can be
/// zero by luck.
fn error_and_floor(format: &Format, encode: Encode, set: &Set<'_>, weighted: bool) -> (f64, f64) {
    let importance = weighted.then_some(set.importance);
    let mut bytes = vec![0xa5; format.bytes_of(set.values.len()).expect("rows are whole blocks")];
    encode(set.values, importance, &mut bytes);
    let mut decoded = vec![f32::NAN; set.values.len()];
    (format.decode)(&bytes, &mut decoded);
    let weights = importance.unwrap_or(&[1.0]);
    let rest = set.values.iter().zip(&decoded).map(|(&v, &d)| f64::from(v) - f64::from(d));
    let size = root_mean_square(set.values.iter().map(|&v| f64::from(v)), weights);
    (root_mean_square(rest, weights), size * 2f64.powi(-11))
}

#[test]
fn every_encoder_reconstructs_as_well_as_libgguf() {
    let table = String::from_utf8(read("errors.tsv")).unwrap();
    let mut lines = table.lines().map(cells);
    let mut head = || lines.next().unwrap().1;
    let (names, n_rows, n_columns) = (head(), head(), head());
    let all: Vec<f32> = read("rows.bin").as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let sets = sets(&names, &n_rows, &n_columns, &all);

    let mut measured = Vec::new();
    let mut too_many = Vec::new();
    for (line, errors) in lines {
        let (name, weighted) = line.strip_suffix(" weighted").map_or((line, false), |name| (name, true));
        let format = Format::from_name(name).unwrap();
        let Some(encode) = format.encode else { continue };
        measured.push(line.to_owned());
        assert_eq!(errors.len(), sets.len(), "{name}");
        let mut ratios = Vec::new();
        for (set, theirs) in sets.iter().zip(&errors) {
            let theirs: f64 = theirs.parse().unwrap();
            let (ours, floor) = error_and_floor(format, encode, set, weighted);
            if ours.is_nan() || ours > theirs.max(floor) * RATIO_MAX {
                too_many.push(format!("{line} {}: {ours:e}, libgguf {theirs:e}", set.name));
            }
            ratios.push(if theirs > floor { format!("{:.3}", ours / theirs) } else { "-".to_owned() });
        }
        println!("{line:16} {}", ratios.join(" "));
    }
    println!("sets: {}", names.join(" "));
    assert!(too_many.is_empty(), "{}", too_many.join("\n"));
    // Q8_1 and Q8_K are activation formats, which libgguf does not write.
    let others = ["F32", "F16", "Q8_1", "Q8_K", "BF16"];
    let encoders = FORMATS.iter().filter(|f| f.encode.is_some() && !others.contains(&f.name));
    let mut encoders: Vec<_> =
        encoders.flat_map(|f| [f.name.to_owned(), format!("{} weighted", f.name)]).collect();
    encoders.sort_unstable();
    measured.sort_unstable();
    assert_eq!(measured, encoders);
}
