//! A Rust source split into code, string literals and test code.
//!
//! A lexer of the few tokens that matter (comments, strings, characters, braces), after the Rust reference's chapter
//! on tokens. It never fails: a file that does not compile is the compiler's business.

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    /// Line of its beginning, from 1.
    pub(crate) line: usize,
    /// What stands between the quotes, escapes as they are written.
    pub(crate) text: String,
}

/// A scanned source.
pub(crate) struct RustSource {
    /// The source with comments and the insides of literals blanked; the lines stay where they are.
    pub(crate) code: String,
    pub(crate) literals: Vec<Literal>,
    /// Names of `#[cfg(test)] mod name;`.
    pub(crate) test_modules: Vec<String>,
    /// Whether each line, from 1, is test code.
    test_lines: Vec<bool>,
}

impl RustSource {
    pub(crate) fn scan(text: &str) -> Self {
        let mut lexer =
            Lexer { rest: text, line: 1, code: String::with_capacity(text.len()), literals: Vec::new() };
        while lexer.step() {}
        let Lexer { code, literals, .. } = lexer;
        let mut test_lines = vec![false; code.lines().count() + 1];
        let mut test_modules = Vec::new();
        for item in test_items(&code) {
            let (first, last) = (line_of(&code, item.start), line_of(&code, item.end.saturating_sub(1)));
            test_lines[first..=last.min(code.lines().count())].fill(true);
            test_modules.extend(module_name(&code[item]).map(str::to_owned));
        }
        Self { code, literals, test_modules, test_lines }
    }

    /// Makes all of it test code.
    pub(crate) fn mark_as_test(&mut self) {
        self.test_lines.fill(true);
    }

    /// Whether a line, counted from 1, is test code.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line).copied().unwrap_or_default()
    }

    /// The lines of code that are no tests, with their numbers.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, l)| (i + 1, l)).filter(|(n, _)| !self.is_test(*n))
    }

    /// The literals outside tests.
    pub(crate) fn product_literals(&self) -> impl Iterator<Item = &Literal> {
        self.literals.iter().filter(|l| !self.is_test(l.line))
    }
}

/// The line, from 1, that a byte offset lies in.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
}

/// Byte ranges of the items that follow `#[cfg(test)]`, attribute included.
fn test_items(code: &str) -> Vec<std::ops::Range<usize>> {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut items: Vec<std::ops::Range<usize>> = Vec::new();
    for (start, _) in code.match_indices(ATTRIBUTE) {
        if items.last().is_none_or(|last| last.end <= start) {
            items.push(start..start + item_len(&code[start..]));
        }
    }
    items
}

/// Bytes up to the end of an item: its `;`, or the brace that closes its first one.
fn item_len(code: &str) -> usize {
    let (mut depth, mut n_open) = (0usize, 0usize);
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return i + 1,
            '}' => depth -= 1,
            '(' | '[' => n_open += 1,
            ')' | ']' => n_open = n_open.saturating_sub(1),
            ';' if depth == 0 && n_open == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

/// The name in `mod name;`.
fn module_name(item: &str) -> Option<&str> {
    let head = item.strip_suffix(';')?;
    let (before, name) = head.rsplit_once(char::is_whitespace)?;
    before.ends_with("mod").then_some(name)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    code: String,
    literals: Vec<Literal>,
}

impl Lexer<'_> {
    /// Takes one token; false at the end.
    fn step(&mut self) -> bool {
        let rest = self.rest;
        let Some(first) = rest.chars().next() else { return false };
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment_len(rest));
        } else if let Some(hashes) = raw_string_hashes(rest) {
            self.raw_string(hashes);
        } else if first == '"' {
            self.string();
        } else if let Some(len) = char_literal_len(rest) {
            self.keep(1);
            self.blank(len - 2);
            self.keep(1);
        } else if first.is_alphanumeric() || first == '_' {
            // A whole word, so that the `r` of `for"` is no raw string.
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            self.keep(len);
        } else {
            self.keep(first.len_utf8());
        }
        true
    }

    fn keep(&mut self, len: usize) {
        let (token, rest) = self.rest.split_at(len);
        self.line += token.matches('\n').count();
        self.code.push_str(token);
        self.rest = rest;
    }

    fn blank(&mut self, len: usize) {
        let (token, rest) = self.rest.split_at(len);
        self.line += token.matches('\n').count();
        self.code.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }

    fn string(&mut self) {
        self.keep(1);
        let mut escaped = false;
        let end = self.rest.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        self.literal(end, 1);
    }

    fn raw_string(&mut self, n_hashes: usize) {
        let open = self.rest.find('"').unwrap_or(0) + 1;
        self.keep(open);
        let close = format!("\"{}", "#".repeat(n_hashes));
        self.literal(self.rest.find(&close), close.len());
    }

    /// Records the literal that ends at `end`, where a close of so many bytes begins.
    fn literal(&mut self, end: Option<usize>, close_len: usize) {
        let len = end.unwrap_or(self.rest.len());
        self.literals.push(Literal { line: self.line, text: self.rest[..len].into() });
        self.blank(len);
        if end.is_some() {
            self.keep(close_len);
        }
    }
}

/// Bytes of the block comment at the beginning; they nest.
fn block_comment_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut i) = (0usize, 0);
    while i + 1 < bytes.len() {
        match &bytes[i..i + 2] {
            b"/*" => (depth, i) = (depth + 1, i + 2),
            b"*/" if depth == 1 => return i + 2,
            b"*/" => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
    }
    text.len()
}

/// The number of `#` of the raw string (`r"`, `br#"`, `cr"`) that stands at the beginning.
fn raw_string_hashes(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(['b', 'c']).unwrap_or(text).strip_prefix('r')?;
    let body = rest.trim_start_matches('#');
    body.starts_with('"').then(|| rest.len() - body.len())
}

/// Bytes of the character literal at the beginning; a lifetime is none.
fn char_literal_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        // The escaped character may itself be a quote.
        let (after, _) = chars.nth(1)?;
        return body[after..].find('\'').map(|i| 1 + after + i + 1);
    }
    let (i, second) = chars.next()?;
    (second == '\'' && first != '\'').then_some(1 + i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(text: &str) -> Vec<String> {
        RustSource::scan(text).literals.into_iter().map(|l| l.text).collect()
    }

    #[test]
    fn comments_are_no_code_and_hold_no_literals() {
        let source = RustSource::scan("a // \"x\"\n/* b /* c */ \"d\" */ e");
        assert_eq!(source.code.split_whitespace().collect::<Vec<_>>(), ["a", "e"]);
        assert!(source.literals.is_empty());
        assert_eq!(source.code.lines().count(), 2);
    }

    #[test]
    fn every_kind_of_literal_is_found() {
        assert_eq!(literals(r#"f("a\"b", b"c", "")"#), [r#"a\"b"#, "c", ""]);
        assert_eq!(literals(r###"f(r"a\", r#"b"c"#, br##"d"#"##)"###), [r"a\", "b\"c", "d\"#"]);
        assert_eq!(literals("'\"' 'x' '\\'' '\\\\' \"y\" &'a str b'\"' \"z\""), ["y", "z"]);
        assert_eq!(literals("'\\u{1F600}' \"y\" '\u{e9}' \"z\""), ["y", "z"]);
        assert_eq!(literals("\"open"), ["open"]);
    }

    #[test]
    fn literals_know_their_line() {
        let source = RustSource::scan("\n\n\"a\nb\"\n\"c\"");
        let lines: Vec<usize> = source.literals.iter().map(|l| l.line).collect();
        assert_eq!(lines, [3, 5]);
    }

    #[test]
    fn the_item_after_cfg_test_is_test_code() {
        let source =
            RustSource::scan("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n");
        let product: Vec<&str> = source.product_lines().map(|(_, l)| l).collect();
        assert_eq!(product, ["fn a() {}", "fn c() {}"]);
        assert_eq!(source.product_literals().count(), 0);
        assert!(source.test_modules.is_empty());
        let source = RustSource::scan("#[cfg(test)]\npub(crate) mod testing;\nfn c() {}\n");
        assert_eq!(source.test_modules, ["testing"]);
        assert!(source.is_test(1) && source.is_test(2) && !source.is_test(3));
    }

    #[test]
    fn a_semicolon_inside_brackets_ends_no_item() {
        let source = RustSource::scan("#[cfg(test)]\nfn b(x: [u8; 4]) {\n    1\n}\nfn c() {}\n");
        assert_eq!(source.product_lines().collect::<Vec<_>>(), [(5, "fn c() {}")]);
    }

    #[test]
    fn hostile_text_ends_the_scan() {
        for text in ["", "'", "'\\", "r#", "/*", "/**", "\"\\", "#[cfg(test)]", "}}}{{{", "b'", "\u{1F600}'"]
        {
            RustSource::scan(text);
        }
    }
}
