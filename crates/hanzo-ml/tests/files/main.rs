//! Model files: what foreign writers wrote is read back exactly, what our writers wrote too, and hostile files are
//! refused with an error that says why.

#![expect(clippy::unwrap_used, reason = "a helper that fails stops its test")]

mod allocations;
mod gguf;
mod hostile;
mod imatrix;
mod metadata;
mod mutations;
mod real;
mod safetensors;
mod split;

use std::path::{Path, PathBuf};

/// A path in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The golden files, see their README.
fn golden(name: &str) -> PathBuf {
    repository("testdata/golden/files").join(name)
}

/// What the golden file `name` holds.
fn expected(name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(golden("expected.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    all[name].clone()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The error's text, which must contain all phrases.
#[track_caller]
fn refused<T>(result: hanzo_ml::Result<T>, phrases: &[&str]) {
    let text = result.err().expect("it should have been refused").to_string();
    for phrase in phrases {
        assert!(text.contains(phrase), "the error should contain {phrase:?}: {text}");
    }
}
