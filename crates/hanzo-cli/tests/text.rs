//! `hanzo tokenize`, `detokenize` and `template` with the tiny chat model, against PyPI `tokenizers` and jinja2.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use serde_json::{Value as Json, json};
use support::{Done, Home, facts, model};

fn hanzo(command: &str, args: &[&str], input: &str) -> Done {
    let model = model();
    let args: Vec<&str> = [command, "-m", &model].into_iter().chain(args.iter().copied()).collect();
    Home::new().run_with(&args, input, &[])
}

fn ids(text: &str) -> Json {
    text.split_whitespace().map(|id| json!(id.parse::<u32>().unwrap())).collect()
}

fn behind(first: &Json, rest: &Json) -> Json {
    [first].into_iter().chain(rest.as_array().unwrap()).cloned().collect()
}

#[test]
fn ids_are_those_of_another_tokenizer() {
    let facts = facts();
    let texts = facts["texts"].as_array().unwrap();
    assert!(texts.len() > 5);
    for case in texts {
        let text = case["text"].as_str().unwrap();
        let plain = hanzo("tokenize", &["--ids", "--no-special", "--", text], "").good();
        assert_eq!(ids(&plain), case["ids"], "{text:?}");
        let begun = hanzo("tokenize", &["--ids", "--", text], "").good();
        assert_eq!(ids(&begun), behind(&facts["bos"], &case["ids"]), "{text:?}");
        // From standard input as it is, and with control tokens read.
        let special = hanzo("tokenize", &["--ids", "--no-special", "--parse-special"], text).good();
        assert_eq!(ids(&special), case["ids_special"], "{text:?}");
    }
    assert!(texts.iter().any(|case| case["ids"] != case["ids_special"]));
}

#[test]
fn detokenize_gives_the_text_back() {
    let facts = facts();
    for case in facts["texts"].as_array().unwrap().iter().filter(|case| case["text"] != "") {
        for key in ["ids", "ids_special"] {
            let words: Vec<String> = case[key].as_array().unwrap().iter().map(ToString::to_string).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let wanted = format!("{}\n", case["text"].as_str().unwrap());
            assert_eq!(hanzo("detokenize", &words, "").good(), wanted);
            assert_eq!(hanzo("detokenize", &[], &case[key].to_string()).good(), wanted);
        }
    }
    let special = &facts["texts"].as_array().unwrap().iter().find(|c| c["ids"] != c["ids_special"]).unwrap();
    let text = hanzo("detokenize", &["--skip-special"], &special["ids_special"].to_string()).good();
    assert_eq!(text, "user\nHello\n");
}

#[test]
fn tokens_are_shown_for_people_and_programs() {
    let facts = facts();
    let text = hanzo("tokenize", &["Hello from\n\x1b"], "").good();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    assert_eq!(lines[0], format!("{}  \"<|begin|>\"", facts["bos"]));
    assert!(lines[1].ends_with("  \"Hello\"") && lines[2].ends_with("  \" from\""), "{text}");
    assert!(lines[3].ends_with("\"\\n\"") && lines[4].ends_with("\"\\u{1b}\""), "{text}");
    let json = hanzo("tokenize", &["--json", "--no-special", "Hello é"], "").json();
    assert_eq!(json["n_tokens"], 4);
    assert_eq!(json["ids"].as_array().unwrap().len(), 4);
    assert_eq!(json["tokens"][0]["text"], "Hello");
    assert_eq!(json["tokens"][0]["id"], json["ids"][0]);
    assert_eq!(json["model"], model());
}

#[test]
fn prompts_are_those_of_jinja2() {
    let (facts, home) = (facts(), Home::new());
    for case in facts["prompts"].as_array().unwrap() {
        let messages = home.file("messages.json", case["messages"].to_string());
        let tools = home.file("tools.json", case["tools"].to_string());
        let mut args = vec!["--messages", &messages];
        if !case["tools"].is_null() {
            args.extend(["--tools", &tools]);
        }
        assert_eq!(hanzo("template", &args, "").good(), case["text"].as_str().unwrap());
        args.push("--json");
        let json = hanzo("template", &args, "").json();
        assert_eq!((&json["text"], &json["ids"]), (&case["text"], &case["ids"]));
    }
    let first = facts["prompts"][0]["text"].as_str().unwrap();
    assert_eq!(hanzo("template", &["Hello?"], "").good(), first);
    assert_eq!(hanzo("template", &[], "Hello?").good(), first);
    let second = facts["prompts"][1]["text"].as_str().unwrap();
    assert_eq!(hanzo("template", &["--system", "Be a tiny model.", "Hello?"], "").good(), second);
    let ended = hanzo("template", &["--no-generation-prompt", "Hello?"], "").good();
    assert_eq!(Some(ended.as_str()), first.strip_suffix("<|im_start|>assistant\n"));
    let messages = facts["prompts"][1]["messages"].to_string();
    assert_eq!(hanzo("template", &["--messages", "-"], &messages).good(), second);
}

#[test]
fn what_cannot_be_is_refused() {
    let home = Home::new();
    let wrong = home.file("wrong.json", "[{\"role\": \"robot\", \"content\": \"x\"}]");
    let text = home.file("text.json", "\"x\"");
    let broken = home.file("broken.json", "[{");
    for (command, args, code, wanted) in [
        ("detokenize", &["1", "x"][..], 2, "x"),
        ("detokenize", &["305"], 1, "token 305 is not in the vocabulary, whose last is 304"),
        ("detokenize", &[], 2, "no ids"),
        ("tokenize", &["--ids", "--json", "x"], 2, "--json"),
        ("tokenize", &["--pre", "no-such-pre", "x"], 1, "no-such-pre"),
        ("template", &["--messages", &wrong], 1, "unknown role robot"),
        ("template", &["--messages", &text], 1, "list of objects"),
        ("template", &["--messages", &broken], 1, "broken.json"),
        ("template", &["--messages", "absent.json"], 1, "absent.json"),
        ("template", &["--tools", &text, "x"], 1, "tools are a JSON list"),
        ("template", &["--messages", &wrong, "x"], 2, "--messages"),
    ] {
        let error = hanzo(command, args, "").bad(code);
        assert!(error.contains(wanted), "{command} {args:?}: {error}");
    }
    assert!(hanzo("detokenize", &[], "1 2 zwei").bad(1).contains("\"zwei\" is not a token id"));
}

#[test]
fn a_model_without_vocabulary_or_template_is_refused() {
    let home = Home::new();
    let bare = support::testdata("tiny/llama/model.gguf").display().to_string();
    for command in ["tokenize", "template"] {
        let error = home.run(&[command, "-m", &bare, "x"]).bad(1);
        assert!(error.contains("tokenizer"), "{command}: {error}");
    }
}

#[test]
fn a_folder_of_safetensors_has_its_vocabulary_beside_them() {
    let home = Home::new();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(support::testdata("tiny/llama").join(name), home.path(name)).unwrap();
    }
    let folder = home.path("").display().to_string();
    let model = |command, args: &[&str]| home.run(&[&[command, "-m", folder.as_str()][..], args].concat());
    assert!(model("tokenize", &["ab"]).bad(1).contains("tokenizer.json"));
    let bpe = json!({ "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": ["a b"] });
    home.file("tokenizer.json", json!({ "version": "1.0", "added_tokens": [], "model": bpe }).to_string());
    assert_eq!(model("tokenize", &["--ids", "abba"]).good(), "2 1 0\n");
    assert_eq!(model("detokenize", &["2", "1", "0"]).good().replace(' ', ""), "abba\n");
    assert!(model("template", &["ab"]).bad(1).contains("has no chat template"));
    home.file("chat_template.jinja", "{{ messages[0].content }}a");
    assert_eq!(model("template", &["ab"]).good(), "aba\n");
    assert_eq!(model("template", &["--json", "ab"]).json()["ids"], json!([2, 0]));
}
