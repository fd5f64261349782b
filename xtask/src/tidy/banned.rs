//! Calls that the code does without.

use super::Report;
use crate::repo::Repo;

/// Text that code must not contain, where it may, and why.
struct Ban {
    text: &'static str,
    allowed_in: &'static str,
    why: &'static str,
    /// Whether tests may.
    tests: bool,
}

const EVERYWHERE: Ban = Ban { text: "", allowed_in: "", why: "", tests: false };
const ENVIRONMENT: Ban = Ban {
    allowed_in: "crates/hanzo-cli/src/environment.rs",
    why: "the environment is read in one file and chooses no code path",
    ..EVERYWHERE
};

const BANS: &[Ban] = &[
    Ban { text: "todo!", why: "unfinished code is left out", ..EVERYWHERE },
    Ban { text: "unimplemented!", why: "what is not supported is refused with an error", ..EVERYWHERE },
    Ban { text: "dbg!", why: "debugging aids are left out", ..EVERYWHERE },
    Ban { text: "#[ignore", why: "a test runs or says SKIPPED and how to get what it needs", ..EVERYWHERE },
    Ban {
        text: "process::exit",
        allowed_in: "crates/hanzo-cli/src/main.rs",
        why: "libraries return errors; only the program's main ends it",
        ..EVERYWHERE
    },
    Ban { text: "process::abort", why: "a fault of ours is a panic, which ends one request", ..EVERYWHERE },
    Ban { text: "env::var", ..ENVIRONMENT },
    Ban { text: "env::set_var", ..ENVIRONMENT },
    Ban { text: "env::{", ..ENVIRONMENT },
    Ban {
        text: "thread::spawn",
        why: "computation threads come from the parallel module; others get a name from thread::Builder",
        tests: true,
        ..EVERYWHERE
    },
];

pub(super) fn check(repo: &Repo, report: &mut Report) {
    for (file, rust) in repo.rust() {
        for (i, line) in rust.code.lines().enumerate() {
            let banned = |ban: &&Ban| {
                contains_word(line, ban.text)
                    && file.path != ban.allowed_in
                    && !(ban.tests && rust.is_test(i + 1))
            };
            for ban in BANS.iter().filter(banned) {
                report.error(&file.path, i + 1, format!("`{}`: {}", ban.text, ban.why));
            }
        }
    }
}

/// Whether `text` occurs and does not merely end a longer word.
fn contains_word(line: &str, text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(text).any(|(at, _)| !text.starts_with(is_word) || !line[..at].ends_with(is_word))
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    #[test]
    fn every_banned_call_is_found() {
        for ban in BANS {
            let text = format!("//! Head.\nfn f() {{ {} }}\n", ban.text);
            let found = found(check, &[("crates/a/src/a.rs", &text)]);
            assert!(
                found.iter().any(|f| f.starts_with("error: crates/a/src/a.rs:2: ")),
                "{}: {found:?}",
                ban.text
            );
            if !ban.allowed_in.is_empty() {
                assert_eq!(super::super::found(check, &[(ban.allowed_in, &text)]), [""; 0], "{}", ban.text);
            }
        }
    }

    #[test]
    fn comments_strings_and_longer_words_pass() {
        let text = "//! todo! here\nfn f() { not_todo!(); g(\"dbg!\"); my_env::var(1); }\n";
        assert_eq!(found(check, &[("crates/a/src/a.rs", text)]), [""; 0]);
    }

    #[test]
    fn tests_may_start_threads_and_nothing_else() {
        let text = "#[cfg(test)]\nmod tests {\n    fn f() { thread::spawn(g); }\n    fn g() { todo!() }\n}\n";
        let found = found(check, &[("crates/a/src/a.rs", text)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":4: `todo!`"));
    }
}
