//! Every family and variant against `transformers` on tiny random models (`testdata/tiny`, made by
//! `tools/oracle/tiny_text.py`), from config.json in both spellings and from GGUF, on both backends.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{TOLERANCE, cases, cpu, decoder, max_difference, reference, whole};

#[test]
fn logits_equal_transformers() {
    let mut n_logits = 0;
    let mut failures = Vec::new();
    let cases = cases();
    assert!(cases.len() >= 40, "only {} cases", cases.len());
    for case in &cases {
        for (name, file) in case.files() {
            let spec = file.spec().unwrap_or_else(|e| panic!("{name}: {e}"));
            for (device, make) in [("cpu", (|| cpu(2)) as fn() -> _), ("reference", reference)] {
                for prompt in &case.prompts {
                    // The context is the prompt, since LongRoPE's factors depend on it.
                    let mut decoder = decoder(&file, spec.clone(), make(), prompt.tokens.len());
                    let ours = whole(&mut decoder, &prompt.tokens);
                    let error = max_difference(&ours, &case.logits(prompt)) / case.max_abs_logit;
                    n_logits += ours.len();
                    if error > TOLERANCE {
                        failures
                            .push(format!("{name} on {device}, {} tokens: {error:.2e}", prompt.tokens.len()));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "differs from transformers:\n{}", failures.join("\n"));
    println!("{n_logits} logits of {} models equal transformers within {TOLERANCE:e}", cases.len());
}

#[test]
fn dynamic_scaling_is_refused_by_name() {
    let folder = common::folder();
    let file = hanzo_engine::ModelFile::open_hugging_face(
        &folder.join(common::REFUSED).join("config.json"),
        &folder.join("llama/model.safetensors"),
    );
    let error = file.unwrap().spec().unwrap_err().to_string();
    assert!(error.contains("rope_type dynamic is not supported"), "{error}");
}
