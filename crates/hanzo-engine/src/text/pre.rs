//! Pre-tokenizers: how a byte-level BPE vocabulary cuts text into words before it merges.
//!
//! A GGUF file names its pre-tokenizer (`tokenizer.ggml.pre`); [`PRE_TOKENIZERS`] gives each name its patterns. Source of
//! the names and patterns: llama.cpp's `llama-vocab.cpp` (the version in llama-cpp-python 0.3.36) and the
//! `tokenizer.json` files that it quotes; where the two differ, the latter is what the model was trained with.
//!
//! The patterns run on the linear-time `regex` engine, so no text can make them blow up. It has no look-ahead, and the
//! only one needed, `\s+(?!\S)|\s+`, is written as a last alternative `\s+` whose match gives back its last character
//! when text follows ([`give_back`]).
//!
//! Invariant: the pieces, joined, are the text.

use regex::Regex;

use crate::{Error, Result};

/// One pre-tokenizer: names that mean the same, and the cuts they make, applied in order, each within the pieces that
/// the one before left.
pub(crate) struct PreTokenizer {
    pub names: &'static [&'static str],
    pub cuts: &'static [Cut],
    /// A word that is a token as it stands is taken without merging.
    pub ignore_merges: bool,
    /// Whether a beginning-of-sequence token is put in front where the file does not say.
    pub add_bos: bool,
    /// The tokens are plain text with `▁` for a space and `<0xHH>` for bytes, not the byte-level alphabet.
    pub plain: bool,
}

/// One cut. Matches and the text between them are pieces.
pub(crate) enum Cut {
    /// Every match stands alone.
    Each(&'static str),
    /// As `Each`, but the pattern's last alternative is `\s+` and stands for `\s+(?!\S)|\s+`.
    Words(&'static str),
    /// As `Words`, but a run of spaces falls into powers of two, largest first (Jais 2).
    Cascade(&'static str),
    /// Runs of digits fall into groups of three, counted from the right.
    Thousands,
}

use Cut::{Cascade, Each, Thousands, Words};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const QWEN2: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const QWEN35: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
/// Words by case: capitals then small letters, or capitals alone, with an English contraction.
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
);
const YOUTU: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
);
/// As `GPT4O`, with Chinese characters as words of their own.
const KIMI_K2: &str = concat!(
    r"\p{Han}+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const DEEPSEEK_V3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+"
);
const BAILING: &str = concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
);
const SEED_CODER: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"
);
/// As `QWEN2` without English contractions: Turkish suffixes stay with their apostrophe.
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const EXAONE_MOE: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+"
);
const MINICPM5: &str = concat!(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const CJK_KANA: &str = r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const CJK_HANGUL: &str = r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
const SENTENCE: &str = r" ?[^(\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+";
const LINES: &str = r"[^\n]+|\n+";
const ASIAN: &str = concat!(
    r"[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{8c48}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}\u{ff65}-\u{ff9f}",
    r"\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}\u{1000}-\u{109f}\u{aa60}-\u{aa7f}",
    r"\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
);
const YOUTU_ASIAN: &str = concat!(
    r"[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+",
    r"|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+",
    r"|[\u{3105}-\u{312f}]+|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+"
);
/// The letters that DeepSeek LLM's `tokenizer.json` lists.
#[rustfmt::skip]
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}",
    r"\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}",
    r"\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}",
    r"\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}",
    r"\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}",
    r"\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}",
    r"\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}",
    r"\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}",
    r"\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}",
    r"\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    r"\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}",
    r"\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}",
    r"\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}",
    r"\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
    r"]+"
);

const fn row(names: &'static [&'static str], cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer { names, cuts, ignore_merges: false, add_bos: false, plain: false }
}

/// Every pre-tokenizer that is known by name.
pub(crate) static PRE_TOKENIZERS: &[PreTokenizer] = &[
    row(
        &["default"],
        &[Each(r"[\p{P}\$\+<=>\^~\|]+"), Words(GPT2), Each(r"\p{N}+"), Each(r"[0-9][0-9][0-9]")],
    ),
    PreTokenizer {
        ignore_merges: true,
        add_bos: true,
        ..row(
            &[
                "llama3",
                "llama-v3",
                "llama-bpe",
                "falcon3",
                "falcon-h1",
                "pixtral",
                "midm-2.0",
                "lfm2",
                "jina-v5-nano",
            ],
            &[Words(LLAMA3)],
        )
    },
    row(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[Words(LLAMA3)]),
    PreTokenizer { ignore_merges: true, ..row(&["glm4", "glm5"], &[Words(LLAMA3)]) },
    row(&["jais-2"], &[Cascade(LLAMA3)]),
    row(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[Words(GPT2)],
    ),
    row(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Each(r"\p{N}"), Words(GPT2)],
    ),
    row(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[Words(QWEN2)],
    ),
    row(&["qwen35"], &[Words(QWEN35)]),
    row(
        &["deepseek-llm"],
        &[
            Each(r"[\r\n]"),
            Each(DEEPSEEK_LETTERS),
            Each(r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+"),
            Each(r"\s+$"),
            Each(CJK_HANGUL),
            Each(r"\p{N}+"),
        ],
    ),
    row(
        &["deepseek-coder"],
        &[Each(r"[\r\n]"), Each(r"\s?\p{L}+"), Each(r"\s?\p{P}+"), Each(CJK_HANGUL), Each(r"\p{N}")],
    ),
    row(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Each(r"\p{N}{1,3}"), Each(CJK_KANA), Words(DEEPSEEK_V3)],
    ),
    row(&["spark2_5"], &[Each(r"\p{N}{1,3}"), Each(CJK_KANA), Words(SPARK), Each(r"\p{N}")]),
    PreTokenizer { ignore_merges: true, ..row(&["youtu"], &[Each(YOUTU_ASIAN), Words(YOUTU)]) },
    row(&["falcon"], &[Each(r"[\p{P}\$\+<=>\^~\|`]+"), Words(GPT2), Each(r"[0-9][0-9][0-9]")]),
    row(&["poro-chat", "bloom", "gpt3-finnish"], &[Each(SENTENCE)]),
    row(&["viking"], &[Each(SENTENCE), Each(r"\p{N}")]),
    PreTokenizer { ignore_merges: true, add_bos: true, ..row(&["tekken"], &[Words(TEKKEN)]) },
    PreTokenizer {
        add_bos: true,
        ..row(
            &["chameleon"],
            &[
                Each("<sentinel:[0-9]+>"),
                Each("IMGIMG[A-I]{1,4}Z"),
                Each(r"[\t\n]|    |  "),
                Each(r"\p{N}"),
                Each(r"[\p{P}!-/:-@\[-`{-~]"),
                Words(GPT2),
            ],
        )
    },
    row(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[Words(GPT4O)]),
    PreTokenizer { ignore_merges: true, ..row(&["granite-embed-multi-97m"], &[Words(GPT4O)]) },
    row(&["tiny_aya", "cohere2moe"], &[Thousands, Words(GPT4O)]),
    row(&["kimi-k2"], &[Words(KIMI_K2)]),
    row(&["superbpe"], &[Each(r"\p{N}+"), Thousands]),
    row(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Words(BAILING)]),
    row(&["seed-coder"], &[Words(SEED_CODER)]),
    row(&["ufakzeka"], &[Words(UFAKZEKA)]),
    row(&["afmoe"], &[Thousands, Each(ASIAN), Words(DEEPSEEK_V3)]),
    row(&["laguna"], &[Each(LINES), Words(QWEN2)]),
    row(&["exaone-moe"], &[Words(EXAONE_MOE)]),
    PreTokenizer { ignore_merges: true, ..row(&["minicpm5"], &[Each(r"\p{N}{1,3}"), Words(MINICPM5)]) },
    PreTokenizer {
        plain: true,
        add_bos: true,
        ..row(&["gemma4", "granite-embed-multi-311m"], &[Each(LINES)])
    },
    PreTokenizer { plain: true, ..row(&["sarvam-moe"], &[Each(LINES)]) },
];

/// The row of a name; the error for a missing or unknown one says what to do.
pub(crate) fn find(name: Option<&str>) -> Result<&'static PreTokenizer> {
    let Some(name) = name else {
        return Err(Error::text(
            "the file does not name its pre-tokenizer (tokenizer.ggml.pre is missing); give it with --pre NAME",
        ));
    };
    PRE_TOKENIZERS.iter().find(|p| p.names.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = PRE_TOKENIZERS.iter().flat_map(|p| p.names.iter().copied()).collect();
        Error::text(format!(
            "unknown pre-tokenizer {name:?} (tokenizer.ggml.pre); give another with --pre NAME, one of: {}",
            known.join(", ")
        ))
    })
}

/// What a run of white space does at its end.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Whole,
    /// Gives back its last character; `newline_own`: the pattern has an alternative that takes runs ending in a line
    /// break whole.
    GiveBack {
        newline_own: bool,
    },
    Cascade,
}

enum Compiled {
    Pattern(Regex, Run),
    Thousands(Regex),
}

/// The compiled cuts of one pre-tokenizer.
pub(crate) struct Splitter(Vec<Compiled>);

impl Splitter {
    pub fn new(pre: &PreTokenizer) -> Result<Self> {
        let compile = |pattern: &str| {
            Regex::new(pattern).map_err(|e| Error::text(format!("pre-tokenizer {}: {e}", pre.names[0])))
        };
        let newline_own = |p: &str| p.contains(r"|\s*[\r\n]");
        let one = |cut: &Cut| {
            Ok(match *cut {
                Each(p) => Compiled::Pattern(compile(p)?, Run::Whole),
                Words(p) => Compiled::Pattern(compile(p)?, Run::GiveBack { newline_own: newline_own(p) }),
                Cascade(p) => Compiled::Pattern(compile(p)?, Run::Cascade),
                Thousands => Compiled::Thousands(compile(r"\p{N}+")?),
            })
        };
        pre.cuts.iter().map(one).collect::<Result<_>>().map(Self)
    }

    /// The pieces of a text, in order; none is empty.
    pub fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = if text.is_empty() { vec![] } else { vec![text] };
        for cut in &self.0 {
            let mut next = Vec::with_capacity(pieces.len() * 2);
            for piece in pieces {
                match cut {
                    Compiled::Pattern(regex, run) => cut_by(regex, *run, piece, &mut next),
                    Compiled::Thousands(digits) => thousands(digits, piece, &mut next),
                }
            }
            pieces = next;
        }
        pieces
    }
}

/// Where a white-space match ends once it has given its last character back to the text that follows. A match of
/// another alternative stays whole.
fn give_back(piece: &str, start: usize, end: usize, newline_own: bool) -> usize {
    let found = &piece[start..end];
    if end == piece.len() || !found.chars().all(char::is_whitespace) {
        return end;
    }
    if newline_own && found.ends_with(['\r', '\n']) {
        return end;
    }
    match found.char_indices().next_back() {
        Some((last, _)) if last > 0 => start + last,
        _ => end,
    }
}

/// Cuts a run of spaces into the longest powers of two, from the left; the match has given its last space back already.
fn cascade<'t>(run: &'t str, out: &mut Vec<&'t str>) {
    let ends: Vec<usize> = run.char_indices().skip(1).map(|(i, _)| i).chain([run.len()]).collect();
    let (mut done, mut start) = (0, 0);
    while done < ends.len() {
        let left = ends.len() - done;
        done += [512, 256, 128, 64, 32, 16, 8, 4, 2].into_iter().find(|&k| k <= left).unwrap_or(1);
        push(out, &run[start..ends[done - 1]]);
        start = ends[done - 1];
    }
}

fn push<'t>(pieces: &mut Vec<&'t str>, piece: &'t str) {
    if !piece.is_empty() {
        pieces.push(piece);
    }
}

fn cut_by<'t>(regex: &Regex, run: Run, piece: &'t str, out: &mut Vec<&'t str>) {
    let mut done = 0;
    while let Some(found) = regex.find_at(piece, done) {
        if found.is_empty() {
            break; // no pattern of the table matches nothing
        }
        push(out, &piece[done..found.start()]);
        done = match run {
            Run::Whole => found.end(),
            Run::GiveBack { newline_own } => give_back(piece, found.start(), found.end(), newline_own),
            Run::Cascade => give_back(piece, found.start(), found.end(), true),
        };
        let taken = &piece[found.start()..done];
        if run == Run::Cascade && taken.len() > 1 && !taken.ends_with(['\r', '\n']) && taken.trim().is_empty()
        {
            cascade(taken, out);
        } else {
            push(out, taken);
        }
    }
    push(out, &piece[done..]);
}

fn thousands<'t>(digits: &Regex, piece: &'t str, out: &mut Vec<&'t str>) {
    let mut done = 0;
    for found in digits.find_iter(piece) {
        push(out, &piece[done..found.start()]);
        let n = found.as_str().chars().count();
        let mut start = found.start();
        for (i, (at, _)) in found.as_str().char_indices().enumerate() {
            if i > 0 && (n - i).is_multiple_of(3) {
                push(out, &piece[start..found.start() + at]);
                start = found.start() + at;
            }
        }
        push(out, &piece[start..found.end()]);
        done = found.end();
    }
    push(out, &piece[done..]);
}
