//! SentencePiece BPE vocabularies (`tokenizer.ggml.model` = `llama`): pairs merge in the order of the joint token's score.
//!
//! Source: Kudo and Richardson 2018, arXiv 1808.06226, and llama.cpp's reading of it. Despite the scores this is no
//! unigram model: the best segmentation is never searched for. Spaces are `▁`; a character that no token covers becomes
//! its `<0xHH>` byte tokens. Control tokens are never merged into, so text cannot spell one.

use super::{
    merge::{NO_TOKEN, Symbol, merge},
    vocab::{Kind, Vocab},
};
use crate::{Error, Result};

/// Scores and byte tokens of a vocabulary.
pub(crate) struct Spm {
    /// Rank of each token as a merge result: order-preserving bits of the negated score.
    ranks: Vec<u32>,
    bytes: [u32; 256],
    /// A space goes in front of a text at the beginning and after a special token.
    pub space_prefix: bool,
}

/// Maps a float to an integer so that a higher score has the lower rank.
fn rank_of_score(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

impl Spm {
    /// `scores`: one a token.
    pub fn new(vocab: &Vocab, scores: &[f32], space_prefix: bool) -> Result<Self> {
        if scores.len() != vocab.len() {
            return Err(Error::text(format!(
                "tokenizer.ggml.scores has {} entries for {} tokens",
                scores.len(),
                vocab.len()
            )));
        }
        if let Some(id) = scores.iter().position(|s| s.is_nan()) {
            return Err(Error::text(format!("tokenizer.ggml.scores: token {id} has the score NaN")));
        }
        let ranks = scores.iter().map(|&s| rank_of_score(s)).collect();
        let bytes = std::array::from_fn(|b| {
            let id = vocab.id(&format!("<0x{b:02X}>")).filter(|&id| vocab.kind(id) == Some(Kind::Byte));
            id.unwrap_or(NO_TOKEN)
        });
        Ok(Self { ranks, bytes, space_prefix })
    }

    /// Appends the tokens of a text without special tokens. `first`: the text begins the sequence or follows a special
    /// token.
    pub fn encode(&self, vocab: &Vocab, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let mut escaped = String::with_capacity(text.len() + 3);
        if first && self.space_prefix {
            escaped.push('▁');
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { '▁' } else { c }));
        if u32::try_from(escaped.len()).is_err() {
            return Err(Error::text("a text of 4 GiB or more"));
        }
        let bytes = escaped.as_bytes();
        let token = |span: &[u8]| {
            let id = vocab.id_of_bytes(span)?;
            matches!(vocab.kind(id), Some(Kind::Normal | Kind::UserDefined | Kind::Unused)).then_some(id)
        };
        let mut symbols: Vec<Symbol> = escaped
            .char_indices()
            .map(|(i, c)| {
                let id = token(&bytes[i..i + c.len_utf8()]).unwrap_or(NO_TOKEN);
                Symbol::new(id, i as u32, c.len_utf8() as u32)
            })
            .collect();
        merge(&mut symbols, |l, r| {
            let id = token(&bytes[l.start as usize..(r.start + r.len) as usize])?;
            Some((self.ranks[id as usize], id))
        });
        for symbol in symbols.iter().filter(|s| s.len > 0) {
            if symbol.id != NO_TOKEN {
                out.push(symbol.id);
                continue;
            }
            self.emit_bytes(vocab, &bytes[symbol.start as usize..(symbol.start + symbol.len) as usize], out)?;
        }
        Ok(())
    }

    /// The byte tokens of a character, or one unknown token where the vocabulary lacks any of them.
    fn emit_bytes(&self, vocab: &Vocab, bytes: &[u8], out: &mut Vec<u32>) -> Result<()> {
        if bytes.iter().all(|&b| self.bytes[usize::from(b)] != NO_TOKEN) {
            out.extend(bytes.iter().map(|&b| self.bytes[usize::from(b)]));
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        let unk = vocab.specials.unk;
        out.push(unk.ok_or_else(|| Error::text(format!("the vocabulary has no token for {text:?}")))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::rank_of_score;

    #[test]
    fn ranks_order_scores_from_high_to_low() {
        let scores = [f32::INFINITY, 1e9, 1.5, 1.0, 0.0, -0.5, -1.0, -1e30, f32::NEG_INFINITY];
        assert!(scores.map(rank_of_score).is_sorted_by(|a, b| a < b));
        assert_eq!(rank_of_score(0.0), rank_of_score(-0.0));
    }
}
