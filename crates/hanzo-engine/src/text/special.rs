//! Finds special tokens in text before it is tokenized.
//!
//! Leftmost match, the longest of those that start there (as the `tokenizers` crate does). User-defined tokens are always
//! found; control tokens only where the caller trusts the text (`parse_special`), so that no user can write one.

use aho_corasick::{AhoCorasick, MatchKind};

use super::vocab::{Kind, Vocab};
use crate::{Error, Result};

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Finder {
    fn new(vocab: &Vocab, ids: Vec<u32>) -> Result<Option<Self>> {
        if ids.is_empty() {
            return Ok(None);
        }
        let texts = ids.iter().map(|&id| vocab.text(id).unwrap_or_default());
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::text(format!("special tokens: {e}")))?;
        Ok(Some(Self { automaton, ids }))
    }
}

/// Cuts text at special tokens.
pub(crate) struct Partition {
    all: Option<Finder>,
    user_defined: Option<Finder>,
    /// Tokens that swallow the white space after them, sorted.
    rstrip: Vec<u32>,
}

impl Partition {
    pub fn new(vocab: &Vocab, mut rstrip: Vec<u32>) -> Result<Self> {
        rstrip.sort_unstable();
        let special = |k| matches!(k, Kind::Control | Kind::UserDefined | Kind::Unknown);
        Ok(Self {
            all: Finder::new(vocab, vocab.ids_where(special))?,
            user_defined: Finder::new(vocab, vocab.ids_where(|k| k == Kind::UserDefined))?,
            rstrip,
        })
    }

    /// Finds nothing: for models that look for special tokens themselves.
    pub fn none() -> Self {
        Self { all: None, user_defined: None, rstrip: vec![] }
    }

    /// The parts of `text`, in order; no text part is empty.
    pub fn split<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Fragment<'t>> {
        let mut parts = vec![];
        let mut done = 0;
        let finder = if parse_special { &self.all } else { &self.user_defined };
        if let Some(finder) = finder {
            for found in finder.automaton.find_iter(text) {
                if found.start() < done {
                    continue; // inside the white space that the token before swallowed
                }
                if found.start() > done {
                    parts.push(Fragment::Text(&text[done..found.start()]));
                }
                let id = finder.ids[found.pattern().as_usize()];
                parts.push(Fragment::Token(id));
                done = found.end();
                if self.rstrip.binary_search(&id).is_ok() {
                    let rest = &text[done..];
                    done += rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_whitespace()).len();
                }
            }
        }
        if done < text.len() {
            parts.push(Fragment::Text(&text[done..]));
        }
        parts
    }
}
