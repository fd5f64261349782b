//! The options of sampling through the real program, with the tiny chat model whose answer is known by construction.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use support::{Done, Home, facts, model};

fn run(args: &[&str]) -> Done {
    let model = model();
    let args: Vec<&str> =
        ["run", "-m", &model].into_iter().chain(args.iter().copied()).chain(["Hello?"]).collect();
    Home::new().run_with(&args, "", &[])
}

fn text(args: &[&str]) -> String {
    let args: Vec<&str> = ["--json"].into_iter().chain(args.iter().copied()).collect();
    run(&args).json()["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_seed_decides_the_answer() {
    let hot = ["--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "30", "--ignore-eos"];
    let with_seed = |seed: &'static str, more: &[&'static str]| {
        text(&hot.into_iter().chain(["--seed", seed]).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let answer = with_seed("1", &[]);
    assert_eq!(with_seed("1", &["-t", "1"]), answer);
    assert_eq!(with_seed("1", &["-t", "2", "-u", "3"]), answer);
    assert_ne!(with_seed("2", &[]), answer);
}

#[test]
fn json_has_the_effective_values() {
    let json = run(&["--json", "--temp", "0.5", "--top-p", "0.9", "-l", "5-inf", "-n", "1"]).json();
    let sampling = &json["sampling"];
    assert_eq!(
        (&sampling["temp"], &sampling["top_p"], &sampling["top_k"]),
        (&0.5.into(), &0.9.into(), &40.into())
    );
    assert_eq!(sampling["logit_bias"][0], "5-inf");
    // A random seed is told, so that the answer can be had again.
    assert!(sampling["seed"].is_u64(), "{sampling}");
    assert_eq!(run(&["--json", "-n", "1"]).json()["sampling"]["temp"], 0);
}

#[test]
fn stop_texts_end_the_answer_and_are_not_part_of_it() {
    let answer = facts()["answer"].as_str().unwrap().to_owned();
    let (before, _) = answer.split_once("tiny").unwrap();
    let json = run(&["--json", "--stop", "tiny"]).json();
    assert_eq!((&json["text"], &json["finish_reason"]), (&before.into(), &"stop".into()));
    // Across tokens, and as streamed.
    assert_eq!(run(&["--stop", "no such", "--stop", "m a t"]).good(), "Hello fro\n");
    // The beginning of a stop text that never ends it is part of the answer.
    assert_eq!(run(&["--stop", &format!("{answer}!")]).good(), format!("{answer}\n"));
}

#[test]
fn a_biased_token_is_never_chosen() {
    let ids = &facts()["answer_ids"];
    let ban = format!("{}-inf", ids[0]);
    assert!(!text(&["-n", "8", "--logit-bias", &ban]).starts_with("Hello"));
}

#[test]
fn wrong_values_are_wrong_usage() {
    for (args, wanted) in [
        (&["--samplers", "top_k;top_q"][..], "there is no sampler \"top_q\""),
        (&["--top-p", "1.5"], "1.5 is not within 0 and 1"),
        (&["--mirostat", "3"], "mirostat"),
        (&["--temp", "nan"], "temp"),
        (&["-l", "5"], "logit-bias"),
        (&["--seed", "x"], "seed"),
    ] {
        let error = run(args).bad(2);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
    for (args, wanted) in
        [(&["--stop", ""][..], "a stop text of 0 bytes"), (&["-l", "4000000000+1"], "token 4000000000")]
    {
        let error = run(args).bad(1);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let done = run(&["--top-p", "0.5"]);
    assert!(done.err.contains("--top-p has no effect"), "{}", done.err);
    let done = run(&["--top-p", "0.5", "--temp", "0.1"]);
    assert_eq!(done.err, "");
    done.good();
}
