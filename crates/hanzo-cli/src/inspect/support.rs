//! Whether the engine can run a model: it is asked, nothing is decided here.

use std::path::Path;

use hanzo_engine::{ModelFile, Result, spec::DecoderSpec};

/// What the engine makes of a model, in a few words, or the reason why it refuses it.
pub(super) type Support = std::result::Result<String, String>;

/// Asks about a GGUF file.
pub(super) fn of_gguf(model: &ModelFile) -> Support {
    in_words(hanzo_engine::check(model, None))
}

/// Asks about a folder with config.json.
pub(super) fn of_folder(path: &Path) -> Support {
    ask(ModelFile::open(path))
}

/// Asks about a safetensors file or index, with the config.json beside it.
pub(super) fn of_safetensors(path: &Path) -> Support {
    let config = path.with_file_name("config.json");
    if !config.is_file() {
        return Err(
            "safetensors files do not say what model they hold, and no config.json is beside this one".into(),
        );
    }
    ask(ModelFile::open_hugging_face(&config, path))
}

fn ask(model: Result<ModelFile>) -> Support {
    in_words(model.and_then(|model| hanzo_engine::check(&model, None)))
}

fn in_words(spec: Result<DecoderSpec>) -> Support {
    let spec = spec.map_err(|e| e.to_string())?;
    let (n_layers, width, vocab) = (spec.layers.len(), spec.hidden_size, spec.vocab_size);
    Ok(format!("{n_layers} layers, {width} wide, vocabulary {vocab}, context {}", spec.context_length))
}
