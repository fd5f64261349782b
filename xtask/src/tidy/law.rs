//! The law of the axes: a weight format is named in `hanzo-quant` alone, an architecture in `family/` alone.
//!
//! The names are read from where they are defined, so a new format or family is guarded from its first day. Tests may
//! name both. Data tables that hold such names as data are listed here with the reason.

use super::Report;
use crate::{
    repo::Repo,
    source::{RustSource, line_of},
};

pub(super) const FORMATS_DIR: &str = "crates/hanzo-quant/";
pub(super) const FAMILIES_DIR: &str = "crates/hanzo-engine/src/family/";

/// A file that may hold names as data, with the reason.
struct Spared {
    path: &'static str,
    why: &'static str,
}

const SPARED_FORMATS: &[Spared] = &[Spared {
    path: "crates/hanzo-hub/src/select.rs",
    why: "which file of a repository to prefer, by its name",
}];

const SPARED_ARCHITECTURES: &[Spared] = &[
    Spared { path: "crates/hanzo-engine/src/text/pre.rs", why: "table of pre-tokenizers" },
    Spared {
        path: "crates/hanzo-engine/src/text/gguf.rs",
        why: "tokenizer models share names with architectures",
    },
    Spared {
        path: "crates/hanzo-engine/src/text/export.rs",
        why: "tokenizer models share names with architectures",
    },
    Spared { path: "crates/hanzo-hub/src/catalog.rs", why: "the catalog" },
];

fn is_spared(spared: &[Spared], path: &str) -> bool {
    spared.iter().any(|s| s.path == path && !s.why.is_empty())
}

/// The names in `const NAME: &'static str = "…"` of the format files, in file order.
pub(super) fn format_names(repo: &Repo) -> Vec<String> {
    let rows = repo.rust().filter(|(f, _)| f.path.starts_with(FORMATS_DIR));
    let mut names = Vec::new();
    for (_, rust) in rows {
        let lines = rust.product_lines().filter(|(_, l)| l.contains("const NAME:")).map(|(n, _)| n);
        names.extend(
            lines.filter_map(|line| Some(rust.literals.iter().find(|l| l.line == line)?.text.clone())),
        );
    }
    names
}

/// The architecture names of the family files: the literals of their `gguf: &[…]` and `hf: &[…]`.
pub(super) fn architecture_names(repo: &Repo) -> Vec<String> {
    let mut names = Vec::new();
    for (_, rust) in repo.rust().filter(|(f, _)| f.path.starts_with(FAMILIES_DIR)) {
        for list in ["gguf: &[", "hf: &["] {
            names.extend(rust.code.match_indices(list).flat_map(|(at, _)| list_literals(rust, at)));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The literals between the offset and the next `]`, by lines.
fn list_literals(rust: &RustSource, at: usize) -> impl Iterator<Item = String> {
    let end = rust.code[at..].find(']').map_or(at, |len| at + len);
    let lines = line_of(&rust.code, at)..=line_of(&rust.code, end);
    rust.product_literals().filter(move |l| lines.contains(&l.line)).map(|l| l.text.clone())
}

pub(super) fn formats(repo: &Repo, report: &mut Report) {
    // Plain numbers (F32, I8 …) are element types too, and those have names of their own elsewhere.
    let names: Vec<String> = format_names(repo).into_iter().filter(|n| !is_plain(n)).collect();
    if names.is_empty() {
        report.error(
            FORMATS_DIR,
            0,
            "no format names found: does the table still look as this rule expects?",
        );
    }
    let own = |path: &str| path.starts_with(FORMATS_DIR) || path.starts_with("xtask/");
    for (file, rust) in repo.rust().filter(|(f, _)| !own(&f.path) && !is_spared(SPARED_FORMATS, &f.path)) {
        for literal in
            rust.product_literals().filter(|l| names.iter().any(|n| n.eq_ignore_ascii_case(&l.text)))
        {
            report.error(
                &file.path,
                literal.line,
                format!("the format {:?} is named outside its crate", literal.text),
            );
        }
        for (line, scrutinee) in format_matches(rust) {
            report.error(
                &file.path,
                line,
                format!("`match {scrutinee}`: only hanzo-quant matches over formats"),
            );
        }
    }
}

/// Whether a name is an element type: letters, then digits alone.
fn is_plain(name: &str) -> bool {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    ["F", "BF", "I"].contains(&&name[..name.len() - digits.len()])
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Ends of expressions that say which format something has.
const IDENTITY: [&str; 3] = ["ggml_type", "format.name", ".format"];

/// Lines and scrutinees of the matches over a format's identity.
fn format_matches(rust: &RustSource) -> impl Iterator<Item = (usize, &str)> {
    rust.code.match_indices("match ").filter_map(|(at, word)| {
        let rest = &rust.code[at + word.len()..];
        let scrutinee = rest[..rest.find('{')?].trim();
        let line = line_of(&rust.code, at);
        let bad = scrutinee == "format" || IDENTITY.iter().any(|i| scrutinee.ends_with(i));
        let word_starts = !rust.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        (bad && word_starts && !rust.is_test(line)).then_some((line, scrutinee))
    })
}

pub(super) fn architectures(repo: &Repo, report: &mut Report) {
    let names = architecture_names(repo);
    if names.is_empty() {
        report.error(
            FAMILIES_DIR,
            0,
            "no architecture names found: do the rows still look as this rule expects?",
        );
    }
    let own = |path: &str| path.starts_with(FAMILIES_DIR) || path.starts_with("xtask/");
    for (file, rust) in
        repo.rust().filter(|(f, _)| !own(&f.path) && !is_spared(SPARED_ARCHITECTURES, &f.path))
    {
        for literal in rust.product_literals().filter(|l| names.contains(&l.text)) {
            let what = format!("the architecture {:?} is named outside {FAMILIES_DIR}", literal.text);
            report.error(&file.path, literal.line, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    const FORMAT: (&str, &str) = (
        "crates/hanzo-quant/src/format/k.rs",
        "impl Quant for A {\n    const NAME: &'static str = \"Q4_K\";\n}\nimpl Plain for B {\n    const NAME: &'static str = \"F16\";\n}\n",
    );
    const FAMILY: (&str, &str) = (
        "crates/hanzo-engine/src/family/llama.rs",
        "pub const FAMILY: Family = Family {\n    gguf: &[\"llama\"],\n    hf: &[\n        \"llama\",\n        \"yi\",\n    ],\n};\n",
    );

    #[test]
    fn names_are_read_from_their_definitions() {
        let repo = Repo::new([FORMAT, FAMILY].iter().map(|(p, t)| crate::repo::File::new(p, t)).collect());
        assert_eq!(format_names(&repo), ["Q4_K", "F16"]);
        assert_eq!(architecture_names(&repo), ["llama", "yi"]);
    }

    #[test]
    fn a_format_named_elsewhere_is_found() {
        let text = "fn f() {\n    if name == \"q4_k\" {}\n    let dtype = \"F16\";\n}\n";
        let found = found(formats, &[FORMAT, ("crates/hanzo-ml/src/a.rs", text)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("error: crates/hanzo-ml/src/a.rs:2: the format \"q4_k\""));
    }

    #[test]
    fn a_match_over_formats_is_found() {
        for scrutinee in ["tensor.format.ggml_type", "format.name", "self.format", "format"] {
            let text = format!("fn f() {{\n    match {scrutinee} {{\n        _ => 1,\n    }}\n}}\n");
            let found = found(formats, &[FORMAT, ("crates/hanzo-ml/src/a.rs", &text)]);
            assert_eq!(found.len(), 1, "{scrutinee}: {found:?}");
        }
        let text = "fn f() {\n    match format.unpack {}\n    rematch format {}\n}\n";
        assert_eq!(found(formats, &[FORMAT, ("crates/hanzo-ml/src/a.rs", text)]), [""; 0]);
    }

    #[test]
    fn an_architecture_named_elsewhere_is_found() {
        let text = "fn f() {\n    if arch == \"yi\" {}\n}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"llama\";\n}\n";
        let found = found(architectures, &[FAMILY, ("crates/hanzo-engine/src/a.rs", text)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("error: crates/hanzo-engine/src/a.rs:2: the architecture \"yi\""));
    }

    #[test]
    fn spared_files_and_the_tables_themselves_pass() {
        let text = "const A: &str = \"llama\";\n";
        assert_eq!(found(architectures, &[FAMILY, (SPARED_ARCHITECTURES[0].path, text)]), [""; 0]);
        let text = "const A: &str = \"Q4_K\";\n";
        assert_eq!(found(formats, &[FORMAT, (SPARED_FORMATS[0].path, text)]), [""; 0]);
    }

    #[test]
    fn lost_tables_are_found() {
        assert_eq!(found(formats, &[]).len(), 1);
        assert_eq!(found(architectures, &[]).len(), 1);
    }
}
