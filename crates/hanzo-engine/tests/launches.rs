//! What a step launches on a GPU, on a runtime that only records.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{case, decoder};
use hanzo_engine::{ModelFile, decoder::Chunk};
use hanzo_ml::gpu::{
    Gpu, GpuOptions, Target,
    null::{Null, Record},
};

/// What a layer launches for a token.
const LAYER: [&str; 12] = [
    "rms_norm",
    "qmatvec",
    "qmatvec",
    "qmatvec",
    "rope_append",
    "attention_decode",
    "qmatvec",
    "rms_norm",
    "qmatvec",
    "qmatvec",
    "gated_activation",
    "qmatvec",
];

/// The kernels of a step of one token.
fn step(file: &ModelFile) -> Vec<String> {
    let (null, records) = Null::new(Target::Cuda, 1 << 30);
    let gpu = Gpu::new(Box::new(null), GpuOptions::default()).unwrap();
    let mut decoder = decoder(file, file.spec().unwrap(), Box::new(gpu), 8);
    let sequence = decoder.begin();
    decoder.forward(&[Chunk::tokens(sequence, &[1, 2, 3])]).unwrap();
    records.take();
    decoder.forward(&[Chunk::tokens(sequence, &[4])]).unwrap();
    let kernel = |record| match record {
        Record::Launch(name, ..) => Some(name),
        _ => None,
    };
    records.take().into_iter().filter_map(kernel).collect()
}

/// Twelve launches a layer, whether heads of queries and keys are normed or not. One by one its operations are fifteen, or
/// seventeen.
#[test]
fn a_layer_is_twelve_launches() {
    for name in ["llama", "qwen3"] {
        let file = case(name).file();
        let kernels = step(&file);
        let first = kernels.iter().position(|kernel| kernel.starts_with("rms_norm")).unwrap();
        let mut rest = kernels[first..].iter();
        for l in 0..file.spec().unwrap().layers.len() {
            for wanted in LAYER {
                let kernel = rest.next().unwrap();
                assert!(kernel.starts_with(wanted), "{name}, layer {l}: {kernel} instead of {wanted}");
            }
        }
        // The last sum, the row that is asked for, its norm and the head.
        assert_eq!(rest.len(), 4, "{name}: {rest:?}");
    }
}

/// From its third token on a sequence is one replay a token, until its table of blocks grows.
#[test]
fn a_token_is_one_replay() {
    let file = case("llama").file();
    let (null, records) = Null::new(Target::Cuda, 1 << 30);
    let gpu = Gpu::new(Box::new(null), GpuOptions::default()).unwrap();
    let mut decoder = decoder(&file, file.spec().unwrap(), Box::new(gpu), 60);
    let sequence = decoder.begin();
    decoder.forward(&[Chunk::tokens(sequence, &[1, 2, 3])]).unwrap();
    let mut n_launches = Vec::new();
    for _ in 3..60 {
        records.take();
        decoder.forward(&[Chunk::tokens(sequence, &[4])]).unwrap();
        let launch = |r: &Record| matches!(r, Record::Launch(..) | Record::Replay(_));
        n_launches.push(records.take().iter().filter(|r| launch(r)).count());
    }
    let n_single = n_launches.iter().filter(|n| **n == 1).count();
    // Two lengths of the table: for each a step as it is and one that is recorded.
    assert_eq!(n_single, n_launches.len() - 4, "{n_launches:?}");
}
