//! Text in and out: tokenizers, streaming detokenizer, chat templates.
//!
//! * [`Tokenizer`]: text to ids and back, from a GGUF file's vocabulary or from a `tokenizer.json`.
//! * [`DecodeStream`]: ids to text as they come.
//! * [`ChatTemplate`]: messages to the prompt that the model was trained on.
//!
//! Files, templates and texts are hostile: errors, never panics, and time linear in the text (times a logarithm).

mod bpe;
mod decode;
mod export;
mod gguf;
mod json;
mod merge;
mod pre;
mod python;
mod special;
mod spm;
mod template;
mod unigram;
mod vocab;
mod wordpiece;

use std::{path::Path, sync::Arc};

use hanzo_ml::file::Metadata;

use crate::Result;
pub use decode::DecodeStream;
pub(crate) use export::export;
use special::{Fragment, Partition};
pub use template::{ChatTemplate, RenderOptions};
use vocab::{Kind, Vocab};

/// How to turn text into tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put the beginning-of-sequence token in front, and the end-of-sequence token behind, where the model wants them.
    pub add_special: bool,
    /// Read control tokens such as `<|im_end|>` in the text. Only for text that the caller trusts, such as a rendered
    /// chat template.
    pub parse_special: bool,
}

/// A model's vocabulary and the rules that turn text into its ids and back. Cloning shares it.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    vocab: Vocab,
    model: Model,
    partition: Partition,
    /// Ids in front of and behind a sequence, where asked for.
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    strips_space: bool,
}

enum Model {
    Bpe(Box<bpe::Bpe>),
    Spm(Box<spm::Spm>),
    WordPiece(wordpiece::WordPiece),
    Unigram(Box<unigram::Unigram>),
    Json(Box<json::HfModel>),
}

impl Tokenizer {
    /// The tokenizer in a GGUF file's metadata. `pre` overrides the name of the pre-tokenizer that the file gives.
    ///
    /// # Errors
    /// If the vocabulary is missing, contradicts itself, or is of a kind that is not supported.
    pub fn from_gguf(metadata: &Metadata, pre: Option<&str>) -> Result<Self> {
        gguf::load(metadata, pre)
    }

    /// The tokenizer of a `tokenizer.json`; `config` is the `tokenizer_config.json` beside it, which names the special
    /// tokens.
    ///
    /// # Errors
    /// If a file cannot be read or does not describe a tokenizer.
    pub fn from_json(path: &Path, config: Option<&Path>) -> Result<Self> {
        json::load(path, config)
    }

    fn assemble(
        vocab: Vocab,
        model: Model,
        partition: Partition,
        prefix: Vec<u32>,
        suffix: Vec<u32>,
        strips_space: bool,
    ) -> Self {
        Self(Arc::new(Inner { vocab, model, partition, prefix, suffix, strips_space }))
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// If the text holds a byte or character that the vocabulary cannot express.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let EncodeOptions { add_special, parse_special } = options;
        let Inner { vocab, model, partition, prefix, suffix, .. } = &*self.0;
        let mut ids = vec![];
        if add_special {
            ids.extend(prefix);
        }
        let mut after_special = true;
        for fragment in partition.split(text, parse_special) {
            match (fragment, model) {
                (Fragment::Token(id), _) => {
                    ids.push(id);
                    after_special = true;
                    continue;
                }
                (Fragment::Text(text), Model::Bpe(bpe)) => bpe.encode(vocab, text, &mut ids)?,
                (Fragment::Text(text), Model::Spm(spm)) => {
                    spm.encode(vocab, text, after_special, &mut ids)?
                }
                (Fragment::Text(text), Model::WordPiece(words)) => words.encode(vocab, text, &mut ids)?,
                (Fragment::Text(text), Model::Unigram(unigram)) => {
                    unigram.encode(text, after_special, &mut ids)?
                }
                (Fragment::Text(text), Model::Json(hf)) => hf.encode(text, parse_special, &mut ids)?,
            }
            after_special = false;
        }
        if add_special {
            ids.extend(suffix);
        }
        Ok(ids)
    }

    /// The text of ids, equal to the joined pieces of [`Self::stream`]. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for ids that come one by one.
    pub fn stream(&self, skip_special: bool) -> DecodeStream {
        DecodeStream::new(self.clone(), skip_special)
    }

    /// What a token adds to the output; `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.vocab.piece(id)
    }

    /// Number of tokens. A model's output may be wider (padding).
    pub fn vocab_size(&self) -> usize {
        self.0.vocab.len()
    }

    /// What stands in front of a sequence, where asked for.
    pub fn prefix(&self) -> &[u32] {
        &self.0.prefix
    }

    /// What stands behind a sequence, where asked for.
    pub fn suffix(&self) -> &[u32] {
        &self.0.suffix
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.0.vocab.specials.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.0.vocab.specials.eos
    }

    /// Every token that ends a generation, ascending: end of sequence, of turn, of message, and their like by name.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.0.vocab.end_of_generation
    }

    /// Whether a token is a control token (or the unknown token), which decoding can skip.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.0.vocab.kind(id), Some(Kind::Control | Kind::Unknown))
    }

    /// The id of a token by its text in the vocabulary (`<|im_end|>`, `Ġthe`).
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.0.vocab.id(text)
    }

    /// The text of a token in the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.0.vocab.text(id).and_then(|t| std::str::from_utf8(t).ok())
    }

    fn strips_space(&self) -> bool {
        self.0.strips_space
    }
}
