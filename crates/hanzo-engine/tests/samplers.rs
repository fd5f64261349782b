//! Samplers against an independent version in numpy (`tools/oracle/samplers.py`), and draws against their probabilities.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{collections::HashMap, path::Path, sync::Arc};

use hanzo_engine::sample::{OPTIONS, Sampler, SamplingOption, SamplingParams, TokenBytes};
use serde::Deserialize;

#[derive(Deserialize)]
struct Chains {
    logits: HashMap<String, Vec<u32>>,
    cases: Vec<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    logits: String,
    set: HashMap<String, Vec<String>>,
    history: Vec<u32>,
    out: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Sequences {
    steps: Vec<Vec<u32>>,
    cases: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    set: HashMap<String, Vec<String>>,
    prompt: Vec<u32>,
    out: Vec<u32>,
}

fn golden<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/samplers").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn floats(bits: &[u32]) -> Vec<f32> {
    bits.iter().map(|&b| f32::from_bits(b)).collect()
}

fn params(set: &HashMap<String, Vec<String>>) -> SamplingParams {
    let mut params = SamplingParams::default();
    for (name, texts) in set {
        SamplingOption::find(name).unwrap().set(&mut params, texts).unwrap();
    }
    params
}

/// The vocabulary of the oracle.
fn token_bytes() -> TokenBytes {
    const PIECES: [&str; 10] = ["\n", ":", "\"", "*", " ", ".", "\n\n", "x:", "-*-", "ab"];
    Arc::new(|id| match id {
        0..26 => vec![b'a' + id as u8],
        26..36 => PIECES[id as usize - 26].as_bytes().to_vec(),
        _ => format!("<{id}>").into_bytes(),
    })
}

#[test]
fn distributions_are_those_of_numpy() {
    let chains: Chains = golden("chains.json");
    assert!(chains.cases.len() > 1000);
    for Chain { logits: name, set, history, out } in chains.cases {
        let logits = floats(&chains.logits[&name]);
        let ours = Sampler::new(params(&set), &history, token_bytes()).distribution(&logits);
        let ids = |pairs: &[(u32, f64)]| pairs.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&ours), ids(&out), "{name} {set:?} {history:?}");
        for ((id, ours), (_, theirs)) in ours.iter().zip(&out) {
            // The oracle's divisions of logits are in f32 as ours, the rest in f64; the file has nine digits.
            assert!((ours - theirs).abs() < 1e-7, "{name} {set:?} {history:?}: token {id} {ours} {theirs}");
        }
    }
}

#[test]
fn sequences_are_those_of_numpy() {
    let sequences: Sequences = golden("sequences.json");
    let steps: Vec<Vec<f32>> = sequences.steps.iter().map(|bits| floats(bits)).collect();
    assert!(sequences.cases.len() > 40);
    for Sequence { set, prompt, out } in sequences.cases {
        let mut sampler = Sampler::new(params(&set), &prompt, token_bytes());
        let ours: Vec<u32> = steps.iter().map(|logits| sampler.sample(logits)).collect();
        assert_eq!(ours, out, "{set:?}");
    }
}

/// Pearson's statistic of 100 000 draws, against the bound that a right sampler exceeds once in a million seeds (the quantile
/// of the chi-square distribution by Wilson and Hilferty's approximation, at 4.75 standard deviations).
#[test]
fn draws_follow_the_probabilities() {
    const N_DRAWS: u32 = 100_000;
    let logits: Vec<f32> = (0..60u32).map(|i| (i * 37 % 101) as f32 / 16.0).collect();
    for settings in [
        &[("temp", "1"), ("top-k", "0"), ("top-p", "1"), ("min-p", "0")][..],
        &[("temp", "0.8")],
        &[("temp", "1.5"), ("typical-p", "0.7")],
        &[("temp", "1"), ("mirostat", "2"), ("mirostat-lr", "0"), ("mirostat-ent", "3")],
    ] {
        for seed in ["1", "2"] {
            let set = settings.iter().copied().chain([("seed", seed)]);
            let set = set.map(|(name, text)| (name.to_owned(), vec![text.to_owned()])).collect();
            let mut sampler = Sampler::new(params(&set), &[], token_bytes());
            let expected = sampler.distribution(&logits);
            let mut counts: HashMap<u32, u32> = HashMap::new();
            for _ in 0..N_DRAWS {
                *counts.entry(sampler.sample(&logits)).or_default() += 1;
            }
            let n_bins = expected.len() as f64;
            assert!(n_bins > 5.0, "{set:?}");
            let mut statistic = 0.0;
            for (id, p) in expected {
                let expected = p * f64::from(N_DRAWS);
                assert!(expected > 5.0, "the statistic needs more draws: {set:?} {id} {p}");
                statistic += (f64::from(counts.remove(&id).unwrap_or(0)) - expected).powi(2) / expected;
            }
            assert!(counts.is_empty(), "{set:?}: drawn without being candidates: {counts:?}");
            let freedom = n_bins - 1.0;
            let spread = 2.0 / (9.0 * freedom);
            let bound = freedom * (1.0 - spread + 4.75 * spread.sqrt()).powi(3);
            assert!(statistic < bound, "{set:?}: {statistic} of {bound}");
        }
    }
}

/// The table of docs/sampling.md, from the table of the program.
#[test]
fn the_page_lists_every_option() {
    let mut table =
        "\n| option | what it does | default | in model files |\n| --- | --- | --- | --- |\n".to_owned();
    for option in OPTIONS {
        let short = option.short.map(|short| format!("`-{short}` ")).unwrap_or_default();
        let defaults = option.texts_of(&SamplingParams::default());
        let defaults: Vec<String> =
            defaults.iter().map(|text| format!("`{}`", text.escape_debug())).collect();
        let keys = option.gguf_key.into_iter().chain(option.config_key);
        let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        table += &format!(
            "| {short}`--{}` | {} | {} | {} |\n",
            option.name,
            option.doc,
            defaults.join(" "),
            keys.join(" ")
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sampling.md");
    let page = std::fs::read_to_string(path).unwrap();
    let begin = "<!-- options begin: from the table of the program -->";
    let (_, after) = page.split_once(begin).unwrap();
    let (listed, _) = after.split_once("<!-- options end -->").unwrap();
    assert_eq!(listed, table, "the table should be:\n{table}");
}
