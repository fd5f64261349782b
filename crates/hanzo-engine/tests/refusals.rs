//! What a family does not understand is refused by name, and what a file leaves out has the value that others give it.
//!
//! The files are the tiny models of `testdata/tiny` with one thing changed. Oracles of the defaults: the configuration
//! classes of transformers 5.24, and llama.cpp's reading of GGUF keys (`src/models/*.cpp` as in llama-cpp-python 0.3.36).

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use common::{case, folder};
use hanzo_engine::{ModelFile, Result, decoder, rope::RopeScaling, spec::DecoderSpec};
use hanzo_ml::{
    QTensor,
    file::{
        Array, Metadata, Value,
        gguf::{Gguf, NewTensor, write},
    },
};
use serde_json::{Map, Value as Json, json};

/// A folder of one test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static N: AtomicUsize = AtomicUsize::new(0);
        let name = format!("refusals-{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The spec of a case whose config.json was changed.
fn config(name: &str, change: impl FnOnce(&mut Map<String, Json>)) -> Result<DecoderSpec> {
    let case = case(name);
    let text = fs::read_to_string(folder().join(&case.configs[0])).unwrap();
    let mut config: Map<String, Json> = serde_json::from_str(&text).unwrap();
    change(&mut config);
    let temp = Folder::new();
    let path = temp.0.join("config.json");
    fs::write(&path, Json::Object(config).to_string()).unwrap();
    ModelFile::open_hugging_face(&path, &folder().join(&case.weights)).unwrap().spec()
}

/// A GGUF file as lists that can be changed.
struct Parts {
    keys: Vec<(String, Value)>,
    tensors: Vec<QTensor>,
}

impl Parts {
    fn set(&mut self, key: &str, value: Value) {
        self.unset(key);
        self.keys.push((key.to_owned(), value));
    }

    fn unset(&mut self, key: &str) {
        self.keys.retain(|(k, _)| k != key);
    }

    /// A tensor of zeros.
    fn push(&mut self, name: &str, shape: &[usize]) {
        let format = self.tensors[0].format();
        let bytes = vec![0; format.bytes_of(shape.iter().product()).unwrap()];
        self.tensors.push(QTensor::new(name, format, shape.to_vec(), hanzo_ml::Bytes::owned(bytes)).unwrap());
    }
}

/// What loading makes of the GGUF twin of a case that was changed.
fn gguf(name: &str, change: impl FnOnce(&mut Parts)) -> Result<DecoderSpec> {
    with_gguf(name, change, decoder::check)
}

fn with_gguf<T>(name: &str, change: impl FnOnce(&mut Parts), ask: impl FnOnce(&ModelFile) -> T) -> T {
    let file = Gguf::open(&folder().join(case(name).gguf.unwrap())).unwrap();
    let mut parts = Parts {
        keys: file.metadata().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect(),
        tensors: file.tensors().iter().map(|t| file.tensor(&t.name).unwrap()).collect(),
    };
    change(&mut parts);
    let mut metadata = Metadata::default();
    for (key, value) in parts.keys {
        metadata.insert(key, value);
    }
    let temp = Folder::new();
    let path = temp.0.join("model.gguf");
    write(&path, &metadata, parts.tensors.iter().map(NewTensor::from)).unwrap();
    ask(&ModelFile::open(&path).unwrap())
}

#[track_caller]
fn refused(result: Result<DecoderSpec>, phrases: &[&str]) {
    let text = result.expect_err("it should have been refused").to_string();
    for phrase in phrases {
        assert!(text.contains(phrase), "the error should contain {phrase:?}: {text}");
    }
}

#[test]
fn fields_of_config_json_that_nobody_knows_are_refused() {
    let set =
        |name: &str, field: &str, value: Json| config(name, |c| drop(c.insert(field.to_owned(), value)));
    refused(set("llama", "surprise_factor", json!(2)), &["config.json", "surprise_factor = 2"]);
    assert!(set("llama", "surprise_factor", Json::Null).is_ok(), "null says nothing");
    refused(set("llama", "hidden_act", json!("relu")), &["hidden_act relu"]);
    refused(set("llama", "num_hidden_layers", json!(1_000_000_000)), &["num_hidden_layers", "1000000000"]);
    refused(set("llama", "num_hidden_layers", json!(-1)), &["num_hidden_layers is -1"]);
    refused(set("llama", "num_attention_heads", json!(0)), &["head count 0"]);
    refused(set("llama", "vocab_size", json!(65)), &["vocab_size is 65", "64 rows"]);
    refused(set("llama", "model_type", json!("nothing")), &["architecture nothing", "gemma3_text"]);
    refused(set("gemma3", "layer_types", json!(["full_attention"])), &["layer_types is not a list of 7"]);
    let types = json!(["full_attention", "chunked_attention", 1, 2, 3, 4, 5]);
    refused(set("gemma3", "layer_types", types), &["layer_types", "chunked_attention"]);
    for family in ["gemma", "gemma2", "gemma3"] {
        let field = "use_bidirectional_attention";
        refused(set(family, field, json!(true)), &[field, "not supported"]);
        assert!(set(family, field, json!(false)).is_ok(), "{family}");
    }
}

#[test]
fn rotations_that_make_no_sense_are_refused() {
    let rope = |value: Json| config("llama", |c| drop(c.insert("rope_parameters".to_owned(), value)));
    refused(rope(json!({"rope_type": "spiral"})), &["rope_type spiral"]);
    refused(rope(json!({"rope_type": "linear"})), &["factor is missing"]);
    refused(rope(json!({"rope_type": "default", "beta": 1})), &["rope_parameters", "beta = 1"]);
    refused(rope(json!({"rope_type": "default", "partial_rotary_factor": 2})), &["partial_rotary_factor 2"]);
    refused(rope(json!({"rope_type": "longrope", "short_factor": [1]})), &["long_factor is missing"]);
    refused(rope(json!(3)), &["rope_parameters is 3"]);
    refused(gguf("llama", |p| p.set("llama.rope.scaling.type", Value::String("spiral".into()))), &["spiral"]);
    refused(gguf("llama", |p| p.push("rope_freqs.weight", &[1 << 16])), &["rope_freqs.weight", "[65536]"]);
}

#[test]
fn silent_configs_have_the_defaults_of_transformers() {
    let silent = |name: &str, field: &str| config(name, |c| drop(c.remove(field))).unwrap();
    let null =
        |name: &str, field: &str| config(name, |c| drop(c.insert(field.to_owned(), Json::Null))).unwrap();
    let windows = |spec: &DecoderSpec| spec.layers.iter().map(|l| l.attention().window).collect::<Vec<_>>();
    assert_eq!(silent("mixtral", "rms_norm_eps").norm_eps, 1e-5);
    assert_eq!(silent("llama", "rms_norm_eps").norm_eps, 1e-6);
    assert_eq!(silent("gemma2", "final_logit_softcapping").final_softcap, Some(30.0));
    assert_eq!(null("gemma2", "final_logit_softcapping").final_softcap, None);
    assert_eq!(silent("gemma2", "attn_logit_softcapping").layers[0].attention().softcap, Some(50.0));
    assert_eq!(null("gemma2", "attn_logit_softcapping").layers[0].attention().softcap, None);
    assert_eq!(silent("gemma3", "final_logit_softcapping").final_softcap, None);
    for name in ["gemma2", "mistral"] {
        assert_eq!(windows(&silent(name, "sliding_window"))[0], Some(4096), "{name}");
        assert!(windows(&null(name, "sliding_window")).iter().all(Option::is_none), "{name}");
    }
    let yarn = json!({"rope_type": "yarn", "factor": 2.0});
    let spec = config("llama", |c| drop(c.insert("rope_parameters".to_owned(), yarn))).unwrap();
    let RopeScaling::Yarn { beta_fast, beta_slow, truncate, .. } = spec.ropes[0].scaling else {
        panic!("{:?}", spec.ropes)
    };
    assert_eq!((beta_fast, beta_slow, truncate), (32.0, 1.0, true));
    let spec = config("qwen2-window", |c| {
        c.remove("sliding_window");
        c.remove("layer_types");
        c.remove("max_window_layers");
    });
    assert!(windows(&spec.unwrap()).iter().all(Option::is_none), "28 layers are spared");
    let spec = config("qwen2-window", |c| drop(c.remove("sliding_window"))).unwrap();
    assert_eq!(windows(&spec), [None, Some(4096), Some(4096)]);
}

#[test]
fn keys_and_tensors_of_gguf_that_nobody_knows_are_refused() {
    assert!(gguf("llama", |_| {}).is_ok());
    refused(gguf("llama", |p| p.set("llama.surprise", Value::U32(1))), &["model.gguf", "llama.surprise"]);
    assert!(gguf("llama", |p| p.set("general.surprise", Value::U32(1))).is_ok(), "not the family's");
    refused(
        gguf("llama", |p| p.push("blk.0.surprise.weight", &[8])),
        &["1 tensors", "blk.0.surprise.weight"],
    );
    let lost = "blk.1.ffn_up.weight";
    refused(gguf("llama", |p| p.tensors.retain(|t| t.name() != lost)), &[lost, "is missing"]);
    let reshaped = |p: &mut Parts| {
        p.tensors.retain(|t| t.name() != lost);
        p.push(lost, &[3, 32]);
    };
    refused(gguf("llama", reshaped), &[lost, "has shape [3, 32]"]);
    for key in ["attention.layer_norm_rms_epsilon", "embedding_length", "context_length", "block_count"] {
        let key = format!("llama.{key}");
        refused(gguf("llama", |p| p.unset(&key)), &[&key, "is missing"]);
    }
    refused(gguf("llama", |p| p.set("llama.block_count", Value::U32(u32::MAX))), &["llama.block_count"]);
    refused(gguf("llama", |p| p.set("llama.attention.head_count", Value::U32(0))), &["head count 0"]);
    refused(
        gguf("llama", |p| p.set("llama.attention.head_count_kv", Value::U32(3))),
        &["not a multiple of 3"],
    );
    refused(gguf("llama", |p| p.set("llama.attention.value_length", Value::U32(7))), &["value heads of 7"]);
    for (key, what) in
        [("attn_logit_softcapping", "attention softcap"), ("final_logit_softcapping", "final softcap")]
    {
        for cap in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
            refused(gguf("gemma2-scale", |p| p.set(&format!("gemma2.{key}"), Value::F32(cap))), &[what]);
        }
    }
}

#[test]
fn windows_of_gguf_are_read_as_llama_cpp_reads_them() {
    const PATTERN: &str = "gemma3.attention.sliding_window_pattern";
    let layers = |spec: DecoderSpec| {
        let of = |l: &hanzo_engine::spec::LayerSpec| (l.attention().window.is_some(), l.attention().rope);
        spec.layers.iter().map(of).collect::<Vec<_>>()
    };
    let (full, windowed) = ((false, Some(0)), (true, Some(1)));
    let spec = gguf("gemma3-scale", |_| {}).unwrap();
    let n = spec.layers.len();
    assert!(n >= 6);
    assert_eq!(layers(spec)[..6], [windowed, windowed, windowed, windowed, windowed, full]);
    let number = gguf("gemma3-scale", |p| p.set(PATTERN, Value::U32(2))).unwrap();
    assert_eq!(layers(number)[..4], [windowed, full, windowed, full]);
    let mut list = vec![true; n];
    list[1] = false;
    let listed = gguf("gemma3-scale", |p| p.set(PATTERN, Value::Array(Array::Bool(list)))).unwrap();
    assert_eq!(layers(listed)[..3], [windowed, full, windowed]);
    refused(gguf("gemma3-scale", |p| p.set(PATTERN, Value::U32(0))), &["sliding_window_pattern is 0"]);
    refused(gguf("gemma3-scale", |p| p.set(PATTERN, Value::Array(Array::Bool(vec![true])))), &["1 entries"]);
    let none = gguf("gemma3-scale", |p| p.unset("gemma3.attention.sliding_window")).unwrap();
    assert!(layers(none).iter().all(|l| *l == full), "no window: every layer is a full one");
}

/// `LLM_TYPE_27B` of llama.cpp: the scale that GGUF files leave out is not that of the head width there.
#[test]
fn the_27b_models_are_known_by_their_layers() {
    for (name, family, n_layers) in [("gemma2-scale", "gemma2", 46), ("gemma3-scale", "gemma3", 62)] {
        let layers = |n: u32| {
            move |p: &mut Parts| {
                p.set(&format!("{family}.block_count"), Value::U32(n));
                for part in ["key", "value"] {
                    p.set(&format!("{family}.attention.{part}_length"), Value::U32(40));
                }
            }
        };
        let spec = |n| with_gguf(name, layers(n), ModelFile::spec).unwrap();
        let (small, large) = (spec(n_layers - 1), spec(n_layers));
        let (a, hidden) = (large.layers[0].attention(), large.hidden_size as f32);
        assert_eq!(small.layers[0].attention().scale, (a.head_dim as f32).powf(-0.5));
        assert!((a.scale - (hidden / a.n_heads as f32).powf(-0.5)).abs() < 1e-6, "{family}");
        assert_ne!(a.scale, small.layers[0].attention().scale);
    }
}

#[test]
fn a_missing_output_matrix_is_the_embedding_only_where_the_config_allows_it() {
    let case = case("llama-tied-bias");
    let text = fs::read_to_string(folder().join(&case.configs[0])).unwrap();
    let mut config: Map<String, Json> = serde_json::from_str(&text).unwrap();
    let temp = Folder::new();
    let path = temp.0.join("config.json");
    let mut check = |tied: bool| {
        config.insert("tie_word_embeddings".into(), tied.into());
        fs::write(&path, Json::Object(config.clone()).to_string()).unwrap();
        decoder::check(&ModelFile::open_hugging_face(&path, &folder().join(&case.weights)).unwrap())
    };
    assert!(check(true).is_ok());
    assert!(check(false).unwrap_err().to_string().contains("tensor lm_head.weight is missing"));
}
