//! Where a conversation is typed and shown: a line editor on a terminal, else lines of standard input.

use std::{
    io::{self, BufRead, Read, Write},
    path::PathBuf,
};

use rustyline::{
    Config, Context, Editor, Helper,
    completion::{Completer, FilenameCompleter, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

use super::{
    commands,
    history::{self, History},
    message,
};
use crate::{
    error::{Error, Result},
    output,
};

/// What a person did at the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// A line, without its line break.
    Line(String),
    /// Ctrl-C.
    Cleared,
    /// Ctrl-D, or the end of standard input.
    End,
}

/// The two sides of a conversation that a person sees.
pub(super) trait Screen {
    /// The next line.
    ///
    /// # Errors
    /// If nothing can be read.
    fn line(&mut self, prompt: &str) -> Result<Typed>;

    /// Shows a part of an answer.
    ///
    /// # Errors
    /// If it cannot be written.
    fn show(&mut self, text: &str) -> Result<()>;

    /// Tells something beside the answer.
    fn note(&mut self, text: &str);
}

/// A terminal.
pub(super) struct Terminal {
    editor: Editor<Completion, MemHistory>,
    /// Where lines are kept, if they are.
    history: Option<History>,
}

impl Terminal {
    /// Looks at the terminal; lines are kept in `history`, if it is given.
    ///
    /// # Errors
    /// If it cannot be used.
    pub(super) fn new(history: Option<PathBuf>) -> Result<Self> {
        let setup = || {
            let config = Config::builder().max_history_size(history::N_LINES_MAX)?.build();
            let history = MemHistory::with_config(&config);
            let mut editor = Editor::with_history(config, history)?;
            editor.set_helper(Some(Completion(FilenameCompleter::new())));
            Ok(editor)
        };
        let editor = setup().map_err(|e: ReadlineError| Error::failed(format!("terminal: {e}")))?;
        let mut terminal = Self { editor, history: history.map(History::new) };
        let lines = terminal.history.as_ref().map_or(Ok(Vec::new()), History::lines);
        for line in terminal.or_forget(lines).unwrap_or_default() {
            // A line that the editor does not want is not remembered.
            drop(terminal.editor.add_history_entry(line));
        }
        Ok(terminal)
    }

    fn remember(&mut self, line: &str) {
        // As above.
        drop(self.editor.add_history_entry(line));
        let added = self.history.as_ref().map_or(Ok(()), |history| history.add(line));
        self.or_forget(added);
    }

    /// Tells what went wrong with the file, once, and goes on without it.
    fn or_forget<T>(&mut self, result: io::Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if let Some(history) = self.history.take() {
            output::note(&format!("{}: {error}; lines are not kept", history.path().display()));
        }
        None
    }
}

impl Screen for Terminal {
    fn line(&mut self, prompt: &str) -> Result<Typed> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                self.remember(&line);
                Ok(Typed::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Cleared),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(e) => Err(Error::failed(format!("terminal: {e}"))),
        }
    }

    fn show(&mut self, text: &str) -> Result<()> {
        output::print(text)
    }

    fn note(&mut self, text: &str) {
        output::note(text);
    }
}

/// Lines of any reader. The prompt goes to standard error, where a person types.
pub(super) struct Lines<R> {
    pub(super) reader: R,
    pub(super) prompts: bool,
}

impl<R: BufRead> Screen for Lines<R> {
    fn line(&mut self, prompt: &str) -> Result<Typed> {
        if self.prompts {
            let mut stderr = io::stderr().lock();
            // A closed stream leaves nobody to prompt.
            drop(stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush()));
        }
        read_line(&mut self.reader)
    }

    fn show(&mut self, text: &str) -> Result<()> {
        output::print(text)
    }

    fn note(&mut self, text: &str) {
        output::note(text);
    }
}

/// A line of at most [`message::BYTES_MAX`], without its line break.
pub(super) fn read_line(reader: &mut impl BufRead) -> Result<Typed> {
    let mut line = String::new();
    let error = |what: String| Error::failed(format!("standard input: {what}"));
    let n_read = reader.take(message::BYTES_MAX as u64 + 1).read_line(&mut line);
    match n_read.map_err(|e| error(e.to_string()))? {
        0 => Ok(Typed::End),
        n if n > message::BYTES_MAX => Err(error("a line is too long".to_owned())),
        _ => {
            let end = line.trim_end_matches('\n').trim_end_matches('\r').len();
            line.truncate(end);
            Ok(Typed::Line(line))
        }
    }
}

/// Completes commands, options and names of files.
struct Completion(FilenameCompleter);

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        if commands::file_start(&line[..at]).is_some() {
            return self.0.complete_path(line, at);
        }
        let (start, words) = commands::complete(&line[..at]);
        let pair = |word: String| Pair { display: word.trim_end().to_owned(), replacement: word };
        Ok((start, words.into_iter().map(pair).collect()))
    }
}

impl Helper for Completion {}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Hinter for Completion {
    type Hint = String;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_break_alone() {
        let mut reader = &b"a \r\n\n b\\\nlast"[..];
        let lines: Vec<Typed> = (0..6).map(|_| read_line(&mut reader).unwrap()).collect();
        let line = |text: &str| Typed::Line(text.to_owned());
        assert_eq!(lines, [line("a "), line(""), line(" b\\"), line("last"), Typed::End, Typed::End]);
    }

    #[test]
    fn what_is_no_utf8_or_too_long_is_refused() {
        let refused = |error: Result<Typed>| error.unwrap_err().to_string();
        assert!(refused(read_line(&mut &b"a\xff\n"[..])).starts_with("standard input: "));
        let mut endless = io::BufReader::new(io::repeat(b'a'));
        assert!(refused(read_line(&mut endless)).contains("too long"));
    }
}
