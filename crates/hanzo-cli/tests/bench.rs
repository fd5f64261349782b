//! `hanzo bench` through the real binary: rows, forms, refusals. Speeds themselves are not tested.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tiny/with-vocab.gguf");
    Command::new(env!("CARGO_BIN_EXE_hanzo")).args(["bench", "-m"]).arg(model).args(args).output().unwrap()
}

#[test]
fn each_combination_is_a_row() {
    let output = bench(&["-p", "8,0,3", "-n", "4", "-d", "0,5", "-t", "1,2", "-r", "2", "-o", "jsonl"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row["test"].as_str().unwrap()).collect();
    let once = ["pp8", "pp3", "tg4", "pp8 @ d5", "pp3 @ d5", "tg4 @ d5"];
    assert_eq!(names, [once, once].concat());
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row["n_threads"], if i < once.len() { 1 } else { 2 });
        assert_eq!(row["samples_ns"].as_array().unwrap().len(), 2);
        assert!(row["avg_ts"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_table_is_markdown() {
    let output = bench(&["-p", "8", "-n", "0", "-r", "1", "-t", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("| model | size | params |") && lines[2].contains("| pp8 |"), "{text}");
}

#[test]
fn a_device_map_is_taken_and_its_devices_are_the_backend() {
    let output = bench(&["-p", "8", "-n", "0", "-r", "1", "--device-map", "cpu:1;cpu", "-o", "jsonl"]);
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["backend"], "CPU");
    let output = bench(&["-p", "8", "-n", "0", "--device-map", "cpu:3"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("3 layers of a model that has 2"));
}

#[test]
fn nothing_to_measure_is_a_usage_error() {
    for args in [&["-p", "0", "-n", "0"][..], &["-r", "0"], &["-b", "0"]] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
    }
}
