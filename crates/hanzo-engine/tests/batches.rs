//! What a row gives does not depend on what runs beside it: batch composition, threads, chunks, positions.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{Case, case, chunked, cpu, decoder, max_difference, options, reference, whole};
use hanzo_engine::decoder::{Chunk, Decoder, Input, POSITION_AXES, Rows};

/// One case of each kind of layer: full, windowed, both, experts, sandwich norms.
const CASES: &[&str] =
    &["llama", "mistral", "mixtral", "qwen2-window", "qwen3", "qwen3moe-mixed", "gemma2", "gemma3"];

fn load(case: &Case, threads: usize) -> Decoder {
    let file = case.file();
    decoder(&file, file.spec().unwrap(), cpu(threads), 128)
}

#[test]
fn batch_composition_and_threads_do_not_change_a_bit() {
    for name in CASES {
        let case = case(name);
        let mut alone = load(&case, 1);
        let expected: Vec<Vec<f32>> = case.prompts.iter().map(|p| whole(&mut alone, &p.tokens)).collect();
        for threads in [1, 2, 3] {
            let mut decoder = load(&case, threads);
            for first in 0..case.prompts.len() {
                let order: Vec<usize> =
                    (0..case.prompts.len()).map(|i| (i + first) % case.prompts.len()).collect();
                let together = interleaved(&mut decoder, &case, &order);
                for (i, ours) in order.iter().zip(together) {
                    assert_eq!(ours, expected[*i], "{name}, {threads} threads, prompt {i}");
                }
            }
        }
    }
}

/// Runs the prompts of a case side by side: each step takes a different number of rows of each.
fn interleaved(decoder: &mut Decoder, case: &Case, order: &[usize]) -> Vec<Vec<f32>> {
    let prompts: Vec<&[u32]> = order.iter().map(|&i| case.prompts[i].tokens.as_slice()).collect();
    let sequences: Vec<_> = prompts.iter().map(|_| decoder.begin()).collect();
    let mut given = vec![0; prompts.len()];
    let mut logits = vec![Vec::new(); prompts.len()];
    let mut step = 0;
    while given.iter().zip(&prompts).any(|(&n, p)| n < p.len()) {
        step += 1;
        let mut chunks = Vec::new();
        let mut owners = Vec::new();
        for (i, prompt) in prompts.iter().enumerate() {
            let n = [1, 13, 34, 5][(step + i) % 4].min(prompt.len() - given[i]);
            if n > 0 {
                let part = &prompt[given[i]..given[i] + n];
                chunks.push(Chunk { logits: Rows::All, ..Chunk::tokens(sequences[i], part) });
                owners.push((i, n * case.vocab));
                given[i] += n;
            }
        }
        let mut rest = decoder.forward(&chunks).unwrap().logits;
        for (i, n) in owners {
            let tail = rest.split_off(n);
            logits[i].extend(rest);
            rest = tail;
        }
        decoder.cache().check_integrity().unwrap();
    }
    sequences.into_iter().for_each(|s| decoder.end(s));
    logits
}

/// Rows that nobody asks for end in the last layer, and the others give the same bits as if they did not: those of a chunk in
/// the middle of a batch, of one without results, and where logits and hidden states are of different rows.
#[test]
fn rows_that_are_asked_for_do_not_depend_on_the_others() {
    for name in CASES {
        let case = case(name);
        let (a, b) = (&case.prompts[0].tokens, &case.prompts[1].tokens);
        let mut decoder = load(&case, 2);
        let mut all = |tokens: &[u32]| {
            let sequence = decoder.begin();
            let rows = (Rows::All, Rows::All);
            let chunk = Chunk { logits: rows.0, hidden: rows.1, ..Chunk::tokens(sequence, tokens) };
            decoder.forward(&[chunk]).unwrap()
        };
        let expected = [all(a), all(b)];
        let width = expected[0].hidden.len() / a.len();
        let of = |i: usize, row: usize| &expected[i].logits[row * case.vocab..][..case.vocab];
        let hidden = |i: usize, row: usize| &expected[i].hidden[row * width..][..width];
        let sequences = [decoder.begin(), decoder.begin()];
        let mut step = |n: [usize; 2], to: [usize; 2], rows: [Rows; 4]| {
            let [logits_a, logits_b, hidden_a, hidden_b] = rows;
            let (a, b) = (&a[n[0]..to[0]], &b[n[1]..to[1]]);
            let chunks = [
                Chunk { logits: logits_a, hidden: hidden_a, ..Chunk::tokens(sequences[0], a) },
                Chunk { logits: logits_b, hidden: hidden_b, ..Chunk::tokens(sequences[1], b) },
            ];
            decoder.forward(&chunks).unwrap()
        };
        let none = step([0, 0], [5, 3], [Rows::None; 4]);
        assert!(none.logits.is_empty() && none.hidden.is_empty(), "{name}");
        let out = step([5, 3], [9, 7], [Rows::None, Rows::Last, Rows::Last, Rows::None]);
        assert_eq!((&out.logits[..], &out.hidden[..]), (of(1, 6), hidden(0, 8)), "{name}");
        let out = step([9, 7], [11, 10], [Rows::Last, Rows::All, Rows::None, Rows::Last]);
        let wanted = [of(0, 10), of(1, 7), of(1, 8), of(1, 9)].concat();
        assert_eq!((&out.logits, &out.hidden[..]), (&wanted, hidden(1, 9)), "{name}");
    }
}

#[test]
fn chunked_prefill_equals_whole() {
    for name in CASES {
        let case = case(name);
        let mut decoder = load(&case, 2);
        for prompt in &case.prompts {
            let expected = whole(&mut decoder, &prompt.tokens);
            for n in [1, 7, 32, 33] {
                let error = max_difference(&chunked(&mut decoder, &prompt.tokens, n), &expected);
                assert!(error <= 1e-5 * case.max_abs_logit, "{name} in chunks of {n}: {error}");
            }
        }
    }
}

/// The embeddings of ids, read from the file and scaled as the model does.
fn embeddings(case: &Case, ids: &[u32]) -> Vec<f32> {
    let file = case.file();
    let table = file.tensors().tensor("model.embed_tokens.weight").unwrap();
    let (width, values) = (table.row_elems(), table.to_f32());
    let scale = file.spec().unwrap().embedding_scale;
    ids.iter().flat_map(|&id| values[id as usize * width..][..width].iter().map(|v| v * scale)).collect()
}

#[test]
fn embedding_rows_stand_for_tokens() {
    for name in ["llama", "gemma3"] {
        let case = case(name);
        let tokens = &case.prompts[0].tokens;
        let mut decoder = load(&case, 2);
        let expected = whole(&mut decoder, tokens);
        let sequence = decoder.begin();
        let mut logits = Vec::new();
        for (i, part) in tokens.chunks(11).enumerate() {
            let input = match i % 2 {
                0 => Input::Embeddings(embeddings(&case, part)),
                _ => Input::Tokens(part.to_vec()),
            };
            let chunk = Chunk { input, logits: Rows::All, ..Chunk::tokens(sequence, part) };
            logits.extend(decoder.forward(&[chunk]).unwrap().logits);
        }
        assert!(max_difference(&logits, &expected) <= 1e-5 * case.max_abs_logit, "{name}");
    }
}

#[test]
fn only_the_distance_of_positions_counts() {
    let case = case("llama");
    let tokens = &case.prompts[0].tokens;
    let mut decoder = load(&case, 2);
    let expected = whole(&mut decoder, tokens);
    let run = |decoder: &mut Decoder, position: &dyn Fn(u32) -> u32| {
        let positions = (0..tokens.len() as u32).map(|i| [position(i); POSITION_AXES]).collect();
        let sequence = decoder.begin();
        let chunk =
            Chunk { positions: Some(positions), logits: Rows::All, ..Chunk::tokens(sequence, tokens) };
        let logits = decoder.forward(&[chunk]).unwrap().logits;
        decoder.end(sequence);
        max_difference(&logits, &expected) / case.max_abs_logit
    };
    let shifted = run(&mut decoder, &|i| i + 1000);
    assert!(shifted <= 1e-5, "shifted by 1000: {shifted}");
    let stretched = run(&mut decoder, &|i| 2 * i);
    assert!(stretched > 1e-2, "stretched: {stretched}");
}

#[test]
fn bidirectional_spans_see_forward() {
    for name in ["llama", "gemma3"] {
        let case = case(name);
        let file = case.file();
        let tokens = &case.prompts[0].tokens;
        let span = 10..20;
        let run = |decoder: &mut Decoder, tokens: &[u32], spans: &[std::ops::Range<usize>]| {
            let sequence = decoder.begin();
            let chunk =
                Chunk { bidirectional: spans.to_vec(), logits: Rows::All, ..Chunk::tokens(sequence, tokens) };
            decoder.forward(&[chunk]).unwrap().logits
        };
        let mut changed = tokens.clone();
        changed[19] = (changed[19] + 1) % case.vocab as u32;
        let spans = std::slice::from_ref(&span);
        let mut decoder = load(&case, 2);
        let before = run(&mut decoder, tokens, spans);
        let after = run(&mut decoder, &changed, spans);
        let row_moved =
            |t: usize| before[t * case.vocab..][..case.vocab] != after[t * case.vocab..][..case.vocab];
        // The span's last token is seen by the whole span, by none before it and by what follows.
        assert!(
            (0..10).all(|t| !row_moved(t)) && (10..tokens.len()).all(|t| row_moved(t) || t >= 20),
            "{name}"
        );
        assert!(span.clone().all(row_moved), "{name}");
        let mut oracle = common::decoder(&file, file.spec().unwrap(), reference(), 128);
        let error = max_difference(&before, &run(&mut oracle, tokens, spans)) / case.max_abs_logit;
        assert!(error <= 1e-5, "{name}: {error}");
    }
}

#[test]
fn hidden_states_are_what_the_output_matrix_reads() {
    let case = case("llama");
    let file = case.file();
    let tokens = &case.prompts[2].tokens;
    let mut decoder = load(&case, 1);
    let sequence = decoder.begin();
    let chunk = Chunk { hidden: Rows::All, ..Chunk::tokens(sequence, tokens) };
    let output = decoder.forward(&[chunk]).unwrap();
    let head = file.tensors().tensor("lm_head.weight").unwrap();
    let (width, values) = (head.row_elems(), head.to_f32());
    assert_eq!(output.hidden.len(), tokens.len() * width);
    let last = &output.hidden[(tokens.len() - 1) * width..];
    let logits: Vec<f32> =
        values.chunks(width).map(|row| row.iter().zip(last).map(|(a, b)| a * b).sum()).collect();
    assert!(max_difference(&logits, &output.logits) <= 1e-5 * case.max_abs_logit);
}

#[test]
fn malformed_batches_are_refused_and_leave_the_cache_whole() {
    let case = case("llama");
    let mut decoder = load(&case, 1);
    let sequence = decoder.begin();
    let refused = |decoder: &mut Decoder, chunk: Chunk, why: &str| {
        let error = decoder.forward(&[chunk]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(decoder.cache().len(sequence), 0);
        decoder.cache().check_integrity().unwrap();
    };
    let chunk = |tokens: &[u32]| Chunk::tokens(sequence, tokens);
    refused(&mut decoder, chunk(&[1, 9999]), "token 9999 of 64");
    refused(&mut decoder, chunk(&[1; 129]), "129 tokens do not fit the context of 128");
    refused(&mut decoder, chunk(&[1; 257]), "257 rows are more than the 256 reserved");
    refused(
        &mut decoder,
        Chunk { positions: Some(vec![[0; 3]]), ..chunk(&[1, 2]) },
        "1 positions for 2 rows",
    );
    refused(
        &mut decoder,
        Chunk { bidirectional: std::iter::once(1..3).collect(), ..chunk(&[1, 2]) },
        "span 1..3 of 2 rows",
    );
    refused(&mut decoder, Chunk { input: Input::Embeddings(vec![0.0; 65]), ..chunk(&[]) }, "not rows of 64");
    let twice = decoder.forward(&[chunk(&[1]), chunk(&[2])]).unwrap_err().to_string();
    assert!(twice.contains("two chunks"), "{twice}");
    assert!(decoder.forward(&[chunk(&[])]).unwrap().logits.is_empty());
    assert_eq!(options(128).max_rows, decoder.options().max_rows);
}

#[test]
fn sections_choose_the_axis_that_turns_a_pair() {
    let case = case("llama");
    let file = case.file();
    let tokens = &case.prompts[2].tokens;
    let plain = whole(&mut load(&case, 1), tokens);
    let pairs = file.spec().unwrap().ropes[0].pairs();
    for (axis, sections) in [(0, vec![]), (0, vec![pairs]), (1, vec![0, pairs]), (2, vec![0, 0, pairs])] {
        let mut spec = file.spec().unwrap();
        spec.ropes[0].sections.clone_from(&sections);
        let mut decoder = decoder(&file, spec, cpu(1), 128);
        let position = |i: u32| {
            let mut position = [99; POSITION_AXES];
            position[axis] = i;
            position
        };
        let positions = Some((0..tokens.len() as u32).map(position).collect());
        let sequence = decoder.begin();
        let chunk = Chunk { positions, logits: Rows::All, ..Chunk::tokens(sequence, tokens) };
        assert_eq!(decoder.forward(&[chunk]).unwrap().logits, plain, "axis {axis}, sections {sections:?}");
    }
}
