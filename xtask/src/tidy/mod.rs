//! The rules, as one table.
//!
//! A rule is a function from the repository to findings; each file of this folder holds a group of them with tests that
//! show each one fail. What a rule spares is a list with reasons beside it.

mod banned;
mod docs;
mod heads;
mod law;
mod manifests;
mod sizes;
mod words;

use std::fmt;

use crate::repo::Repo;

/// Whether a finding fails the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Warning,
    Error,
}

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    /// From 1; 0 is the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.level == Level::Error { "error" } else { "warning" };
        write!(f, "{level}: {}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {} [{}]", self.what, self.rule)
    }
}

/// Collects what one rule finds.
pub(crate) struct Report {
    rule: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, level: Level, path: &str, line: usize, what: impl Into<String>) {
        let finding = Finding { level, rule: self.rule, path: path.into(), line, what: what.into() };
        self.findings.push(finding);
    }

    /// An error at a line; line 0 is the whole file.
    pub(crate) fn error(&mut self, path: &str, line: usize, what: impl Into<String>) {
        self.add(Level::Error, path, line, what);
    }

    /// A warning about a whole file.
    pub(crate) fn warning(&mut self, path: &str, what: impl Into<String>) {
        self.add(Level::Warning, path, 0, what);
    }
}

/// One rule.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) check: fn(&Repo, &mut Report),
}

/// Every rule.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "head", check: heads::check },
    Rule { name: "banned", check: banned::check },
    Rule { name: "formats", check: law::formats },
    Rule { name: "architectures", check: law::architectures },
    Rule { name: "blob", check: sizes::blobs },
    Rule { name: "testdata-size", check: sizes::testdata },
    Rule { name: "file-length", check: sizes::lengths },
    Rule { name: "marker", check: words::markers },
    Rule { name: "foreign-path", check: words::paths },
    Rule { name: "foreign-host", check: words::hosts },
    Rule { name: "generator", check: docs::generators },
    Rule { name: "tables", check: docs::tables },
    Rule { name: "readme-commands", check: docs::readme_commands },
    Rule { name: "arrows", check: manifests::arrows },
    Rule { name: "lints", check: manifests::lints },
];

/// Runs every rule.
pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        let mut report = Report { rule: rule.name, findings: Vec::new() };
        (rule.check)(repo, &mut report);
        findings.append(&mut report.findings);
    }
    findings
}

/// What a rule finds in these files, one line each.
#[cfg(test)]
fn found(rule: fn(&Repo, &mut Report), files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(path, text)| crate::repo::File::new(path, text)).collect();
    let mut report = Report { rule: "rule", findings: Vec::new() };
    rule(&Repo::new(files), &mut report);
    report.findings.iter().map(ToString::to_string).collect()
}
