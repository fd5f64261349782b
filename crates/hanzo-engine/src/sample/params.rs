//! What a request may say about sampling.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use serde_json::{Map, Value};

use super::{OPTIONS, SAMPLERS, SamplerKind};

/// How tokens are chosen. [`OPTIONS`] says what each field means, its range and its name in files.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Temperature; greedy at 0 and below.
    pub temp: f32,
    /// Tokens that top-k keeps; 0 is all.
    pub top_k: usize,
    /// Probability that top-p keeps; 1 is all.
    pub top_p: f32,
    /// Least probability, as a share of the largest; 0 is none.
    pub min_p: f32,
    /// Probability that locally typical sampling keeps; 1 is all.
    pub typical_p: f32,
    /// Standard deviations below the largest logit that are kept; 0 and below is all.
    pub top_n_sigma: f32,
    /// Divisor of logits of tokens that occurred; 1 is none.
    pub repeat_penalty: f32,
    /// Tokens that the penalties look back on; `usize::MAX` is all.
    pub repeat_last_n: usize,
    /// Taken from the logit of a token that occurred.
    pub presence_penalty: f32,
    /// Taken from the logit of a token for each time it occurred.
    pub frequency_penalty: f32,
    /// Scale of the DRY penalty; 0 is none.
    pub dry_multiplier: f32,
    /// Base of the DRY penalty.
    pub dry_base: f32,
    /// Length of a repetition from which DRY penalises.
    pub dry_allowed_length: usize,
    /// Tokens that DRY looks back on; `usize::MAX` is all.
    pub dry_penalty_last_n: usize,
    /// Texts that a repetition does not reach across.
    pub dry_sequence_breakers: Vec<String>,
    /// How often XTC acts; 0 is never.
    pub xtc_probability: f32,
    /// Probability from which XTC takes a token for a top choice.
    pub xtc_threshold: f32,
    /// Version of Mirostat, 1 or 2; 0 is none.
    pub mirostat: usize,
    /// Mirostat's learning rate.
    pub mirostat_lr: f32,
    /// Mirostat's target, bits of surprise.
    pub mirostat_ent: f32,
    /// How far dynamic temperature goes from the temperature; 0 is off.
    pub dynatemp_range: f32,
    /// Exponent from entropy to dynamic temperature.
    pub dynatemp_exp: f32,
    /// Added to the logits of tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws; `None` takes a random one.
    pub seed: Option<u64>,
    /// The samplers in their order.
    pub samplers: Vec<&'static SamplerKind>,
}

impl Default for SamplingParams {
    /// llama.cpp's defaults, but greedy.
    fn default() -> Self {
        Self {
            temp: 0.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            mirostat: 0,
            mirostat_lr: 0.1,
            mirostat_ent: 5.0,
            dynatemp_range: 0.0,
            dynatemp_exp: 1.0,
            logit_bias: Vec::new(),
            seed: None,
            samplers: SAMPLERS.to_vec(),
        }
    }
}

impl SamplingParams {
    /// The same with a seed, a random one where there is none yet.
    #[must_use]
    pub fn with_seed(mut self) -> Self {
        // The keys of the standard library's hash maps are random; 32 bits are enough to be read out and typed again.
        self.seed.get_or_insert_with(|| RandomState::new().build_hasher().finish() >> 32);
        self
    }

    /// Every option with its value, for people and programs.
    pub fn effective(&self) -> Value {
        let entries = OPTIONS.iter().map(|option| (option.name.replace('-', "_"), option.value_of(self)));
        Value::Object(entries.collect::<Map<_, _>>())
    }

    /// Says which option has a value that it cannot have.
    ///
    /// # Errors
    /// The option's name, and why.
    pub fn check(&self) -> Result<(), String> {
        for option in OPTIONS {
            let set = option.set(&mut self.clone(), &option.texts_of(self));
            set.map_err(|why| format!("{}: {why}", option.name))?;
        }
        Ok(())
    }
}
