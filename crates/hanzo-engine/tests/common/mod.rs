//! The tiny random models of `testdata/tiny`, their logits from `transformers`, and how tests run them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

use hanzo_engine::{
    ModelFile,
    decoder::{Chunk, Decoder, DecoderOptions, Rows},
    spec::DecoderSpec,
};
use hanzo_ml::{
    DType, Device,
    backend::Backend,
    cpu::{Activations, Cpu, CpuOptions},
    gpu::{GpuOptions, driver::DriverOptions},
    reference::Reference,
};
use serde::Deserialize;

/// The share of the largest logit by which ours may differ.
pub const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Index {
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
pub struct Case {
    pub name: String,
    pub weights: String,
    pub configs: Vec<String>,
    pub gguf: Option<String>,
    pub logits: String,
    pub vocab: usize,
    pub prompts: Vec<Prompt>,
    pub max_abs_logit: f32,
}

#[derive(Clone, Deserialize)]
pub struct Prompt {
    pub logits_offset_bytes: usize,
    pub tokens: Vec<u32>,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tiny")
}

/// Every case that is supported.
pub fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("index.json")).unwrap();
    let index: Index = serde_json::from_str(&text).unwrap();
    index.cases.into_iter().filter(|c| c.name != REFUSED).collect()
}

/// The case that is refused by name.
pub const REFUSED: &str = "llama-rope-dynamic";

pub fn case(name: &str) -> Case {
    cases().into_iter().find(|c| c.name == name).unwrap()
}

impl Case {
    /// The model in every form it is stored in, with a name for messages.
    pub fn files(&self) -> Vec<(String, ModelFile)> {
        let weights = folder().join(&self.weights);
        let mut files: Vec<(String, ModelFile)> = Vec::new();
        for config in &self.configs {
            let file = ModelFile::open_hugging_face(&folder().join(config), &weights).unwrap();
            files.push((config.clone(), file));
        }
        if let Some(gguf) = &self.gguf {
            files.push((gguf.clone(), ModelFile::open(&folder().join(gguf)).unwrap()));
        }
        files
    }

    /// The model as config.json and safetensors.
    pub fn file(&self) -> ModelFile {
        self.files().remove(0).1
    }

    /// The oracle's logits of a prompt, `[T, V]`.
    pub fn logits(&self, prompt: &Prompt) -> Vec<f32> {
        let bytes = std::fs::read(folder().join(&self.logits)).unwrap();
        let end = prompt.logits_offset_bytes + prompt.tokens.len() * self.vocab * 4;
        let floats = bytes[prompt.logits_offset_bytes..end].chunks_exact(4);
        floats.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

/// The CPU in f32 arithmetic, as the oracles compute.
pub fn cpu(threads: usize) -> Box<dyn Backend> {
    let options = CpuOptions { threads: Some(threads), activations: Activations::F32, repack: false };
    Box::new(Cpu::new(options).unwrap())
}

/// The CPU with 8-bit activations, as the program computes by default.
pub fn cpu_int8(threads: usize) -> Box<dyn Backend> {
    Box::new(Cpu::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() }).unwrap())
}

pub fn reference() -> Box<dyn Backend> {
    Box::new(Reference::new())
}

/// The names of this machine's GPUs.
pub fn gpu_names() -> Vec<String> {
    let found = Device::gpus(&DriverOptions::default()).into_iter().filter_map(|(_, found)| found.ok());
    found.flatten().map(|gpu| gpu.device).collect()
}

/// The names of this machine's GPUs, without those that are programs: a whole model takes them too long.
pub fn hardware_gpu_names() -> Vec<String> {
    gpu_names().into_iter().filter(|name| !gpu(name).name().contains("llvmpipe")).collect()
}

/// The backend of a GPU.
pub fn gpu(name: &str) -> Box<dyn Backend> {
    let device: Device = name.parse().unwrap();
    device.open(CpuOptions::default(), GpuOptions::default()).unwrap()
}

pub fn options(context: usize) -> DecoderOptions {
    DecoderOptions {
        context,
        n_sequences: 4,
        max_rows: 256,
        cache_type_k: DType::F32,
        cache_type_v: DType::F32,
    }
}

/// Logits of every row of a prompt that is given whole.
pub fn whole(decoder: &mut Decoder, tokens: &[u32]) -> Vec<f32> {
    chunked(decoder, tokens, tokens.len())
}

/// Logits of every row of a prompt that is given in chunks of `n` rows.
pub fn chunked(decoder: &mut Decoder, tokens: &[u32], n: usize) -> Vec<f32> {
    let sequence = decoder.begin();
    let mut logits = Vec::new();
    for part in tokens.chunks(n) {
        let chunk = Chunk { logits: Rows::All, ..Chunk::tokens(sequence, part) };
        logits.extend(decoder.forward(&[chunk]).unwrap().logits);
    }
    decoder.end(sequence);
    decoder.cache().check_integrity().unwrap();
    logits
}

/// A decoder of a case for prompts of `context` tokens.
pub fn decoder(file: &ModelFile, spec: DecoderSpec, backend: Box<dyn Backend>, context: usize) -> Decoder {
    Decoder::load_with(file, spec, backend, options(context)).unwrap()
}

pub fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let difference =
        |(x, y): (&f32, &f32)| if x.is_nan() || y.is_nan() { f32::INFINITY } else { (x - y).abs() };
    a.iter().zip(b).map(difference).fold(0.0, f32::max)
}
