//! A model on disk: a GGUF file, or a folder with config.json and safetensors. Opening reads headers only.

use std::path::{Path, PathBuf};

use hanzo_ml::file::{TensorSource, gguf::Gguf, safetensors::SafeTensors};
use serde_json::{Map, Value};

use crate::{
    Error, Result,
    family::{Facts, Family, Fields, Flavour, Slot},
    spec::DecoderSpec,
};

/// The largest config.json that is read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// A model on disk.
pub struct ModelFile {
    path: PathBuf,
    container: Container,
}

enum Container {
    Gguf(Gguf),
    HuggingFace { config: Map<String, Value>, tensors: SafeTensors },
}

/// Fields of config.json that say nothing about the mathematics of a decoder.
const CONFIG_HARMLESS: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "model_type",
    "pad_token_id",
    "pretraining_tp",
    "tie_word_embeddings",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// GGUF keys, without the architecture, that say nothing about the mathematics of a decoder.
pub(crate) const GGUF_HARMLESS: &[&str] = &["rope.scaling.finetuned", "tensor_data_layout"];

impl ModelFile {
    /// Opens a GGUF file, a folder of config.json and safetensors, or such a safetensors file or index itself.
    ///
    /// # Errors
    /// If the file is not there, is neither, or is malformed.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Self::open_hugging_face(&path.join("config.json"), path);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") {
            return Self::open_hugging_face(&path.with_file_name("config.json"), path);
        }
        let container = Container::Gguf(Gguf::open(path)?);
        Ok(Self { path: path.to_owned(), container })
    }

    /// Opens a config.json and the safetensors file or folder it describes.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_hugging_face(config: &Path, tensors: &Path) -> Result<Self> {
        let error = |what: String| Error::model(config.display(), what);
        let bytes = std::fs::metadata(config).map_err(|e| error(e.to_string()))?.len();
        if bytes > CONFIG_BYTES_MAX {
            return Err(error(format!("{bytes} bytes are more than a config.json may have")));
        }
        let text = std::fs::read_to_string(config).map_err(|e| error(e.to_string()))?;
        let object = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
        let tensors = SafeTensors::open(tensors)?;
        Ok(Self { path: config.to_owned(), container: Container::HuggingFace { config: object, tensors } })
    }

    /// The file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The GGUF container, where it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.container {
            Container::Gguf(gguf) => Some(gguf),
            Container::HuggingFace { .. } => None,
        }
    }

    /// Where the metadata come from.
    pub fn flavour(&self) -> Flavour {
        match self.container {
            Container::Gguf(_) => Flavour::Gguf,
            Container::HuggingFace { .. } => Flavour::Config,
        }
    }

    /// The tensors.
    pub fn tensors(&self) -> &dyn TensorSource {
        match &self.container {
            Container::Gguf(gguf) => gguf,
            Container::HuggingFace { tensors, .. } => tensors,
        }
    }

    /// Whether config.json says that the output matrix is not the embedding.
    pub(crate) fn is_untied(&self) -> bool {
        match &self.container {
            Container::Gguf(_) => false,
            Container::HuggingFace { config, .. } => {
                config.get("tie_word_embeddings") == Some(&Value::Bool(false))
            }
        }
    }

    /// What the file calls its architecture.
    ///
    /// # Errors
    /// If it does not say.
    pub fn architecture(&self) -> Result<&str> {
        match &self.container {
            Container::Gguf(gguf) => gguf
                .metadata()
                .str("general.architecture")?
                .ok_or_else(|| self.error("general.architecture is missing")),
            Container::HuggingFace { config, .. } => config
                .get("model_type")
                .and_then(Value::as_str)
                .ok_or_else(|| self.error("model_type is missing or not a text")),
        }
    }

    /// The family that reads this architecture.
    ///
    /// # Errors
    /// If there is none; names those there are.
    pub fn family(&self) -> Result<&'static Family> {
        let (flavour, architecture) = (self.flavour(), self.architecture()?);
        Family::find(flavour, architecture).ok_or_else(|| {
            let known = crate::family::FAMILIES.iter().flat_map(|f| f.architectures(flavour));
            let known: Vec<&str> = known.copied().collect();
            self.error(format!(
                "architecture {architecture} is not supported; supported are {}",
                known.join(", ")
            ))
        })
    }

    /// What the model is made of.
    ///
    /// # Errors
    /// If the family is unknown, a fact is missing or out of range, or a field is not supported.
    pub fn spec(&self) -> Result<DecoderSpec> {
        let family = self.family()?;
        let fields = self.fields()?;
        let facts = Facts { fields, tensors: self.tensors(), vocab_size: self.vocab_size(family)? };
        let spec = (family.spec)(&facts)?;
        facts.fields.finish(&self.harmless(family))?;
        spec.check().map_err(|what| self.error(what))?;
        Ok(spec)
    }

    /// The metadata, none of it read yet.
    pub(crate) fn fields(&self) -> Result<Fields<'_>> {
        let path = self.path.display().to_string();
        Ok(match &self.container {
            Container::Gguf(gguf) => Fields::gguf(path, gguf.metadata(), self.architecture()?),
            Container::HuggingFace { config, .. } => Fields::config(path, config),
        })
    }

    fn harmless(&self, family: &Family) -> Vec<&'static str> {
        match self.flavour() {
            Flavour::Gguf => GGUF_HARMLESS.to_vec(),
            Flavour::Config => CONFIG_HARMLESS.iter().chain(family.harmless).copied().collect(),
        }
    }

    fn vocab_size(&self, family: &Family) -> Result<usize> {
        let mut names = family.names(self.flavour(), Slot::TokenEmbedding);
        let name = names.next().unwrap_or_default();
        let info =
            self.tensors().info(name).ok_or_else(|| self.error(format!("tensor {name} is missing")))?;
        match info.shape.as_slice() {
            [rows, _] => Ok(*rows),
            shape => Err(self.error(format!("tensor {name} has shape {shape:?}, not [vocabulary, width]"))),
        }
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::model(self.path.display(), what)
    }
}
