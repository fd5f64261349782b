//! Byte-pair encoding with ranked merges: the byte-level kind of GPT-2 and its heirs, and the plain kind of Gemma 4.
//!
//! Byte-level: Radford et al. 2019; each byte is one printable character of the vocabulary's alphabet, so every text has
//! tokens and comes back unchanged. Plain: tokens are text with `▁` for a space, and `<0xHH>` for a byte that no token
//! covers. Text is cut into words first ([`super::pre`]); merges never cross a word.

use std::collections::HashMap;

use super::{
    merge::{NO_TOKEN, Symbol, merge},
    pre::{PreTokenizer, Splitter},
    vocab::{Kind, Vocab},
};
use crate::{Error, Result};

/// The character that stands for `byte` in a byte-level vocabulary: itself where it prints in Latin-1, else the next free
/// one from U+0100.
pub(crate) fn byte_char(byte: u8) -> char {
    let prints = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !prints(b)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Turns byte-level token texts into bytes.
pub(crate) struct Alphabet(HashMap<char, u8>);

impl Alphabet {
    pub fn new() -> Self {
        Self((0..=255).map(|b| (byte_char(b), b)).collect())
    }

    /// The bytes of a token; a text with a character outside the alphabet stands for itself.
    pub fn bytes(&self, text: &str) -> Vec<u8> {
        let bytes: Option<Vec<u8>> = text.chars().map(|c| self.0.get(&c).copied()).collect();
        bytes.unwrap_or_else(|| text.as_bytes().to_vec())
    }
}

/// The merges and cuts of a vocabulary.
pub(crate) struct Bpe {
    splitter: Splitter,
    /// Token of each byte, or [`NO_TOKEN`].
    bytes: [u32; 256],
    /// Character of each byte.
    chars: [char; 256],
    /// Pair (left id in the high half) to rank and merged id.
    ranks: HashMap<u64, (u32, u32)>,
    ignore_merges: bool,
    plain: bool,
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Bpe {
    /// `merges`: `left right`, best first. Both sides and their joint text must be tokens.
    pub fn new<'m>(
        vocab: &Vocab,
        pre: &PreTokenizer,
        merges: impl ExactSizeIterator<Item = &'m str>,
    ) -> Result<Self> {
        let mut ranks = HashMap::with_capacity(merges.len());
        let mut joint = String::new();
        for (rank, line) in merges.enumerate() {
            let bad = |what: String| Error::text(format!("merge {rank} {line:?}: {what}"));
            // The first character belongs to the left side even where it is a space.
            let skip = line.chars().next().map_or(0, char::len_utf8);
            let (left, right) = line[skip..]
                .split_once(' ')
                .map(|(l, r)| (&line[..skip + l.len()], r))
                .ok_or_else(|| bad("not two tokens with a space between them".into()))?;
            joint.clear();
            joint.push_str(left);
            joint.push_str(right);
            let id = |text: &str| vocab.id(text).ok_or_else(|| bad(format!("{text:?} is no token")));
            let rank = u32::try_from(rank).map_err(|_| bad("too many merges".into()))?;
            ranks.entry(pair(id(left)?, id(right)?)).or_insert((rank, id(&joint)?));
        }
        let chars = std::array::from_fn(|b| byte_char(b as u8));
        let bytes = std::array::from_fn(|b| {
            let text = if pre.plain { format!("<0x{b:02X}>") } else { char::to_string(&chars[b]) };
            vocab.id(&text).unwrap_or(NO_TOKEN)
        });
        let splitter = Splitter::new(pre)?;
        Ok(Self { splitter, bytes, chars, ranks, ignore_merges: pre.ignore_merges, plain: pre.plain })
    }

    /// Appends the tokens of a text without special tokens.
    pub fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let escaped;
        let text = if self.plain {
            escaped = text.replace(' ', "▁");
            &escaped
        } else {
            text
        };
        let mut symbols = vec![];
        for word in self.splitter.split(text) {
            if u32::try_from(word.len()).is_err() {
                return Err(Error::text("a text of 4 GiB or more"));
            }
            if let Some(id) = self.whole(vocab, word) {
                out.push(id);
                continue;
            }
            symbols.clear();
            if self.plain {
                symbols.extend(word.char_indices().map(|(i, c)| {
                    let id = vocab.id(&word[i..i + c.len_utf8()]).unwrap_or(NO_TOKEN);
                    Symbol::new(id, i as u32, c.len_utf8() as u32)
                }));
            } else {
                let one = |(i, b)| Symbol::new(self.bytes[usize::from(b)], i as u32, 1);
                symbols.extend(word.bytes().enumerate().map(one));
            }
            merge(&mut symbols, |l, r| self.ranks.get(&pair(l.id, r.id)).copied());
            for symbol in symbols.iter().filter(|s| s.len > 0) {
                self.emit(vocab, word.as_bytes(), *symbol, out)?;
            }
        }
        Ok(())
    }

    /// The token that the whole word is, where that goes before merging.
    fn whole(&self, vocab: &Vocab, word: &str) -> Option<u32> {
        let id = if self.plain {
            // Runs of line breaks are tokens without merges that lead to them.
            (self.ignore_merges || word.starts_with('\n')).then(|| vocab.id(word)).flatten()?
        } else if self.ignore_merges {
            let text: String = word.bytes().map(|b| self.chars[usize::from(b)]).collect();
            vocab.id(&text)?
        } else {
            return None;
        };
        matches!(vocab.kind(id), Some(Kind::Normal | Kind::UserDefined)).then_some(id)
    }

    fn emit(&self, vocab: &Vocab, word: &[u8], symbol: Symbol, out: &mut Vec<u32>) -> Result<()> {
        if symbol.id != NO_TOKEN {
            out.push(symbol.id);
            return Ok(());
        }
        let start = symbol.start as usize;
        for &byte in &word[start..start + symbol.len as usize] {
            let id = Some(self.bytes[usize::from(byte)]).filter(|&id| id != NO_TOKEN).or(vocab.specials.unk);
            out.push(
                id.ok_or_else(|| Error::text(format!("the vocabulary has no token for byte 0x{byte:02X}")))?,
            );
        }
        Ok(())
    }
}
