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

/// Rows in aligned columns, two spaces apart, the last one ragged. Escape codes are not counted.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| width_of(cell)).max();
    let widths: Vec<usize> = (0..n_columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, wanted) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(wanted - width_of(cell) + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Characters that take a place on the terminal, our own styles left out.
fn width_of(text: &str) -> usize {
    let mut in_code = false;
    let seen = text.chars().filter(|&c| match (in_code, c) {
        (false, '\x1b') => {
            in_code = true;
            false
        }
        (true, c) => {
            in_code = c != 'm';
            false
        }
        (false, _) => true,
    });
    seen.count()
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
    fn columns_are_aligned_whatever_their_style() {
        let row = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<_>>();
        let styled = styled("b", Style::Good, true);
        let text =
            columns(&[row(&["é", "1"]), row(&[&styled, "2"]), row(&["long", "", "x"]), row(&["end", ""])]);
        assert_eq!(text, format!("é     1\n{styled}     2\nlong     x\nend\n"));
    }

    #[test]
    fn styles_are_plain_without_colours() {
        assert_eq!(styled("x", Style::Bad, false), "x");
        assert_eq!(styled("x", Style::Bad, true), "\x1b[31mx\x1b[0m");
    }
}
