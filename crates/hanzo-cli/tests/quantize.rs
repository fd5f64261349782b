//! `hanzo quantize` as people call it, on the tiny chat model and a tiny folder.

mod support;

use std::fs;

use support::{Home, facts, model, testdata};

#[test]
fn a_dry_run_shows_every_tensor_and_writes_nothing() {
    let home = Home::new();
    let args = ["quantize", &model(), "Q4_K_M", "--dry-run", "--allow-requantize"];
    let text = home.run(&args).good();
    assert!(text.contains("tensor") && text.contains("blk.0.attn_q.weight"), "{text}");
    assert!(text.lines().last().unwrap().contains("bits per weight"), "{text}");
    let json = home.run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(json["written"], serde_json::Value::Null);
    let tensors = json["tensors"].as_array().unwrap();
    let bytes = |field: &str| tensors.iter().map(|t| t[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(json["bytes_to"], bytes("bytes_to"));
    assert_eq!(json["bytes_from"], bytes("bytes_from"));
    assert!(tensors.iter().any(|t| t["instead_of"] == "Q4_K"), "{json}");
}

#[test]
fn a_file_is_made_once_and_answers_as_before() {
    let home = Home::new();
    let out = home.path("small.gguf").display().to_string();
    let source = model();
    let error = home.run(&["quantize", &source, &out, "F16"]).bad(1);
    assert!(error.contains("it is Q8_0 already") && error.contains("--allow-requantize"), "{error}");
    let args = ["quantize", &source, &out, "F16", "--allow-requantize", "-t", "2"];
    let told = home.run(&args).good();
    assert!(told.starts_with(&out), "{told}");
    let answer = home.run(&["run", "-m", &out, "Hello"]).good();
    assert!(answer.contains(facts()["answer"].as_str().unwrap()), "{answer}");

    let before = fs::metadata(&out).unwrap().len();
    let error = home.run(&args).bad(2);
    assert!(error.contains("is there already; --force replaces it"), "{error}");
    home.run(&["quantize", &source, &out, "COPY", "--force"]).good();
    assert!(fs::metadata(&out).unwrap().len() < before);
    let left: Vec<_> = fs::read_dir(home.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".tmp")), "{left:?}");
}

#[test]
fn a_folder_becomes_a_file() {
    let home = Home::new();
    // Beside these two the fixture's folder has a GGUF file, which would be taken first.
    let folder = home.path("folder");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(testdata("tiny/llama").join(name), folder.join(name)).unwrap();
    }
    let folder = folder.display().to_string();
    let out = home.path("llama.gguf").display().to_string();
    let done = home.run(&["quantize", &folder, &out, "Q8_0"]);
    assert!(done.err.contains("there is no tokenizer.json"), "{}", done.err);
    done.good();
    let json = home.run(&["inspect", "--json", &out]).json();
    assert_eq!(json["architecture"], "llama");
    // All that it lacks is what the folder lacked.
    assert!(json["reason"].as_str().unwrap().contains("the file has no vocabulary"), "{}", json["reason"]);
    assert!(json["bytes_by_type"].as_array().unwrap().iter().any(|t| t["type"] == "Q8_0"), "{json}");
}

#[test]
fn what_cannot_be_made_is_refused() {
    let home = Home::new();
    let (source, out) = (model(), home.path("x.gguf").display().to_string());
    let with = |more: &[&str]| home.run(&[&["quantize", &source, &out][..], more].concat());
    let error = with(&["Q9"]).bad(2);
    assert!(error.contains("type \"Q9\" is not one of") && error.contains("Q4_K_M"), "{error}");
    let error = with(&["Q8_0", "--tensor-type", "a("]).bad(2);
    assert!(error.contains("--tensor-type"), "{error}");
    let error = with(&["Q8_0", "--output-tensor-type", "Q8_K_XL"]).bad(2);
    assert!(error.contains("--output-tensor-type"), "{error}");
    let error = with(&["Q8_0", "--imatrix", &source]).bad(1);
    assert!(error.contains("not an importance matrix"), "{error}");
    assert!(!home.path("x.gguf").exists());
    // Without a file to write there must be --dry-run.
    assert_eq!(home.run(&["quantize", &source, "Q8_0"]).code, Some(2));
}
