//! Unigram vocabularies (`tokenizer.ggml.model` = `t5`): the segmentation of the highest joint score.
//!
//! Source: Kudo 2018, arXiv 1804.10959; the search is the `tokenizers` crate's. Text is normalised first by the file's
//! character map, whose layout (a double-array trie, then a pool of strings) is SentencePiece's.

use tokenizers::{Model as _, models::unigram::Unigram as Search};

use super::vocab::{Kind, Vocab};
use crate::{Error, Result};

/// The search and the normaliser's settings.
pub(crate) struct Unigram {
    search: Search,
    unk: u32,
    char_map: Option<CharMap>,
    pub space_prefix: bool,
    merge_spaces: bool,
}

impl Unigram {
    /// `scores`: one a token.
    pub fn new(
        vocab: &Vocab,
        scores: &[f32],
        char_map: Option<CharMap>,
        (space_prefix, merge_spaces): (bool, bool),
    ) -> Result<Self> {
        if let Some(id) = scores.iter().position(|s| !s.is_finite()) {
            return Err(Error::text(format!("tokenizer.ggml.scores: the score of token {id} is not finite")));
        }
        let unk = vocab.specials.unk.ok_or_else(|| Error::text("the vocabulary has no unknown_token_id"))?;
        let mut list = Vec::with_capacity(vocab.len());
        for (id, &score) in (0..vocab.len() as u32).zip(scores) {
            // What text must not spell keeps its place under a name that no text has.
            let usable = matches!(vocab.kind(id), Some(Kind::Normal | Kind::UserDefined | Kind::Unused));
            let text =
                vocab.text(id).and_then(|t| std::str::from_utf8(t).ok()).filter(|t| usable && !t.is_empty());
            list.push((text.map_or_else(|| format!("\0{id}\0"), str::to_owned), f64::from(score)));
        }
        let search = Search::from(list, Some(unk as usize), false);
        let search = search.map_err(|e| Error::text(format!("unigram vocabulary: {e}")))?;
        Ok(Self { search, unk, char_map, space_prefix, merge_spaces })
    }

    /// Appends the tokens of a text without special tokens.
    pub fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let text = match &self.char_map {
            Some(map) => map.apply(text),
            None => text.to_owned(),
        };
        let mut escaped = String::with_capacity(text.len() + 3);
        if self.merge_spaces {
            for word in text.split(' ').filter(|w| !w.is_empty()) {
                if !escaped.is_empty() || (first && self.space_prefix) {
                    escaped.push('▁');
                }
                escaped.push_str(word);
            }
        } else {
            if first && self.space_prefix && !text.is_empty() {
                escaped.push('▁');
            }
            escaped.extend(text.chars().map(|c| if c == ' ' { '▁' } else { c }));
        }
        // The search keeps names for forbidden tokens that hold NUL.
        for part in escaped.split_inclusive('\0') {
            let plain = part.trim_end_matches('\0');
            if !plain.is_empty() {
                let tokens = self.search.tokenize(plain).map_err(|e| Error::text(format!("unigram: {e}")))?;
                out.extend(tokens.iter().map(|t| t.id));
            }
            if plain.len() < part.len() {
                out.push(self.unk);
            }
        }
        Ok(())
    }
}

/// SentencePiece's precompiled character map.
pub(crate) struct CharMap {
    units: Vec<u32>,
    pool: Vec<u8>,
}

impl CharMap {
    /// Reads the map; every later access is checked.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let bad = || {
            Error::text(format!("tokenizer.ggml.precompiled_charsmap of {} bytes is malformed", bytes.len()))
        };
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(bad)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, pool) = rest.split_at_checked(size).ok_or_else(bad)?;
        if !size.is_multiple_of(4) {
            return Err(bad());
        }
        let units = trie.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        Ok(Self { units, pool: pool.to_vec() })
    }

    /// The longest entry that `text` begins with: its length and what replaces it.
    fn longest(&self, text: &[u8]) -> Option<(usize, &str)> {
        let offset = |unit: u32| (unit >> 10) << ((unit & (1 << 9)) >> 6);
        let mut node = offset(*self.units.first()?);
        let mut best = None;
        for (i, &byte) in text.iter().enumerate() {
            if byte == 0 {
                break;
            }
            node ^= u32::from(byte);
            let Some(&unit) = self.units.get(node as usize) else { break };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                let Some(&leaf) = self.units.get(node as usize) else { break };
                best = Some((i + 1, leaf & 0x7fff_ffff));
            }
        }
        let (len, at) = best?;
        let tail = self.pool.get(at as usize..)?;
        let end = tail.iter().position(|&b| b == 0)?;
        Some((len, std::str::from_utf8(&tail[..end]).ok()?))
    }

    fn apply(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            match self.longest(rest.as_bytes()).filter(|&(len, _)| rest.is_char_boundary(len)) {
                Some((len, new)) => {
                    out.push_str(new);
                    rest = &rest[len..];
                }
                None => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        out
    }
}
