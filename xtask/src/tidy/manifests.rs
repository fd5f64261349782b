//! Manifests: which crate may use which, and the lints that the compiler checks for us.
//!
//! Reads the few shapes of TOML that the manifests have: `[table]` lines and `key = value` lines.

use super::Report;
use crate::repo::{File, Repo};

/// A crate, the crates of the workspace it may use, and, where they are few, all others it may use.
struct Arrows {
    package: &'static str,
    may_use: &'static [&'static str],
    outside: Option<&'static [&'static str]>,
}

/// The arrows of ARCHITECTURE.md; none points up.
const ARROWS: &[Arrows] = &[
    Arrows { package: "hanzo-quant", may_use: &[], outside: Some(&["half"]) },
    Arrows { package: "hanzo-kernel", may_use: &["hanzo-quant"], outside: Some(&["naga"]) },
    Arrows { package: "hanzo-ml", may_use: &["hanzo-kernel", "hanzo-quant"], outside: None },
    Arrows { package: "hanzo-engine", may_use: &["hanzo-ml", "hanzo-quant"], outside: None },
    Arrows { package: "hanzo-hub", may_use: &[], outside: None },
    Arrows {
        package: "hanzo-cli",
        may_use: &["hanzo-engine", "hanzo-hub", "hanzo-ml", "hanzo-quant"],
        outside: None,
    },
    Arrows { package: "xtask", may_use: &[], outside: Some(&[]) },
];

/// Packages that need a C or C++ build or a system library: the default build goes without.
const REFUSED: [&str; 5] = ["openssl-sys", "native-tls", "aws-lc-sys", "onig_sys", "cmake"];

/// Lines that a manifest must have, by table.
const WORKSPACE_LINTS: &[(&str, &[&str])] = &[
    ("workspace.lints.rust", &["missing_docs", "unsafe_code", "unsafe_op_in_unsafe_fn"]),
    (
        "workspace.lints.clippy",
        &[
            "dbg_macro",
            "print_stdout",
            "todo",
            "too_many_lines",
            "undocumented_unsafe_blocks",
            "unimplemented",
            "unwrap_used",
        ],
    ),
];
const FUNCTION_LINES: &str = "too-many-lines-threshold = 70";

pub(super) fn arrows(repo: &Repo, report: &mut Report) {
    for file in repo.files.iter().filter(|f| is_member(f)) {
        let text = file.text.as_deref().unwrap_or_default();
        let package = value(text, "package", "name").unwrap_or_default();
        let Some(row) = ARROWS.iter().find(|row| row.package == package) else {
            report.error(&file.path, 0, format!("the crate {package:?} has no row in {}", file!()));
            continue;
        };
        for (line, table, name) in dependencies(text) {
            let own = name.starts_with("hanzo-");
            // A crate may test itself with whatever it likes, but not with those above it.
            let outside = row.outside.is_none_or(|list| list.contains(&name)) || table.starts_with("dev-");
            if own && !row.may_use.contains(&name) || !own && !outside {
                report.error(&file.path, line, format!("{package} may not use {name}"));
            }
        }
    }
    let lock = repo.text("Cargo.lock").unwrap_or_default();
    for (i, line) in lock.lines().enumerate() {
        if let Some(name) = REFUSED.iter().find(|name| line == format!("name = \"{name}\"")) {
            report.error("Cargo.lock", i + 1, format!("{name} needs more than Rust and a C compiler"));
        }
    }
}

pub(super) fn lints(repo: &Repo, report: &mut Report) {
    let root = repo.text("Cargo.toml").unwrap_or_default();
    for (table, keys) in WORKSPACE_LINTS {
        for key in keys.iter().filter(|key| value(root, table, key).is_none_or(|level| level == "allow")) {
            report.error("Cargo.toml", 0, format!("the lint {key} is missing from [{table}]"));
        }
    }
    if !repo.text("clippy.toml").unwrap_or_default().lines().any(|line| line == FUNCTION_LINES) {
        report.error("clippy.toml", 0, format!("`{FUNCTION_LINES}` is missing"));
    }
    for file in repo.files.iter().filter(|f| is_member(f)) {
        if value(file.text.as_deref().unwrap_or_default(), "lints", "workspace") != Some("true") {
            report.error(&file.path, 0, "`[lints] workspace = true` is missing");
        }
    }
}

/// Whether the file is the manifest of a crate of the workspace.
fn is_member(file: &File) -> bool {
    file.name() == "Cargo.toml" && (file.path.starts_with("crates/") || file.path.starts_with("xtask/"))
}

/// Lines with the name of the table they stand in and their number.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut table = "";
    text.lines().enumerate().map(move |(i, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = name;
            return (i + 1, table, "");
        }
        (i + 1, table, line)
    })
}

/// The value of a key in a table, without quotes.
fn value<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    rows(text).filter(|row| row.1 == table).find_map(|(_, _, line)| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches('"'))
    })
}

/// Dependencies of any kind: line, table, name.
fn dependencies(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    rows(text).filter_map(|(line, table, row)| {
        // `[target.'cfg(unix)'.dependencies]` and `[dependencies.name]` are tables of dependencies too.
        let (kind, own_table) = match table.split_once("dependencies.") {
            Some((kind, name)) if row.is_empty() => return Some((line, kind, name.trim_matches('"'))),
            Some(_) => return None,
            None => (table.rsplit('.').next()?, table),
        };
        let name = row.split(['.', '=']).next()?.trim().trim_matches('"');
        (own_table.ends_with("dependencies") && !name.is_empty()).then_some((line, kind, name))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    fn manifest(package: &str, rest: &str) -> String {
        format!("[package]\nname = \"{package}\"\n\n[lints]\nworkspace = true\n\n{rest}\n")
    }

    fn arrows_in(package: &str, rest: &str) -> Vec<String> {
        found(arrows, &[("crates/a/Cargo.toml", &manifest(package, rest))])
    }

    #[test]
    fn arrows_that_point_up_are_found() {
        for table in
            ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"]
        {
            let found = arrows_in("hanzo-ml", &format!("[{table}]\nhanzo-engine.workspace = true"));
            assert_eq!(
                found,
                ["error: crates/a/Cargo.toml:8: hanzo-ml may not use hanzo-engine [rule]"],
                "{table}"
            );
        }
        assert_eq!(arrows_in("hanzo-hub", "[dependencies.hanzo-ml]\npath = \"../b\"").len(), 1);
        assert_eq!(arrows_in("hanzo-quant", "[dependencies]\nhalf = \"2\"\nserde = \"1\"").len(), 1);
        assert_eq!(arrows_in("hanzo-new", "").len(), 1);
    }

    #[test]
    fn arrows_that_point_down_pass() {
        let rest = "[dependencies]\nhanzo-quant.workspace = true # the leaf\nserde = { version = \"1\" }";
        assert_eq!(arrows_in("hanzo-ml", rest), [""; 0]);
        assert_eq!(arrows_in("hanzo-quant", "[dev-dependencies]\nserde_json = \"1\""), [""; 0]);
    }

    #[test]
    fn packages_that_need_a_system_library_are_found() {
        let lock = "[[package]]\nname = \"openssl-sys\"\n";
        assert_eq!(found(arrows, &[("Cargo.lock", lock)]).len(), 1);
    }

    #[test]
    fn missing_lints_are_found() {
        let mut root = String::new();
        for (table, keys) in WORKSPACE_LINTS {
            root.push_str(&format!("[{table}]\n"));
            keys.iter().for_each(|key| root.push_str(&format!("{key} = \"warn\"\n")));
        }
        let member = manifest("hanzo-ml", "");
        let good = [
            ("Cargo.toml", root.as_str()),
            ("clippy.toml", FUNCTION_LINES),
            ("crates/a/Cargo.toml", &member),
        ];
        assert_eq!(found(lints, &good), [""; 0]);
        let allowed = root.replace("todo = \"warn\"", "todo = \"allow\"");
        assert_eq!(found(lints, &[("Cargo.toml", &allowed), good[1], good[2]]).len(), 1);
        assert_eq!(
            found(lints, &[good[0], ("clippy.toml", "too-many-lines-threshold = 90"), good[2]]).len(),
            1
        );
        assert_eq!(found(lints, &[good[0], good[1], ("crates/a/Cargo.toml", "[package]\n")]).len(), 1);
    }
}
