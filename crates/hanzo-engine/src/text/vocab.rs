//! The vocabulary: the text, kind and output bytes of each token, and its special ids.
//!
//! Invariants: ids are dense from 0; every non-empty token text is there once; every special id is below the number of
//! tokens. Texts and output bytes lie in two byte arenas and the index from text to id holds ids alone, so that 262,144
//! tokens cost about 10 MB.

use std::hash::{BuildHasher, RandomState};

use crate::{Error, Result};

/// What a token is (the values of `tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    pub fn from_gguf(value: i32) -> Option<Self> {
        Some(match value {
            // 0 is llama.cpp's "undefined", which it gives a token without a type.
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    pub fn to_gguf(self) -> i32 {
        match self {
            Self::Normal => 1,
            Self::Unknown => 2,
            Self::Control => 3,
            Self::UserDefined => 4,
            Self::Unused => 5,
            Self::Byte => 6,
        }
    }
}

/// Byte strings, one after the other.
#[derive(Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Arena {
    pub fn with_capacity(n: usize, n_bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(n_bytes), ends: Vec::with_capacity(n) }
    }

    pub fn push(&mut self, item: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(item);
        let end = u32::try_from(self.bytes.len());
        self.ends.push(end.map_err(|_| Error::text("the vocabulary's texts exceed 4 GiB"))?);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.bytes[start..end])
    }
}

/// Open-addressing hash table from text to id; it holds ids, and the texts stay in the arena. Keyed at random, so that
/// no vocabulary can be made to collide.
struct Index {
    slots: Vec<u32>,
    hasher: RandomState,
}

const FREE: u32 = u32::MAX;

impl Index {
    fn with_capacity(n: usize) -> Self {
        Self { slots: vec![FREE; (n * 2).next_power_of_two().max(8)], hasher: RandomState::new() }
    }

    /// The slot where `text` is, or the free one where it would go.
    fn slot(&self, texts: &Arena, text: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hasher.hash_one(text) as usize & mask;
        while self.slots[at] != FREE && texts.get(self.slots[at] as usize) != Some(text) {
            at = (at + 1) & mask;
        }
        at
    }
}

/// Ids with a meaning of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Specials {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
}

/// All tokens of a model.
pub(crate) struct Vocab {
    texts: Arena,
    /// What each token adds to the output.
    pieces: Arena,
    kinds: Vec<Kind>,
    index: Index,
    pub specials: Specials,
    pub end_of_generation: Vec<u32>,
}

/// Texts that end a turn or an answer, whatever the file says of them. Source: llama.cpp's list.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle: padding, the next repository, the next file.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Control tokens whose text belongs in the output (the frame of gpt-oss's channels).
const SHOWN_TEXTS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

impl Vocab {
    /// Joins texts and kinds; `pieces` has the same length. `texts` must not repeat.
    pub fn new(texts: Arena, pieces: Arena, kinds: Vec<Kind>, specials: Specials) -> Result<Self> {
        let n = texts.len();
        if n == 0 {
            return Err(Error::text("the vocabulary is empty"));
        }
        if n >= FREE as usize || pieces.len() != n || kinds.len() != n {
            return Err(Error::text(format!("the vocabulary has {n} tokens, {} kinds", kinds.len())));
        }
        let mut index = Index::with_capacity(n);
        for id in 0..n {
            let text = texts.get(id).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let slot = index.slot(&texts, text);
            if index.slots[slot] != FREE {
                return Err(Error::text(format!(
                    "tokens {} and {id} are both {:?}",
                    index.slots[slot],
                    String::from_utf8_lossy(text)
                )));
            }
            index.slots[slot] = id as u32;
        }
        for (what, id) in [
            ("bos_token_id", specials.bos),
            ("eos_token_id", specials.eos),
            ("eot_token_id", specials.eot),
            ("eom_token_id", specials.eom),
            ("unknown_token_id", specials.unk),
            ("seperator_token_id", specials.sep),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= n) {
                return Err(Error::text(format!("{what} is {id}, but the vocabulary has {n} tokens")));
            }
        }
        let mut vocab = Self { texts, pieces, kinds, index, specials, end_of_generation: vec![] };
        vocab.settle_control_tokens();
        Ok(vocab)
    }

    /// Corrects the kinds that files get wrong and lists the tokens that end a generation.
    fn settle_control_tokens(&mut self) {
        let named = |v: &Self, texts: &[&str]| -> Vec<u32> { texts.iter().filter_map(|t| v.id(t)).collect() };
        let has = |v: &Self, text: &str| v.id(text).is_some();
        let mut ends = named(self, END_TEXTS);
        let mut drop = |v: &mut Self, text: &str, kind: Kind| {
            if let Some(id) = v.id(text) {
                ends.retain(|&e| e != id);
                v.kinds[id as usize] = kind;
            }
        };
        // In Harmony's and Solar's frames <|end|> closes a message, not the answer.
        let harmony = has(self, "<|return|>") && (has(self, "<|call|>") || has(self, "<|calls|>"));
        let solar = has(self, "<|flush|>") && (has(self, "<|call|>") || has(self, "<|calls|>"));
        let frame_end = harmony || solar;
        if frame_end {
            drop(self, "<|end|>", Kind::UserDefined);
        }
        // Beside these, </s> is an ordinary HTML tag.
        if has(self, "<|tool_response>") || has(self, "<|plamo:eos|>") {
            drop(self, "</s>", Kind::Normal);
        }
        for &id in &ends {
            self.kinds[id as usize] = Kind::Control;
        }
        for id in named(self, SHOWN_TEXTS) {
            self.kinds[id as usize] = Kind::UserDefined;
        }
        ends.extend([self.specials.eos, self.specials.eot, self.specials.eom].into_iter().flatten());
        ends.sort_unstable();
        ends.dedup();
        self.end_of_generation = ends;
    }

    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    pub fn id(&self, text: &str) -> Option<u32> {
        self.id_of_bytes(text.as_bytes())
    }

    pub fn id_of_bytes(&self, text: &[u8]) -> Option<u32> {
        let id = self.index.slots[self.index.slot(&self.texts, text)];
        (id != FREE).then_some(id)
    }

    pub fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id as usize)
    }

    pub fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id as usize)
    }

    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// Ids of the tokens that are found in text before anything else: all with a kind for which `wanted` holds.
    pub fn ids_where(&self, wanted: impl Fn(Kind) -> bool) -> Vec<u32> {
        let of = |&id: &u32| wanted(self.kinds[id as usize]) && !self.text(id).unwrap_or_default().is_empty();
        (0..self.len() as u32).filter(of).collect()
    }
}
