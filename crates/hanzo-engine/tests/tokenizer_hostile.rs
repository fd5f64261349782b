//! Vocabularies that contradict themselves, texts that try the limits, and what must hold for every text.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they skip"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use hanzo_engine::text::{EncodeOptions, Tokenizer};
use hanzo_ml::file::{Array, Metadata, Value};

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn strings(items: &[&str]) -> Value {
    Value::Array(Array::String(items.iter().map(|&s| s.to_owned()).collect()))
}

fn set(metadata: &mut Metadata, key: &str, value: Value) {
    metadata.insert(format!("tokenizer.ggml.{key}"), value);
}

/// The character of a byte in byte-level vocabularies (GPT-2's `bytes_to_unicode`), written out anew.
fn byte_char(byte: u8) -> String {
    let plain: Vec<u32> = (33..=126).chain(161..=172).chain(174..=255).collect();
    let rest: Vec<u32> = (0..256).filter(|b| !plain.contains(b)).collect();
    let code = match rest.iter().position(|&b| b == u32::from(byte)) {
        Some(n) => 256 + n as u32,
        None => u32::from(byte),
    };
    char::from_u32(code).unwrap().to_string()
}

/// A byte-level vocabulary: 256 bytes, "he", "ll", "hell", "Ġhell", two control tokens, one user-defined.
fn bpe() -> Metadata {
    let mut tokens: Vec<String> = (0..=255).map(byte_char).collect();
    let more = ["he", "ll", "hell", "Ġhell", "<|begin|>", "<|im_end|>", "<tool>"];
    tokens.extend(more.map(str::to_owned));
    let mut types = vec![1; 260];
    types.extend([3, 3, 4]);
    let mut m = Metadata::new("test.gguf");
    set(&mut m, "model", Value::String("gpt2".into()));
    set(&mut m, "pre", Value::String("gpt-2".into()));
    set(&mut m, "tokens", Value::Array(Array::String(tokens)));
    set(&mut m, "token_type", Value::Array(Array::I32(types)));
    set(&mut m, "merges", strings(&["h e", "l l", "he ll", "Ġ hell"]));
    set(&mut m, "bos_token_id", Value::U32(260));
    set(&mut m, "eos_token_id", Value::U32(261));
    m
}

/// An SPM vocabulary: three special tokens, 256 bytes, letters and a few joint tokens with scores.
fn spm() -> Metadata {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>")));
    let words = ["▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁ab", "<tool>"];
    tokens.extend(words.map(str::to_owned));
    let mut types = vec![2, 3, 3];
    types.extend([6; 256]);
    types.extend([1; 9]);
    types.push(4);
    let mut scores = vec![0.0; 259];
    scores.extend([-10.0, -10.0, -10.0, -10.0, -2.0, -1.0, -3.0, -4.0, -5.0, 0.0]);
    let mut m = Metadata::new("test.gguf");
    set(&mut m, "model", Value::String("llama".into()));
    set(&mut m, "tokens", Value::Array(Array::String(tokens)));
    set(&mut m, "token_type", Value::Array(Array::I32(types)));
    set(&mut m, "scores", Value::Array(Array::F32(scores)));
    m
}

/// Numbers from a small generator (splitmix64), so that runs repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn text(&mut self) -> String {
        let ranges = [
            (9, 13),
            (32, 126),
            (104, 108),
            (0x80, 0x24f),
            (0x300, 0x36f),
            (0x4e00, 0x9fff),
            (0x1f300, 0x1f6ff),
        ];
        let mut text = String::new();
        for _ in 0..self.below(60) {
            let (low, high) = ranges[self.below(ranges.len() as u64) as usize];
            text.extend(char::from_u32((low + self.below(high - low + 1)) as u32));
        }
        text
    }
}

#[test]
fn a_small_vocabulary_tokenizes_by_hand() {
    let t = Tokenizer::from_gguf(&bpe(), None).unwrap();
    assert_eq!(t.encode("hell hell", PLAIN).unwrap(), [258, 259]);
    assert_eq!(t.encode("hhell", PLAIN).unwrap(), [u32::from(b'h'), 258]);
    let ids = t.encode("<|begin|>he<tool>", PARSED).unwrap();
    assert_eq!(ids, [260, 256, 262], "no bos is added where the file does not ask for it");
    let plain = t.encode("<|begin|>he<tool>", PLAIN).unwrap();
    assert!(!plain.contains(&260), "text cannot spell a control token");
    assert_eq!(plain.last(), Some(&262), "user-defined tokens are always found");
    assert_eq!(t.decode(&ids, false), "<|begin|>he<tool>");
    assert_eq!(t.decode(&ids, true), "he<tool>");
    assert_eq!((t.bos(), t.eos(), t.end_of_generation()), (Some(260), Some(261), &[261][..]));
    assert_eq!(t.id_of("Ġhell"), Some(259));
    assert_eq!(t.token_bytes(259), Some(&b" hell"[..]));
    assert_eq!(t.token_bytes(263), None);
    assert!(t.is_special(260) && !t.is_special(262) && !t.is_special(9999));

    // By hand: "▁abc": bc (-1) goes first, then nothing joins "▁a" with "bc".
    let t = Tokenizer::from_gguf(&spm(), None).unwrap();
    let id = |s: &str| t.id_of(s).unwrap();
    assert_eq!(t.encode("abc", PARSED).unwrap(), [1, id("▁"), id("abc")]);
    assert_eq!(t.encode("ab", PLAIN).unwrap(), [id("▁ab")]);
    assert_eq!(t.encode("a<tool>b", PLAIN).unwrap(), [id("▁a"), id("<tool>"), id("▁"), id("b")]);
    let e_acute = [id("▁"), id("<0xC3>"), id("<0xA9>")];
    assert_eq!(t.encode("é", PLAIN).unwrap(), e_acute);
    assert_eq!(t.decode(&e_acute, true), "é");
    assert_eq!(t.decode(&e_acute[..2], true), "\u{fffd}");
}

#[test]
fn add_bos_and_add_eos_follow_the_file() {
    let mut m = bpe();
    set(&mut m, "add_bos_token", Value::Bool(true));
    set(&mut m, "add_eos_token", Value::Bool(true));
    let t = Tokenizer::from_gguf(&m, None).unwrap();
    assert_eq!(t.encode("he", PARSED).unwrap(), [260, 256, 261]);
    assert_eq!(t.encode("", PARSED).unwrap(), [260, 261]);
    assert_eq!(t.encode("he", PLAIN).unwrap(), [256]);
    let mut m = spm();
    set(&mut m, "add_bos_token", Value::Bool(false));
    set(&mut m, "add_space_prefix", Value::Bool(false));
    let t = Tokenizer::from_gguf(&m, None).unwrap();
    assert_eq!(t.encode("ab", PARSED).unwrap(), [t.id_of("ab").unwrap()]);
    assert_eq!(t.decode(&t.encode(" ab", PLAIN).unwrap(), true), " ab");
}

#[test]
fn a_missing_or_unknown_pre_tokenizer_names_the_option() {
    let mut m = bpe();
    set(&mut m, "pre", Value::String("no-such".into()));
    let error = |m: &Metadata, pre| Tokenizer::from_gguf(m, pre).err().unwrap().to_string();
    assert!(error(&m, None).contains("--pre") && error(&m, None).contains("no-such"));
    assert!(Tokenizer::from_gguf(&m, Some("qwen2")).is_ok());
    assert!(error(&m, Some("neither")).contains("--pre"));
    let mut without = Metadata::new("test.gguf");
    for (key, value) in bpe().iter().filter(|(k, _)| !k.ends_with(".pre")) {
        without.insert(key, value.clone());
    }
    assert!(error(&without, None).contains("--pre"));
    assert!(Tokenizer::from_gguf(&without, Some("gpt-2")).is_ok());
}

/// A vocabulary, the key that is spoilt, its value, and what the error must name.
type Spoilt = (fn() -> Metadata, &'static str, Value, &'static str);

#[test]
fn vocabularies_that_contradict_themselves_are_errors() {
    let many = |n: usize| Value::Array(Array::I32(vec![1; n]));
    let f32s = |v: Vec<f32>| Value::Array(Array::F32(v));
    let cases: Vec<Spoilt> = vec![
        (bpe, "merges", strings(&["h e", "x nope"]), "nope"),
        (bpe, "merges", strings(&["h z"]), "hz"),
        (bpe, "merges", strings(&["he"]), "merge 0"),
        (bpe, "merges", strings(&[""]), "merge 0"),
        (bpe, "merges", strings(&[" "]), "merge 0"),
        (bpe, "merges", strings(&["é"]), "merge 0"),
        (bpe, "merges", Value::U32(3), "merges"),
        (bpe, "tokens", strings(&[]), "empty"),
        (bpe, "tokens", Value::U32(3), "tokens"),
        (bpe, "token_type", many(5), "token_type has 5 entries for 263"),
        (bpe, "token_type", Value::Array(Array::I32(vec![77; 263])), "77"),
        (bpe, "token_type", Value::Array(Array::I32(vec![6; 263])), "<0xHH>"),
        (bpe, "bos_token_id", Value::U32(263), "bos_token_id is 263"),
        (bpe, "eos_token_id", Value::U32(u32::MAX), "eos_token_id"),
        (bpe, "eot_token_id", Value::U32(900), "eot_token_id"),
        (bpe, "bos_token_id", Value::String("x".into()), "bos_token_id"),
        (bpe, "bos_token_id", Value::I32(-1), "bos_token_id"),
        (bpe, "model", Value::String("rwkv".into()), "rwkv"),
        (bpe, "add_bos_token", Value::U32(1), "add_bos_token"),
        (spm, "scores", f32s(vec![0.0; 3]), "scores has 3 entries"),
        (spm, "scores", f32s(vec![f32::NAN; 269]), "NaN"),
        (spm, "scores", Value::Bool(true), "scores"),
        (spm, "unknown_token_id", Value::U32(1 << 30), "unknown_token_id"),
    ];
    for (base, key, value, named) in cases {
        let mut m = base();
        set(&mut m, key, value);
        let error =
            Tokenizer::from_gguf(&m, None).err().unwrap_or_else(|| panic!("{key}: no error")).to_string();
        assert!(error.contains(named), "{key}: {error:?} does not name {named:?}");
    }
    let spoil = |base: fn() -> Metadata, at: usize, text: &str| {
        let mut m = base();
        let mut tokens = m.strings("tokenizer.ggml.tokens").unwrap().unwrap().to_vec();
        text.clone_into(&mut tokens[at]);
        set(&mut m, "tokens", Value::Array(Array::String(tokens)));
        Tokenizer::from_gguf(&m, None).err().map(|e| e.to_string()).unwrap_or_default()
    };
    for bad in ["<0xZZ>", "<0x1>", "<0x+1>", "<0x>", "<0x001>", "", "é"] {
        assert!(spoil(spm, 5, bad).contains("<0xHH>"), "{bad}");
    }
    assert!(spoil(bpe, 262, "<|begin|>").contains("both"), "duplicate tokens");
    for gone in ["tokens", "model", "merges"] {
        let mut m = Metadata::new("test.gguf");
        for (key, value) in bpe().iter().filter(|(k, _)| !k.ends_with(gone)) {
            m.insert(key, value.clone());
        }
        assert!(Tokenizer::from_gguf(&m, None).err().unwrap().to_string().contains(gone));
    }
}

#[test]
fn a_vocabulary_without_the_bytes_of_a_text_is_an_error() {
    let mut m = Metadata::new("test.gguf");
    set(&mut m, "model", Value::String("gpt2".into()));
    set(&mut m, "pre", Value::String("gpt-2".into()));
    set(&mut m, "tokens", strings(&["a", "b"]));
    set(&mut m, "merges", strings(&[]));
    let t = Tokenizer::from_gguf(&m, None).unwrap();
    assert_eq!(t.encode("ab", PARSED).unwrap(), [0, 1]);
    assert!(t.encode("c", PLAIN).unwrap_err().to_string().contains("0x63"));
}

#[test]
fn malformed_character_maps_are_refused_or_harmless() {
    let base = || {
        let mut m = Metadata::new("test.gguf");
        set(&mut m, "model", Value::String("t5".into()));
        set(&mut m, "tokens", strings(&["<pad>", "</s>", "<unk>", "▁", "a", "▁a"]));
        set(&mut m, "scores", Value::Array(Array::F32(vec![0.0, 0.0, 0.0, -2.0, -3.0, -1.0])));
        set(&mut m, "token_type", Value::Array(Array::I32(vec![3, 3, 2, 1, 1, 1])));
        m
    };
    let t = Tokenizer::from_gguf(&base(), None).unwrap();
    assert_eq!(t.encode("aa", PARSED).unwrap(), [5, 4, 1]);
    assert_eq!(t.encode("</s>z\0", PLAIN).unwrap(), [3, 2, 2]);
    let mut random = Random(3);
    for len in 0..200 {
        let mut map: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        if len >= 4 {
            map[..4].copy_from_slice(&((len as u32 - 4) / 8 * 4).to_le_bytes());
        }
        let mut m = base();
        set(&mut m, "precompiled_charsmap", Value::Array(Array::U8(map)));
        if let Ok(t) = Tokenizer::from_gguf(&m, None) {
            for _ in 0..50 {
                let _ = t.encode(&random.text(), PARSED);
            }
        }
    }
}

#[test]
fn byte_level_text_comes_back_unchanged() {
    for pre in [
        "gpt-2",
        "default",
        "llama-bpe",
        "qwen2",
        "deepseek-llm",
        "deepseek-v3",
        "tekken",
        "gpt-4o",
        "afmoe",
        "jais-2",
    ] {
        let t = Tokenizer::from_gguf(&bpe(), Some(pre)).unwrap();
        let mut random = Random(1);
        for _ in 0..300 {
            let text = random.text();
            let ids = t.encode(&text, PLAIN).unwrap();
            assert_eq!(t.decode(&ids, false), text, "{pre}");
        }
    }
    let t = Tokenizer::from_gguf(&spm(), None).unwrap();
    let mut random = Random(2);
    for _ in 0..300 {
        // A space and its sign are one to SentencePiece.
        let text = random.text();
        assert_eq!(t.decode(&t.encode(&text, PLAIN).unwrap(), false), text);
    }
}

#[test]
fn streamed_pieces_equal_the_whole() {
    for m in [bpe(), spm()] {
        let t = Tokenizer::from_gguf(&m, None).unwrap();
        let mut random = Random(4);
        for _ in 0..500 {
            let ids: Vec<u32> =
                (0..random.below(30)).map(|_| random.below(t.vocab_size() as u64 + 2) as u32).collect();
            for skip in [false, true] {
                // The oracle: all bytes at once, decoded by the standard library.
                let kept = ids.iter().filter(|&&id| !(skip && t.is_special(id)));
                let bytes: Vec<u8> = kept.filter_map(|&id| t.token_bytes(id)).flatten().copied().collect();
                let strip = m.str("tokenizer.ggml.model").unwrap() == Some("llama");
                let bytes = if strip { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
                let mut stream = t.stream(skip);
                let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
                text.push_str(&stream.finish());
                assert_eq!(text, String::from_utf8_lossy(bytes));
                assert_eq!(t.decode(&ids, skip), text);
            }
        }
    }
}

#[test]
fn a_stream_holds_back_incomplete_characters_only() {
    let t = Tokenizer::from_gguf(&bpe(), None).unwrap();
    let mut stream = t.stream(true);
    let pieces: Vec<String> = [0xf0, 0x9f, 0xa6, 0x99, 0x41, 0xc3, 0x41, 0xff].map(|b| stream.push(b)).into();
    assert_eq!(pieces, ["", "", "", "🦙", "A", "", "\u{fffd}A", "\u{fffd}"]);
    stream.push(0xe2);
    stream.push(0x82);
    assert_eq!(stream.finish(), "\u{fffd}");
    let t = Tokenizer::from_gguf(&spm(), None).unwrap();
    let word = t.id_of("▁a").unwrap();
    let mut stream = t.stream(true);
    assert_eq!(
        (stream.push(1), stream.push(word), stream.push(word)),
        (String::new(), "a".into(), " a".into())
    );
    assert_eq!(t.stream(true).continuing().push(word), " a");
}

#[test]
fn millions_of_spaces_and_other_monsters_end() {
    let texts = [
        " ".repeat(2_000_000),
        "\n".repeat(2_000_000),
        " \n".repeat(500_000),
        "a".repeat(2_000_000),
        "1".repeat(1_000_000),
    ];
    for pre in ["gpt-2", "qwen2", "deepseek-llm", "jais-2", "superbpe", "exaone-moe"] {
        let t = Tokenizer::from_gguf(&bpe(), Some(pre)).unwrap();
        for text in &texts {
            assert_eq!(t.encode(text, PLAIN).unwrap().len(), text.len());
        }
    }
    let t = Tokenizer::from_gguf(&spm(), None).unwrap();
    for text in &texts {
        assert_eq!(t.decode(&t.encode(text, PLAIN).unwrap(), true), *text);
    }
}

/// A `tokenizer.json` of words with one token in front, and whatever an embedding model adds to cut and fill up texts.
fn words_json(extra: &str) -> String {
    format!(
        r#"{{"version": "1.0", {extra} "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {{"type": "Whitespace"}}, "decoder": null,
            "post_processor": {{"type": "TemplateProcessing", "pair": [],
                "single": [{{"SpecialToken": {{"id": "CLS", "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}}],
                "special_tokens": {{"CLS": {{"id": "CLS", "ids": [3], "tokens": ["CLS"]}}}}}},
            "model": {{"type": "WordLevel", "vocab": {{"a": 0, "b": 1, "PAD": 2, "CLS": 3}}, "unk_token": "a"}}}}"#
    )
}

fn from_json(json: &str) -> hanzo_engine::Result<Tokenizer> {
    static N: AtomicUsize = AtomicUsize::new(0);
    let name = format!("words-{}-{}.json", std::process::id(), N.fetch_add(1, Ordering::Relaxed));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, json).unwrap();
    let tokenizer = Tokenizer::from_json(&path, None);
    std::fs::remove_file(&path).unwrap();
    tokenizer
}

#[test]
fn texts_are_neither_cut_nor_filled_up() {
    let cut =
        r#""truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},"#;
    let fill = r#""padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 2, "pad_type_id": 0, "pad_token": "PAD"},"#;
    for extra in ["", cut, fill] {
        let ids = from_json(&words_json(extra)).unwrap().encode("a b a b", PARSED).unwrap();
        assert_eq!(ids, [3, 0, 1, 0, 1], "{extra}");
    }
}

/// Files on which the crate panics, found by mutation; they are errors that name the file.
#[test]
fn tokenizer_json_files_that_contradict_themselves_are_errors() {
    let good = words_json("");
    let lost = good.replace(r#""special_tokens": {"CLS""#, r#""special_tokens": {"CLX""#);
    let model = good.find(r#""model""#).unwrap();
    let merges = r#""model": {"type": "BPE", "continuing_subword_prefix": "long", "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": ["a b"]}}"#;
    let short = format!("{}{merges}", &good[..model]);
    for (what, json) in [("no such token", lost), ("a prefix longer than the token", short)] {
        assert_ne!(json, good);
        let error = from_json(&json).err().unwrap_or_else(|| panic!("{what}")).to_string();
        assert!(error.contains("words-") && error.contains(".json"), "{what}: {error}");
    }
    for end in 0..good.len() {
        assert!(from_json(&good[..end]).is_err(), "{end} bytes");
    }
}
