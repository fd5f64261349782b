//! The files of the repository, as the rules see them.
//!
//! Files are found by walking the folder and leaving out what the root `.gitignore` names, so that an unpacked
//! archive without git is checked too.

use std::{fs, path::Path};

use crate::source::RustSource;

/// Files above this size are not read: they are blobs.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// One file. `text` is there for small UTF-8 files, `rust` for Rust sources.
pub(crate) struct File {
    /// The path from the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) text: Option<String>,
    pub(crate) rust: Option<RustSource>,
}

/// All files, sorted by path.
pub(crate) struct Repo {
    pub(crate) files: Vec<File>,
}

impl File {
    /// A file that holds this text.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let rust = path.ends_with(".rs").then(|| RustSource::scan(text));
        Self { path: path.into(), bytes: text.len() as u64, text: Some(text.into()), rust }
    }

    /// The file's name without its folders.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether the path ends in one of these extensions (without the dot).
    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        self.name().rsplit_once('.').is_some_and(|(_, e)| extensions.contains(&e))
    }

    /// The text where this is a program's source: a known extension, or a first line that names an interpreter.
    pub(crate) fn program(&self) -> Option<&str> {
        let text = self.text.as_deref()?;
        (self.has_extension(&["rs", "py", "sh", "wgsl"]) || text.starts_with("#!/")).then_some(text)
    }

    /// The text where people write it: programs, documents, manifests.
    pub(crate) fn prose(&self) -> Option<&str> {
        if self.has_extension(&["md", "toml", "yml", "yaml", "lock"]) {
            self.text.as_deref()
        } else {
            self.program()
        }
    }
}

impl Repo {
    /// Reads all files below `root`.
    ///
    /// # Errors
    /// If a folder or file cannot be read, or `.gitignore` has a pattern that is not understood.
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored = Ignored::parse(&ignored)?;
        let mut files = Vec::new();
        walk(root, "", &ignored, &mut files)?;
        Ok(Self::new(files))
    }

    /// A repository of these files.
    pub(crate) fn new(mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let test_modules: Vec<String> = files.iter().flat_map(test_modules).collect();
        for file in &mut files {
            let path = &file.path;
            let folder = path.contains("/tests/") || path.contains("/benches/") || path.starts_with("fuzz/");
            let module = test_modules.iter().any(|m| is_module(path, m));
            if let Some(rust) = file.rust.as_mut().filter(|_| folder || module) {
                rust.mark_as_test();
            }
        }
        Self { files }
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.find(path)?.text.as_deref()
    }

    /// The file of that path.
    pub(crate) fn find(&self, path: &str) -> Option<&File> {
        self.files.binary_search_by(|f| f.path.as_str().cmp(path)).ok().map(|i| &self.files[i])
    }

    /// The Rust files, scanned.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &RustSource)> {
        self.files.iter().filter_map(|f| Some((f, f.rust.as_ref()?)))
    }
}

/// Paths, without `.rs`, of the modules that a file declares for tests alone.
fn test_modules(file: &File) -> Vec<String> {
    let Some(rust) = &file.rust else { return Vec::new() };
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let root = ["mod.rs", "lib.rs", "main.rs"].contains(&file.name());
    let folder = if root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
    rust.test_modules.iter().map(|name| format!("{folder}/{name}")).collect()
}

/// Whether the file belongs to the module, as its file or below its folder.
fn is_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// What `.gitignore` leaves out: paths from the root, and names anywhere.
struct Ignored {
    paths: Vec<String>,
    names: Vec<String>,
}

impl Ignored {
    fn parse(text: &str) -> Result<Self, String> {
        let mut ignored = Self { paths: Vec::new(), names: vec![".git".into()] };
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let pattern = line.trim_end_matches('/');
            let (name, list) = match pattern.strip_prefix('/') {
                Some(path) => (path, &mut ignored.paths),
                None => (pattern, &mut ignored.names),
            };
            if name.contains(['*', '?', '[', '!']) {
                return Err(format!(
                    ".gitignore: the pattern {line:?} is not understood here; use plain names"
                ));
            }
            list.push(name.into());
        }
        Ok(ignored)
    }

    fn covers(&self, path: &str, name: &str) -> bool {
        self.paths.iter().any(|p| p == path) || self.names.iter().any(|n| n == name)
    }
}

/// Collects the files of one folder; `prefix` is its path from the root, empty or ending in a slash.
fn walk(folder: &Path, prefix: &str, ignored: &Ignored, files: &mut Vec<File>) -> Result<(), String> {
    let problem = |e| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(problem)?;
        if ignored.covers(&path, &name) || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), ignored, files)?;
        } else {
            files.push(read(&entry.path(), &path)?);
        }
    }
    Ok(())
}

fn read(from: &Path, path: &str) -> Result<File, String> {
    let problem = |e| format!("{path}: {e}");
    let bytes = fs::metadata(from).map_err(problem)?.len();
    let content = if bytes > TEXT_BYTES_MAX { Vec::new() } else { fs::read(from).map_err(problem)? };
    match String::from_utf8(content) {
        Ok(text) if bytes <= TEXT_BYTES_MAX => Ok(File::new(path, &text)),
        _ => Ok(File { path: path.into(), bytes, text: None, rust: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_names_are_left_out_and_unknown_patterns_refused() {
        let ignored = Ignored::parse("# note\n/target\n__pycache__/\n").unwrap();
        assert!(ignored.covers("target", "target") && ignored.covers("a/__pycache__", "__pycache__"));
        assert!(ignored.covers(".git", ".git"));
        assert!(!ignored.covers("a/target", "target"));
        assert!(Ignored::parse("*.o").is_err());
    }

    #[test]
    fn modules_declared_for_tests_are_test_code() {
        let files = [
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod testing;\nmod real;\n"),
            ("crates/a/src/testing.rs", "fn f() {}\n"),
            ("crates/a/src/testing/more.rs", "fn f() {}\n"),
            ("crates/a/src/real.rs", "#[cfg(test)]\nmod tests;\nfn f() {}\n"),
            ("crates/a/src/real/tests.rs", "fn f() {}\n"),
            ("crates/a/tests/it.rs", "fn f() {}\n"),
        ];
        let repo = Repo::new(files.iter().map(|(path, text)| File::new(path, text)).collect());
        let is_test = |path: &str| repo.find(path).unwrap().rust.as_ref().unwrap().is_test(1);
        for path in ["testing.rs", "testing/more.rs", "real/tests.rs"] {
            assert!(is_test(&format!("crates/a/src/{path}")), "{path}");
        }
        assert!(is_test("crates/a/tests/it.rs"));
        let real = repo.find("crates/a/src/real.rs").unwrap().rust.as_ref().unwrap();
        assert!(real.is_test(2) && !real.is_test(3));
    }

    #[test]
    fn programs_are_known_by_extension_or_first_line() {
        assert!(File::new(".ci/run", "#!/usr/bin/env bash\n").program().is_some());
        assert!(File::new("a.py", "").program().is_some());
        assert!(File::new("a.txt", "hello").program().is_none());
        assert!(File::new("README.md", "hello").prose().is_some());
    }
}
