//! Where and how a decoder computes: the options of every command that runs one.

use clap::{Args, ValueEnum};
use hanzo_engine::{
    ModelFile,
    decoder::{Decoder, DecoderOptions, DeviceMap, Devices, Split},
    load_tokenizer,
    text::Tokenizer,
};
use hanzo_ml::{DType, Device};

use crate::{
    cpu::CpuArgs,
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    loading::Loading,
};

/// Devices, what is on them, and the cache.
#[derive(Debug, Args)]
pub(crate) struct ComputeArgs {
    /// Where to run: cpu, cuda:0, rocm:0, vulkan:0, metal:0 …
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Cpu)]
    device: Device,
    /// Layers on the GPU, the rest on the CPU: a number, all, or auto for as many as fit [default: auto]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    n_gpu_layers: Option<Split>,
    /// Layers of several devices in order, such as 0:20;cpu or cuda:0:18;cuda:1
    #[arg(long, value_name = "MAP", conflicts_with = "n_gpu_layers")]
    device_map: Option<DeviceMap>,
    /// Element type of cached keys
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    cache_type_k: CacheType,
    /// Element type of cached values
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    cache_type_v: CacheType,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Element types of the key/value cache.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum CacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
}

impl From<CacheType> for DType {
    fn from(cache_type: CacheType) -> Self {
        match cache_type {
            CacheType::F32 => Self::F32,
            CacheType::F16 => Self::F16,
            CacheType::Bf16 => Self::BF16,
            CacheType::Q8_0 => Self::Q8_0,
        }
    }
}

impl ComputeArgs {
    /// The devices, for a number of threads. Compiled kernels are kept where the models are.
    pub(crate) fn devices(
        &self,
        threads: Option<usize>,
        hub: Option<&HubArgs>,
        environment: &Environment,
    ) -> Devices {
        let map = self.device_map.clone().map(Split::Map);
        Devices {
            device: self.device,
            split: map.or(self.n_gpu_layers.clone()).unwrap_or_default(),
            cpu: self.cpu.options(threads),
            gpu: environment.gpu(hub.and_then(HubArgs::cache_dir)),
        }
    }

    /// The types of cached keys and values.
    pub(crate) fn cache_types(&self) -> [DType; 2] {
        [self.cache_type_k.into(), self.cache_type_v.into()]
    }
}

/// How a text is read.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Rows of a step: a text is read in parts of so many tokens
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = rows)]
    pub(crate) ubatch_size: usize,
    /// Threads [default: one per physical core]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Pre-tokenizer, where the file does not name a known one
    #[arg(long, value_name = "NAME")]
    pub(crate) pre: Option<String>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

/// What windows of a text ask of a decoder.
pub(crate) struct Windowed {
    /// Tokens of a window.
    pub(crate) size: usize,
    /// Windows at once.
    pub(crate) n_together: usize,
    /// Rows of a step whose logits are wanted, at most.
    pub(crate) n_logit_rows: usize,
}

impl ReadingArgs {
    /// A model's vocabulary.
    pub(crate) fn tokenizer(&self, file: &ModelFile) -> Result<Tokenizer> {
        Ok(load_tokenizer(file, self.pre.as_deref())?)
    }

    /// A decoder that reads windows.
    pub(crate) fn decoder(
        &self,
        file: &ModelFile,
        windows: &Windowed,
        hub: &HubArgs,
        environment: &Environment,
    ) -> Result<Decoder> {
        let (size, trained) = (windows.size, file.spec()?.context_length);
        if size > trained {
            return Err(Error::failed(format!("chunks of {size} tokens exceed the {trained} of training")));
        }
        let [cache_type_k, cache_type_v] = self.compute.cache_types();
        let options = DecoderOptions {
            context: size,
            n_sequences: windows.n_together,
            max_rows: self.ubatch_size,
            cache_type_k,
            cache_type_v,
        };
        let devices = self.compute.devices(self.threads, Some(hub), environment);
        Loading::new(environment, false).decoder(file, &devices, options, windows.n_logit_rows)
    }
}

fn rows(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=65_536) => Ok(n),
        _ => Err("not a number within 1 and 65536".to_owned()),
    }
}
