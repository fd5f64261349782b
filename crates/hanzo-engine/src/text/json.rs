//! Hugging Face's `tokenizer.json`, run by the `tokenizers` crate.
//!
//! The crate encodes; decoding is ours ([`super::decode`]), from the bytes that each token stands for, which the file's
//! decoder tells. Limits of the crate that are worked around: its regex engine gives up silently at about a million white
//! spaces in a row, so longer runs go in parts; and it panics on some files that contradict themselves, which is made an
//! error here.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use serde_json::Value as Json;
use tokenizers::{
    AddedVocabulary, Model as _, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    Tokenizer as Hf,
};

use super::{
    Model, Tokenizer,
    bpe::Alphabet,
    gguf::byte_token,
    special::Partition,
    vocab::{Arena, Kind, Specials, Vocab},
};
use crate::{Error, Result};

/// Bytes of a file that is read; the largest vocabularies take about 35 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// No vocabulary has more ids; a larger one would only be a gap.
const IDS_MAX: u32 = 1 << 24;
/// White-space runs are cut at multiples of this many characters.
const RUN_MAX: usize = 1 << 18;

/// The crate's tokenizer and its two ways to look for special tokens.
pub(crate) struct HfModel {
    hf: Hf,
    /// As the file says: special tokens are found in text.
    parsing: AddedVocabulary,
    /// Special tokens are text like any other.
    plain: AddedVocabulary,
    /// Words are found by the crate's regex engine, which white-space runs can overwhelm.
    regex_words: bool,
}

fn fault(path: &Path, e: impl std::fmt::Display) -> Error {
    Error::text(format!("{}: {e}", path.display()))
}

/// What the crate gives, a panic of its own included.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    let panicked = |_| Err("the tokenizers crate panicked: the file contradicts itself".into());
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::metadata(path).map_err(|e| fault(path, e))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(fault(path, format!("{bytes} bytes, more than {FILE_BYTES_MAX}")));
    }
    fs::read(path).map_err(|e| fault(path, e))
}

impl HfModel {
    /// Appends the ids of a text, special tokens as asked, nothing added in front or behind.
    pub fn encode(&self, text: &str, parse_special: bool, out: &mut Vec<u32>) -> Result<()> {
        let added = if parse_special { &self.parsing } else { &self.plain };
        let mut rest = text;
        while let Some(end) = long_run(rest).filter(|_| self.regex_words) {
            self.part(added, &rest[..end], out)?;
            rest = &rest[end..];
        }
        self.part(added, rest, out)
    }

    /// The words into which the pre-tokenizer cuts a text.
    pub fn words<'t>(&self, text: &'t str) -> Result<Vec<&'t str>> {
        let cut = || {
            let mut parts = PreTokenizedString::from(text);
            if let Some(pre) = self.hf.get_pre_tokenizer() {
                pre.pre_tokenize(&mut parts)?;
            }
            Ok(parts)
        };
        let parts = guarded(cut).map_err(|e| Error::text(format!("cutting: {e}")))?;
        let splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.iter().filter_map(|&(_, (start, end), _)| text.get(start..end)).collect())
    }

    fn part(&self, added: &AddedVocabulary, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let split = || {
            let mut parts: PreTokenizedString = added.extract_and_normalize(self.hf.get_normalizer(), text);
            if let Some(pre) = self.hf.get_pre_tokenizer() {
                pre.pre_tokenize(&mut parts)?;
            }
            parts.tokenize(|piece| self.hf.get_model().tokenize(piece.get()))?;
            Ok(parts)
        };
        let parts = guarded(split).map_err(|e| Error::text(format!("encoding: {e}")))?;
        let splits = parts.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        out.extend(splits.iter().filter_map(|(_, _, tokens)| tokens.as_ref()).flatten().map(|t| t.id));
        Ok(())
    }
}

/// Where to cut a text that has an over-long run of white space: after `RUN_MAX` of its characters.
fn long_run(text: &str) -> Option<usize> {
    let (mut run, mut last) = (0, None);
    for (i, c) in text.char_indices() {
        run = if !c.is_whitespace() {
            0
        } else if last == Some(c) {
            run + 1
        } else {
            1
        };
        last = Some(c);
        if run == RUN_MAX && text[i + c.len_utf8()..].starts_with(c) {
            return Some(i + c.len_utf8());
        }
    }
    None
}

/// What the file's decoder says of its token texts.
#[derive(Default)]
struct Decoding {
    byte_level: bool,
    byte_fallback: bool,
    /// `▁` is a space.
    metaspace: bool,
    word_piece: Option<String>,
    suffix: Option<String>,
    strips_space: bool,
}

impl Decoding {
    fn read(&mut self, decoder: &Json) {
        match decoder["type"].as_str().unwrap_or_default() {
            "Sequence" => decoder["decoders"].as_array().into_iter().flatten().for_each(|d| self.read(d)),
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Metaspace" => {
                self.metaspace = true;
                self.strips_space = decoder["prepend_scheme"].as_str() != Some("never");
            }
            "Replace" if decoder["pattern"]["String"] == "▁" => self.metaspace = true,
            "Strip" if decoder["content"] == " " => {
                self.strips_space = decoder["start"].as_u64().unwrap_or(0) > 0;
            }
            "WordPiece" => {
                self.word_piece = Some(decoder["prefix"].as_str().unwrap_or("##").to_owned());
                self.strips_space = true;
            }
            "BPEDecoder" => self.suffix = decoder["suffix"].as_str().map(str::to_owned),
            _ => {}
        }
    }

    fn kind(&self, text: &str) -> Kind {
        if self.byte_fallback && byte_token(text).is_some() { Kind::Byte } else { Kind::Normal }
    }

    fn piece(&self, alphabet: &Alphabet, kind: Kind, text: &str) -> Vec<u8> {
        match kind {
            Kind::Byte => byte_token(text).into_iter().collect(),
            Kind::Control | Kind::UserDefined | Kind::Unknown if self.metaspace => {
                text.replace('▁', " ").into_bytes()
            }
            Kind::Control | Kind::UserDefined | Kind::Unknown => text.as_bytes().to_vec(),
            _ if self.byte_level => alphabet.bytes(text),
            _ => {
                let mut text = if self.metaspace { text.replace('▁', " ") } else { text.to_owned() };
                if let Some(prefix) = &self.word_piece {
                    text =
                        text.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {text}"), str::to_owned);
                }
                if let Some(suffix) = self.suffix.as_deref().filter(|s| !s.is_empty()) {
                    text = text.replace(suffix, " ");
                }
                text.into_bytes()
            }
        }
    }
}

/// Builds the tokenizer of a `tokenizer.json`; `config` is the `tokenizer_config.json` that names its special tokens.
pub(super) fn load(path: &Path, config: Option<&Path>) -> Result<Tokenizer> {
    let bytes = read(path)?;
    let mut hf = guarded(|| Hf::from_bytes(bytes)).map_err(|e| fault(path, e))?;
    // Files of embedding models cut and fill up what they encode; that is their caller's business, and a cut that
    // makes no sense would panic.
    hf.with_padding(None).with_truncation(None).map_err(|e| fault(path, e))?;
    let mut decoding = Decoding::default();
    if let Some(decoder) = hf.get_decoder() {
        decoding.read(&serde_json::to_value(decoder).map_err(|e| fault(path, e))?);
    }
    let vocab = vocab(&hf, &decoding, config, path)?;
    let parsing = hf.get_added_vocabulary().clone();
    let mut plain = parsing.clone();
    plain.set_encode_special_tokens(true);
    let (prefix, suffix) = guarded(|| around(&hf)).map_err(|e| fault(path, e))?;
    let pre = serde_json::to_value(hf.get_pre_tokenizer()).map_err(|e| fault(path, e))?;
    let model = Model::Json(Box::new(HfModel { hf, parsing, plain, regex_words: uses_regex(&pre) }));
    Ok(Tokenizer::assemble(vocab, model, Partition::none(), prefix, suffix, decoding.strips_space))
}

/// Whether a pre-tokenizer, or one in its sequence, cuts by a regular expression.
fn uses_regex(pre: &Json) -> bool {
    match pre["type"].as_str().unwrap_or_default() {
        "Sequence" => pre["pretokenizers"].as_array().is_some_and(|list| list.iter().any(uses_regex)),
        "ByteLevel" => pre["use_regex"].as_bool().unwrap_or(true),
        "Split" => pre["pattern"].get("Regex").is_some(),
        _ => false,
    }
}

/// The ids that the file's post-processor puts in front of a text and behind it.
fn around(hf: &Hf) -> tokenizers::Result<(Vec<u32>, Vec<u32>)> {
    let bare = hf.encode_fast("a", false)?.get_ids().to_vec();
    let full = hf.encode_fast("a", true)?.get_ids().to_vec();
    let at = full.windows(bare.len().max(1)).position(|w| w == bare);
    Ok(at.map_or_else(Default::default, |at| (full[..at].to_vec(), full[at + bare.len()..].to_vec())))
}

fn vocab(hf: &Hf, decoding: &Decoding, config: Option<&Path>, path: &Path) -> Result<Vocab> {
    let added = hf.get_added_tokens_decoder();
    let model_max = hf.get_model().get_vocab().into_values().max();
    let Some(max) = model_max.max(added.keys().max().copied()) else {
        return Err(fault(path, "the vocabulary is empty"));
    };
    if max >= IDS_MAX {
        return Err(fault(path, format!("a token has the id {max}; at most {IDS_MAX} are supported")));
    }
    let n = max as usize + 1;
    let alphabet = Alphabet::new();
    let (mut texts, mut pieces) = (Arena::with_capacity(n, n * 7), Arena::with_capacity(n, n * 7));
    let mut kinds = Vec::with_capacity(n);
    for id in 0..=max {
        // An id without a token stays empty.
        let text = hf.id_to_token(id).unwrap_or_default();
        let kind = match added.get(&id) {
            Some(token) if token.special => Kind::Control,
            Some(_) => Kind::UserDefined,
            None => decoding.kind(&text),
        };
        texts.push(text.as_bytes())?;
        pieces.push(&if text.is_empty() { vec![] } else { decoding.piece(&alphabet, kind, &text) })?;
        kinds.push(kind);
    }
    let specials = match config {
        Some(config) => specials(hf, config)?,
        None => Specials::default(),
    };
    Vocab::new(texts, pieces, kinds, specials)
}

/// The special tokens that a `tokenizer_config.json` names, by text or as an object with `content`.
fn specials(hf: &Hf, config: &Path) -> Result<Specials> {
    let json: Json = serde_json::from_slice(&read(config)?).map_err(|e| fault(config, e))?;
    let id = |key: &str| -> Result<Option<u32>> {
        let value = &json[key];
        let Some(text) = value.as_str().or_else(|| value["content"].as_str()) else { return Ok(None) };
        let id = hf.token_to_id(text);
        id.map(Some).ok_or_else(|| fault(config, format!("{key} {text:?} is no token")))
    };
    let unk = id("unk_token").unwrap_or(None);
    Ok(Specials { bos: id("bos_token")?, eos: id("eos_token")?, unk, ..Specials::default() })
}
