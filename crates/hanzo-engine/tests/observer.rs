//! An observer sees what goes into every product with a weight, and changes nothing.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::collections::BTreeMap;

use common::{case, cases, cpu, decoder, reference};
use hanzo_engine::{
    Importance, ModelFile, Result,
    decoder::{Chunk, Decoder, Observer, Product, Rows},
};

/// Experts, width of the inputs, and rows by expert.
type Shape = (usize, usize, Vec<usize>);

/// The products of each weight.
#[derive(Default)]
struct Seen(BTreeMap<String, Vec<Shape>>);

impl Observer for Seen {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn product(&mut self, product: &Product<'_>) -> Result<()> {
        let mut rows = vec![0; product.n_experts];
        product.rows().for_each(|(expert, row)| {
            assert_eq!(row.len(), product.k);
            rows[expert] += 1;
        });
        let shape = (product.n_experts, product.k, rows);
        self.0.entry(product.name.to_owned()).or_default().push(shape);
        Ok(())
    }
}

fn load(file: &ModelFile) -> Decoder {
    decoder(file, file.spec().unwrap(), cpu(2), 128)
}

fn chunk(decoder: &mut Decoder, tokens: &[u32]) -> Chunk {
    Chunk { logits: Rows::All, ..Chunk::tokens(decoder.begin(), tokens) }
}

#[test]
fn what_is_observed_is_not_changed() {
    for case in cases() {
        let file = case.file();
        let tokens = &case.prompts[0].tokens;
        let mut decoder = load(&file);
        let plain = chunk(&mut decoder, tokens);
        let expected = decoder.forward(&[plain]).unwrap();
        let observed = chunk(&mut decoder, tokens);
        let got = decoder.forward_observed(&[observed], &mut Seen::default()).unwrap();
        assert_eq!(got, expected, "{}", case.name);
    }
}

#[test]
fn every_matrix_is_seen_once_under_its_gguf_name() {
    for case in cases().iter().filter(|case| case.gguf.is_some()) {
        let tokens = &case.prompts[0].tokens;
        let files = case.files();
        let (_, gguf) = files.last().unwrap();
        let matrices = gguf.tensors().tensors().iter().filter(|t| t.shape.len() > 1);
        let mut wanted: BTreeMap<String, (usize, usize)> = matrices
            .map(|t| {
                (
                    t.name.clone(),
                    (t.shape.iter().rev().nth(2).copied().unwrap_or(1), t.shape[t.shape.len() - 1]),
                )
            })
            .collect();
        // The embedding is a product where it is the output matrix too.
        if wanted.contains_key("output.weight") {
            wanted.remove("token_embd.weight");
        }
        for (name, file) in &files {
            let mut decoder = load(file);
            let mut seen = Seen::default();
            let chunk = chunk(&mut decoder, tokens);
            decoder.forward_observed(&[chunk], &mut seen).unwrap();
            let shapes = |(name, list): (&String, &Vec<Shape>)| {
                assert_eq!(list.len(), 1, "{name}");
                (name.clone(), (list[0].0, list[0].1))
            };
            let shapes: BTreeMap<String, (usize, usize)> = seen.0.iter().map(shapes).collect();
            assert_eq!(shapes, wanted, "{name}");
            for (weight, list) in &seen.0 {
                let rows: usize = list[0].2.iter().sum();
                let per_token = if list[0].0 > 1 { 2 } else { 1 };
                assert_eq!(rows, tokens.len() * per_token, "{name}: {weight}");
            }
        }
    }
}

/// The sums of a backend that computes in another way are the same but for rounding.
#[test]
fn importance_is_the_same_on_every_backend_and_in_every_chunking() {
    let case = case("qwen3moe");
    let file = case.file();
    let collect = |backend, rows: usize| {
        let mut decoder = decoder(&file, file.spec().unwrap(), backend, 128);
        let mut importance = Importance::new(true);
        for prompt in &case.prompts {
            let sequence = decoder.begin();
            for part in prompt.tokens.chunks(rows) {
                let chunk = Chunk { logits: Rows::All, ..Chunk::tokens(sequence, part) };
                decoder.forward_observed(&[chunk], &mut importance).unwrap();
            }
            decoder.end(sequence);
        }
        importance.to_imatrix(Vec::new(), 16).unwrap()
    };
    let expected = collect(reference(), 128);
    assert_eq!(expected.chunk_count, 7, "114 rows in chunks of 16");
    for ours in [collect(cpu(1), 128), collect(cpu(2), 9)] {
        assert_eq!(ours.len(), expected.len());
        for (name, entry) in ours.iter() {
            let expected = expected.get(name).unwrap();
            assert_eq!(entry.counts(), expected.counts(), "{name}");
            for (a, b) in entry.sums().iter().zip(expected.sums()) {
                assert!((a - b).abs() <= 1e-4 * b.abs() + 1e-6, "{name}: {a} is not {b}");
            }
        }
    }
}

#[test]
fn an_observer_can_end_a_step() {
    struct Refuses;
    impl Observer for Refuses {
        fn wants(&self, name: &str) -> bool {
            name == "blk.1.ffn_down.weight"
        }
        fn product(&mut self, product: &Product<'_>) -> Result<()> {
            Err(hanzo_engine::Error::request(format!("enough at {}", product.name)))
        }
    }
    let case = case("llama");
    let mut decoder = load(&case.file());
    let chunk = chunk(&mut decoder, &case.prompts[0].tokens);
    let error = decoder.forward_observed(&[chunk], &mut Refuses).unwrap_err().to_string();
    assert_eq!(error, "enough at blk.1.ffn_down.weight");
}
