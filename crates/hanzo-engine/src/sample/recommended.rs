//! What a model file recommends: the keys `general.sampling.*` of a GGUF file, or the generation_config.json of a folder.
//!
//! `do_sample: false` of a generation_config.json means greedy; `do_sample: true` without a temperature means 1, as
//! `transformers` has it.

use std::path::Path;

use hanzo_ml::file::{Metadata, Value as MetadataValue};
use serde_json::{Map, Value};

use super::{OPTIONS, SamplingOption, SamplingParams};
use crate::{Error, ModelFile, Result};

/// The largest generation_config.json that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

impl SamplingParams {
    /// The defaults, but where the file says otherwise.
    ///
    /// # Errors
    /// If what the file says cannot be read or is out of range.
    pub fn recommended(file: &ModelFile) -> Result<Self> {
        if let Some(gguf) = file.gguf() {
            return from_gguf(gguf.metadata());
        }
        let path = file.path().parent().unwrap_or(Path::new(".")).join("generation_config.json");
        from_config(&path)
    }
}

/// Puts the keys of a GGUF file for what differs from the defaults.
pub(crate) fn to_gguf(params: &SamplingParams, metadata: &mut Metadata) {
    let defaults = SamplingParams::default();
    for (option, key) in OPTIONS.iter().filter_map(|option| Some((option, option.gguf_key?))) {
        let value = option.gguf_value(params);
        if let Some(value) = value.filter(|value| Some(value) != option.gguf_value(&defaults).as_ref()) {
            metadata.insert(key, value);
        }
    }
}

fn from_gguf(metadata: &Metadata) -> Result<SamplingParams> {
    let mut params = SamplingParams::default();
    for option in OPTIONS {
        let Some((key, value)) = option.gguf_key.and_then(|key| Some((key, metadata.get(key)?))) else {
            continue;
        };
        let error = |why: String| Error::model(metadata.path().display(), format!("{key}: {why}"));
        let text = match value {
            MetadataValue::String(text) => text.clone(),
            _ => match metadata.f32(key)? {
                Some(number) => number.to_string(),
                None => continue,
            },
        };
        option.set(&mut params, &[text]).map_err(error)?;
    }
    Ok(params)
}

fn from_config(path: &Path) -> Result<SamplingParams> {
    let mut params = SamplingParams::default();
    let error = |why: String| Error::model(path.display(), why);
    let bytes = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(params),
        Err(e) => return Err(error(e.to_string())),
    };
    if bytes > CONFIG_BYTES_MAX {
        return Err(error(format!("{bytes} bytes are more than a generation_config.json may have")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
    let config: Map<String, Value> = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
    match config.get("do_sample") {
        Some(Value::Bool(true)) => params.temp = 1.0,
        Some(Value::Bool(false)) => return Ok(params),
        _ => {}
    }
    let keys = OPTIONS.iter().filter_map(|option| Some((option, option.config_key?)));
    for (option, key) in keys {
        set_from_json(option, &mut params, config.get(key)).map_err(|why| error(format!("{key}: {why}")))?;
    }
    Ok(params)
}

fn set_from_json(
    option: &SamplingOption,
    params: &mut SamplingParams,
    value: Option<&Value>,
) -> std::result::Result<(), String> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Number(number)) => option.set(params, &[number.to_string()]),
        Some(other) => Err(format!("{other} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gguf_keys() {
        let mut metadata = Metadata::new("x.gguf");
        metadata.insert("general.sampling.temp", MetadataValue::F32(0.6));
        metadata.insert("general.sampling.top_k", MetadataValue::I32(-1));
        metadata.insert("general.sampling.penalty_last_n", MetadataValue::I32(20));
        metadata.insert("general.sampling.mirostat", MetadataValue::I32(2));
        metadata.insert("general.sampling.mirostat_tau", MetadataValue::F32(4.0));
        metadata.insert("general.sampling.sequence", MetadataValue::String("top_k;temperature".to_owned()));
        let params = from_gguf(&metadata).unwrap();
        assert_eq!((params.temp, params.top_k, params.repeat_last_n), (0.6, 0, 20));
        assert_eq!((params.mirostat, params.mirostat_ent, params.top_p), (2, 4.0, 0.95));
        assert_eq!(params.samplers.len(), 2);
        metadata.insert("general.sampling.top_p", MetadataValue::F32(7.0));
        let why = from_gguf(&metadata).unwrap_err().to_string();
        assert_eq!(why, "x.gguf: general.sampling.top_p: 7 is not within 0 and 1");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let params =
            SamplingParams { temp: 0.7, top_k: 20, repeat_penalty: 1.05, ..SamplingParams::default() };
        let mut metadata = Metadata::default();
        to_gguf(&params, &mut metadata);
        assert_eq!(metadata.len(), 3);
        assert_eq!(metadata.get("general.sampling.top_k"), Some(&MetadataValue::I32(20)));
        assert_eq!(from_gguf(&metadata).unwrap(), params);
    }

    #[test]
    fn generation_config() {
        let folder = std::env::temp_dir().join(format!("hanzo-generation-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("generation_config.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            from_config(&path)
        };
        let params = read(
            r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": null, "repetition_penalty": 1.1}"#,
        );
        let params = params.unwrap();
        assert_eq!((params.temp, params.top_p, params.top_k, params.repeat_penalty), (0.6, 0.9, 40, 1.1));
        assert_eq!(read(r#"{"do_sample": true}"#).unwrap().temp, 1.0);
        assert_eq!(read(r#"{"do_sample": false, "temperature": 0.6}"#).unwrap(), SamplingParams::default());
        assert!(read(r#"{"top_k": "many"}"#).unwrap_err().to_string().contains("top_k"));
        assert!(read("[").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(from_config(&path).unwrap(), SamplingParams::default());
    }
}
