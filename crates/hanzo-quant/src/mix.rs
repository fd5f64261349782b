//! Mixes: which format each tensor of a model gets when the whole is quantised as `Q4_K_M` and so on.
//!
//! Source: llama.cpp's `llama-quant.cpp`; people know its mixes by these names, so every choice is the same as there. A
//! mix is a row of [`MIXES`]: a base format, the format of the output matrix, and rules that are tried in order; the first
//! one whose condition holds decides. Oracle: `tools/oracle/quantize_types.py`.
//!
//! Knows parts and counts, not tensors: who calls says which part a tensor is. Left out: what llama.cpp does for
//! architectures that no loader of ours reads (Falcon, GLM 5, Bailing 3).

use Part::{AttentionOut, Down, Embedding, Gate, Key, Output, Query, Up, Value};

use crate::Format;

/// What a tensor does, as far as mixes care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The output matrix, or the embedding where it serves as one.
    Output,
    /// The embedding of a model with an output matrix of its own.
    Embedding,
    /// Query projection.
    Query,
    /// Key projection.
    Key,
    /// Value projection, or one that holds the value among others.
    Value,
    /// What follows attention.
    AttentionOut,
    /// Gate of a feed-forward part.
    Gate,
    /// Up projection of a feed-forward part.
    Up,
    /// Down projection of a feed-forward part.
    Down,
    /// Any other matrix.
    Other,
}

/// What mixes ask of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Query heads that share a key/value head; 0 without key/value heads.
    pub n_shared: usize,
    /// Experts; 0 in dense models.
    pub n_experts: usize,
    /// Whether the model has the shape of a Llama 2 70B, whose small value projections deserve more.
    pub is_70b: bool,
    /// Whether an importance matrix is at hand.
    pub importance: bool,
}

/// Where a tensor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the tensor does.
    pub part: Part,
    /// Elements of a row.
    pub columns: usize,
    /// Whether it is a stack of experts.
    pub stacked: bool,
    /// How many tensors of its part came before.
    pub idx: usize,
    /// Its layer; in dense models the same as `idx`.
    pub layer: usize,
    /// How many there are: value projections for one of them, layers for a feed-forward part.
    pub count: usize,
}

type When = fn(&Traits, &Place) -> bool;

struct Rule {
    part: Part,
    when: When,
    format: &'static str,
}

/// What a model is quantised as.
pub struct Mix {
    /// The name, as people type it.
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    /// The number in `general.file_type` of a GGUF file (`enum llama_ftype`).
    pub file_type: u32,
    base: &'static str,
    output: &'static str,
    experts: Experts,
    rules: &'static [Rule],
}

/// How a mix treats mixtures of eight experts, whose attention is small beside them.
#[derive(Clone, Copy, PartialEq)]
enum Experts {
    /// Keys and values in eight bits.
    Ample,
    /// As `Ample`, and what follows attention in five.
    AmpleOut,
    /// Keys in four bits, what follows attention in five: mixes of about two bits.
    Low,
    /// Every stack of experts in the base format, all else as the output.
    Only,
}

fn always(_: &Traits, _: &Place) -> bool {
    true
}

/// The first and the last eighth of the layers and every third between them.
fn more_bits(_: &Traits, p: &Place) -> bool {
    let eighth = p.count / 8;
    p.layer < eighth || p.layer >= 7 * p.count / 8 || (p.layer - eighth) % 3 == 2
}

fn first_eighth(_: &Traits, p: &Place) -> bool {
    p.layer < p.count / 8
}

/// As [`first_eighth`], but counted in tensors.
fn first_eighth_of_tensors(_: &Traits, p: &Place) -> bool {
    p.idx < p.count / 8
}

fn first_sixteenth(_: &Traits, p: &Place) -> bool {
    p.layer < p.count / 16
}

fn inner(_: &Traits, p: &Place) -> bool {
    p.layer >= p.count / 8 && p.layer < 7 * p.count / 8
}

fn first_two(_: &Traits, p: &Place) -> bool {
    p.idx < 2
}

fn first_four(_: &Traits, p: &Place) -> bool {
    p.idx < 4
}

fn shared(t: &Traits, _: &Place) -> bool {
    t.n_shared >= 4
}

fn shared_or_experts(t: &Traits, _: &Place) -> bool {
    t.n_shared >= 4 || t.n_experts >= 4
}

fn blind(t: &Traits, _: &Place) -> bool {
    !t.importance
}

fn blind_first_eighth(t: &Traits, p: &Place) -> bool {
    blind(t, p) && first_eighth(t, p)
}

fn informed_first_eighth(t: &Traits, p: &Place) -> bool {
    t.importance && first_eighth(t, p)
}

fn first_eighth_or_eight_more(t: &Traits, p: &Place) -> bool {
    first_eighth(t, p) || (t.n_experts == 8 && more_bits(t, p))
}

fn few_experts(t: &Traits, _: &Place) -> bool {
    t.n_experts != 8
}

const fn rule(part: Part, when: When, format: &'static str) -> Rule {
    Rule { part, when, format }
}

const fn mix(name: &'static str, file_type: u32, base: &'static str, rules: &'static [Rule]) -> Mix {
    Mix { name, alias: None, file_type, base, output: "Q6_K", experts: Experts::Ample, rules }
}

const fn low(name: &'static str, file_type: u32, base: &'static str, rules: &'static [Rule]) -> Mix {
    Mix { output: "Q5_K", experts: Experts::Low, ..mix(name, file_type, base, rules) }
}

const fn plain(name: &'static str, file_type: u32) -> Mix {
    Mix { output: name, ..mix(name, file_type, name, &[]) }
}

const ONE_BIT: &[Rule] = &[
    rule(Embedding, always, "Q2_K"),
    rule(Value, shared_or_experts, "Q4_K"),
    rule(Value, always, "Q2_K"),
    rule(Down, first_eighth_of_tensors, "Q2_K"),
    rule(AttentionOut, always, "IQ2_XXS"),
];

const TWO_BITS: &[Rule] = &[
    rule(Embedding, always, "Q2_K"),
    rule(Value, shared_or_experts, "Q4_K"),
    rule(Value, always, "Q2_K"),
    rule(Down, first_eighth_of_tensors, "Q2_K"),
];

const MORE_THAN_TWO_BITS: &[Rule] = &[
    rule(Embedding, always, "IQ3_S"),
    rule(Value, shared_or_experts, "Q4_K"),
    rule(Value, always, "IQ3_S"),
    rule(Down, first_eighth_of_tensors, "IQ3_S"),
    rule(AttentionOut, always, "IQ3_S"),
];

/// Every mix, from the smallest to the largest.
pub static MIXES: &[Mix] = &[
    low("IQ1_S", 24, "IQ1_S", ONE_BIT),
    mix("TQ1_0", 36, "TQ1_0", &[rule(Embedding, always, "Q4_K")]),
    low("IQ1_M", 31, "IQ1_M", ONE_BIT),
    low("IQ2_XXS", 19, "IQ2_XXS", TWO_BITS),
    mix("TQ2_0", 37, "TQ2_0", &[rule(Embedding, always, "Q4_K")]),
    low("IQ2_XS", 20, "IQ2_XS", TWO_BITS),
    low("IQ2_S", 28, "IQ2_XS", MORE_THAN_TWO_BITS),
    low("IQ2_M", 29, "IQ2_S", MORE_THAN_TWO_BITS),
    mix("Q2_K_S", 21, "Q2_K", &[rule(Value, shared, "Q4_K"), rule(Down, first_eighth, "Q4_K")]),
    Mix {
        experts: Experts::AmpleOut,
        ..mix(
            "Q2_K",
            10,
            "Q2_K",
            &[
                rule(Value, shared, "Q4_K"),
                rule(Value, always, "Q3_K"),
                rule(Down, always, "Q3_K"),
                rule(AttentionOut, always, "Q3_K"),
            ],
        )
    },
    Mix {
        output: "Q5_K",
        experts: Experts::AmpleOut,
        ..mix(
            "IQ3_XXS",
            23,
            "IQ3_XXS",
            &[
                rule(Embedding, always, "IQ3_S"),
                rule(Value, shared, "Q4_K"),
                rule(Value, blind, "IQ3_S"),
                rule(Key, always, "IQ2_S"),
                rule(Query, always, "IQ2_S"),
                rule(Down, blind_first_eighth, "Q4_K"),
                rule(Down, blind, "Q3_K"),
                rule(AttentionOut, always, "IQ3_S"),
            ],
        )
    },
    Mix {
        experts: Experts::AmpleOut,
        ..mix(
            "IQ3_XS",
            22,
            "IQ3_S",
            &[
                rule(Value, shared, "Q4_K"),
                rule(Key, always, "IQ3_XXS"),
                rule(Query, always, "IQ3_XXS"),
                rule(Gate, inner, "IQ3_XXS"),
                rule(Up, inner, "IQ3_XXS"),
            ],
        )
    },
    Mix { experts: Experts::AmpleOut, ..mix("Q3_K_S", 11, "Q3_K", &[]) },
    Mix { experts: Experts::AmpleOut, ..mix("IQ3_S", 26, "IQ3_S", &[rule(Value, shared, "Q4_K")]) },
    Mix {
        experts: Experts::AmpleOut,
        ..mix(
            "IQ3_M",
            27,
            "IQ3_S",
            &[
                rule(Value, always, "Q4_K"),
                rule(Down, first_eighth_or_eight_more, "Q4_K"),
                rule(AttentionOut, always, "Q4_K"),
            ],
        )
    },
    Mix {
        alias: Some("Q3_K"),
        experts: Experts::AmpleOut,
        ..mix(
            "Q3_K_M",
            12,
            "Q3_K",
            &[
                rule(Value, first_two, "Q5_K"),
                rule(Value, always, "Q4_K"),
                rule(Down, first_sixteenth, "Q5_K"),
                rule(Down, always, "Q4_K"),
                rule(AttentionOut, always, "Q4_K"),
            ],
        )
    },
    mix(
        "Q3_K_L",
        13,
        "Q3_K",
        &[rule(Value, always, "Q5_K"), rule(Down, always, "Q5_K"), rule(AttentionOut, few_experts, "Q5_K")],
    ),
    Mix { output: "Q8_0", experts: Experts::Only, ..mix("MXFP4_MOE", 38, "MXFP4", &[]) },
    // Number 38 again: there is none for models whose every matrix is in this format.
    Mix { output: "Q8_0", ..mix("MXFP4", 38, "MXFP4", &[]) },
    Mix {
        experts: Experts::AmpleOut,
        ..mix("IQ4_XS", 30, "IQ4_XS", &[rule(Value, shared, "Q5_K"), rule(Down, blind_first_eighth, "Q5_K")])
    },
    Mix { output: "Q8_0", ..mix("NVFP4", 39, "NVFP4", &[]) },
    mix("Q4_0", 2, "Q4_0", &[rule(Down, informed_first_eighth, "Q4_1")]),
    Mix {
        experts: Experts::AmpleOut,
        ..mix("IQ4_NL", 25, "IQ4_NL", &[rule(Value, shared, "Q5_K"), rule(Down, blind_first_eighth, "Q5_K")])
    },
    Mix {
        experts: Experts::AmpleOut,
        ..mix("Q4_K_S", 14, "Q4_K", &[rule(Value, first_four, "Q5_K"), rule(Down, first_eighth, "Q5_K")])
    },
    Mix {
        alias: Some("Q4_K"),
        experts: Experts::AmpleOut,
        ..mix("Q4_K_M", 15, "Q4_K", &[rule(Value, more_bits, "Q6_K"), rule(Down, more_bits, "Q6_K")])
    },
    mix("Q4_1", 3, "Q4_1", &[]),
    mix("Q5_0", 8, "Q5_0", &[rule(Down, informed_first_eighth, "Q5_1")]),
    mix("Q5_K_S", 16, "Q5_K", &[]),
    Mix {
        alias: Some("Q5_K"),
        ..mix("Q5_K_M", 17, "Q5_K", &[rule(Value, more_bits, "Q6_K"), rule(Down, more_bits, "Q6_K")])
    },
    mix("Q5_1", 9, "Q5_1", &[]),
    mix("Q6_K", 18, "Q6_K", &[]),
    plain("Q8_0", 7),
    plain("F16", 1),
    plain("BF16", 32),
    plain("F32", 0),
];

/// What takes a format's place where a row is no multiple of its block: about as many bits in blocks of 32.
const FALLBACKS: &[(&[&str], &str)] = &[
    (&["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"], "IQ4_NL"),
    (&["Q2_K", "Q3_K", "TQ1_0", "TQ2_0"], "Q4_0"),
    (&["Q4_K"], "Q5_0"),
    (&["Q5_K"], "Q5_1"),
    (&["Q6_K"], "Q8_0"),
];

/// Formats that give garbage without an importance matrix.
const BLIND: &[&str] = &["IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S"];

/// The mix whose base format needs an importance matrix, though elsewhere it does not.
const BLIND_BASE: &str = "Q2_K_S";

fn named(name: &str) -> &'static Format {
    Format::from_name(name).expect("a test looks every name of the table up")
}

impl Mix {
    /// The mix of a name, in any case.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        MIXES.iter().find(|mix| is(mix.name) || mix.alias.is_some_and(is))
    }

    /// The format of most matrices.
    pub fn base(&self) -> &'static Format {
        named(self.base)
    }

    /// The format of a tensor. Whether its rows are whole blocks of it is for [`fit`] to say.
    pub fn format(&self, model: &Traits, place: &Place) -> &'static Format {
        let uneven = !place.columns.is_multiple_of(self.base().block_elems);
        let eight = model.n_experts == 8;
        match (place.part, self.experts) {
            (Output, _) if uneven => return named("Q8_0"),
            (Output, _) => return named(self.output),
            (_, Experts::Only) if place.stacked => return self.base(),
            (_, Experts::Only) => return named(self.output),
            (Value | Key, Experts::Ample | Experts::AmpleOut) if eight => return named("Q8_0"),
            (AttentionOut, Experts::AmpleOut | Experts::Low) if eight => return named("Q5_K"),
            (Key, Experts::Low) if eight => return named("Q4_K"),
            _ => {}
        }
        let rule = self.rules.iter().find(|r| r.part == place.part && (r.when)(model, place));
        let format = rule.map_or(self.base, |rule| rule.format);
        let small_value = place.part == Value && model.is_70b && self.experts != Experts::Low;
        if small_value && ["Q3_K", "Q4_K"].contains(&format) { named("Q5_K") } else { named(format) }
    }

    /// Whether a tensor in this format of this mix is garbage without an importance matrix.
    pub fn needs_importance(&self, format: &Format) -> bool {
        BLIND.contains(&format.name) || (self.name == BLIND_BASE && format.name == self.base)
    }
}

/// The format that a row of `columns` elements can have: the wanted one, its relative with smaller blocks, or F16.
/// `None` where a format has no relative.
pub fn fit(format: &'static Format, columns: usize) -> Option<&'static Format> {
    if columns.is_multiple_of(format.block_elems) {
        return Some(format);
    }
    let relative = FALLBACKS.iter().find(|(of, _)| of.contains(&format.name)).map(|(_, name)| named(name));
    let relative = match relative {
        Some(relative) => relative,
        None if format.block_elems <= 32 => format,
        None => return None,
    };
    Some(if columns.is_multiple_of(relative.block_elems) { relative } else { named("F16") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_tables_is_a_format_that_can_be_written() {
        let rules = MIXES.iter().flat_map(|m| m.rules.iter().map(|r| r.format).chain([m.base, m.output]));
        let fallbacks = FALLBACKS.iter().flat_map(|(of, name)| of.iter().copied().chain([*name]));
        for name in rules.chain(fallbacks).chain(BLIND.iter().copied()) {
            assert!(Format::from_name(name).is_some(), "{name}");
        }
        assert!(MIXES.iter().any(|m| m.name == BLIND_BASE));
    }

    #[test]
    fn names_and_numbers_are_unique() {
        for (i, mix) in MIXES.iter().enumerate() {
            assert!(std::ptr::eq(Mix::from_name(&mix.name.to_lowercase()).unwrap(), mix), "{}", mix.name);
            assert!(mix.alias.is_none_or(|alias| std::ptr::eq(Mix::from_name(alias).unwrap(), mix)));
            let same = MIXES[i + 1..].iter().filter(|other| other.file_type == mix.file_type).count();
            assert_eq!(same, usize::from(mix.name == "MXFP4_MOE"), "{}", mix.name);
        }
    }

    #[test]
    fn rows_that_do_not_fit_get_a_relative() {
        let fits = |name: &str, columns| fit(named(name), columns).map(|f| f.name);
        assert_eq!(fits("Q4_K", 512), Some("Q4_K"));
        assert_eq!(fits("Q4_K", 96), Some("Q5_0"));
        assert_eq!(fits("Q6_K", 40), Some("F16"));
        assert_eq!(fits("Q4_0", 40), Some("F16"));
        assert_eq!(fits("NVFP4", 40), None);
        assert_eq!(fits("F32", 7), Some("F32"));
    }
}
