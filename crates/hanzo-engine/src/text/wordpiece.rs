//! WordPiece vocabularies (`tokenizer.ggml.model` = `bert`): the longest token from the left, word by word.
//!
//! Source: Devlin et al. 2018, arXiv 1810.04805. In GGUF files a token that begins a word carries `▁` and one that goes on
//! has no mark. Text is cleaned, decomposed and, if the vocabulary wants it, lowered by `tokenizers`' BERT normaliser.

use tokenizers::{NormalizedString, Normalizer, normalizers::BertNormalizer};

use super::vocab::{Kind, Vocab};
use crate::{Error, Result};

/// The normaliser, and the bound on the length of a token.
pub(crate) struct WordPiece {
    normalizer: BertNormalizer,
    token_bytes_max: usize,
}

impl WordPiece {
    pub fn new(vocab: &Vocab, lowercase: bool, strip_accents: bool) -> Self {
        let lengths = (0..vocab.len() as u32).filter_map(|id| vocab.text(id)).map(<[u8]>::len);
        let token_bytes_max = lengths.max().unwrap_or(0);
        Self { normalizer: BertNormalizer::new(true, true, Some(strip_accents), lowercase), token_bytes_max }
    }

    /// Appends the tokens of a text without special tokens.
    pub fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut normalized = NormalizedString::from(text);
        self.normalizer.normalize(&mut normalized).map_err(|e| Error::text(format!("normaliser: {e}")))?;
        for word in normalized.get().split_whitespace() {
            let mut start = 0;
            for (i, c) in word.char_indices().filter(|&(_, c)| stands_alone(c)) {
                self.word(vocab, &word[start..i], out)?;
                start = i + c.len_utf8();
                self.word(vocab, &word[i..start], out)?;
            }
            self.word(vocab, &word[start..], out)?;
        }
        Ok(())
    }

    fn word(&self, vocab: &Vocab, word: &str, out: &mut Vec<u32>) -> Result<()> {
        if word.is_empty() {
            return Ok(());
        }
        let word = format!("▁{word}");
        let (bytes, before) = (word.as_bytes(), out.len());
        let mut start = 0;
        while start < bytes.len() {
            let longest = bytes.len().min(start + self.token_bytes_max);
            let found = (start + 1..=longest).rev().find_map(|end| {
                let id = vocab.id_of_bytes(&bytes[start..end])?;
                (vocab.kind(id) == Some(Kind::Normal)).then_some((end, id))
            });
            let Some((end, id)) = found else {
                // A word that does not come apart into tokens is unknown as a whole.
                out.truncate(before);
                let unk = vocab.specials.unk;
                out.push(
                    unk.ok_or_else(|| Error::text(format!("the vocabulary has no token for {word:?}")))?,
                );
                return Ok(());
            };
            out.push(id);
            start = end;
        }
        Ok(())
    }
}

/// Punctuation, and every ASCII sign, is a word of its own.
fn stands_alone(c: char) -> bool {
    c.is_ascii_punctuation() || (!c.is_ascii() && is_punctuation(c))
}

fn is_punctuation(c: char) -> bool {
    use std::sync::LazyLock;
    static PUNCTUATION: LazyLock<Option<regex::Regex>> = LazyLock::new(|| regex::Regex::new(r"^\p{P}$").ok());
    PUNCTUATION.as_ref().is_some_and(|p| p.is_match(c.encode_utf8(&mut [0; 4])))
}
