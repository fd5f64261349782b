//! Real models against llama.cpp on the same weights (`testdata/tokens`, made by `tools/oracle/tokens.py` and
//! `kl.py`): token ids of texts, 64 greedy tokens a prompt, 500 predictions over Moby Dick.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic, and say what they compared or skip"
)]

mod common;

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use common::{cpu, cpu_int8, gpu, hardware_gpu_names};
use hanzo_engine::{
    ModelFile,
    decoder::{Chunk, Decoder, DecoderOptions, Rows},
    text::{EncodeOptions, Tokenizer},
};
use hanzo_ml::{DType, backend::Backend};
use serde::Deserialize;

/// Mean KL in nats that float arithmetic may differ by from the oracle with F32 weights.
const KL_F32_MAX: f64 = 5e-5;
/// Mean KL, and top-1 agreement, between f32 activations and those rounded to 8 bits: ours against an oracle that rounds,
/// and ours rounded against an oracle that does not.
const KL_QUANTISED_MAX: f64 = 1e-2;
const TOP1_MIN: f64 = 0.94;
const ROWS: usize = 512;

#[derive(Deserialize)]
struct Oracle {
    model: String,
    near_tie_nats: f32,
    prompts: Vec<Prompt>,
    tokenizer: Vec<Text>,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
    text: String,
    parse_special: bool,
    prompt_ids: Vec<u32>,
    tokens: Vec<u32>,
    second: Vec<u32>,
    gap: Vec<f32>,
    near_ties: Vec<usize>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    add_special: bool,
    parse_special: bool,
    ids: Vec<u32>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The oracle of a model and the model, where it is here. One at a time: each uses every core.
fn with_model(name: &str, test: impl FnOnce(&Oracle, &ModelFile)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = std::fs::read_to_string(root().join("testdata/tokens").join(format!("{name}.json"))).unwrap();
    let oracle: Oracle = serde_json::from_str(&text).unwrap();
    let path = root().join("models").join(&oracle.model);
    if !path.exists() {
        println!("SKIPPED {name}: python3 tools/models/fetch.py models fetches it");
        return;
    }
    test(&oracle, &ModelFile::open(&path).unwrap());
}

fn decoder(file: &ModelFile, backend: Box<dyn Backend>, context: usize, n_sequences: usize) -> Decoder {
    let (cache_type_k, cache_type_v) = (DType::F32, DType::F32);
    let options = DecoderOptions { context, n_sequences, max_rows: ROWS, cache_type_k, cache_type_v };
    Decoder::load(file, backend, options).unwrap()
}

fn argmax(logits: &[f32]) -> u32 {
    let best = (0u32..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.unwrap().0
}

fn check_ids(oracle: &Oracle, file: &ModelFile) {
    let tokenizer = Tokenizer::from_gguf(file.gguf().unwrap().metadata(), None).unwrap();
    let encode = |text: &str, add_special, parse_special| {
        tokenizer.encode(text, EncodeOptions { add_special, parse_special }).unwrap()
    };
    for p in &oracle.prompts {
        assert_eq!(encode(&p.text, true, p.parse_special), p.prompt_ids, "{}: {}", oracle.model, p.name);
    }
    for t in &oracle.tokenizer {
        assert_eq!(encode(&t.text, t.add_special, t.parse_special), t.ids, "{}: {:?}", oracle.model, t.text);
    }
}

/// Decodes all prompts side by side; after each choice the oracle's token goes in, which is the same token but at
/// a near tie.
fn check_greedy(oracle: &Oracle, file: &ModelFile, backend: Box<dyn Backend>) {
    assert!(oracle.prompts.len() >= 6);
    let n_tokens = oracle.prompts[0].tokens.len();
    let context = oracle.prompts.iter().map(|p| p.prompt_ids.len() + n_tokens).max().unwrap();
    let mut decoder = decoder(file, backend, context, oracle.prompts.len());
    let device = decoder.backend_name();
    let vocab = decoder.spec().vocab_size;
    let sequences: Vec<_> = oracle.prompts.iter().map(|_| decoder.begin()).collect();
    let mut ours: Vec<u32> = Vec::new();
    for (prompt, &sequence) in oracle.prompts.iter().zip(&sequences) {
        let mut logits = Vec::new();
        for part in prompt.prompt_ids.chunks(ROWS) {
            logits = decoder.forward(&[Chunk::tokens(sequence, part)]).unwrap().logits;
        }
        ours.push(argmax(&logits));
    }
    let mut n_parted = 0;
    for i in 0..n_tokens {
        for (prompt, &token) in oracle.prompts.iter().zip(&ours) {
            assert!(prompt.near_ties.len() <= 2);
            if token != prompt.tokens[i] {
                n_parted += 1;
                let place = format!("{}, prompt {}, token {i}", oracle.model, prompt.name);
                assert!(prompt.near_ties.contains(&i), "{place}: {token} instead of {}", prompt.tokens[i]);
                assert!(prompt.gap[i] < oracle.near_tie_nats, "{place}: no near tie");
                assert_eq!(token, prompt.second[i], "{place}: neither of the two best");
            }
        }
        let step = |(&sequence, prompt): (_, &Prompt)| Chunk::tokens(sequence, &prompt.tokens[i..=i]);
        let chunks: Vec<Chunk> = sequences.iter().zip(&oracle.prompts).map(step).collect();
        let logits = decoder.forward(&chunks).unwrap().logits;
        ours = logits.chunks_exact(vocab).map(argmax).collect();
    }
    let n = oracle.prompts.len();
    println!("{} on {device}: {n} prompts, {n_tokens} tokens each, {n_parted} near ties", oracle.model);
}

/// Predictions in the format of `testdata/tokens/README.md`: row i is the one after token `warm_up` + i.
struct Predictions {
    tokens: Vec<u32>,
    warm_up: usize,
    rest: Vec<f32>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    k: usize,
}

impl Predictions {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(&bytes[..4], b"HZKL");
        let mut words = bytes[4..].chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
        let mut take = |n: usize| words.by_ref().take(n).collect::<Vec<u32>>();
        let head = take(5);
        assert_eq!(head[0], 2, "format version");
        let (n_fed, warm_up, k) = (head[1] as usize, head[2] as usize, head[3] as usize);
        let n = n_fed - warm_up;
        let floats = |words: Vec<u32>| words.into_iter().map(f32::from_bits).collect::<Vec<f32>>();
        let (tokens, rest) = (take(n_fed), floats(take(n)));
        let (ids, logprobs) = (take(n * k), floats(take(n * k)));
        assert_eq!(logprobs.len(), n * k, "{}", path.display());
        Self { tokens, warm_up, rest, ids, logprobs, k }
    }

    /// KL of row `i` from these predictions to ours, and whether the best token is the same.
    fn compare(&self, i: usize, logits: &[f32]) -> (f64, bool) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
        let ids = &self.ids[i * self.k..][..self.k];
        let (mut kl, mut mass) = (0.0, 0.0);
        for (&id, &p) in ids.iter().zip(&self.logprobs[i * self.k..]) {
            let q = f64::from(logits[id as usize] - max) - sum.ln();
            kl += f64::from(p).exp() * (f64::from(p) - q);
            mass += q.exp();
        }
        let rest = f64::from(self.rest[i]);
        if rest > 0.0 {
            kl += rest * (rest / (1.0 - mass).max(1e-12)).ln();
        }
        (kl, argmax(logits) == ids[0])
    }
}

/// Mean KL from each set of predictions to those of a decoder, and the share of rows with the same best token.
fn compare(mut decoder: Decoder, wanted: &[&Predictions]) -> Vec<(f64, f64)> {
    let vocab = decoder.spec().vocab_size;
    let sequence = decoder.begin();
    let (tokens, warm_up) = (&wanted[0].tokens, wanted[0].warm_up);
    let mut sums = vec![(0.0, 0.0); wanted.len()];
    for (part, first) in tokens.chunks(100).zip((0..).step_by(100)) {
        let chunk = Chunk { logits: Rows::All, ..Chunk::tokens(sequence, part) };
        let logits = decoder.forward(&[chunk]).unwrap().logits;
        for (position, row) in (first..).zip(logits.chunks_exact(vocab)) {
            let Some(i) = usize::checked_sub(position, warm_up) else { continue };
            for (sum, wanted) in sums.iter_mut().zip(wanted) {
                let n = wanted.rest.len() as f64;
                let (kl, same) = wanted.compare(i, row);
                *sum = (sum.0 + kl / n, sum.1 + f64::from(u8::from(same)) / n);
            }
        }
    }
    sums
}

fn read_predictions(name: &str) -> (Predictions, Predictions) {
    let read = |kind| Predictions::read(&root().join(format!("testdata/tokens/{name}.kl.{kind}.bin")));
    let (float, quantised) = (read("f32"), read("q"));
    assert_eq!((&float.tokens, float.warm_up), (&quantised.tokens, quantised.warm_up));
    assert_eq!((float.rest.len(), float.warm_up), (500, 16));
    (float, quantised)
}

fn check_predictions(oracle: &Oracle, file: &ModelFile, name: &str) {
    let (float, quantised) = read_predictions(name);
    let decoder = decoder(file, cpu(2), float.tokens.len(), 1);
    let [(kl_float, _), (kl_quantised, top1)] = compare(decoder, &[&float, &quantised])[..] else { panic!() };
    let model = &oracle.model;
    println!(
        "{model}: KL {kl_float:.1e} to F32 weights; {kl_quantised:.1e}, top-1 {top1:.3} to 8-bit activations"
    );
    assert!(kl_float < KL_F32_MAX, "{model}: KL {kl_float:e} to the oracle with F32 weights");
    assert!(kl_quantised < KL_QUANTISED_MAX, "{model}: KL {kl_quantised:e} to the quantised oracle");
    assert!(top1 >= TOP1_MIN, "{model}: top-1 agreement {top1}");
}

/// The program's default: activations of 8 bits, against the oracle with F32 weights and f32 activations.
fn check_int8(oracle: &Oracle, file: &ModelFile, name: &str) {
    let (float, _) = read_predictions(name);
    let decoder = decoder(file, cpu_int8(2), float.tokens.len(), 1);
    let (kl, top1) = compare(decoder, &[&float])[0];
    let model = &oracle.model;
    println!("{model}: 8-bit activations: KL {kl:.1e}, top-1 {top1:.3} to F32 weights");
    assert!(kl < KL_QUANTISED_MAX, "{model}: KL {kl:e} of 8-bit activations");
    assert!(kl > 1e-6, "{model}: KL {kl:e}: no 8-bit activations took part");
    assert!(top1 >= TOP1_MIN, "{model}: top-1 agreement {top1} of 8-bit activations");
}

macro_rules! real_models {
    ($($test:ident $int8:ident $name:literal;)*) => {
        /// Greedy tokens on every GPU of this machine.
        mod on_gpus {
            $(
                #[test]
                fn $test() {
                    for device in super::hardware_gpu_names() {
                        super::with_model($name, |oracle, file| {
                            super::check_greedy(oracle, file, super::gpu(&device));
                        });
                    }
                }
            )*
        }
        $(
        #[test]
        fn $test() {
            with_model($name, |oracle, file| {
                check_ids(oracle, file);
                check_greedy(oracle, file, cpu(2));
                check_predictions(oracle, file, $name);
            });
        }

        #[test]
        fn $int8() {
            with_model($name, |oracle, file| check_int8(oracle, file, $name));
        }
        )*
    };
}

real_models! {
    smollm2_135m smollm2_135m_int8 "smollm2-135m-instruct";
    gemma_3_270m gemma_3_270m_int8 "gemma-3-270m";
    qwen2_5_coder_0_5b qwen2_5_coder_0_5b_int8 "qwen2.5-coder-0.5b-instruct";
    qwen2_5_coder_1_5b qwen2_5_coder_1_5b_int8 "qwen2.5-coder-1.5b-instruct";
}
