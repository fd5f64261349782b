//! From tokens back to text, one token at a time.
//!
//! A token may end in the middle of a character: the incomplete bytes are held back until the character is whole or can no
//! longer become valid. Bytes that are no UTF-8 come out as U+FFFD, one for each maximal part, as `String::from_utf8_lossy`
//! does. Invariant: the pieces, joined, equal the decoding of all tokens at once.

use super::Tokenizer;

/// Decodes a sequence of tokens as they come.
#[derive(Clone)]
pub struct DecodeStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// The vocabulary put a space in front of the text; the first output loses it.
    strip_space: bool,
    pending: Vec<u8>,
}

impl DecodeStream {
    pub(super) fn new(tokenizer: Tokenizer, skip_special: bool) -> Self {
        let strip_space = tokenizer.strips_space();
        Self { tokenizer, skip_special, strip_space, pending: vec![] }
    }

    /// For tokens that go on from text: keeps the leading space that the beginning of a text would lose.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.strip_space = false;
        self
    }

    /// Takes a token and gives the text that is complete now, often none. An id outside the vocabulary adds nothing.
    pub fn push(&mut self, id: u32) -> String {
        if !(self.skip_special && self.tokenizer.is_special(id)) {
            let tokenizer = self.tokenizer.clone();
            let mut piece = tokenizer.token_bytes(id).unwrap_or_default();
            if self.strip_space && !piece.is_empty() {
                piece = piece.strip_prefix(b" ").unwrap_or(piece);
                self.strip_space = false;
            }
            self.pending.extend_from_slice(piece);
        }
        take_text(&mut self.pending, false)
    }

    /// The end: what is still held back, as U+FFFD.
    pub fn finish(mut self) -> String {
        take_text(&mut self.pending, true)
    }
}

/// Moves all complete characters from `bytes` to the result.
fn take_text(bytes: &mut Vec<u8>, end: bool) -> String {
    let mut text = String::new();
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let rest = &bytes[done..];
        // An invalid part at the very end may still be completed by the next token.
        let incomplete = chunk.invalid().len() == rest.len()
            && std::str::from_utf8(rest).is_err_and(|e| e.error_len().is_none());
        if chunk.invalid().is_empty() || (incomplete && !end) {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        done += chunk.invalid().len();
    }
    bytes.drain(..done);
    text
}
