//! What the user typed, sorted into the four kinds of model names, and the rules for each part of one.
//!
//! A name resolves in order: an existing path (the caller asks the file system first), a short name (catalog or the
//! user's own, no slash), a hub id `org/repo[:quant|/file]`, an https address.

use std::path::{Component, Path};

use crate::error::{Error, Result};

/// Longest name taken.
const NAME_BYTES_MAX: usize = 2048;

/// A model name that is no existing path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `name[:tag]`, lower case.
    Short(String),
    /// A repository on the hub.
    Hub(HubId),
    /// A direct address.
    Url(String),
}

/// `org/repo[:quant|/file]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubId {
    /// `org/repo`.
    pub repo: String,
    /// Which of its files.
    pub select: Select,
}

/// Which files of a repository are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    /// The usual choice (see `select`).
    Usual,
    /// The GGUF of this quantization.
    Quant(String),
    /// This very file.
    File(String),
}

impl HubId {
    /// The id as the cache knows it.
    pub fn full_name(&self) -> String {
        match &self.select {
            Select::Usual => self.repo.clone(),
            Select::Quant(quant) => format!("{}:{quant}", self.repo),
            Select::File(file) => format!("{}/{file}", self.repo),
        }
    }
}

/// Sorts `text`; an error says what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Name> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(Error::name(shorten(text), "a name has 1 to 2048 characters and no control characters"));
    }
    if text.contains("://") {
        return parse_url(text);
    }
    if looks_like_path(text) {
        return Err(Error::name(text, "no such file or directory"));
    }
    let id = ["hf.co/", "huggingface.co/"].iter().find_map(|host| text.strip_prefix(host)).unwrap_or(text);
    if id.contains('/') {
        return parse_hub_id(id).map(Name::Hub);
    }
    let short = text.to_ascii_lowercase();
    if is_short_name(&short) {
        return Ok(Name::Short(short));
    }
    Err(Error::name(
        text,
        "a short name has letters, digits, '.', '-', '_' and at most one ':' before its tag",
    ))
}

fn parse_url(text: &str) -> Result<Name> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !text.contains(char::is_whitespace) => {
            Ok(Name::Url(text.to_owned()))
        }
        _ => Err(Error::name(text, "an address starts with https:// and has no spaces")),
    }
}

/// True for what can only be meant as a file on this machine.
fn looks_like_path(text: &str) -> bool {
    let model_file = |name: &str| {
        let lower = name.to_ascii_lowercase();
        lower.ends_with(".gguf") || lower.ends_with(".safetensors")
    };
    let drive = text.as_bytes().get(1) == Some(&b':') && matches!(text.as_bytes().get(2), Some(b'/' | b'\\'));
    ["./", "../", "/", "~"].iter().any(|start| text.starts_with(start))
        || text.contains('\\')
        || drive
        || (text.matches('/').count() < 2 && !text.contains(':') && model_file(text))
}

fn parse_hub_id(id: &str) -> Result<HubId> {
    let bad = |what: &str| {
        Error::name(id, format!("{what}; a hub id is org/repo, org/repo:quant or org/repo/file"))
    };
    let (org, rest) = id.split_once('/').ok_or_else(|| bad("no slash"))?;
    let cut = rest.find(['/', ':']).unwrap_or(rest.len());
    let (repo, tail) = rest.split_at(cut);
    let repo = format!("{org}/{repo}");
    if !is_repo(&repo) {
        return Err(bad("not a repository's name"));
    }
    let select = match tail.split_at_checked(1) {
        None => Select::Usual,
        Some((mark, file)) if mark == "/" || file.to_ascii_lowercase().ends_with(".gguf") => {
            if !is_safe_file(file) {
                return Err(bad("not a file's name"));
            }
            Select::File(file.to_owned())
        }
        Some((_, quant)) => {
            if !is_word(quant) {
                return Err(bad("not a quantization's name"));
            }
            Select::Quant(quant.to_ascii_uppercase())
        }
    };
    Ok(HubId { repo, select })
}

/// Letters, digits, `.`, `-`, `_`; 1 to 96 of them, neither leading dot nor two dots in a row.
fn is_word(word: &str) -> bool {
    (1..=96).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        && !word.starts_with('.')
        && !word.contains("..")
}

/// `org/repo` as the hub allows it.
pub(crate) fn is_repo(repo: &str) -> bool {
    repo.split_once('/').is_some_and(|(org, name)| is_word(org) && is_word(name))
}

/// `name` or `name:tag`.
pub(crate) fn is_short_name(name: &str) -> bool {
    let (name, tag) = name.split_once(':').map_or((name, None), |(name, tag)| (name, Some(tag)));
    is_word(name) && tag.is_none_or(is_word)
}

/// A relative file path that stays below its root on every system.
pub(crate) fn is_safe_file(path: &str) -> bool {
    (1..=512).contains(&path.len())
        && !path
            .chars()
            .any(|c| c.is_control() || matches!(c, '\\' | ':' | '<' | '>' | '"' | '|' | '?' | '*'))
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != ".." && !part.ends_with(['.', ' ']))
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The last part of an address's path, as a readable file name.
pub(crate) fn file_of_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let last = path.rsplit('/').next().unwrap_or_default();
    if is_safe_file(last) { last.to_owned() } else { "model".to_owned() }
}

/// `text` cut for an error message.
pub(crate) fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    let short: String = text.chars().take(CHARS_MAX).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, select: Select) -> Name {
        Name::Hub(HubId { repo: repo.to_owned(), select })
    }

    #[test]
    fn each_kind_is_told_from_the_others() {
        let cases = [
            ("smollm2", Name::Short("smollm2".into())),
            ("Qwen2.5-Coder:1.5B", Name::Short("qwen2.5-coder:1.5b".into())),
            ("org/repo", hub("org/repo", Select::Usual)),
            ("hf.co/org/repo", hub("org/repo", Select::Usual)),
            ("org/repo:q4_k_m", hub("org/repo", Select::Quant("Q4_K_M".into()))),
            ("org/repo:a.gguf", hub("org/repo", Select::File("a.gguf".into()))),
            ("org/repo/sub/a.gguf", hub("org/repo", Select::File("sub/a.gguf".into()))),
            ("https://h/x.gguf", Name::Url("https://h/x.gguf".into())),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn names_that_could_leave_their_place_are_refused() {
        for text in [
            "",
            "a b",
            "a:b:c",
            "../x",
            "/abs",
            "~/x",
            "C:\\x",
            "C:/x",
            "a\\b",
            "x.gguf",
            "dir/x.gguf",
            "..",
            "../../etc/passwd",
            "org/..",
            "./..",
            "org/repo/../x",
            "org/repo/..",
            "org/repo//x",
            "org/repo/",
            "org/repo:",
            "org/repo:../x",
            "a/b/c\\d",
            "org/.hidden",
            "ftp://h/x",
            "https://",
            "https://a b",
            "a\nb",
        ] {
            assert!(parse(text).is_err(), "{text:?} was taken");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert!(parse(&long).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn a_missing_file_is_called_that() {
        for text in ["model.gguf", "models/m.gguf", "./m", "/m"] {
            assert!(parse(text).unwrap_err().to_string().contains("no such file"), "{text}");
        }
    }

    #[test]
    fn unsafe_files_are_known() {
        for file in ["a", "a.gguf", "sub/dir/a-00001-of-00002.gguf"] {
            assert!(is_safe_file(file), "{file}");
        }
        for file in
            ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "C:a", "a\0", "a.", "a ", "x/.. /y", "a?b"]
        {
            assert!(!is_safe_file(file), "{file:?}");
        }
        assert_eq!(file_of_url("https://h/d/m.gguf?download=true#x"), "m.gguf");
        assert_eq!(file_of_url("https://h/d/.."), "model");
        assert_eq!(file_of_url("https://h/"), "model");
    }
}
