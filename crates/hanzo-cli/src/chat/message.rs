//! A message of several lines: a line that ends in `\` goes on in the next one, and a text between `"""` and `"""` is taken
//! as it stands. What is pasted may have line breaks within a line.

/// The most that a message may have, bytes.
pub(super) const BYTES_MAX: usize = 64 << 20;
/// Begins and ends a block.
const QUOTES: &str = "\"\"\"";

/// A message that a person has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// As typed: it may be a command.
    Plain(String),
    /// From between quotes: it is no command.
    Quoted(String),
}

/// Lines that are not yet a message.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    lines: Vec<String>,
    n_bytes: usize,
    in_block: bool,
}

impl Assembly {
    /// Whether more lines belong to what was typed.
    pub(super) fn is_begun(&self) -> bool {
        self.in_block || !self.lines.is_empty()
    }

    /// Forgets what was typed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes the next line, without its line break; gives the message that it ends.
    ///
    /// # Errors
    /// If the message is too long; it is forgotten.
    pub(super) fn take(&mut self, line: &str) -> Result<Option<Message>, String> {
        // A line break each.
        self.n_bytes = self.n_bytes.saturating_add(line.len()).saturating_add(1);
        if self.n_bytes > BYTES_MAX {
            self.clear();
            return Err(format!("a message has at most {BYTES_MAX} bytes"));
        }
        let opened = line.trim_start().strip_prefix(QUOTES).filter(|_| !self.is_begun());
        self.in_block |= opened.is_some();
        let line = opened.unwrap_or(line);
        if !self.in_block {
            let continued = line.strip_suffix('\\');
            self.lines.push(continued.unwrap_or(line).to_owned());
            return Ok(if continued.is_some() { None } else { Some(Message::Plain(self.whole())) });
        }
        let closed = line.trim_end().strip_suffix(QUOTES);
        let part = closed.unwrap_or(line);
        // A line that has the quotes alone is no line of the text.
        if !(part.is_empty() && (opened.is_some() || closed.is_some())) {
            self.lines.push(part.to_owned());
        }
        Ok(closed.map(|_| Message::Quoted(self.whole())))
    }

    fn whole(&mut self) -> String {
        let text = self.lines.join("\n");
        self.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of some lines, and whether another one is begun.
    fn messages(lines: &[&str]) -> (Vec<Message>, bool) {
        let mut assembly = Assembly::default();
        let messages = lines.iter().filter_map(|line| assembly.take(line).unwrap()).collect();
        (messages, assembly.is_begun())
    }

    fn plain(text: &str) -> Message {
        Message::Plain(text.to_owned())
    }

    fn quoted(text: &str) -> Message {
        Message::Quoted(text.to_owned())
    }

    #[test]
    fn lines_become_messages() {
        for (lines, wanted) in [
            (&["a", "b"][..], vec![plain("a"), plain("b")]),
            (&["a\\", "b\\", "c", "d"], vec![plain("a\nb\nc"), plain("d")]),
            (&["\\", "b"], vec![plain("\nb")]),
            (&[""], vec![plain("")]),
            (&["\"\"\"one\"\"\"", "x"], vec![quoted("one"), plain("x")]),
            (&["\"\"\"", "/one\\", "", " two", "\"\"\"", "x"], vec![quoted("/one\\\n\n two"), plain("x")]),
            (&["  \"\"\"one", "two\"\"\"  ", "x"], vec![quoted("one\ntwo"), plain("x")]),
            (&["\"\"\"", "", "a", "\"\"\""], vec![quoted("\na")]),
            (&["\"\"\"\"\"\""], vec![quoted("")]),
            (&["a \"\"\"", "b"], vec![plain("a \"\"\""), plain("b")]),
            // Quotes in a continued line are text.
            (&["a\\", "\"\"\"b"], vec![plain("a\n\"\"\"b")]),
            // Pasted.
            (&["a\nb"], vec![plain("a\nb")]),
            (&["\"\"\"a\nb\"\"\""], vec![quoted("a\nb")]),
        ] {
            assert_eq!(messages(lines), (wanted, false), "{lines:?}");
        }
    }

    #[test]
    fn a_message_stays_open_until_it_is_ended() {
        for lines in [&["a\\"][..], &["\"\"\""], &["\"\"\"a", "b\"\""], &["x", "\"\"\"", "\\"]] {
            assert!(messages(lines).1, "{lines:?}");
        }
        let mut assembly = Assembly::default();
        assert_eq!(assembly.take("\"\"\""), Ok(None));
        assembly.clear();
        assert_eq!(assembly.take("b"), Ok(Some(plain("b"))));
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut assembly = Assembly::default();
        let long = "a".repeat(BYTES_MAX / 2) + "\\";
        assert_eq!(assembly.take(&long), Ok(None));
        assert!(assembly.take(&long).unwrap_err().contains("at most"));
        assert!(!assembly.is_begun());
    }
}
