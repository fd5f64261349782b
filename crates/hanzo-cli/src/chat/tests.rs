//! The loop with the tiny chat model, without a terminal. The model says the same whatever it is asked, and so does its
//! generator (`testdata/tiny/with-vocab.json`).

use std::{collections::VecDeque, fs, path::PathBuf};

use hanzo_engine::{LoadOptions, Model, ModelFile, load_template, sample::SamplingParams};

use super::*;

const ANSWER: &str = "Hello from a tiny test model 😀";

/// Somebody who types what is written down.
#[derive(Default)]
struct Script {
    typed: VecDeque<Typed>,
    prompts: Vec<String>,
    shown: String,
    notes: Vec<String>,
    /// Standard output is closed after so many pieces.
    n_pieces_max: Option<usize>,
}

impl Screen for Script {
    fn line(&mut self, prompt: &str) -> Result<Typed> {
        self.prompts.push(prompt.to_owned());
        Ok(self.typed.pop_front().unwrap_or(Typed::End))
    }

    fn show(&mut self, text: &str) -> Result<()> {
        if let Some(n) = &mut self.n_pieces_max {
            *n = n.checked_sub(1).ok_or_else(|| Error::output(io::ErrorKind::BrokenPipe.into()))?;
        }
        self.shown.push_str(text);
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

fn chat(context: usize) -> Chat {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../testdata/tiny/with-vocab.gguf"].iter().collect();
    let file = ModelFile::open(&path).unwrap();
    let cpu = hanzo_ml::cpu::CpuOptions { threads: Some(1), ..Default::default() };
    let devices = hanzo_engine::decoder::Devices { cpu, ..Default::default() };
    let options = LoadOptions { context: Some(context), devices, ..LoadOptions::default() };
    let model = Model::load(&file, &options).unwrap();
    let request = Request {
        prompt: vec![],
        max_tokens: None,
        ignore_eos: false,
        sampling: SamplingParams { seed: Some(7), ..SamplingParams::default() },
        stop: vec![],
    };
    let setup = Setup {
        backend: model.backend_name(),
        template: load_template(&file).unwrap().unwrap(),
        engine: Engine::start(model).unwrap(),
        request,
        system: None,
        verbose: false,
        keeps_history: false,
    };
    Chat::new(setup, false)
}

/// Types lines; the conversation afterwards, and what was seen.
fn talk(chat: &mut Chat, lines: &[&str]) -> Script {
    let typed = lines.iter().map(|line| Typed::Line((*line).to_owned())).collect();
    let mut script = Script { typed, ..Script::default() };
    chat.talk(&mut script, None).unwrap();
    script
}

fn turns(chat: &Chat) -> Vec<(&str, &str)> {
    chat.transcript.turns.iter().map(|(question, answer)| (question.as_str(), answer.as_str())).collect()
}

#[test]
fn messages_are_answered_and_remembered() {
    let mut chat = chat(256);
    let seen =
        talk(&mut chat, &["Hello?", "", "  ", "a\\", "b", "\"\"\"", "/exit", "\"\"\"", "/exit", "never"]);
    assert_eq!(seen.shown, format!("{ANSWER}\n").repeat(3));
    assert_eq!(seen.notes, [""; 0]);
    assert_eq!(turns(&chat), [("Hello?", ANSWER), ("a\nb", ANSWER), ("/exit", ANSWER)]);
    assert_eq!(seen.prompts, [">>> ", ">>> ", ">>> ", ">>> ", "... ", ">>> ", "... ", "... ", ">>> "]);
    // The seed of the first answer settles the others.
    assert_eq!(chat.setup.request.sampling.seed, Some(10));
}

#[test]
fn each_turn_sees_the_whole_conversation() {
    let mut chat = chat(256);
    talk(&mut chat, &["/system Be a tiny model.", "Hello?"]);
    let (text, ids) = chat.prompt(Some("more")).unwrap();
    // The template is ChatML, see the generator.
    let wanted = format!(
        "<|im_start|>system\nBe a tiny model.<|im_end|>\n<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n\
         {ANSWER}<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(text, wanted);
    assert_eq!(ids[0], 301);
    assert_eq!(chat.prompt(None).unwrap().0, wanted[..wanted.find("<|im_start|>user\nmore").unwrap()]);
}

#[test]
fn a_first_question_needs_no_typing() {
    let mut chat = chat(256);
    let mut script = Script::default();
    chat.talk(&mut script, Some("/help")).unwrap();
    assert_eq!(turns(&chat), [("/help", ANSWER)]);
}

#[test]
fn the_end_and_ctrl_c_leave_a_message_unsent() {
    let mut chat = chat(256);
    let line = |text: &str| Typed::Line(text.to_owned());
    let typed = [line("a\\"), Typed::Cleared, Typed::Cleared, line("b"), line("\"\"\"c"), Typed::End].into();
    let mut script = Script { typed, ..Script::default() };
    chat.talk(&mut script, None).unwrap();
    assert_eq!(turns(&chat), [("b", ANSWER)]);
    assert!(script.notes[0].contains("not sent"), "{:?}", script.notes);
}

#[test]
fn commands_do_what_they_say() {
    let mut chat = chat(256);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my chat.json").display().to_string();
    let (save, load) = (format!("/save {path}"), format!("/load {path}"));
    let seen = talk(
        &mut chat,
        &[
            "/system",
            "/system Be brief.",
            "Hello?",
            &save,
            "/clear",
            "/stats",
            &load,
            "/system",
            "/stats",
            "/help",
        ],
    );
    let wanted = [
        "there is no system message",
        "system message set",
        "saved 1 turns",
        "is forgotten",
        "of 256 tokens, 0 turns",
        "loaded 1 turns",
        "Be brief.",
        "of 256 tokens, 1 turns",
        "/set NAME VALUE",
    ];
    assert_eq!(seen.notes.len(), wanted.len(), "{:?}", seen.notes);
    for (note, wanted) in seen.notes.iter().zip(wanted) {
        assert!(note.contains(wanted), "{note}");
    }
    assert!(
        seen.notes[7].contains("first token after") && seen.notes[7].contains("\n  top-p 0.95"),
        "{}",
        seen.notes[7]
    );
    assert_eq!(turns(&chat), [("Hello?", ANSWER)]);
    let seen = talk(&mut chat, &["/system -", "/system"]);
    assert_eq!(seen.notes, ["system message taken away", "there is no system message"]);
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() {
    let mut chat = chat(256);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hostile.json");
    fs::write(&path, "[[").unwrap();
    let load = format!("/load {}", path.display());
    talk(&mut chat, &["Hello?"]);
    let before = chat.setup.request.clone();
    let lines =
        [&load, "/load /no/such/file", "/nonsense", "/set heat 1", "/set top-p 7", "/set temp", "/save"];
    let seen = talk(&mut chat, &lines);
    assert_eq!(seen.notes.len(), lines.len());
    assert!(seen.notes.iter().all(|note| note.starts_with("error: ")), "{:?}", seen.notes);
    assert_eq!(turns(&chat), [("Hello?", ANSWER)]);
    assert_eq!(chat.setup.request.sampling, before.sampling);
}

#[test]
fn options_are_set() {
    let mut chat = chat(256);
    let seen = talk(
        &mut chat,
        &[
            "/set top_k 7",
            "/set temperature 0.5",
            "/set top-k 8",
            "/set logit-bias 259-inf 5+1",
            "/set seed -1",
            "Hello?",
        ],
    );
    assert_eq!(seen.notes[..3], ["top-k 7 (without effect until temp is above 0)", "temp 0.5", "top-k 8"]);
    let sampling = &chat.setup.request.sampling;
    assert_eq!(sampling.logit_bias, [(259, f32::NEG_INFINITY), (5, 1.0)]);
    assert!(sampling.seed.is_some());
    // The first word of the usual answer was forbidden.
    assert!(!seen.shown.starts_with("Hello"), "{}", seen.shown);
}

#[test]
fn a_full_context_is_told_and_what_to_do() {
    let mut chat = chat(64);
    let seen = talk(&mut chat, &["Hello?", "Hello?", "Hello?", "Hello?", "/clear", "Hello?"]);
    // A turn has 23 tokens and more: the third answer is cut, the fourth message does not fit.
    assert!(seen.notes[0].contains("the context of 64 tokens is full"), "{:?}", seen.notes);
    assert!(seen.notes[1].starts_with("the conversation and this message are"), "{:?}", seen.notes);
    for note in &seen.notes[..2] {
        assert!(
            ["finish_reason: length", "/clear", "-c"].iter().all(|wanted| note.contains(wanted)),
            "{note}"
        );
    }
    // It goes on after that.
    assert_eq!(turns(&chat), [("Hello?", ANSWER)]);
    let mut endless = self::chat(64);
    endless.setup.request.ignore_eos = true;
    let seen = talk(&mut endless, &["Hello?"]);
    assert!(seen.notes[0].contains("the context of 64 tokens is full"), "{:?}", seen.notes);
    assert_eq!(endless.transcript.turns.len(), 1);
    let mut short = self::chat(64);
    short.setup.request.max_tokens = Some(2);
    let seen = talk(&mut short, &["Hello?"]);
    assert!(
        seen.notes[0].contains("-n") && seen.notes[0].contains("finish_reason: length"),
        "{:?}",
        seen.notes
    );
    assert_eq!(turns(&short), [("Hello?", "Hello from")]);
}

#[test]
fn speeds_are_told_where_they_are_wanted() {
    let mut chat = chat(256);
    chat.setup.verbose = true;
    let seen = talk(&mut chat, &["Hello?"]);
    assert!(
        seen.notes[0].contains("tok/s") && seen.notes[0].contains("first token after"),
        "{:?}",
        seen.notes
    );
}

#[test]
fn a_closed_output_ends_the_conversation() {
    let mut chat = chat(256);
    let typed = [Typed::Line("Hello?".to_owned()), Typed::Line("again".to_owned())].into();
    let mut script = Script { typed, n_pieces_max: Some(2), ..Script::default() };
    assert!(chat.talk(&mut script, None).unwrap_err().is_broken_pipe());
    assert_eq!(script.typed.len(), 1);
}
