//! The vocabulary of a GGUF file.
//!
//! Source: the `tokenizer.ggml.*` keys of the GGUF specification, and llama.cpp for the defaults that files leave out. The
//! file is hostile: counts must agree, special ids must exist, merges must name tokens.

use hanzo_ml::file::{Array, Metadata, Value};

use super::{
    Model, Tokenizer,
    bpe::{Alphabet, Bpe},
    pre,
    special::Partition,
    spm::Spm,
    unigram::{CharMap, Unigram},
    vocab::{Arena, Kind, Specials, Vocab},
    wordpiece::WordPiece,
};
use crate::{Error, Result};

/// The keys of `tokenizer.ggml.*` that are read.
struct Keys<'m> {
    metadata: &'m Metadata,
    tokens: &'m [String],
}

impl<'m> Keys<'m> {
    fn new(metadata: &'m Metadata) -> Result<Self> {
        let tokens = metadata.strings("tokenizer.ggml.tokens")?;
        let tokens =
            tokens.ok_or_else(|| Error::text("the file has no vocabulary (tokenizer.ggml.tokens)"))?;
        if tokens.is_empty() {
            return Err(Error::text("the vocabulary is empty (tokenizer.ggml.tokens)"));
        }
        Ok(Self { metadata, tokens })
    }

    fn id(&self, name: &str, default: Option<u32>) -> Result<Option<u32>> {
        let given = self.metadata.u32(&format!("tokenizer.ggml.{name}"))?;
        Ok(given.or(default.filter(|&id| (id as usize) < self.tokens.len())))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.metadata.bool(&format!("tokenizer.ggml.{name}"))?.unwrap_or(default))
    }

    fn specials(&self, defaults: &Specials) -> Result<Specials> {
        Ok(Specials {
            bos: self.id("bos_token_id", defaults.bos)?,
            eos: self.id("eos_token_id", defaults.eos)?,
            eot: self.id("eot_token_id", None)?,
            eom: self.id("eom_token_id", None)?,
            unk: self.id("unknown_token_id", defaults.unk)?,
            // The key is spelt so.
            sep: self.id("seperator_token_id", defaults.sep)?,
        })
    }

    /// One kind a token. Without the key, all are normal but those that `guess` knows.
    fn kinds(&self, guess: impl Fn(usize, &str) -> Kind) -> Result<Vec<Kind>> {
        let Some(types) = self.metadata.i32s("tokenizer.ggml.token_type")? else {
            return Ok(self.tokens.iter().enumerate().map(|(i, t)| guess(i, t)).collect());
        };
        self.same_count("token_type", types.len())?;
        let bad =
            |id, t| Error::text(format!("tokenizer.ggml.token_type: token {id} has the unknown type {t}"));
        types.iter().enumerate().map(|(id, &t)| Kind::from_gguf(t).ok_or_else(|| bad(id, t))).collect()
    }

    fn same_count(&self, name: &str, n: usize) -> Result<()> {
        if n == self.tokens.len() {
            return Ok(());
        }
        let n_tokens = self.tokens.len();
        Err(Error::text(format!("tokenizer.ggml.{name} has {n} entries for {n_tokens} tokens")))
    }

    fn scores(&self) -> Result<Vec<f32>> {
        let scores = self.metadata.f32s("tokenizer.ggml.scores")?;
        let scores = scores.ok_or_else(|| Error::text("the file has no tokenizer.ggml.scores"))?;
        self.same_count("scores", scores.len())?;
        Ok(scores)
    }

    fn vocab(
        &self,
        kinds: Vec<Kind>,
        specials: Specials,
        piece: impl Fn(Kind, &str) -> Vec<u8>,
    ) -> Result<Vocab> {
        let n_bytes = self.tokens.iter().map(String::len).sum();
        let mut texts = Arena::with_capacity(self.tokens.len(), n_bytes);
        let mut pieces = Arena::with_capacity(self.tokens.len(), n_bytes);
        for (id, (text, &kind)) in self.tokens.iter().zip(&kinds).enumerate() {
            texts.push(text.as_bytes())?;
            match kind {
                Kind::Unused => pieces.push(b"")?,
                Kind::Control | Kind::UserDefined | Kind::Unknown => pieces.push(text.as_bytes())?,
                Kind::Normal => pieces.push(&piece(kind, text))?,
                Kind::Byte => pieces.push(&[byte_token(text).ok_or_else(|| {
                    Error::text(format!("token {id} {text:?} is of the byte type, but is not <0xHH>"))
                })?])?,
            }
        }
        Vocab::new(texts, pieces, kinds, specials)
    }

    /// Ids of the tokens that swallow the white space after them. The file format cannot say so; known by name.
    fn rstrip(&self, vocab: &Vocab) -> Result<Vec<u32>> {
        let name = self.metadata.str("general.name")?.unwrap_or_default().to_lowercase();
        if !["phi-3", "phi3"].iter().any(|n| name.contains(n)) {
            return Ok(vec![]);
        }
        let mut ids = vocab.ids_where(|k| matches!(k, Kind::Control | Kind::UserDefined | Kind::Unknown));
        ids.retain(|&id| !["<unk>", "<s>", "<|endoftext|>"].iter().any(|t| vocab.id(t) == Some(id)));
        Ok(ids)
    }
}

/// The byte of `<0xHH>`.
pub(super) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    two.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// Builds the tokenizer of a file. `pre` overrides the pre-tokenizer's name.
pub(super) fn load(metadata: &Metadata, pre: Option<&str>) -> Result<Tokenizer> {
    let model = metadata.str("tokenizer.ggml.model")?;
    let model = model.ok_or_else(|| Error::text("the file has no tokenizer (tokenizer.ggml.model)"))?;
    let keys = Keys::new(metadata)?;
    match model {
        "gpt2" => bpe(&keys, pre.or(metadata.str("tokenizer.ggml.pre")?)),
        "gemma4" => bpe(&keys, Some("gemma4")),
        "llama" => spm(&keys),
        "bert" => word_piece(&keys),
        "t5" => unigram(&keys),
        other => Err(Error::text(format!("unsupported tokenizer.ggml.model {other:?}"))),
    }
}

fn bpe(keys: &Keys, pre: Option<&str>) -> Result<Tokenizer> {
    let pre = pre::find(pre)?;
    let specials = keys.specials(&Specials::default())?;
    let kinds = keys.kinds(|id, _| guess_special(&specials, id))?;
    let alphabet = Alphabet::new();
    let vocab = keys.vocab(kinds, specials, |_, text| {
        if pre.plain { text.replace('▁', " ").into_bytes() } else { alphabet.bytes(text) }
    })?;
    let merges = keys.metadata.strings("tokenizer.ggml.merges")?;
    let merges = merges.ok_or_else(|| Error::text("the file has no tokenizer.ggml.merges"))?;
    let model = Bpe::new(&vocab, pre, merges.iter().map(String::as_str))?;
    // Files for plain vocabularies say that no token goes in front, and are wrong.
    let add_bos = keys.flag("add_bos_token", pre.add_bos)? || (pre.plain && pre.add_bos);
    let add_eos = keys.flag("add_eos_token", false)?;
    finish(keys, vocab, Model::Bpe(Box::new(model)), (add_bos, add_eos), false)
}

fn spm(keys: &Keys) -> Result<Tokenizer> {
    let defaults = Specials { bos: Some(1), eos: Some(2), unk: Some(0), ..Specials::default() };
    let specials = keys.specials(&defaults)?;
    let kinds = keys.kinds(|id, text| match byte_token(text) {
        Some(_) => Kind::Byte,
        None => guess_special(&specials, id),
    })?;
    let vocab = keys.vocab(kinds, specials, |_, text| text.replace('▁', " ").into_bytes())?;
    let space_prefix = keys.flag("add_space_prefix", true)?;
    let model = Spm::new(&vocab, &keys.scores()?, space_prefix)?;
    let add = (keys.flag("add_bos_token", true)?, keys.flag("add_eos_token", false)?);
    finish(keys, vocab, Model::Spm(Box::new(model)), add, space_prefix)
}

fn word_piece(keys: &Keys) -> Result<Tokenizer> {
    let cls = keys.id("cls_token_id", Some(101))?;
    let defaults = Specials { bos: cls, sep: Some(102), unk: Some(100), ..Specials::default() };
    let specials = keys.specials(&defaults)?;
    let kinds = keys.kinds(|id, _| guess_special(&specials, id))?;
    let vocab = keys.vocab(kinds, specials, |_, text| text.replace('▁', " ").into_bytes())?;
    let lowercase = keys.flag("normalizer.lowercase", true)?;
    let strip_accents = keys.flag("normalizer.strip_accents", lowercase)?;
    let model = WordPiece::new(&vocab, lowercase, strip_accents);
    let missing = |what: &str| Error::text(format!("a bert vocabulary needs a {what}_token_id"));
    let prefix = vec![vocab.specials.bos.ok_or_else(|| missing("cls"))?];
    let suffix = vec![vocab.specials.sep.ok_or_else(|| missing("seperator"))?];
    let partition = Partition::new(&vocab, vec![])?;
    Ok(Tokenizer::assemble(vocab, Model::WordPiece(model), partition, prefix, suffix, true))
}

fn unigram(keys: &Keys) -> Result<Tokenizer> {
    let specials = keys.specials(&Specials { eos: Some(1), unk: Some(2), ..Specials::default() })?;
    let kinds = keys.kinds(|id, _| guess_special(&specials, id))?;
    let vocab = keys.vocab(kinds, specials, |_, text| text.replace('▁', " ").into_bytes())?;
    const MAP: &str = "tokenizer.ggml.precompiled_charsmap";
    let char_map = match keys.metadata.get(MAP) {
        None => None,
        Some(Value::Array(Array::U8(bytes))) => Some(CharMap::new(bytes)?),
        Some(Value::Array(Array::I8(bytes))) => {
            Some(CharMap::new(&bytes.iter().map(|&b| b.cast_unsigned()).collect::<Vec<_>>())?)
        }
        Some(other) => {
            return Err(Error::text(format!("{MAP} should be bytes, found {}", other.type_name())));
        }
    };
    let space_prefix = keys.flag("add_space_prefix", true)?;
    let merge_spaces = keys.flag("remove_extra_whitespaces", false)?;
    let model = Unigram::new(&vocab, &keys.scores()?, char_map, (space_prefix, merge_spaces))?;
    let add = (keys.flag("add_bos_token", false)?, keys.flag("add_eos_token", true)?);
    finish(keys, vocab, Model::Unigram(Box::new(model)), add, space_prefix)
}

fn guess_special(specials: &Specials, id: usize) -> Kind {
    let is = |special: Option<u32>| special.is_some_and(|s| s as usize == id);
    if is(specials.unk) {
        Kind::Unknown
    } else if is(specials.bos) || is(specials.eos) || is(specials.sep) {
        Kind::Control
    } else {
        Kind::Normal
    }
}

fn finish(
    keys: &Keys,
    vocab: Vocab,
    model: Model,
    (add_bos, add_eos): (bool, bool),
    strips_space: bool,
) -> Result<Tokenizer> {
    let missing =
        |what: &str| Error::text(format!("add_{what}_token is set, but there is no {what}_token_id"));
    let prefix = if add_bos { vec![vocab.specials.bos.ok_or_else(|| missing("bos"))?] } else { vec![] };
    let suffix = if add_eos { vec![vocab.specials.eos.ok_or_else(|| missing("eos"))?] } else { vec![] };
    let partition = Partition::new(&vocab, keys.rstrip(&vocab)?)?;
    Ok(Tokenizer::assemble(vocab, model, partition, prefix, suffix, strips_space))
}
