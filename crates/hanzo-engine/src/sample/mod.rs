//! Choosing the next token: a chain of samplers, one a file, over the candidates of a step.
//!
//! The chain is bias, then the samplers of [`SamplingParams::samplers`] in their order, then a draw; with Mirostat it is bias,
//! temperature, Mirostat. At a temperature of 0 or less the answer is greedy: bias and the samplers that change logits, then
//! the largest logit, the first of equal ones. Order and defaults are those of llama.cpp, but for the default temperature
//! (see [`OPTIONS`]).
//!
//! Invariants: what is chosen is a function of parameters, seed, the tokens so far and the logits, nothing else. No logits,
//! NaN and infinities included, make it panic.

mod bias;
mod candidates;
mod dry;
mod min_p;
mod mirostat;
mod options;
mod params;
mod penalties;
mod philox;
mod recommended;
mod temperature;
mod top_k;
mod top_n_sigma;
mod top_p;
mod typical_p;
mod xtc;

use std::sync::Arc;

use candidates::Candidates;
use mirostat::Mirostat;
use philox::Draws;
pub(crate) use recommended::to_gguf;

pub use options::{OPTIONS, SamplingOption};
pub use params::SamplingParams;

/// The bytes of a token; none outside the vocabulary.
pub type TokenBytes = Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// Every sampler that an order may name, in the default order.
pub static SAMPLERS: &[&SamplerKind] = &[
    &penalties::PENALTIES,
    &dry::DRY,
    &top_n_sigma::TOP_N_SIGMA,
    &top_k::TOP_K,
    &typical_p::TYPICAL_P,
    &top_p::TOP_P,
    &min_p::MIN_P,
    &xtc::XTC,
    &temperature::TEMPERATURE,
];

/// One sampler.
pub struct SamplerKind {
    /// Its name in an order.
    pub name: &'static str,
    /// Other names; those with hyphens or without underscores go without saying.
    aliases: &'static [&'static str],
    /// Whether it may change which logit is the largest without removing any: what greedy decoding keeps.
    changes_logits: bool,
    /// Whether it does anything with these options.
    is_on: fn(&SamplingParams) -> bool,
    apply: fn(&mut Candidates, &Context<'_>),
}

impl SamplerKind {
    /// The sampler of a name, in any case, with hyphens, underscores or neither.
    pub fn find(name: &str) -> Option<&'static Self> {
        let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
        let wanted = plain(name);
        SAMPLERS
            .iter()
            .copied()
            .find(|kind| plain(kind.name) == wanted || kind.aliases.contains(&wanted.as_str()))
    }
}

impl PartialEq for SamplerKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for SamplerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What samplers know besides the candidates.
struct Context<'a> {
    params: &'a SamplingParams,
    /// Prompt and answer so far.
    history: &'a [u32],
    token_bytes: &'a TokenBytes,
    draws: Draws,
}

fn last_n(history: &[u32], n: usize) -> &[u32] {
    &history[history.len().saturating_sub(n)..]
}

/// Chooses the tokens of one request.
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    token_bytes: TokenBytes,
    history: Vec<u32>,
    n_sampled: u64,
    mirostat: Mirostat,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for an answer to `prompt`, whose tokens count for the penalties. Without a seed it takes a random one.
    pub fn new(params: SamplingParams, prompt: &[u32], token_bytes: TokenBytes) -> Self {
        let params = params.with_seed();
        Self {
            seed: params.seed.unwrap_or_default(),
            mirostat: Mirostat::new(params.mirostat_ent, params.mirostat_lr),
            params,
            token_bytes,
            history: prompt.to_vec(),
            n_sampled: 0,
            candidates: Candidates::default(),
        }
    }

    /// Chooses the next token from the logits of the vocabulary. It becomes part of the history.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let token = if self.is_plainly_greedy() {
            argmax(logits)
        } else {
            self.narrow(logits);
            self.choose()
        };
        self.history.push(token);
        self.n_sampled += 1;
        token
    }

    /// The tokens that [`Self::sample`] would draw from, with their probabilities, in the order of the draw.
    pub fn distribution(&mut self, logits: &[f32]) -> Vec<(u32, f64)> {
        self.narrow(logits);
        let ids = self.candidates.items().iter().map(|c| c.id);
        ids.zip(self.candidates.probabilities()).collect()
    }

    /// Whether nothing comes between the logits and their largest.
    fn is_plainly_greedy(&self) -> bool {
        let params = &self.params;
        params.temp <= 0.0 && params.logit_bias.is_empty() && !penalties::is_on(params) && !dry::is_on(params)
    }

    fn draws(&self) -> Draws {
        Draws { seed: self.seed, token_idx: self.n_sampled }
    }

    /// Leaves the candidates that may be drawn.
    fn narrow(&mut self, logits: &[f32]) {
        let draws = self.draws();
        let Self { params, candidates, history, token_bytes, mirostat, .. } = self;
        let greedy = params.temp <= 0.0;
        let works = |kind: &&&SamplerKind| (kind.changes_logits || !greedy) && (kind.is_on)(params);
        let mut chain = params.samplers.iter().filter(works).filter(|_| params.mirostat == 0).peekable();
        // Most often the first thing is to keep a few of a whole vocabulary.
        let few = |kind: &&&SamplerKind| params.logit_bias.is_empty() && **kind == &top_k::TOP_K;
        if chain.next_if(few).is_some() {
            candidates.fill_best(logits, params.top_k);
        } else {
            candidates.fill(logits);
            bias::apply(candidates, &params.logit_bias);
        }
        let context = Context { params, history, token_bytes, draws };
        for kind in chain {
            (kind.apply)(candidates, &context);
        }
        if greedy {
            candidates.keep_best(1);
        } else if params.mirostat != 0 {
            temperature::divide(candidates, params.temp);
            match params.mirostat {
                1 => mirostat.cut_by_rank(candidates, logits.len()),
                _ => mirostat.cut_by_surprise(candidates),
            }
        }
    }

    fn choose(&mut self) -> u32 {
        let draws = self.draws();
        if self.params.mirostat == 0 || self.params.temp <= 0.0 {
            let idx = self.candidates.draw(draws);
            self.candidates.items()[idx].id
        } else {
            self.mirostat.draw(&self.candidates, draws)
        }
    }
}

/// The first of the largest logits; a NaN is never chosen while there is a number.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (first, block) in (0..).step_by(candidates::BLOCK).zip(logits.chunks(candidates::BLOCK)) {
        if candidates::any_above(block, best.1) {
            for (id, &logit) in (first..).zip(block) {
                if logit > best.1 {
                    best = (id, logit);
                }
            }
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    fn sampler(settings: &[(&str, &str)]) -> Sampler {
        let mut params = SamplingParams::default();
        for (name, text) in settings {
            SamplingOption::find(name).unwrap().set(&mut params, &[(*text).to_owned()]).unwrap();
        }
        Sampler::new(params, &[1, 2, 1, 2, 1], Arc::new(|id| vec![id as u8]))
    }

    #[test]
    fn names_of_samplers_are_written_in_many_ways() {
        for name in ["top_k", "top-k", "topk", "TOP_K", "TopK"] {
            assert_eq!(SamplerKind::find(name), Some(&top_k::TOP_K), "{name}");
        }
        assert_eq!(SamplerKind::find("nucleus"), Some(&top_p::TOP_P));
        assert_eq!(SamplerKind::find("typ-p"), Some(&typical_p::TYPICAL_P));
        assert_eq!(SamplerKind::find("temp"), Some(&temperature::TEMPERATURE));
        assert_eq!(SamplerKind::find("top_q"), None);
        assert_eq!(SamplerKind::find(""), None);
    }

    #[test]
    fn greedy_looks_at_every_logit() {
        let mut logits = vec![-2.0; 1000];
        logits[10] = f32::NAN;
        for id in [998, 700, 64, 63, 0] {
            // Each is a little larger than those before, and stands before them.
            logits[id] = 1000.0 - id as f32;
            assert_eq!(argmax(&logits), id as u32);
            logits[999] = logits[id];
            assert_eq!(argmax(&logits), id as u32);
        }
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), 0);
    }

    #[test]
    fn greedy_is_the_first_of_the_largest() {
        let logits = [1.0, f32::NAN, 7.0, 7.0, f32::NEG_INFINITY];
        assert_eq!(sampler(&[("temp", "0")]).sample(&logits), 2);
        assert_eq!(
            sampler(&[("temp", "-1"), ("xtc-probability", "1"), ("xtc-threshold", "0.1")]).sample(&logits),
            2
        );
        assert_eq!(sampler(&[("temp", "0"), ("mirostat", "2")]).sample(&logits), 2);
        assert_eq!(sampler(&[("temp", "0"), ("dynatemp-range", "5")]).sample(&logits), 2);
        assert_eq!(sampler(&[("temp", "0"), ("logit-bias", "2-1")]).sample(&logits), 3);
        assert_eq!(sampler(&[("temp", "0"), ("repeat-penalty", "9")]).sample(&logits), 3);
        assert_eq!(
            sampler(&[("temp", "0"), ("samplers", "top_k"), ("repeat-penalty", "9")]).sample(&logits),
            2
        );
    }

    /// Every sampler, at ordinary and extreme settings, on every kind of odd logits.
    #[test]
    fn nothing_panics_on_odd_logits() {
        const SETTINGS: &[&[(&str, &str)]] = &[
            &[],
            &[("top-k", "1")],
            &[("top-k", "0"), ("top-p", "0"), ("min-p", "0")],
            &[("top-k", "0"), ("top-p", "1"), ("min-p", "1")],
            &[("top-k", "-1"), ("min-p", "0"), ("typical-p", "0")],
            &[("typical-p", "0.5")],
            &[("top-n-sigma", "0.01"), ("top-k", "1000000000")],
            &[("xtc-probability", "1"), ("xtc-threshold", "0")],
            &[
                ("repeat-penalty", "1000000"),
                ("presence-penalty", "-1000000"),
                ("frequency-penalty", "1000000"),
            ],
            &[("dry-multiplier", "1000000"), ("dry-base", "1000000"), ("dry-allowed-length", "0")],
            &[("mirostat", "1"), ("mirostat-ent", "0")],
            &[("mirostat", "1"), ("mirostat-lr", "1000"), ("mirostat-ent", "1000")],
            &[("mirostat", "2"), ("mirostat-lr", "1000"), ("mirostat-ent", "0")],
            &[("temp", "0.000000000000000000000000000000000000000001")],
            &[("temp", "1000000"), ("dynatemp-range", "1000000"), ("dynatemp-exp", "0")],
            &[("logit-bias", "0-inf")],
            &[("logit-bias", "3+inf"), ("min-p", "1")],
            &[("samplers", "")],
            &[("samplers", "temperature;top_p;penalties;dry;xtc;typ_p;min_p;top_k;top_n_sigma")],
        ];
        const ODD: &[f32] = &[
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-45,
            0.0,
            -0.0,
            1.0,
            88.0,
            -1e30,
        ];
        let mut rng = Rng::new(8);
        for settings in SETTINGS {
            for round in 0..200 {
                let n = rng.below(40);
                // Early rounds repeat one odd value, later ones mix them.
                let one = ODD[round % ODD.len()];
                let logits: Vec<f32> =
                    (0..n).map(|_| if round < 24 { one } else { ODD[rng.below(ODD.len())] }).collect();
                let mut settings = settings.to_vec();
                if !settings.iter().any(|(name, _)| *name == "temp") {
                    settings.push(("temp", "0.8"));
                }
                let mut sampler = sampler(&settings);
                for _ in 0..5 {
                    let token = sampler.sample(&logits) as usize;
                    assert!(token < n.max(1), "{settings:?} {logits:?}");
                    let hopeless = logits.iter().all(|x| x.is_nan() || *x == f32::NEG_INFINITY);
                    let possible = |x: &f32| !x.is_nan() && *x != f32::NEG_INFINITY;
                    assert!(hopeless || possible(&logits[token]), "{settings:?} {logits:?}: {token}");
                }
                let sum: f64 = sampler.distribution(&logits).iter().map(|(_, p)| p).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{settings:?} {logits:?}: {sum}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tokens() {
        let mut rng = Rng::new(2);
        let logits: Vec<Vec<f32>> =
            (0..50).map(|_| (0..100).map(|_| rng.below(1000) as f32 / 200.0).collect()).collect();
        let run = |seed: &str| {
            let mut sampler = sampler(&[("temp", "1"), ("seed", seed)]);
            logits.iter().map(|logits| sampler.sample(logits)).collect::<Vec<_>>()
        };
        assert_eq!(run("7"), run("7"));
        assert_ne!(run("7"), run("8"));
        assert_ne!(run("-1"), run("-1"), "two random seeds are equal");
    }
}
