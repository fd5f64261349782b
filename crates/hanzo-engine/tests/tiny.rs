//! Every family and variant against `transformers` on tiny random models (`testdata/tiny`, made by
//! `tools/oracle/tiny_text.py`), from config.json in both spellings and from GGUF, on both backends.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{TOLERANCE, cases, cpu, decoder, gpu, gpu_names, max_difference, reference, whole};

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

/// The same on every GPU of this machine. Heads whose width is no multiple of four are refused there.
#[test]
fn logits_on_gpus_equal_transformers() {
    for name in gpu_names() {
        let (mut n_logits, mut n_refused, mut failures) = (0, 0, Vec::new());
        for case in &cases() {
            let file = case.file();
            let spec = file.spec().unwrap();
            if spec.layers.iter().any(|l| !l.attention().head_dim.is_multiple_of(4)) {
                n_refused += 1;
                continue;
            }
            for prompt in &case.prompts {
                let mut decoder = decoder(&file, spec.clone(), gpu(&name), prompt.tokens.len());
                let ours = whole(&mut decoder, &prompt.tokens);
                let error = max_difference(&ours, &case.logits(prompt)) / case.max_abs_logit;
                n_logits += ours.len();
                if error > TOLERANCE {
                    failures.push(format!("{}, {} tokens: {error:.2e}", case.name, prompt.tokens.len()));
                }
            }
        }
        println!("{name}: {n_logits} logits compared, {n_refused} models refused");
        assert!(failures.is_empty(), "{name} differs from transformers:\n{}", failures.join("\n"));
    }
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
