//! `hanzo run` through the real program, with the tiny chat model whose answer is known by construction.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::fs;

use support::{Done, Home, facts, model, testdata};

fn run(args: &[&str], input: &str) -> Done {
    let model = model();
    let args: Vec<&str> = ["run", "-m", &model].into_iter().chain(args.iter().copied()).collect();
    Home::new().run_with(&args, input, &[])
}

fn answer() -> String {
    facts()["answer"].as_str().unwrap().to_owned()
}

#[test]
fn the_answer_goes_to_standard_output_alone() {
    let done = run(&["Hello?"], "");
    assert_eq!(done.err, "");
    assert_eq!(done.good(), format!("{}\n", answer()));
}

#[test]
fn json_has_the_stated_keys() {
    let facts = facts();
    let json = run(&["--json", "Hello?"], "").json();
    assert_eq!(json["text"], facts["answer"]);
    assert_eq!(json["finish_reason"], "stop");
    assert_eq!(json["model"], model());
    assert!(json["backend"].as_str().unwrap().starts_with("cpu ("));
    // The first conversation of the facts is this prompt.
    assert_eq!(json["prompt_tokens"], facts["prompts"][0]["ids"].as_array().unwrap().len());
    // The last id ends the answer and is no text of it.
    assert_eq!(json["completion_tokens"], facts["answer_ids"].as_array().unwrap().len() - 1);
    assert!(json["time_to_first_token_s"].as_f64().unwrap() > 0.0);
    assert!(json["decode_tokens_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_answer_can_be_limited() {
    let json = run(&["--json", "-n", "2", "Hello?"], "").json();
    assert_eq!((&json["text"], &json["finish_reason"]), (&"Hello from".into(), &"length".into()));
    // The cut goes through a character of four bytes: what is there of it is no text.
    let json = run(&["--json", "-n", "9", "Hello?"], "").json();
    assert_eq!(json["text"], "Hello from a tiny test model \u{fffd}");
}

#[test]
fn a_full_context_is_told() {
    let done = run(&["--ignore-eos", "-c", "64", "Hello?"], "");
    assert!(done.err.contains("context of 64") && done.err.contains("finish_reason: length"), "{}", done.err);
    let text = done.good();
    assert!(text.starts_with(&answer()) && text.len() > 2 * answer().len(), "{text}");
    let json = run(&["--ignore-eos", "-c", "64", "--json", "Hello?"], "").json();
    assert_eq!(json["finish_reason"], "length");
    // The last token was chosen and never read: it needs no place.
    let n_tokens = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(n_tokens("prompt_tokens") + n_tokens("completion_tokens"), 65, "{json}");
}

#[test]
fn the_prompt_is_the_argument_and_standard_input_joined() {
    let n_tokens = |args: &[&str], input: &str| {
        let args: Vec<&str> = ["--json", "--raw"].into_iter().chain(args.iter().copied()).collect();
        run(&args, input).json()["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(n_tokens(&["Hello"], " from"), n_tokens(&["Hello\n from"], ""));
    assert_eq!(n_tokens(&[], "Hello\n from"), n_tokens(&["Hello\n from"], ""));
    // Begin, one word.
    assert_eq!(n_tokens(&["Hello"], ""), 2);
    assert_eq!(run(&["--raw", "Hello from a"], "").good(), " tiny test model 😀\n");
}

#[test]
fn an_empty_prompt_is_wrong_usage() {
    for args in [&[][..], &[""], &["--raw"]] {
        assert!(run(args, "").bad(2).contains("no prompt"), "{args:?}");
    }
}

#[test]
fn impossible_options_are_refused() {
    for (args, code, wanted) in [
        (&["-c", "257", "x"][..], 1, "context 257 is not within 1 and the 256 of training"),
        (&["-c", "0", "x"], 1, "context 0"),
        (&["-c", "999999999999", "x"], 1, "context 999999999999"),
        (&["-t", "0", "x"], 1, "threads"),
        (&["-t", "100000", "x"], 1, "threads"),
        (&["-c", "x", "x"], 2, "--ctx-size"),
        (&["-u", "0", "x"], 2, "--ubatch-size"),
        (&["--cache-type-k", "q4_0", "x"], 2, "cache-type-k"),
        (&["-ctk", "q4_0", "x"], 2, "cache-type-k"),
        (
            &["-ctv", "q8_0", "x"],
            1,
            "cache-type-v q8_0: layer 0 has heads of 16 elements, not a multiple of 32",
        ),
        (&["--raw", "--system", "be brief", "x"], 2, "--system"),
        (&["--pre", "no-such-pre", "x"], 1, "no-such-pre"),
    ] {
        let error = run(args, "").bad(code);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
}

#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let long = "the ".repeat(300);
    for (args, context) in [(&[][..], "256"), (&["-c", "32"], "32")] {
        let error = run(args, &long).bad(1);
        assert!(error.contains("context") && error.contains(context), "{error}");
    }
}

#[test]
fn a_system_message_and_every_cache_type_and_step_size_work() {
    for args in [
        &["--system", "Be a tiny model.", "Hello?"][..],
        &["--cache-type-k", "f32", "--cache-type-v", "bf16", "Hello?"],
        &["-ctk", "bf16", "-ctv", "f32", "-ub", "3", "Hello?"],
        &["-u", "1", "Hello?"],
        &["-t", "1", "-c", "40", "Hello?"],
    ] {
        assert_eq!(run(args, "").good(), format!("{}\n", answer()), "{args:?}");
    }
}

#[test]
fn the_system_message_is_part_of_the_prompt() {
    let facts = facts();
    let json = run(&["--json", "--system", "Be a tiny model.", "Hello?"], "").json();
    // The second conversation of the facts.
    assert_eq!(json["prompt_tokens"], facts["prompts"][1]["ids"].as_array().unwrap().len());
}

#[test]
fn the_memory_plan_follows_context_and_cache_types() {
    // 2 layers of 2 heads of 16 elements, keys and values.
    let elements = |n_tokens: u64| 2 * 2 * 2 * 16 * n_tokens;
    for (args, n_tokens, bytes_of_pair) in [
        (&["-v", "x"][..], 256, 4),
        (&["-v", "-c", "64", "x"], 64, 4),
        (&["-v", "--cache-type-k", "f32", "x"], 256, 6),
        (&["-v", "--cache-type-k", "f32", "--cache-type-v", "f32", "x"], 256, 8),
    ] {
        let done = run(args, "");
        let kib = (elements(n_tokens) * bytes_of_pair / 2) as f64 / 1024.0;
        let wanted = format!("cache {kib:.2} KiB for {n_tokens} tokens");
        assert!(done.err.contains(&wanted), "{args:?}: {wanted} is missing from {}", done.err);
    }
}

#[test]
fn a_model_is_spread_over_devices() {
    for args in [
        ["-ngl", "0"],
        ["-ngl", "-1"],
        ["-ngl", "auto"],
        ["--n-gpu-layers", "all"],
        ["--device-map", "cpu:1;cpu"],
        ["--device-map", "cpu:2"],
    ] {
        assert_eq!(run(&[&args[..], &["Hello?"]].concat(), "").good(), format!("{}\n", answer()), "{args:?}");
    }
    for (args, code, wanted) in [
        (&["-ngl", "1"][..], 1, "n-gpu-layers 1: the device is cpu"),
        (&["-ngl", "x"], 2, "n-gpu-layers `x`"),
        (&["--device-map", "0:1;cpu"], 1, "0 is the number of a GPU, but device is cpu"),
        (&["--device-map", "cpu:3"], 1, "device-map `cpu:3`: 3 layers of a model that has 2"),
        (&["--device-map", "cpu;cpu:1"], 2, "only the last may"),
        (&["--device-map", "rocm:99:1;cpu"], 1, "rocm"),
        (&["--device-map", "cpu", "-ngl", "1"], 2, "cannot be used with"),
    ] {
        let error = run(&[args, &["Hello?"]].concat(), "").bad(code);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
}

#[test]
fn details_go_to_standard_error() {
    let done = run(&["-v", "Hello?"], "");
    for wanted in ["memory: weights", "tok/s", "first token after"] {
        assert!(done.err.contains(wanted), "{wanted:?} is missing from {}", done.err);
    }
    assert_eq!(done.good(), format!("{}\n", answer()));
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let home = Home::new();
    for (name, wanted) in [
        ("./absent.gguf", "absent.gguf"),
        ("no-such-model", "no-such-model"),
        ("org/absent", "org/absent"),
        ("smollm2:135m", "smollm2:135m"),
    ] {
        let error = home.run(&["run", "--offline", "-m", name, "x"]).bad(1);
        assert!(error.contains(wanted), "{name}: {error}");
    }
    home.file("tokenizer.json", "{}");
    let folder = home.path("").display().to_string();
    assert!(home.run(&["run", "-m", &folder, "x"]).bad(1).contains("config.json"));
}

#[test]
fn input_that_is_no_utf8_is_refused() {
    let model = model();
    let done = Home::new().run_with(&["run", "-m", &model], b"\xff\xfe", &[]);
    assert!(done.bad(1).contains("standard input"));
}

#[test]
fn every_hostile_file_is_refused() {
    let home = Home::new();
    let expected = fs::read_to_string(testdata("hostile/expected.tsv")).unwrap();
    assert!(expected.lines().count() > 80);
    for line in expected.lines() {
        let (file, phrase) = line.split_once('\t').unwrap();
        let path = testdata("hostile").join(file).display().to_string();
        let error = home.run(&["run", "-m", &path, "Hello"]).bad(1);
        // What is no GGUF file is no model by itself.
        if file.ends_with(".gguf") {
            assert!(error.contains(phrase), "{file}: {error}");
        }
    }
}

#[test]
fn a_damaged_model_answers_or_is_refused() {
    let home = Home::new();
    let whole = fs::read(model()).unwrap();
    let refused = |damaged: &[u8]| {
        let file = home.file("damaged.gguf", damaged);
        let done = home.run(&["run", "-m", &file, "-n", "3", "Hello?"]);
        if done.code == Some(0) {
            return false;
        }
        done.bad(1);
        true
    };
    // The header ends near byte 7000; the vocabulary and the template are in it.
    for len in [0, 4, 23, 24, 100, 700, 3000, 7000, whole.len() / 2, whole.len() - 1] {
        assert!(refused(&whole[..len]), "cut at {len}");
    }
    let mut n_refused = 0;
    for step in 0..60 {
        let mut damaged = whole.clone();
        let at = (step * 131 + 5) % 7800;
        damaged[at] ^= [0x01, 0x80, 0xff][step % 3];
        n_refused += usize::from(refused(&damaged));
    }
    assert!(n_refused > 5, "only {n_refused} of 60 changes were noticed");
}

#[test]
fn a_folder_with_a_gguf_file_among_others_is_a_model() {
    let home = Home::new();
    home.file("README.md", "# A model\n");
    fs::copy(model(), home.path("model.gguf")).unwrap();
    let folder = home.path("").display().to_string();
    assert_eq!(home.run(&["run", "-m", &folder, "Hello?"]).good(), format!("{}\n", answer()));
}
