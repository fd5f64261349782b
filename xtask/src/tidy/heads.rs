//! Every program file opens with a head that says what it is.

use super::Report;
use crate::repo::{File, Repo};

pub(super) fn check(repo: &Repo, report: &mut Report) {
    for file in &repo.files {
        if let Some(text) = file.program()
            && let Some(want) = missing(file, text)
        {
            report.error(&file.path, 1, format!("the file should open with {want} that says what it is"));
        }
    }
}

/// The head that a file should have, if it has none.
fn missing(file: &File, text: &str) -> Option<&'static str> {
    let body =
        if text.starts_with("#!/") { text.split_once('\n').map_or("", |(_, body)| body) } else { text };
    let (starts, want): (&[&str], _) = match file.name().rsplit_once('.').map(|(_, e)| e) {
        Some("rs") => (&["//! "], "a `//!` comment"),
        Some("wgsl") => (&["// "], "a comment"),
        Some("py") => (&["\"\"\"", "r\"\"\"", "# "], "a docstring"),
        _ => (&["# "], "a comment"),
    };
    (!starts.iter().any(|start| body.starts_with(start))).then_some(want)
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    #[test]
    fn files_without_a_head_are_found() {
        let bad = [
            ("a.rs", "use std::fmt;\n"),
            ("b.rs", "// plain\n"),
            ("c.py", "#!/usr/bin/env python3\nimport os\n"),
            ("d.sh", "#!/bin/sh\nset -e\n"),
            (".ci/run", "#!/usr/bin/env bash\n"),
            ("e.wgsl", "fn f() {}\n"),
        ];
        let found = found(check, &bad);
        assert_eq!(found.len(), bad.len(), "{found:?}");
        assert!(found.contains(
            &"error: b.rs:1: the file should open with a `//!` comment that says what it is [rule]".into()
        ));
    }

    #[test]
    fn heads_pass() {
        let good = [
            ("a.rs", "//! This.\n"),
            ("b.py", "#!/usr/bin/env python3\n\"\"\"This.\"\"\"\n"),
            ("c.py", "# This.\n"),
            ("d.sh", "#!/bin/sh\n# This.\n"),
            ("e.wgsl", "// This.\n"),
            ("f.json", "{}"),
        ];
        assert_eq!(found(check, &good), [""; 0]);
    }
}
