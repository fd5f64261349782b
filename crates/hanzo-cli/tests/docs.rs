//! Every `hanzo` call in the README and in docs/ is run, with the real models, in a folder and with caches of its own, and
//! must succeed.
//!
//! A block of calls is indented by four spaces or fenced. HTML comments in the line before a block change how it is run:
//! `<!-- not run: REASON -->`, and `<!-- typed: LINE | LINE -->` for a conversation, which needs a terminal. Answers are cut
//! short and benchmarks not repeated; nothing else is changed, and no call reaches the network. What the pages name by
//! example (`model.gguf`, `question.txt`, `org/repo`) is in the folder or in a cache.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use support::{Home, testdata};

/// A block of lines in a page.
struct Block {
    line: usize,
    mark: Option<String>,
    calls: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The blocks that hold a call of the program.
fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut fenced, mut mark): (Vec<Block>, bool, Option<String>) = (Vec::new(), false, None);
    let mut inside = false;
    for (i, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            (fenced, inside) = (!fenced, false);
            continue;
        }
        if !fenced && !line.starts_with("    ") {
            let comment = trimmed.strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
            if !trimmed.is_empty() {
                mark = comment.map(|comment| comment.trim().to_owned());
            }
            inside &= trimmed.is_empty();
            continue;
        }
        if !inside {
            blocks.push(Block { line: i + 1, mark: mark.take(), calls: Vec::new() });
            inside = true;
        }
        if trimmed.starts_with("hanzo ") || trimmed.contains("| hanzo ") {
            blocks.last_mut().unwrap().calls.push(trimmed.to_owned());
        }
    }
    blocks.retain(|block| !block.calls.is_empty());
    blocks
}

/// The call, quicker: short answers, no repetitions.
fn shortened(call: &str) -> String {
    let call =
        if call.contains(" -n ") { call.to_owned() } else { call.replace("hanzo run", "hanzo run -n 4") };
    call.replace("hanzo bench", "hanzo bench -r 1")
}

/// Gives a home the models that were fetched, under the names that the pages use.
fn furnish(home: &Home) {
    let models = root().join("models");
    let blobs = home.path("cache/hanzo/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let files: Vec<PathBuf> = fs::read_dir(&models).unwrap().map(|entry| entry.unwrap().path()).collect();
    for row in hanzo_hub::CATALOG {
        // A path of the cache that is no hash of its content is another test's subject.
        if let Some(file) = files.iter().find(|f| f.metadata().is_ok_and(|m| m.len() == row.size)) {
            symlink(file.canonicalize().unwrap(), blobs.join(format!("sha256-{}", row.sha256))).unwrap();
        }
    }
    let smallest = small_model().unwrap().canonicalize().unwrap();
    fs::create_dir_all(home.path("path/to")).unwrap();
    for name in ["model.gguf", "path/to/model.gguf", "folder"] {
        symlink(&smallest, home.path(name)).unwrap();
    }
    // What is quantised is the tiny model: that it can be typed is what is shown, not how long it takes.
    for (name, file) in [("model.imatrix", "score/plain.imatrix.gguf"), ("hugging-face-folder", "tiny/llama")]
    {
        symlink(testdata(file).canonicalize().unwrap(), home.path(name)).unwrap();
    }
    let unquantised = home.path("model-f16.gguf").display().to_string();
    home.run(&["quantize", &support::model(), &unquantised, "F16", "--allow-requantize"]).good();
    home.file("question.txt", "Why is the sky blue?");
    home.file("change.diff", "-a\n+b\n");
    home.file(
        "chat.json",
        r#"[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]"#,
    );
    home.file("tools.json", r#"[{"type": "function", "function": {"name": "now", "parameters": {}}}]"#);
    home.file("template.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    fs::copy(root().join("ARCHITECTURE.md"), home.path("book.txt")).unwrap();
    fs::create_dir_all(home.path(".local/share/bash-completion/completions")).unwrap();
}

fn small_model() -> Option<PathBuf> {
    let file = root().join("models/smollm2-135m-instruct.Q4_1.gguf");
    file.exists().then_some(file)
}

#[test]
fn every_call_in_the_pages_is_run() {
    if small_model().is_none() {
        println!(
            "SKIPPED every_call_in_the_pages_is_run: python3 tools/models/fetch.py models all fetches it"
        );
        return;
    }
    let mut n_run = 0;
    for page in pages() {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let home = Home::new();
        furnish(&home);
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            let place = format!("{name}:{}", block.line);
            match block.mark.as_deref().map(|mark| mark.split_once(": ").unwrap_or((mark, ""))) {
                Some(("not run", reason)) => {
                    assert!(reason.len() > 5, "{place}: give a reason");
                    block.calls.iter().for_each(|call| println!("not run: {place}: {call} ({reason})"));
                    continue;
                }
                Some(("typed", lines)) => {
                    for call in &block.calls {
                        let done = home.terminal(&shortened(call), &lines.split(" | ").collect::<Vec<_>>());
                        assert_eq!(done.code, Some(0), "{place}: {call}: {}", done.out);
                        n_run += 1;
                    }
                }
                _ => {
                    for call in &block.calls {
                        let done = home.shell(&shortened(call));
                        assert_eq!(done.code, Some(0), "{place}: {call}: {}", done.err);
                        n_run += 1;
                    }
                }
            }
        }
    }
    assert!(n_run > 40, "only {n_run} calls were run");
}

#[test]
fn blocks_and_their_marks_are_found() {
    let text = "Text `hanzo no`:\n\n    hanzo a\n    ls\n\n    echo | hanzo b\n\n<!-- not run: for a reason -->\n\n    hanzo c\n\n\
                and\n\n```sh\nhanzo d\n```\n    hanzo e\n<!-- other -->\ntext\n\n    ls\n    hanzo f  # why\n";
    let found: Vec<(usize, Option<String>, Vec<String>)> =
        blocks(text).into_iter().map(|b| (b.line, b.mark, b.calls)).collect();
    let calls = |calls: &[&str]| calls.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            (3, None, calls(&["hanzo a", "echo | hanzo b"])),
            (10, Some("not run: for a reason".to_owned()), calls(&["hanzo c"])),
            (15, None, calls(&["hanzo d"])),
            (17, None, calls(&["hanzo e"])),
            (21, None, calls(&["hanzo f  # why"])),
        ]
    );
    assert_eq!(shortened("hanzo run -m x \"y\""), "hanzo run -n 4 -m x \"y\"");
    assert_eq!(shortened("hanzo run -n 2"), "hanzo run -n 2");
}

#[test]
fn a_failing_call_is_noticed() {
    let home = Home::new();
    assert_eq!(home.shell("hanzo run --offline -m ./absent.gguf x").code, Some(1));
    assert_eq!(home.shell("hanzo tokenize | hanzo").code, Some(2));
    let model = testdata("tiny/with-vocab.gguf").display().to_string();
    assert_eq!(home.shell(&format!("echo Hello | hanzo run -m {model}")).code, Some(0));
}
