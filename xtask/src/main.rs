//! `cargo xtask`: checks of the repository's own rules.
//!
//! `cargo xtask tidy` prints every finding and fails if one of them is an error; an ordinary test runs the same
//! checks. Nothing here depends on another crate, so a broken one cannot keep the checks from running.

mod repo;
mod source;
mod tidy;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use tidy::{Finding, Level};

const USAGE: &str = "usage: cargo xtask tidy\n";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => run_tidy(),
        _ => {
            // Nothing is left to do if standard error is closed.
            drop(io::stderr().write_all(USAGE.as_bytes()));
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    let (text, code) = match repo::Repo::load(workspace_root()) {
        Ok(repo) => report(&tidy::check(&repo)),
        Err(error) => (format!("error: {error}\n"), 1),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

/// The findings as text, warnings first, and the exit code.
fn report(findings: &[Finding]) -> (String, u8) {
    let mut lines: Vec<&Finding> = findings.iter().collect();
    lines.sort_by_key(|f| f.level);
    let mut text: String = lines.iter().map(|f| format!("{f}\n")).collect();
    let n_errors = findings.iter().filter(|f| f.level == Level::Error).count();
    let n_warnings = findings.len() - n_errors;
    text.push_str(&format!("tidy: {} rules, {n_errors} errors, {n_warnings} warnings\n", tidy::RULES.len()));
    (text, u8::from(n_errors > 0))
}

/// The folder above this crate.
fn workspace_root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let repo = repo::Repo::load(workspace_root()).unwrap();
        let (text, code) = report(&tidy::check(&repo));
        assert_eq!(code, 0, "\n{text}");
    }

    #[test]
    fn an_error_sets_the_exit_code_and_a_warning_does_not() {
        let finding = |level| Finding { level, rule: "rule", path: "a".into(), line: 3, what: "bad".into() };
        let (text, code) = report(&[finding(Level::Error), finding(Level::Warning)]);
        assert_eq!(code, 1);
        assert!(text.starts_with("warning: a:3: bad [rule]\nerror: a:3: bad [rule]\n"), "{text}");
        assert_eq!(report(&[finding(Level::Warning)]).1, 0);
    }
}
