//! `hanzo inspect` through the real program: facts of good files, and a clear error for every bad one.
//!
//! What a tiny model holds is read from its own config.json, which `transformers` wrote; the hostile files come with
//! the generator that their folder's README names.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value as Json;

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

fn hanzo(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hanzo"));
    command.args(args).arg(file).stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap()
}

fn inspect(file: &Path) -> Output {
    hanzo(&["inspect"], file)
}

fn inspect_json(file: &Path) -> Json {
    let output = hanzo(&["inspect", "--json"], file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts a refusal: exit code 1, nothing on standard output, one error that says more than "error".
fn assert_refused(file: &Path, wanted: &str) {
    let output = inspect(file);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}: {text}", file.display());
    assert!(output.stdout.is_empty(), "{}: it printed facts", file.display());
    assert!(text.starts_with("error: ") && text.contains(wanted), "{}: {text}", file.display());
    assert!(!text.contains("panicked"), "{}: {text}", file.display());
    assert!(!text.contains('\x1b'), "{}: {text}", file.display());
}

#[test]
fn a_plan_tells_what_a_run_takes() {
    let file = testdata("tiny/with-vocab.gguf");
    let output = hanzo(&["inspect", "--json", "--plan", "-c", "64", "--cache-type-k", "f32"], &file);
    let facts: Json = serde_json::from_slice(&output.stdout).unwrap();
    let plan = &facts["plan"];
    assert_eq!((&plan["context"], plan["devices"].as_array().unwrap().len()), (&64.into(), 1));
    let device = &plan["devices"][0];
    assert!(device["device"].as_str().unwrap().starts_with("cpu ("));
    // 2 layers of 2 heads of 16 elements and 64 positions, keys of 4 bytes and values of 2.
    assert_eq!((&device["layers"], &device["cache_bytes"]), (&2.into(), &(2 * 2 * 16 * 64 * 6).into()));
    let bytes: u64 = facts["tensors"].as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
    let of = |name: &str| device[name].as_u64().unwrap();
    assert!(of("weights_bytes") + of("mapped_bytes") >= bytes && of("workspace_bytes") > 0, "{device}");
    assert!(inspect_json(&file)["plan"].is_null());
    let text = hanzo(&["inspect", "--plan", "-c", "64"], &file);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("memory, with a context of 64") && text.contains("workspace"), "{text}");
    // The context of a run that nobody asked for.
    assert_eq!(hanzo(&["inspect", "-c", "64"], &file).status.code(), Some(2));
    assert_eq!(hanzo(&["inspect", "--plan", "-c", "999999"], &file).status.code(), Some(1));
}

#[test]
fn a_gguf_file_and_a_folder_tell_the_same_facts() {
    let config: Json =
        serde_json::from_slice(&fs::read(testdata("tiny/llama/config.json")).unwrap()).unwrap();
    let gguf = inspect_json(&testdata("tiny/llama/model.gguf"));
    let folder = inspect_json(&testdata("tiny/llama"));
    for facts in [&gguf, &folder] {
        assert_eq!(facts["architecture"], config["model_type"]);
        // These files have no vocabulary, so no text can be run through them.
        assert_eq!(facts["supported"], false);
        assert!(facts["reason"].as_str().unwrap().contains("tokenizer"), "{}", facts["reason"]);
        assert_eq!(facts["parameters"].as_u64(), Some(n_params(facts)));
        let bytes: u64 =
            facts["tensors"].as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap()).sum();
        let by_type = facts["bytes_by_type"].as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap());
        assert_eq!(by_type.sum::<u64>(), bytes);
        assert!(bytes < facts["file_bytes"].as_u64().unwrap());
    }
    let key = |facts: &Json, key: &str| {
        let entries = facts["metadata"].as_array().unwrap();
        entries.iter().find(|entry| entry["key"] == key).unwrap()["value"].clone()
    };
    assert_eq!(key(&gguf, "llama.embedding_length"), config["hidden_size"]);
    assert_eq!(key(&gguf, "llama.block_count"), config["num_hidden_layers"]);
    assert_eq!(key(&folder, "hidden_size"), config["hidden_size"]);
}

/// Parameters, from the shapes.
fn n_params(facts: &Json) -> u64 {
    let product =
        |t: &Json| t["shape"].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product::<u64>();
    facts["tensors"].as_array().unwrap().iter().map(product).sum()
}

#[test]
fn the_text_names_metadata_tensors_and_totals() {
    let output = inspect(&testdata("tiny/with-vocab.gguf"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for wanted in
        ["supported     yes: ", "\nbytes by type\n", "\nmetadata (", "\ntensors (", "\ntoken_embd.weight"]
    {
        assert!(text.contains(wanted), "{wanted:?} is missing from {text}");
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_lone_safetensors_file_is_read_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights.bin");
    fs::copy(testdata("tiny/llama/model.safetensors"), &file).unwrap();
    let facts = inspect_json(&file);
    assert_eq!(facts["container"], "safetensors");
    assert_eq!(facts["supported"], false);
    assert!(facts["reason"].as_str().unwrap().contains("config.json"));
    // With the config beside it, only the vocabulary is missing.
    fs::copy(testdata("tiny/llama/config.json"), folder.path().join("config.json")).unwrap();
    assert!(inspect_json(&file)["reason"].as_str().unwrap().contains("tokenizer.json"));
}

#[test]
fn an_unsupported_model_is_inspected_and_the_reason_named() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| fs::copy(testdata("tiny/llama").join(name), folder.path().join(name)).unwrap();
    copy("model.safetensors");
    let config = fs::read_to_string(testdata("tiny/llama/config.json")).unwrap();
    let cases = [
        (config.replacen("\"llama\"", "\"no_such_model\"", 1), "no_such_model"),
        (config.replacen('{', "{\"surprise_factor\": 2,", 1), "surprise_factor"),
    ];
    for (changed, wanted) in cases {
        assert_ne!(changed, config);
        fs::write(folder.path().join("config.json"), changed).unwrap();
        let facts = inspect_json(folder.path());
        assert_eq!(facts["supported"], false);
        assert!(facts["reason"].as_str().unwrap().contains(wanted), "{}", facts["reason"]);
    }
}

#[test]
fn every_hostile_file_is_refused() {
    let expected = fs::read_to_string(testdata("hostile/expected.tsv")).unwrap();
    assert!(expected.lines().count() > 80);
    for line in expected.lines() {
        let (file, phrase) = line.split_once('\t').unwrap();
        assert_refused(&testdata("hostile").join(file), phrase);
    }
}

#[test]
fn every_truncation_of_a_header_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.gguf", "model.safetensors"] {
        let whole = fs::read(testdata("tiny/llama").join(name)).unwrap();
        let file = folder.path().join(name);
        for len in [0, 3, 4, 8, 9, 30, 100, 500, 900, whole.len() / 2, whole.len() - 1] {
            fs::write(&file, &whole[..len]).unwrap();
            assert_refused(&file, name);
        }
    }
}

#[test]
fn what_is_no_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert_refused(folder.path(), "config.json");
    assert_refused(&folder.path().join("absent.gguf"), "absent.gguf");
    for (config, wanted) in [("[]", "config.json"), ("{", "config.json"), ("{}", "model.safetensors")] {
        fs::write(folder.path().join("config.json"), config).unwrap();
        assert_refused(folder.path(), wanted);
    }
    let nested = format!("{{\"a\":{}", "[".repeat(1 << 20));
    fs::write(folder.path().join("config.json"), nested).unwrap();
    assert_refused(folder.path(), "config.json");
}

#[test]
fn wrong_usage_is_exit_code_2_and_help_is_0() {
    let code = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hanzo"));
        command.args(args).stdin(Stdio::null()).output().unwrap().status.code()
    };
    assert_eq!(code(&["inspect"]), Some(2));
    assert_eq!(code(&["inspect", "--no-such-flag", "x"]), Some(2));
    assert_eq!(code(&["no-such-command"]), Some(2));
    assert_eq!(code(&["--help"]), Some(0));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hanzo"))
        .args(["inspect", "--json"])
        .arg(testdata("tiny/llama/model.gguf"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
