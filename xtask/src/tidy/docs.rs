//! Documents that must say what the code says.

use super::{Report, law};
use crate::repo::Repo;

const README: &str = "README.md";
/// The two commands that everything else is measured by.
const COMMANDS: [&str; 2] =
    ["cargo run --release -- run \"Name the capital of France.\"", "cargo test --release --workspace"];

/// Each folder of fixtures has a README that names the script that makes it, and the script is there.
pub(super) fn generators(repo: &Repo, report: &mut Report) {
    let mut folders: Vec<&str> = repo
        .files
        .iter()
        .filter_map(|f| f.path.strip_prefix("testdata/")?.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    folders.dedup();
    for folder in folders {
        let path = format!("testdata/{folder}/README.md");
        let Some(text) = repo.text(&path) else {
            report.error(&path, 0, "missing: it should name the script that makes this folder");
            continue;
        };
        let scripts = scripts(text);
        if scripts.is_empty() {
            report.error(&path, 0, "names no script below tools/ that makes this folder");
        }
        for script in scripts.into_iter().filter(|s| repo.find(s).is_none()) {
            report.error(&path, 0, format!("names {script}, which does not exist"));
        }
    }
}

/// Paths of scripts below tools/ that a text names.
fn scripts(text: &str) -> Vec<&str> {
    let part = |c: char| !(c.is_alphanumeric() || ['_', '-', '/', '.'].contains(&c));
    text.split(part)
        .map(|word| word.trim_start_matches("./").trim_end_matches('.'))
        .filter(|word| word.starts_with("tools/") && (word.ends_with(".py") || word.ends_with(".sh")))
        .collect()
}

/// The README lists every format and every family that the tables have.
pub(super) fn tables(repo: &Repo, report: &mut Report) {
    let text = repo.text(README).unwrap_or_default();
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let formats = law::format_names(repo).into_iter().map(|name| ("format", name));
    let architectures = law::architecture_names(repo).into_iter().map(|name| ("architecture", name));
    for (kind, name) in formats.chain(architectures).filter(|(_, name)| !named.contains(&name.as_str())) {
        report.error(README, 0, format!("the {kind} `{name}` is in the code's table and not here"));
    }
}

/// The README shows the two commands, each on a line of its own.
pub(super) fn readme_commands(repo: &Repo, report: &mut Report) {
    let text = repo.text(README).unwrap_or_default();
    for command in COMMANDS.iter().filter(|c| !text.lines().any(|l| l.trim() == **c)) {
        report.error(README, 0, format!("the line `{command}` is missing"));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    #[test]
    fn folders_of_fixtures_name_an_existing_script() {
        let data = ("testdata/tiny/a.bin", "x");
        let readme = |text| ("testdata/tiny/README.md", text);
        assert_eq!(found(generators, &[data]).len(), 1);
        assert_eq!(found(generators, &[data, readme("by hand")]).len(), 1);
        let named = readme("Made by `python3 tools/oracle/tiny.py`.");
        assert_eq!(found(generators, &[data, named]).len(), 1);
        assert_eq!(found(generators, &[data, named, ("tools/oracle/tiny.py", "# x")]), [""; 0]);
    }

    #[test]
    fn names_missing_from_the_readme_are_found() {
        let format = ("crates/hanzo-quant/src/a.rs", "const NAME: &'static str = \"Q4_K\";\n");
        let family = ("crates/hanzo-engine/src/family/a.rs", "gguf: &[\"qwen2\"],\n");
        let found_with = |text| found(tables, &[format, family, (README, text)]);
        assert_eq!(found_with("formats Q4_K and `qwen2`").len(), 1);
        assert_eq!(found_with("formats `Q4_K` and `qwen2`"), [""; 0]);
    }

    #[test]
    fn missing_commands_are_found() {
        assert_eq!(
            found(readme_commands, &[(README, "    cargo test --release --workspace   # slow\n")]).len(),
            2
        );
        let text = format!("```\n{}\n{}\n```\n", COMMANDS[0], COMMANDS[1]);
        assert_eq!(found(readme_commands, &[(README, &text)]), [""; 0]);
    }
}
