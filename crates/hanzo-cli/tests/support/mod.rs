//! Runs the real program in a home of its own, with nothing of the surroundings but what a test gives it.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::{
    borrow::BorrowMut,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value as Json;

/// A program that runs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A file of the fixtures.
pub fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// The tiny chat model.
pub fn model() -> String {
    testdata("tiny/with-vocab.gguf").display().to_string()
}

/// What the tiny chat model must do, by its generator's independent sources.
pub fn facts() -> Json {
    serde_json::from_slice(&fs::read(testdata("tiny/with-vocab.json")).unwrap()).unwrap()
}

/// What the program did.
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Standard output of a command that succeeded.
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The same as JSON.
    pub fn json(self) -> Json {
        serde_json::from_str(&self.good()).unwrap()
    }

    /// The error of a command that failed with exit code `code`, printed nothing and did not panic.
    pub fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        assert_eq!(self.out, "", "it printed an answer");
        assert!(self.err.starts_with("error: "), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// A home with an empty model cache.
pub struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new file.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Runs the program with nothing on standard input.
    pub fn run(&self, args: &[&str]) -> Done {
        self.run_with(args, "", &[])
    }

    /// Runs the program with these arguments, this input and these variables.
    pub fn run_with(&self, args: &[&str], input: impl AsRef<[u8]>, variables: &[(&str, &str)]) -> Done {
        let mut command = self.command(env!("CARGO_BIN_EXE_hanzo"));
        command.envs(variables.iter().copied()).args(args);
        finish(command, input)
    }

    /// Runs a line of shell in this home, where `hanzo` is on the path and there is no network.
    pub fn shell(&self, line: &str) -> Done {
        let mut command = self.command("sh");
        finish(command.args(["-c", &with_path(line)]), "")
    }

    /// Runs a line of shell on a terminal; each of `typed` is typed, with a line break, when the program prompts for a
    /// message. What the terminal shows is in `out`.
    pub fn terminal(&self, line: &str, typed: &[&str]) -> Done {
        let mut command = self.command("python3");
        finish(command.args(["-c", TERMINAL, &with_path(line)]).args(typed), "")
    }

    /// A program in this home, with nothing of the surroundings.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in ["HF_HOME", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy"] {
            command.env_remove(name);
        }
        let home = self.dir.path();
        for name in ["HOME", "USERPROFILE", "LOCALAPPDATA"] {
            command.env(name, home);
        }
        command
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("XDG_STATE_HOME", home.join("state"))
            .env("HF_HUB_CACHE", home.join("hf"))
            .env("COLUMNS", "500");
        if program != env!("CARGO_BIN_EXE_hanzo") {
            command.env("HF_HUB_OFFLINE", "1").env("TERM", "xterm").current_dir(home);
        }
        command
    }
}

/// A line of shell that finds the program under its name.
fn with_path(line: &str) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_hanzo")).parent().unwrap();
    format!("PATH='{}':$PATH\n{line}", folder.display())
}

/// Runs its first argument on a terminal of its own and types the others, one at each prompt.
const TERMINAL: &str = r#"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp("sh", ["sh", "-c", sys.argv[1]])
typed, shown, seen = sys.argv[2:], b"", 0
while True:
    try:
        part = os.read(fd, 4096)
    except OSError:
        break
    if not part:
        break
    shown += part
    at = max(shown.rfind(b">>> "), shown.rfind(b"... "))
    if typed and at >= seen:
        os.write(fd, (typed.pop(0) + "\r").encode())
        seen = len(shown)
os.write(1, shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// Gives a program its input and waits for its end.
pub fn finish(mut command: impl BorrowMut<Command>, input: impl AsRef<[u8]>) -> Done {
    let command = command.borrow_mut();
    let cut = tempfile::tempdir().unwrap();
    let (out, err) = (cut.path().join("out"), cut.path().join("err"));
    command.stdin(Stdio::piped()).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    // A program that fails early leaves its input unread.
    drop(child.stdin.take().unwrap().write_all(input.as_ref()));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        thread::sleep(Duration::from_millis(2));
    };
    let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    Done { code: status.code(), out: read(out), err: read(err) }
}
