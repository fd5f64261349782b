//! Tokenizers against other people's ids.
//!
//! Oracles: the expected ids that llama.cpp ships beside its vocabularies, and llama.cpp's server on the real models
//! (`testdata/golden/tokenizer`, made by `tools/oracle/tokenizer_goldens.py`). The vocabularies themselves come with
//! `tools/models/fetch_vocabs.py`, the models with `tools/models/fetch.py`; a test whose file is absent says SKIPPED.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they skip"
)]

use std::path::{Path, PathBuf};

use hanzo_engine::text::{EncodeOptions, Tokenizer};
use hanzo_ml::file::gguf::Gguf;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn golden(name: &str) -> Value {
    let path = Path::new(ROOT).join("testdata/golden/tokenizer").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

fn model(test: &str, file: &str, tool: &str) -> Option<PathBuf> {
    let path = Path::new(ROOT).join("models").join(file);
    if !path.exists() {
        println!("SKIPPED {test}: {tool} fetches models/{file}");
        return None;
    }
    Some(path)
}

fn load(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(Gguf::open(path).unwrap().metadata(), None).unwrap()
}

/// Ids, run-length coded: `[id, [id, count], ...]`.
fn ids(value: &Value) -> Vec<u32> {
    let num = |v: &Value| v.as_u64().unwrap() as u32;
    let run = |v: &Value| match v.as_array() {
        Some(run) => vec![num(&run[0]); num(&run[1]) as usize],
        None => vec![num(v)],
    };
    value.as_array().unwrap().iter().flat_map(run).collect()
}

/// A text, or `[unit, count]`.
fn text(value: &Value) -> String {
    match value.as_array() {
        Some(parts) => parts[0].as_str().unwrap().repeat(parts[1].as_u64().unwrap() as usize),
        None => value.as_str().unwrap().to_owned(),
    }
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

#[test]
fn vocabularies_of_llama_cpp_give_its_expected_ids() {
    let golden = golden("llama_vocabs.json");
    let (mut n, mut failures) = (0, vec![]);
    for (name, case) in golden["cases"].as_object().unwrap() {
        let file = format!("vocab/ggml-vocab-{name}.gguf");
        let Some(path) = model("vocabularies_of_llama_cpp", &file, "tools/models/fetch_vocabs.py") else {
            continue;
        };
        let tokenizer = match Tokenizer::from_gguf(Gguf::open(&path).unwrap().metadata(), None) {
            Ok(tokenizer) => tokenizer,
            Err(e) => {
                failures.push(format!("{name}: {e}"));
                continue;
            }
        };
        let inputs = golden["inputs"][case["inputs"].as_u64().unwrap() as usize].as_array().unwrap();
        for (input, want) in inputs.iter().zip(case["ids"].as_array().unwrap()) {
            let (input, want) = (input.as_str().unwrap(), ids(want));
            let got = tokenizer.encode(input, PLAIN).unwrap();
            if got != want {
                failures.push(format!("{name}: {input:?}\n  want {want:?}\n  got  {got:?}"));
            }
            n += 1;
        }
    }
    println!("{n} texts compared");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

fn real_model(name: &str, file: &str) {
    let Some(path) = model(name, file, "tools/models/fetch.py") else { return };
    let tokenizer = load(&path);
    let golden = golden(&format!("{name}.json"));
    let mut failures = vec![];
    let texts = golden["texts"].as_array().unwrap();
    for (i, t) in texts.iter().enumerate() {
        let input = text(t);
        let parsed = &golden["parsed"][i];
        let plain = golden["plain"].get(i.to_string()).unwrap_or(parsed);
        for (options, want) in [(PARSED, ids(parsed)), (PLAIN, ids(plain))] {
            let got = tokenizer.encode(&input, options).unwrap();
            if got != want {
                failures.push(format!("{options:?} {t}\n  want {want:?}\n  got  {got:?}"));
            }
        }
    }
    let decoded = golden["decoded"].as_array().unwrap();
    for pair in decoded {
        let got = tokenizer.decode(&ids(&pair[0]), false);
        if got != pair[1].as_str().unwrap() {
            failures.push(format!("decode {}\n  want {:?}\n  got  {got:?}", pair[0], pair[1]));
        }
    }
    println!("{name}: {} texts, {} sequences", texts.len(), decoded.len());
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn smollm2_equals_llama_cpp() {
    real_model("smollm2-135m", "smollm2-135m-instruct.Q4_1.gguf");
}

#[test]
fn qwen2_equals_llama_cpp() {
    real_model("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf");
}

#[test]
fn gemma3_equals_llama_cpp() {
    real_model("gemma-3-270m", "gemma-3-270m.Q4_K_M.gguf");
}

fn fnv(ids: &[u32]) -> String {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", ids.iter().flat_map(|id| id.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, step))
}

#[test]
fn tokenizer_json_files_equal_pypi_tokenizers() {
    let golden = golden("json.json");
    let texts = golden["texts"].as_array().unwrap();
    let (mut n, mut failures) = (0, vec![]);
    for (name, case) in golden["cases"].as_object().unwrap() {
        let file = format!("tokenizers/{name}/tokenizer.json");
        let Some(path) = model("tokenizer_json_files", &file, "tools/models/fetch_tokenizers.py") else {
            continue;
        };
        let config = path.with_file_name("tokenizer_config.json");
        let tokenizer = Tokenizer::from_json(&path, Some(&config)).unwrap();
        for (i, t) in texts.iter().enumerate() {
            for (key, options) in [("parsed", PARSED), ("plain", PLAIN)] {
                let got = tokenizer.encode(&text(t), options).unwrap();
                let want = &case[key][i];
                if serde_json::json!([got.len(), fnv(&got)]) != *want {
                    failures.push(format!("{name} {key} {t}: want {want}, got {} ids", got.len()));
                }
                n += 1;
            }
        }
    }
    println!("{n} encodings compared");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Texts on which the two Gemma files differ: what one calls a control token the other does not, and a literal `▁` is a
/// space to one and not to the other. (llama.cpp's ids for the GGUF file are tested above, `tokenizers`' for the other.)
const GEMMA_FILES_DIFFER: &[&str] = &["▁a ▁ b", "</s>", "<mask>", "<unused0>", "<unused10>"];

#[test]
fn gguf_and_json_of_one_vocabulary_agree() {
    let test = "gguf_and_json_of_one_vocabulary_agree";
    let gguf = model(test, "gemma-3-270m.Q4_K_M.gguf", "tools/models/fetch.py");
    let json = model(test, "tokenizers/gemma3/tokenizer.json", "tools/models/fetch_tokenizers.py");
    let (Some(gguf), Some(json)) = (gguf, json) else { return };
    let (a, b) = (load(&gguf), Tokenizer::from_json(&json, None).unwrap());
    let golden = golden("json.json");
    let mut failures = vec![];
    for t in golden["texts"].as_array().unwrap().iter().map(text).filter(|t| t.len() < 5000) {
        if GEMMA_FILES_DIFFER.contains(&t.as_str()) {
            continue;
        }
        let ids = a.encode(&t, PLAIN).unwrap();
        if ids != b.encode(&t, PLAIN).unwrap() {
            failures.push(format!("{t:?}"));
        }
        assert_eq!(a.decode(&ids, false), b.decode(&ids, false));
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
