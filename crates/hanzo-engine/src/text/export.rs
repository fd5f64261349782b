//! A `tokenizer.json` as the `tokenizer.ggml.*` keys of a GGUF file.
//!
//! Byte-level BPE becomes the model `gpt2`, its pre-tokenizer named by what it does: the row of [`PRE_TOKENIZERS`] that cuts a
//! sample as the file's own one does. BPE over SentencePiece pieces becomes the model `llama`; a piece's score is minus the
//! rank of the first merge that makes it, which orders merges as the file does. Others are refused by name.
//!
//! Invariant: the keys are read back, and both tokenizers must read the sample alike; else the export fails.

use std::{collections::HashMap, fs, path::Path};

use hanzo_ml::file::{Array, Metadata, Value};
use serde_json::Value as Json;

use super::{
    ChatTemplate, EncodeOptions, Model, Tokenizer, json,
    pre::{PRE_TOKENIZERS, Splitter},
    vocab::Kind,
};
use crate::{Error, Result};

/// Text in which pre-tokenizers differ: contractions in both cases, digits in groups, runs of spaces and line breaks, scripts
/// with and without spaces, signs, marks that combine (but not into one character: GGUF readers do not normalise).
const SAMPLE: &str = concat!(
    "Hello world, it's 7 o'clock; THEY'RE late and I'LL wait. x1 22 333 4444 55555 666666 7777777\n",
    "  two   three\t\ttabs \n\n\n   indented\r\n\r\n done  \n",
    "snake_case camelCase HTTPServer été naïve Ärger ΑΒΓ привет Мир עברית العربية हिन्दी ไทย\n",
    "日本語のテキスト 中文字符123 한국어 😀👍🏽 — “quotes” ... !!! ??? (a) [b] {c} #tag @me $5.00 50%\n",
    "q\u{301}x\u{302} fi\u{fb01} ½ ² Ⅷ ٣٤٥ ~~~ ^^ `code` <tag/> https://example.org/a?b=c&d=e\u{a0}end     ",
);

/// The longest config.json that is read for ids.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Puts the keys of a folder's tokenizer and chat template for an embedding of `n_rows`; says what people should know.
///
/// # Errors
/// If a file cannot be read, or holds a tokenizer that GGUF cannot express.
pub(crate) fn export(folder: &Path, n_rows: usize, metadata: &mut Metadata) -> Result<Vec<String>> {
    let path = folder.join("tokenizer.json");
    let error = |what: String| Error::text(format!("{}: {what}", path.display()));
    let config = Some(folder.join("tokenizer_config.json")).filter(|path| path.exists());
    let tokenizer = Tokenizer::from_json(&path, config.as_deref())?;
    if tokenizer.vocab_size() > n_rows {
        return Err(error(format!("{} tokens for {n_rows} rows of the embedding", tokenizer.vocab_size())));
    }
    let file: Json = serde_json::from_slice(&json::read(&path)?).map_err(|e| error(e.to_string()))?;
    let model = &file["model"];
    // Older files do not name the model's type.
    let kind = model["type"].as_str().unwrap_or(if model["merges"].is_array() { "BPE" } else { "" });
    if kind != "BPE" {
        return Err(error(format!("a tokenizer of type {kind:?} cannot be converted; only BPE can")));
    }
    let merges = merges(&model["merges"]).ok_or_else(|| error("its merges are no list of pairs".into()))?;
    tokens(&tokenizer, n_rows, metadata);
    if model["byte_fallback"] == true {
        pieces(&tokenizer, &merges, n_rows, &file["normalizer"], metadata);
    } else {
        byte_level(&tokenizer, &merges, model["ignore_merges"] == true, metadata).map_err(error)?;
    }
    specials(&tokenizer, folder, metadata)?;
    let mut notes = Vec::new();
    match ChatTemplate::from_folder(folder) {
        Ok(Some(template)) => put(metadata, "tokenizer.chat_template", template.source().to_owned()),
        Ok(None) => {}
        Err(e) => notes.push(format!("the chat template is left out: {e}")),
    }
    check(&tokenizer, metadata).map_err(error)?;
    Ok(notes)
}

fn put(metadata: &mut Metadata, key: &str, text: String) {
    metadata.insert(key, Value::String(text));
}

/// Pairs, written as one text with a space or as two.
fn merges(json: &Json) -> Option<Vec<(String, String)>> {
    let pair = |merge: &Json| match merge {
        Json::String(text) => text.split_once(' ').map(|(l, r)| (l.to_owned(), r.to_owned())),
        Json::Array(pair) => match pair.as_slice() {
            [Json::String(l), Json::String(r)] => Some((l.clone(), r.clone())),
            _ => None,
        },
        _ => None,
    };
    json.as_array()?.iter().map(pair).collect()
}

/// Texts and kinds; rows of the embedding that no token has are filled up.
fn tokens(tokenizer: &Tokenizer, n_rows: usize, metadata: &mut Metadata) {
    let vocab = &tokenizer.0.vocab;
    let (mut texts, mut kinds) = (Vec::with_capacity(n_rows), Vec::with_capacity(n_rows));
    for id in 0..u32::try_from(n_rows).unwrap_or(u32::MAX) {
        let text = tokenizer.token_text(id).filter(|text| !text.is_empty());
        match text.zip(vocab.kind(id)) {
            None => {
                texts.push(format!("[PAD{id}]"));
                kinds.push(Kind::Unused.to_gguf());
            }
            // Found in text as it is written, before spaces are replaced.
            Some((text, kind @ Kind::UserDefined)) => {
                texts.push(text.replace('▁', " "));
                kinds.push(kind.to_gguf());
            }
            Some((text, kind)) => {
                texts.push(text.to_owned());
                kinds.push(kind.to_gguf());
            }
        }
    }
    metadata.insert("tokenizer.ggml.tokens", Value::Array(Array::String(texts)));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
}

fn byte_level(
    tokenizer: &Tokenizer,
    merges: &[(String, String)],
    ignore_merges: bool,
    metadata: &mut Metadata,
) -> std::result::Result<(), String> {
    put(metadata, "tokenizer.ggml.model", "gpt2".to_owned());
    let Model::Json(model) = &tokenizer.0.model else { return Err("no tokenizer.json".to_owned()) };
    let theirs = model.words(SAMPLE).map_err(|e| e.to_string())?;
    let cuts_alike = |pre: &&super::pre::PreTokenizer| {
        !pre.plain && Splitter::new(pre).is_ok_and(|splitter| splitter.split(SAMPLE) == theirs)
    };
    let alike: Vec<_> = PRE_TOKENIZERS.iter().filter(cuts_alike).collect();
    let same = alike.iter().find(|pre| pre.ignore_merges == ignore_merges).or(alike.first());
    let pre = same.ok_or("its pre-tokenizer cuts text as none that GGUF has a name for")?;
    put(metadata, "tokenizer.ggml.pre", pre.names[0].to_owned());
    let merges = merges.iter().map(|(l, r)| format!("{l} {r}")).collect();
    metadata.insert("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    Ok(())
}

fn pieces(
    tokenizer: &Tokenizer,
    merges: &[(String, String)],
    n_rows: usize,
    normalizer: &Json,
    metadata: &mut Metadata,
) {
    put(metadata, "tokenizer.ggml.model", "llama".to_owned());
    put(metadata, "tokenizer.ggml.pre", "default".to_owned());
    let mut first: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        first.entry(format!("{left}{right}")).or_insert(rank);
    }
    // What no merge makes is never merged into: its score says nothing.
    let score = |id: u32| {
        let rank = tokenizer.token_text(id).and_then(|text| first.get(text));
        rank.map_or(0.0, |&rank| -(rank as f32) - 1.0)
    };
    let scores = (0..u32::try_from(n_rows).unwrap_or(u32::MAX)).map(score).collect();
    metadata.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    let prefix = prepends(normalizer);
    metadata.insert("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
}

/// Whether a normalizer, or one in its sequence, puts a space in front.
fn prepends(normalizer: &Json) -> bool {
    match normalizer["type"].as_str().unwrap_or_default() {
        "Sequence" => normalizer["normalizers"].as_array().is_some_and(|list| list.iter().any(prepends)),
        "Prepend" => normalizer["prepend"] == "▁",
        _ => false,
    }
}

fn specials(tokenizer: &Tokenizer, folder: &Path, metadata: &mut Metadata) -> Result<()> {
    let model = config(&folder.join("config.json"))?;
    let named = config(&folder.join("tokenizer_config.json"))?;
    let from_model = |name: &str| {
        let id = model[format!("{name}_token_id")].as_u64();
        id.and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < tokenizer.vocab_size())
    };
    let pad = &named["pad_token"];
    let pad = pad.as_str().or(pad["content"].as_str()).and_then(|text| tokenizer.id_of(text));
    for (key, id) in [
        ("bos", tokenizer.bos().or_else(|| from_model("bos"))),
        ("eos", tokenizer.eos().or_else(|| from_model("eos"))),
        ("unknown", tokenizer.0.vocab.specials.unk),
        ("padding", pad.or_else(|| from_model("pad"))),
    ] {
        if let Some(id) = id {
            metadata.insert(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
        }
    }
    let (bos, eos) = (!tokenizer.0.prefix.is_empty(), !tokenizer.0.suffix.is_empty());
    metadata.insert("tokenizer.ggml.add_bos_token", Value::Bool(bos));
    metadata.insert("tokenizer.ggml.add_eos_token", Value::Bool(eos));
    Ok(())
}

/// A small JSON file; null where there is none.
fn config(path: &Path) -> Result<Json> {
    let error = |what: String| Error::text(format!("{}: {what}", path.display()));
    let bytes = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Json::Null),
        Err(e) => return Err(error(e.to_string())),
    };
    if bytes > CONFIG_BYTES_MAX {
        return Err(error(format!("{bytes} bytes are more than such a file may have")));
    }
    let text = fs::read(path).map_err(|e| error(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| error(e.to_string()))
}

/// Both tokenizers on the sample, line by line and whole.
fn check(theirs: &Tokenizer, metadata: &Metadata) -> std::result::Result<(), String> {
    let ours = Tokenizer::from_gguf(metadata, None).map_err(|e| format!("as GGUF: {e}"))?;
    for text in SAMPLE.split_inclusive('\n').chain([SAMPLE]) {
        let options = EncodeOptions { add_special: true, parse_special: false };
        let encode = |tokenizer: &Tokenizer| tokenizer.encode(text, options).map_err(|e| e.to_string());
        let (want, got) = (encode(theirs)?, encode(&ours)?);
        if want != got {
            let at = want.iter().zip(&got).take_while(|(a, b)| a == b).count();
            let rest = theirs.decode(&want[at.min(want.len())..], false);
            let rest: String = rest.chars().take(20).collect();
            return Err(format!("as GGUF it would read {rest:?} differently"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hanzo_ml::file::gguf::Gguf;
    use serde_json::json;

    use super::*;

    fn repository(path: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
    }

    fn exported(folder: &Path, n_rows: usize) -> Result<(Metadata, Vec<String>)> {
        let mut metadata = Metadata::default();
        let notes = export(folder, n_rows, &mut metadata)?;
        Ok((metadata, notes))
    }

    /// A folder with the tokenizer of the tiny chat model, as `tokenizers` would write it.
    fn tiny() -> (tempfile::TempDir, Gguf, Json) {
        let gguf = Gguf::open(&repository("testdata/tiny/with-vocab.gguf")).unwrap();
        let tokens = gguf.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap();
        let merges = gguf.metadata().strings("tokenizer.ggml.merges").unwrap().unwrap();
        let types = gguf.metadata().i32s("tokenizer.ggml.token_type").unwrap().unwrap();
        let all = || tokens.iter().zip(&types).enumerate();
        let vocab: serde_json::Map<String, Json> =
            all().filter(|(_, (_, t))| **t == 1).map(|(id, (text, _))| (text.clone(), id.into())).collect();
        let added: Vec<Json> = all()
            .filter(|(_, (_, t))| **t == 3)
            .map(|(id, (text, _))| {
                json!({ "id": id, "content": text, "special": true, "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false })
            })
            .collect();
        let words = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
        let bos = [("<|begin|>", 301)];
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": added,
            "pre_tokenizer": words, "decoder": words,
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{ "SpecialToken": { "id": bos[0].0, "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
                "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
                "special_tokens": { bos[0].0: { "id": bos[0].0, "ids": [bos[0].1], "tokens": [bos[0].0] } },
            },
            "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                       "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                       "merges": merges },
        });
        let config = json!({ "bos_token": "<|begin|>", "eos_token": { "content": "<|im_end|>" },
                             "pad_token": "<|unused|>", "chat_template": "{{ messages }}" });
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        (folder, gguf, file)
    }

    #[test]
    fn a_byte_level_vocabulary_comes_over_whole() {
        let (folder, gguf, _) = tiny();
        let (metadata, notes) = exported(folder.path(), 310).unwrap();
        assert_eq!(notes, [""; 0]);
        for key in ["model", "merges", "pre", "bos_token_id", "eos_token_id", "add_bos_token"] {
            let key = format!("tokenizer.ggml.{key}");
            assert_eq!(metadata.get(&key), gguf.metadata().get(&key), "{key}");
        }
        let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!(tokens[..305], *gguf.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap());
        assert_eq!(tokens[305..], ["[PAD305]", "[PAD306]", "[PAD307]", "[PAD308]", "[PAD309]"]);
        let types = metadata.i32s("tokenizer.ggml.token_type").unwrap().unwrap();
        assert_eq!((types[0], types[301], types[309]), (1, 3, 5));
        assert_eq!(metadata.u32("tokenizer.ggml.padding_token_id").unwrap(), Some(304));
        assert_eq!(metadata.str("tokenizer.chat_template").unwrap(), Some("{{ messages }}"));
    }

    #[test]
    fn what_gguf_cannot_say_is_refused() {
        let (folder, _, file) = tiny();
        let refused = |change: &dyn Fn(&mut Json)| {
            let mut file = file.clone();
            change(&mut file);
            fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
            exported(folder.path(), 310).unwrap_err().to_string()
        };
        let error = refused(&|f| f["pre_tokenizer"] = json!({ "type": "Digits", "individual_digits": true }));
        assert!(error.contains("cuts text as none that GGUF has a name for"), "{error}");
        let lower = json!({ "type": "Lowercase" });
        let error = refused(&|f| f["normalizer"] = lower.clone());
        assert!(error.contains("as GGUF it would read"), "{error}");
        let words = json!({ "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" });
        let error = refused(&|f| f["model"] = words.clone());
        assert!(error.contains("of type \"WordLevel\" cannot be converted"), "{error}");
        fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
        let error = exported(folder.path(), 304).unwrap_err().to_string();
        assert!(error.contains("305 tokens for 304 rows"), "{error}");
    }

    /// Published tokenizers; what llama.cpp's converter made of the same vocabulary, where it is at hand.
    #[test]
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    fn published_tokenizers_come_over() {
        let cases = [
            ("llama2", None, "default"),
            ("llama3", Some("llama-bpe"), "llama3"),
            ("llama3_1", None, "llama3"),
            ("qwen3", Some("qwen2"), "qwen2"),
            ("gpt4o", None, "gpt-4o"),
            ("gemma3", None, "default"),
        ];
        for (name, theirs, pre) in cases {
            let folder = repository("models/tokenizers").join(name);
            if !folder.join("tokenizer.json").exists() {
                println!("SKIPPED {name}: tools/models/fetch_tokenizers.py fetches models/tokenizers");
                continue;
            }
            let n = Tokenizer::from_json(&folder.join("tokenizer.json"), None).unwrap().vocab_size();
            let (metadata, _) = exported(&folder, n).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(metadata.str("tokenizer.ggml.pre").unwrap(), Some(pre), "{name}");
            let Some(theirs) = theirs else { continue };
            let path = repository("models/vocab").join(format!("ggml-vocab-{theirs}.gguf"));
            if !path.exists() {
                println!("SKIPPED {theirs}: tools/models/fetch_vocabs.py fetches models/vocab");
                continue;
            }
            same_vocabulary(name, &metadata, Gguf::open(&path).unwrap().metadata());
        }
    }

    fn same_vocabulary(name: &str, ours: &Metadata, theirs: &Metadata) {
        let tokens = |m: &Metadata| m.strings("tokenizer.ggml.tokens").unwrap().unwrap().to_vec();
        // Qwen 3 has a few tokens more than Qwen 2.
        let n = tokens(theirs).iter().position(|t| t.starts_with("[PAD")).unwrap_or(tokens(theirs).len());
        let differ = tokens(ours).iter().zip(&tokens(theirs)[..n]).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{name}: the first token that differs");
        let merges = |m: &Metadata| m.strings("tokenizer.ggml.merges").unwrap().map(<[String]>::to_vec);
        assert!(merges(ours) == merges(theirs), "{name}");
    }
}
