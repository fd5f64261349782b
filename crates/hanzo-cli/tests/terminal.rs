//! `hanzo run` with a person: a terminal, typed lines that are kept, and Ctrl-C.

#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics where it fails and says what it skips"
)]

mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use support::{Home, facts, model};

const HISTORY: &str = "state/hanzo/history";

#[test]
fn a_conversation_on_a_terminal_keeps_its_lines() {
    let home = Home::new();
    let call = format!("hanzo run -m {}", model());
    let done = home.terminal(&call, &["Hello?", " secret", "/exit"]);
    assert_eq!(done.code, Some(0), "{}", done.out);
    assert!(done.out.matches(facts()["answer"].as_str().unwrap()).count() == 2, "{}", done.out);
    let kept = fs::read_to_string(home.path(HISTORY)).unwrap();
    assert_eq!(kept, "Hello?\n/exit\n");
    assert_eq!(fs::metadata(home.path(HISTORY)).unwrap().permissions().mode() & 0o777, 0o600);
    // The arrow up, twice, brings back the first line of the last conversation.
    let done = home.terminal(&call, &["\x1b[A\x1b[A", "/exit"]);
    assert!(done.out.contains("Hello?") && done.out.contains("tiny test model"), "{}", done.out);
    assert_eq!(fs::read_to_string(home.path(HISTORY)).unwrap(), "Hello?\n/exit\nHello?\n/exit\n");
}

#[test]
fn lines_are_not_kept_where_nobody_wants_it() {
    let home = Home::new();
    let done = home.terminal(&format!("hanzo run --no-history -m {}", model()), &["Hello?", "/exit"]);
    assert_eq!(done.code, Some(0), "{}", done.out);
    // Over a pipe there is no person.
    let model = model();
    home.run_with(&["run", "-i", "-m", &model], "Hello?\n/exit\n", &[]).good();
    assert!(!home.path("state").exists());
}

#[test]
fn a_history_that_cannot_be_kept_does_not_end_a_conversation() {
    let home = Home::new();
    home.file("state", "no folder");
    let done = home.terminal(&format!("hanzo run -m {}", model()), &["Hello?", "/exit"]);
    assert_eq!(done.code, Some(0), "{}", done.out);
    assert_eq!(done.out.matches("lines are not kept").count(), 1, "{}", done.out);
    assert!(done.out.contains("tiny test model"), "{}", done.out);
}

/// The program with a real model that answers for long, and its streams.
fn long_answer(home: &Home, args: &[&str]) -> Option<(Child, ChildStdout)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/smollm2-135m-instruct.Q4_1.gguf");
    if !file.exists() {
        println!("SKIPPED interrupts: python3 tools/models/fetch.py models all fetches the model");
        return None;
    }
    let mut command = home.command(env!("CARGO_BIN_EXE_hanzo"));
    command.args(["run", "--ignore-eos", "-m"]).arg(file).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.take().unwrap();
    Some((child, out))
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_ends_an_answer_and_says_so() {
    let home = Home::new();
    let Some((mut child, mut out)) = long_answer(&home, &["Tell a long story."]) else { return };
    drop(child.stdin.take());
    let mut text = vec![0; 20];
    out.read_exact(&mut text).unwrap();
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    // The answer is ended cleanly, with its line break.
    assert!(rest.ends_with('\n'), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_second_ctrl_c_ends_the_program() {
    let home = Home::new();
    let Some((mut child, mut out)) = long_answer(&home, &["-i", "Tell a long story."]) else { return };
    let mut text = vec![0; 20];
    out.read_exact(&mut text).unwrap();
    // The first stops the answer alone: the conversation goes on and is answered again.
    interrupt(&child);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"Another one.\n").unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\n") {
        out.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    out.read_exact(&mut text).unwrap();
    // Two at once: both are of this answer. With the first alone the program would wait for more.
    interrupt(&child);
    interrupt(&child);
    // The second may come after the answer's end; then the next one ends the program at the prompt.
    while child.try_wait().unwrap().is_none() {
        interrupt_if_there(&child);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

fn interrupt_if_there(child: &Child) {
    // It may have ended since it was looked at.
    drop(Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status());
}
