//! A loaded model: decoder, tokenizer, chat template, and what they need of memory.

use std::path::Path;

use hanzo_ml::{DType, Device, cpu::CpuOptions, gpu::GpuOptions};

use crate::{
    Error, ModelFile, Result,
    decoder::{self, Decoder, DecoderOptions, cache_bytes, check_cache_types},
    spec::DecoderSpec,
    text::{ChatTemplate, Tokenizer},
};

/// How to load a model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Positions of a sequence; `None` is the trained context, at most [`DEFAULT_CONTEXT`].
    pub context: Option<usize>,
    /// Sequences at once.
    pub n_sequences: usize,
    /// Rows of a step.
    pub max_rows: usize,
    /// Element type of cached keys.
    pub cache_type_k: DType,
    /// Element type of cached values.
    pub cache_type_v: DType,
    /// Where the model runs.
    pub device: Device,
    /// Threads and arithmetic of the CPU.
    pub cpu: CpuOptions,
    /// What a GPU may use.
    pub gpu: GpuOptions,
    /// The pre-tokenizer, where the file does not name one that is known.
    pub pre_tokenizer: Option<String>,
}

/// The context where nobody asks for another.
pub const DEFAULT_CONTEXT: usize = 4096;

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            context: None,
            n_sequences: 1,
            max_rows: 512,
            cache_type_k: DType::F16,
            cache_type_v: DType::F16,
            device: Device::Cpu,
            cpu: CpuOptions::default(),
            gpu: GpuOptions::default(),
            pre_tokenizer: None,
        }
    }
}

/// What a model takes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Bytes of the tensors; mapped from the file, so the system can drop and read them again.
    pub weight_bytes: usize,
    /// Bytes of the key/value cache.
    pub cache_bytes: usize,
    /// Positions of a sequence.
    pub context: usize,
}

/// A loaded model.
pub struct Model {
    pub(super) decoder: Decoder,
    pub(super) tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    plan: MemoryPlan,
}

impl MemoryPlan {
    /// What loading would take.
    ///
    /// # Errors
    /// If the model is not supported.
    pub fn new(file: &ModelFile, options: &LoadOptions) -> Result<Self> {
        let spec = file.spec()?;
        let decoder = decoder_options(spec.context_length, options)?;
        check_cache_types(&spec, &decoder)?;
        Ok(Self {
            weight_bytes: file.tensors().tensors().iter().map(hanzo_ml::file::TensorInfo::bytes).sum(),
            cache_bytes: cache_bytes(&spec, decoder),
            context: decoder.context,
        })
    }
}

impl Model {
    /// Loads a model to its device.
    ///
    /// # Errors
    /// If the model, its vocabulary or its template is not supported, or the device is not available.
    pub fn load(file: &ModelFile, options: &LoadOptions) -> Result<Self> {
        let plan = MemoryPlan::new(file, options)?;
        let spec = decoder::check(file)?;
        let (tokenizer, template) = text(file, &spec, options.pre_tokenizer.as_deref())?;
        let backend = options.device.open(options.cpu, options.gpu.clone())?;
        let decoder = decoder_options(spec.context_length, options)?;
        let decoder = Decoder::load_with(file, spec, backend, decoder)?;
        Ok(Self { decoder, tokenizer, template, plan })
    }

    /// What was reserved.
    pub fn plan(&self) -> MemoryPlan {
        self.plan
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, where the file has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// The device's name.
    pub fn backend_name(&self) -> String {
        self.decoder.backend_name()
    }
}

/// Checks that a model can be loaded, without reading a weight: metadata, tensors, vocabulary and template.
///
/// # Errors
/// As [`Model::load`], but for memory.
pub fn check(file: &ModelFile, pre_tokenizer: Option<&str>) -> Result<DecoderSpec> {
    let spec = decoder::check(file)?;
    text(file, &spec, pre_tokenizer)?;
    Ok(spec)
}

/// A model's vocabulary, whether or not the rest of it is supported. `pre` overrides the name of the pre-tokenizer
/// that the file gives.
///
/// # Errors
/// As [`Tokenizer::from_gguf`] and [`Tokenizer::from_json`].
pub fn load_tokenizer(file: &ModelFile, pre: Option<&str>) -> Result<Tokenizer> {
    let Some(gguf) = file.gguf() else {
        let folder = folder_of(file);
        let config = Some(folder.join("tokenizer_config.json")).filter(|path| path.exists());
        return Tokenizer::from_json(&folder.join("tokenizer.json"), config.as_deref());
    };
    Tokenizer::from_gguf(gguf.metadata(), pre)
}

/// A model's chat template, where it has one, whether or not the rest of it is supported.
///
/// # Errors
/// As [`ChatTemplate::from_gguf`] and [`ChatTemplate::from_folder`].
pub fn load_template(file: &ModelFile) -> Result<Option<ChatTemplate>> {
    match file.gguf() {
        Some(gguf) => ChatTemplate::from_gguf(gguf.metadata()),
        None => ChatTemplate::from_folder(folder_of(file)),
    }
}

fn folder_of(file: &ModelFile) -> &Path {
    file.path().parent().unwrap_or(Path::new("."))
}

/// The vocabulary and the chat template, where they fit the model.
fn text(
    file: &ModelFile,
    spec: &DecoderSpec,
    pre: Option<&str>,
) -> Result<(Tokenizer, Option<ChatTemplate>)> {
    let (tokenizer, template) = (load_tokenizer(file, pre)?, load_template(file)?);
    if tokenizer.vocab_size() > spec.vocab_size {
        let (tokens, rows) = (tokenizer.vocab_size(), spec.vocab_size);
        return Err(Error::model(
            file.path().display(),
            format!("{tokens} tokens for {rows} embedding rows"),
        ));
    }
    Ok((tokenizer, template))
}

fn decoder_options(trained: usize, options: &LoadOptions) -> Result<DecoderOptions> {
    let context = options.context.unwrap_or(trained.min(DEFAULT_CONTEXT));
    if context == 0 || context > trained {
        return Err(Error::request(format!(
            "context {context} is not within 1 and the {trained} of training"
        )));
    }
    Ok(DecoderOptions {
        context,
        n_sequences: options.n_sequences,
        max_rows: options.max_rows,
        cache_type_k: options.cache_type_k,
        cache_type_v: options.cache_type_v,
    })
}
