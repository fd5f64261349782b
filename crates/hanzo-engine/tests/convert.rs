//! Folders of config.json and safetensors as GGUF files: the tiny models of `testdata/tiny` in both spellings. What a file
//! gives is compared with `transformers`, and what it holds with the twin that llama.cpp's converter made.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::{ops::ControlFlow, path::Path};

use common::{TOLERANCE, cases, cpu, decoder, folder, max_difference, whole};
use hanzo_engine::{
    ModelFile,
    quantize::{Options, Outcome, Plan, Source, Target},
};
use hanzo_ml::{
    file::{Array, Value, gguf::Gguf},
    parallel::Parallel,
};
use hanzo_quant::Mix;

/// What GGUF cannot express, and the phrase that says so.
const REFUSED: &[(&str, &str)] = &[
    ("llama-rope-yarn-no-truncate", "rotation Yarn"),
    ("llama-rope-longrope-long", "rotation LongRope"),
    ("llama-rope-longrope-short", "rotation LongRope"),
    ("llama-rope-longrope-both", "rotation LongRope"),
    ("qwen2-window", "layer 1: attention window Some(16) would become None"),
    ("qwen3-window", "layer 1: attention window Some(16) would become None"),
    ("qwen3moe-window", "layer 0: attention window Some(16) would become None"),
    ("gemma2", "layer 0: attention scale"),
    ("gemma2-no-softcap", "final softcap None would become Some(30.0)"),
    ("gemma3", "layer 0: attention scale"),
    ("gemma3-defaults", "layer 0: attention scale"),
    ("gemma3-pattern", "layer 0: attention scale"),
    ("gemma3-softcap", "layer 0: attention scale"),
];

fn options(mix: &str) -> Options {
    Options {
        target: Target::Mix(Mix::from_name(mix).unwrap()),
        pure: false,
        keep_output: false,
        requantize: false,
        output: None,
        embedding: None,
        rules: vec![],
    }
}

fn write(file: ModelFile, mix: &str, threads: usize, path: &Path) {
    let source = Source::new(file).unwrap();
    let plan = Plan::new(&source, &options(mix), None).unwrap();
    let parallel = Parallel::new(Some(threads)).unwrap();
    let outcome = plan.write(path, &parallel, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(outcome, Outcome::Written);
}

#[test]
fn converted_models_give_the_logits_of_transformers() {
    let dir = tempfile::tempdir().unwrap();
    let (mut n_converted, mut failures) = (0, Vec::new());
    for case in &cases() {
        for (name, file) in case.files().into_iter().filter(|(name, _)| name.ends_with(".json")) {
            if let Some((_, phrase)) = REFUSED.iter().find(|(refused, _)| *refused == case.name) {
                let error = Source::new(file).err().map(|e| e.to_string()).unwrap_or_default();
                if !(error.contains("cannot express this model") && error.contains(phrase)) {
                    failures.push(format!("{name} should be refused for {phrase:?}: {error:?}"));
                }
                continue;
            }
            let path = dir.path().join("model.gguf");
            write(file, "F32", 2, &path);
            let file = ModelFile::open(&path).unwrap();
            let spec = file.spec().unwrap_or_else(|e| panic!("{name}: {e}"));
            for prompt in &case.prompts {
                let mut decoder = decoder(&file, spec.clone(), cpu(2), prompt.tokens.len());
                let error = max_difference(&whole(&mut decoder, &prompt.tokens), &case.logits(prompt));
                // GGUF readers do not round the embedding's factor to the type of the weights.
                let tolerance = if case.name == "gemma-bf16" { 0.01 } else { TOLERANCE };
                if error / case.max_abs_logit > tolerance {
                    failures.push(format!("{name}: {error:.2e}"));
                }
            }
            n_converted += 1;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(n_converted > 50, "{n_converted}");
}

/// The same number, but for the rounding of one that was computed in another order.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => (a - b).abs() <= 1e-6 * b.abs(),
        (Value::Array(Array::F32(a)), Value::Array(Array::F32(b))) => a == b,
        _ => a == b,
    }
}

#[test]
fn converted_models_hold_what_llama_cpps_converter_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut n_twins = 0;
    for case in &cases() {
        let Some(twin) = &case.gguf else { continue };
        let twin = Gguf::open(&folder().join(twin)).unwrap();
        for (name, file) in case.files().into_iter().filter(|(name, _)| name.ends_with(".json")) {
            let path = dir.path().join("model.gguf");
            write(file, "F32", 1, &path);
            let ours = Gguf::open(&path).unwrap();
            for (key, theirs) in twin.metadata().iter() {
                // The model's name is that of its folder, and nobody reads how large it is said to be.
                if ["general.name", "general.size_label"].contains(&key) {
                    continue;
                }
                let found = ours.metadata().get(key);
                assert!(
                    found.is_some_and(|v| same(v, theirs)),
                    "{name}: {key}: {found:?}, theirs {theirs:?}"
                );
            }
            assert_eq!(ours.tensors().len(), twin.tensors().len(), "{name}");
            for info in twin.tensors() {
                let (a, b) = (ours.tensor(&info.name).unwrap(), twin.tensor(&info.name).unwrap());
                assert_eq!((a.format(), a.shape()), (b.format(), b.shape()), "{name}: {}", info.name);
                let near = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-6 * y.abs();
                let (a, b) = (a.to_f32(), b.to_f32());
                let exact = info.name != "rope_freqs.weight";
                assert!(if exact { a == b } else { a.iter().zip(&b).all(near) }, "{name}: {}", info.name);
            }
        }
        n_twins += 1;
    }
    assert!(n_twins >= 17, "{n_twins}");
}

/// Which thread encodes which row is left to chance; the file is the same, and so is one that is made in two steps.
#[test]
fn the_file_depends_on_nothing_but_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let file = || common::case("llama").file();
    for mix in ["Q4_K_M", "Q8_0", "IQ4_NL"] {
        write(file(), mix, 1, &path("one.gguf"));
        write(file(), mix, 3, &path("three.gguf"));
        write(file(), "F32", 1, &path("f32.gguf"));
        write(ModelFile::open(&path("f32.gguf")).unwrap(), mix, 2, &path("steps.gguf"));
        let one = std::fs::read(path("one.gguf")).unwrap();
        assert!(one == std::fs::read(path("three.gguf")).unwrap(), "{mix}");
        assert!(one == std::fs::read(path("steps.gguf")).unwrap(), "{mix}");
    }
}

#[test]
fn who_has_enough_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let source = Source::new(common::case("llama").file()).unwrap();
    let plan = Plan::new(&source, &options("Q8_0"), None).unwrap();
    let mut calls = 0;
    let stopped = plan.write(&dir.path().join("x.gguf"), &Parallel::new(Some(1)).unwrap(), &mut |progress| {
        calls += 1;
        assert!(progress.done <= progress.total);
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(stopped.unwrap(), Outcome::Stopped);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
