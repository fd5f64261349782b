//! Words on standard output: colours where they are wanted, and foreign text that cannot steer a terminal.

use std::io::{self, Write};

use crate::error::{Error, Result};

/// How a word looks on a terminal that shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Title,
    Good,
    Bad,
}

/// The text in a style; plain where colours are not wanted.
pub(crate) fn styled(text: &str, style: Style, colours: bool) -> String {
    // Select Graphic Rendition codes of ECMA-48.
    let code = match style {
        Style::Title => "1",
        Style::Good => "32",
        Style::Bad => "31",
    };
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Foreign text for people: control characters escaped, at most `chars_max` characters and then an ellipsis.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    let mut short = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == chars_max {
            short.push('…');
            break;
        }
        // Bidirectional marks reorder what follows them on a terminal.
        let steers = c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers || c == '\\' { short.extend(c.escape_debug()) } else { short.push(c) }
    }
    short
}

/// Writes the answer.
///
/// # Errors
/// If standard output cannot be written, a closed pipe included.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::output)
}

/// Tells the person at the terminal something beside the answer, on standard error.
pub(crate) fn note(text: &str) {
    // A closed stream leaves nobody to tell.
    drop(writeln!(io::stderr().lock(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        let shown = shortened("a\x1b[31m\n\u{9b}\u{202e}\\é", 99);
        assert_eq!(shown, "a\\u{1b}[31m\\n\\u{9b}\\u{202e}\\\\é");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("ééé", 2), "éé…");
        assert_eq!(shortened("éé", 2), "éé");
    }

    #[test]
    fn styles_are_plain_without_colours() {
        assert_eq!(styled("x", Style::Bad, false), "x");
        assert_eq!(styled("x", Style::Bad, true), "\x1b[31mx\x1b[0m");
    }
}
