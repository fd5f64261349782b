//! Every choice against `llama-quantize --dry-run` (`testdata/golden/quantize`, made by `tools/oracle/quantize_types.py`),
//! and what a plan refuses.

use std::{collections::BTreeMap, path::PathBuf};

use hanzo_ml::file::{
    Metadata, Value,
    imatrix::{Entry, Imatrix},
};
use hanzo_quant::{Format, Mix};
use serde_json::Value as Json;

use super::*;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn golden(name: &str) -> String {
    std::fs::read_to_string(repository("testdata/golden/quantize").join(name)).unwrap()
}

fn options(mix: &str, label: &str) -> Options {
    let format = Format::from_name;
    let label = label.trim_start_matches("matrix").trim_end_matches("+matrix");
    let rules =
        if label == "rules" { vec!["attn_v=q8_0", r"blk\.[0-3]\.ffn_(up|down)=iq4_nl"] } else { vec![] };
    Options {
        target: Target::Mix(Mix::from_name(mix).unwrap()),
        pure: label == "pure",
        keep_output: label == "leave",
        requantize: true,
        output: format("q5_1").filter(|_| label == "output"),
        embedding: format("q8_0").filter(|_| label == "embedding"),
        rules: rules.into_iter().map(|rule| TensorRule::parse(rule).unwrap()).collect(),
    }
}

/// A model that is all header: its tensors lie nowhere.
fn header(json: &Json) -> Source {
    let mut metadata = Metadata::new("header");
    for (key, value) in json["metadata"].as_object().unwrap() {
        let value = match value {
            Json::String(text) => Value::String(text.clone()),
            Json::Number(n) if n.is_f64() => Value::F32(n.as_f64().unwrap() as f32),
            other => Value::U32(u32::try_from(other.as_u64().unwrap()).unwrap()),
        };
        metadata.insert(key, value);
    }
    let dims = |json: &Json| json.as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
    let tensor = |prefix: &str, (name, shape): (&String, &Json)| SourceTensor {
        name: format!("{prefix}{name}"),
        format: Format::from_name("F32").unwrap(),
        shape: dims(shape),
        origin: Origin::Values(vec![]),
    };
    let mut tensors: Vec<SourceTensor> =
        json["outer"].as_object().unwrap().iter().map(|t| tensor("", t)).collect();
    for l in (0..json["layers"].as_u64().unwrap()).rev() {
        let prefix = format!("blk.{l}.");
        tensors.extend(json["layer"].as_object().unwrap().iter().map(|t| tensor(&prefix, t)));
    }
    Source::of_header(&repository("testdata/tiny/llama/model.gguf"), metadata, tensors)
}

fn blind() -> Imatrix {
    let mut imatrix = Imatrix::default();
    imatrix.insert("no.such.tensor", Entry::new(vec![1.0], vec![1.0]).unwrap());
    imatrix
}

/// The formats in the order of layers and names, run by run.
fn runs(plan: &Plan<'_>) -> String {
    let mut named: Vec<_> =
        plan.tensors().iter().map(|t| (parts::layer(&t.name), &t.name, t.to.name)).collect();
    named.sort();
    let mut runs: Vec<(&str, usize)> = Vec::new();
    for (_, _, format) in named {
        match runs.last_mut() {
            Some((last, n)) if *last == format => *n += 1,
            _ => runs.push((format, 1)),
        }
    }
    let text = |&(name, n): &(&str, usize)| if n == 1 { name.to_owned() } else { format!("{name}*{n}") };
    runs.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Fowler, Noll and Vo's hash 1a of 32 bits.
fn fnv(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// Compares every line of the table whose model `open` knows; says how many plans there were.
fn compare(open: impl Fn(&str) -> Option<Source>) -> usize {
    let table = golden("types.tsv");
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let mixes = lines.next().unwrap().split_off(2);
    let mut sources: BTreeMap<String, Option<Source>> = BTreeMap::new();
    let (mut n_plans, mut wrong) = (0, Vec::new());
    for line in lines {
        let [model, label] = [line[0], line[1]];
        let source = sources.entry(model.to_owned()).or_insert_with(|| open(model));
        let Some(source) = source else { continue };
        let imatrix = label.contains("matrix").then(blind);
        for (mix, theirs) in mixes.iter().zip(&line[2..]) {
            let plan = Plan::new(source, &options(mix, label), imatrix.as_ref()).unwrap();
            n_plans += 1;
            let ours = runs(&plan);
            if fnv(&ours) != *theirs {
                wrong.push(format!("{model} {mix} {label}: {ours}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {n_plans} plans differ:\n{}", wrong.len(), wrong.join("\n"));
    n_plans
}

#[test]
fn made_up_models_get_the_formats_that_llama_quantize_gives() {
    let headers: Json = serde_json::from_str(&golden("headers.json")).unwrap();
    let n_plans = compare(|name| headers.get(name).map(header));
    assert!(n_plans > 1500, "{n_plans} plans");
}

#[test]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
fn real_models_get_the_formats_that_llama_quantize_gives() {
    let folder = repository("models");
    let open = |name: &str| {
        let path = folder.join(name);
        let is_real = name.ends_with(".gguf");
        if is_real && !path.exists() {
            println!("SKIPPED {name}: python3 tools/models/fetch.py models fetches it");
        }
        (is_real && path.exists()).then(|| Source::open(&path).unwrap())
    };
    compare(open);
}

fn dense() -> Source {
    let headers: Json = serde_json::from_str(&golden("headers.json")).unwrap();
    header(&headers["dense"])
}

#[test]
fn what_is_quantised_is_not_quantised_again_unless_asked() {
    let mut source = dense();
    source.set_format("blk.3.attn_q.weight", Format::from_name("Q8_0").unwrap());
    let refused = |mix: &str| {
        let options = Options { requantize: false, ..options(mix, "") };
        Plan::new(&source, &options, None).err().map(|e| e.to_string())
    };
    for mix in ["Q4_K_M", "F16"] {
        let error = refused(mix).unwrap();
        assert!(error.contains("blk.3.attn_q.weight: it is Q8_0 already"), "{error}");
    }
    assert_eq!(refused("Q8_0"), None);
    assert!(Plan::new(&source, &options("Q4_K_M", ""), None).is_ok());
}

#[test]
fn a_copy_keeps_every_format_and_the_numbers_in_the_header() {
    let source = dense();
    let copy = Options { target: Target::Copy, ..options("Q8_0", "") };
    let plan = Plan::new(&source, &copy, None).unwrap();
    assert!(plan.tensors().iter().all(|t| t.to == t.from));
    assert_eq!(plan.metadata.get("general.file_type"), None);
    let plan = Plan::new(&source, &options("q4_k", ""), None).unwrap();
    assert_eq!(plan.metadata.get("general.file_type"), Some(&Value::U32(15)));
    assert_eq!(plan.metadata.get("general.quantization_version"), Some(&Value::U32(2)));
}

#[test]
fn small_formats_are_refused_without_an_importance_matrix() {
    let source = dense();
    let parallel = hanzo_ml::parallel::Parallel::new(Some(1)).unwrap();
    for mix in ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"] {
        let plan = Plan::new(&source, &options(mix, ""), None).unwrap();
        assert!(plan.tensors().iter().any(|t| t.lacks_importance), "{mix}");
        let out = std::env::temp_dir().join("never-written.gguf");
        let error = plan.write(&out, &parallel, &mut |_| std::ops::ControlFlow::Continue(()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("without an importance matrix") && error.contains("hanzo imatrix"), "{error}");
    }
    for mix in ["Q2_K", "IQ3_S", "IQ4_XS", "TQ1_0", "MXFP4"] {
        let plan = Plan::new(&source, &options(mix, ""), None).unwrap();
        assert!(plan.tensors().iter().all(|t| !t.lacks_importance), "{mix}");
    }
}

#[test]
fn an_importance_matrix_of_another_model_is_refused() {
    let source = dense();
    let mut imatrix = Imatrix::default();
    imatrix.insert("blk.0.attn_q.weight", Entry::new(vec![1.0; 100], vec![1.0]).unwrap());
    let plan = |imatrix: &Imatrix| {
        Plan::new(&source, &options("Q4_K_M", ""), Some(imatrix)).map(|plan| {
            plan.tensors()
                .iter()
                .filter(|t| t.importance().is_some())
                .map(|t| t.name.clone())
                .collect::<Vec<_>>()
        })
    };
    let error = plan(&imatrix).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.weight: the importance matrix has 100 columns"), "{error}");
    imatrix.insert("blk.0.attn_q.weight", Entry::new(vec![1.0; 512], vec![1.0]).unwrap());
    // That of an embedding may have another size; it is not used then.
    imatrix.insert("token_embd.weight", Entry::new(vec![1.0; 7], vec![1.0]).unwrap());
    assert_eq!(plan(&imatrix).unwrap(), ["blk.0.attn_q.weight"]);
}

#[test]
fn rules_that_are_none_are_refused() {
    for (rule, phrase) in [
        ("attn_v", "not PATTERN=FORMAT"),
        ("=Q8_0", "the pattern is empty"),
        ("a(=Q8_0", "unclosed group"),
        ("a=Q9", "no encoder"),
        ("(a{999}){999}{999}=Q8_0", "size limit"),
    ] {
        let error = TensorRule::parse(rule).err().unwrap().to_string();
        assert!(error.contains(phrase), "{error}");
    }
}
