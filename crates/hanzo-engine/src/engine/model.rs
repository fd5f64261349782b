//! A loaded model: decoder, tokenizer, chat template, and what they need of memory.

use std::path::Path;

use hanzo_ml::DType;

use crate::{
    Error, ModelFile, Result,
    decoder::{self, Decoder, DecoderOptions, Devices, Prepared},
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
    pub devices: Devices,
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
            devices: Devices::default(),
            pre_tokenizer: None,
        }
    }
}

/// A loaded model.
pub struct Model {
    pub(super) decoder: Decoder,
    pub(super) tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl LoadOptions {
    /// Opens the devices and says what is where, before anything is loaded.
    ///
    /// # Errors
    /// If the model is not supported, a device is not available, or the model does not fit.
    pub fn prepare<'a>(&self, file: &'a ModelFile) -> Result<Prepared<'a>> {
        let trained = file.spec()?.context_length;
        Prepared::new(file, &self.devices, decoder_options(trained, self)?, self.n_sequences)
    }
}

impl Model {
    /// Loads a model to its devices.
    ///
    /// # Errors
    /// As [`LoadOptions::prepare`], and if its vocabulary or its template is not supported.
    pub fn load(file: &ModelFile, options: &LoadOptions) -> Result<Self> {
        Self::load_prepared(options.prepare(file)?, options.pre_tokenizer.as_deref(), &mut |_, _| ())
    }

    /// Loads what was prepared, the vocabulary beside the weights. `pre` is [`LoadOptions::pre_tokenizer`]; `progress`
    /// hears how many bytes of the weights are there, and of how many.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_prepared(
        prepared: Prepared<'_>,
        pre: Option<&str>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let (file, spec) = (prepared.file(), prepared.spec().clone());
        let (text, decoder) = std::thread::scope(|scope| {
            let text = scope.spawn(|| text(file, &spec, pre));
            let decoder = prepared.load(progress);
            (text.join(), decoder)
        });
        let text = text.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let ((tokenizer, template), decoder) = (text?, decoder?);
        Ok(Self { decoder, tokenizer, template })
    }

    /// Positions of a sequence.
    pub fn context(&self) -> usize {
        self.decoder.options().context
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, where the file has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// The devices' names.
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
