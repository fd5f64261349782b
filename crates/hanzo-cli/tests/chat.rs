//! The conversation of `hanzo run` through the real program, over a pipe.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::fs;

use support::{Done, Home, facts, model, testdata};

fn run(home: &Home, args: &[&str], input: &str) -> Done {
    let model = model();
    let args: Vec<&str> = ["run", "-m", &model].into_iter().chain(args.iter().copied()).collect();
    home.run_with(&args, input, &[])
}

fn answers(n: usize) -> String {
    format!("{}\n", facts()["answer"].as_str().unwrap()).repeat(n)
}

#[test]
fn a_conversation_works_over_a_pipe() {
    let home = Home::new();
    let file = home.path("chat.json").display().to_string();
    let typed = format!("Hello?\n\"\"\"\n/exit\n\"\"\"\n/save {file}\n/exit\nnever\n");
    let done = run(&home, &["-i", "--system", "Be brief."], &typed);
    assert!(done.err.contains("saved 2 turns"), "{}", done.err);
    assert_eq!(done.good(), answers(2));
    // What it saves is what the template command reads.
    let model = model();
    let text = home.run(&["template", "-m", &model, "--messages", &file]).good();
    assert!(text.contains("Be brief.") && text.contains("/exit") && text.contains("test model 😀"), "{text}");
}

#[test]
fn a_prompt_begins_the_conversation() {
    let home = Home::new();
    let question = home.file("question.txt", "Hello?");
    for args in [&["-i", "Hello?"][..], &["-i", "-f", &question]] {
        let done = run(&home, args, "/stats\nmore");
        assert!(done.err.contains("1 turns") && done.err.contains("\n  top-k 40"), "{}", done.err);
        assert_eq!(done.good(), answers(2));
    }
    assert_eq!(run(&home, &["-i"], "").good(), "");
}

#[test]
fn a_file_can_be_the_prompt() {
    let home = Home::new();
    let n_tokens = |args: &[&str], input: &str| {
        let args: Vec<&str> = ["--json", "--raw"].into_iter().chain(args.iter().copied()).collect();
        run(&home, &args, input).json()["prompt_tokens"].as_u64().unwrap()
    };
    let file = home.file("prompt.txt", "from");
    assert_eq!(n_tokens(&["-f", &file], ""), n_tokens(&["from"], ""));
    assert_eq!(n_tokens(&["Hello", "-f", &file], "a"), n_tokens(&["Hello\nfrom\na"], ""));
    assert!(run(&home, &["-f", "absent.txt"], "").bad(1).contains("absent.txt"));
    let broken = home.file("broken.txt", b"\xff");
    assert!(run(&home, &["-f", &broken], "").bad(1).contains("broken.txt"));
}

#[test]
fn a_conversation_needs_a_template() {
    let home = Home::new();
    let mut bytes = fs::read(testdata("tiny/with-vocab.gguf")).unwrap();
    let key = b"tokenizer.chat_template";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    // A key of the same length that nobody reads.
    bytes[at..at + key.len()].copy_from_slice(b"tokenizer.hat_templates");
    let file = home.file("plain.gguf", bytes);
    let error = home.run_with(&["run", "-i", "-m", &file], "Hello?\n", &[]).bad(2);
    assert!(error.contains("no chat template") && error.contains("hanzo run -m"), "{error}");
}

#[test]
fn a_conversation_is_not_for_raw_or_json() {
    let home = Home::new();
    for flag in ["--raw", "--json"] {
        assert!(run(&home, &["-i", flag], "Hello?\n").bad(2).contains(flag));
    }
}
