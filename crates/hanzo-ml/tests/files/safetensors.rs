//! Safetensors files of PyTorch's writer (see testdata/golden/files/README.md), of the `safetensors` crate and ours.

use std::{collections::BTreeMap, fs, path::Path};

use hanzo_ml::{
    Bytes,
    file::{
        TensorSource,
        gguf::NewTensor,
        safetensors::{SafeTensors, write},
    },
};
use hanzo_quant::Format;
use serde_json::{Value as Json, json};

use crate::{expected, golden, hex, refused, repository};

/// PyTorch's names of the types.
const TORCH: [(&str, &str); 11] = [
    ("float32", "F32"),
    ("float16", "F16"),
    ("bfloat16", "BF16"),
    ("float64", "F64"),
    ("int8", "I8"),
    ("int16", "I16"),
    ("int32", "I32"),
    ("int64", "I64"),
    ("bool", "BOOL"),
    ("uint8", "U8"),
    ("float8_e4m3fn", "F8_E4M3"),
];

/// Compares with `{name: [torch type, shape, hex]}`.
fn check(file: &SafeTensors, want: &Json) {
    let want = want.as_object().unwrap();
    assert_eq!(file.tensors().len() + file.unsupported().len(), want.len());
    for (name, row) in want {
        let dtype = TORCH.iter().find(|(torch, _)| row[0] == *torch).unwrap().1;
        if let Some(other) = file.unsupported().iter().find(|t| t.name == *name) {
            assert_eq!((json!(other.shape), other.dtype), (row[1].clone(), dtype));
            refused(file.tensor(name), &[&format!("tensor {name:?} has the unsupported type {dtype}")]);
            continue;
        }
        let tensor = file.tensor(name).unwrap();
        assert_eq!((tensor.format().name, json!(tensor.shape())), (dtype, row[1].clone()), "{name}");
        assert_eq!(json!(hex(tensor.bytes())), row[2], "{name}");
    }
}

#[test]
fn files_of_pytorch_are_read_exactly() {
    let file = SafeTensors::open(&golden("types.safetensors")).unwrap();
    check(&file, &expected("types.safetensors"));
    assert_eq!(file.metadata()["note"], "é");
    assert_eq!(file.metadata().len(), 2);
    assert_eq!(file.unsupported().len(), 3);
    assert_eq!(file.tensor("scalar").unwrap().to_f32(), [1.5]);
    assert!(file.tensor("empty").unwrap().to_f32().is_empty());
    refused(file.tensor("nothing"), &["types.safetensors", "tensor \"nothing\" is missing"]);
}

#[test]
fn a_sharded_folder_is_read_through_its_index() {
    let folder = golden("sharded");
    for path in [folder.clone(), folder.join("model.safetensors.index.json")] {
        let file = SafeTensors::open(&path).unwrap();
        check(&file, &expected("sharded"));
        let names: Vec<&str> = file.names().collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!(file.file_bytes(), 192 + 164);
    }
}

#[test]
fn a_folder_with_one_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    refused(
        SafeTensors::open(folder.path()),
        &["neither model.safetensors nor model.safetensors.index.json"],
    );
    fs::copy(golden("types.safetensors"), folder.path().join("model.safetensors")).unwrap();
    check(&SafeTensors::open(folder.path()).unwrap(), &expected("types.safetensors"));
}

/// A copy of the sharded folder with another weight map.
fn sharded(change: impl FnOnce(&mut serde_json::Map<String, Json>)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(golden("sharded")).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let index = folder.path().join("model.safetensors.index.json");
    let mut json: Json = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    change(json["weight_map"].as_object_mut().unwrap());
    fs::write(index, json.to_string()).unwrap();
    folder
}

#[test]
fn an_index_that_disagrees_with_its_shards_is_refused() {
    let (one, two) = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    let set = |tensor: &'static str, shard: &'static str| {
        SafeTensors::open(sharded(|map| drop(map.insert(tensor.into(), shard.into()))).path())
    };
    assert!(set("a", one).is_ok());
    refused(set("a", two), &["tensor \"a\" is listed in", two, "but lies in", one]);
    refused(set("e", one), &["tensor \"e\" is listed in", one, "but is not there"]);
    refused(set("e", "model-00003-of-00002.safetensors"), &["model-00003-of-00002.safetensors"]);
    refused(
        SafeTensors::open(sharded(|map| drop(map.remove("b"))).path()),
        &["tensor \"b\" of", one, "is not listed"],
    );
    for outside in ["../model.safetensors", "/model.safetensors", "a/../model.safetensors", "..", ""] {
        refused(set("a", outside), &["is not a plain .safetensors file name"]);
    }
}

/// One tensor in two shards cannot be listed twice, so the index disagrees with one of them.
#[test]
fn a_tensor_in_two_shards_is_refused() {
    let folder = sharded(|map| {
        map.retain(|_, shard| shard == "model-00001-of-00002.safetensors");
        map.insert("c".into(), "copy.safetensors".into());
    });
    fs::copy(golden("sharded/model-00001-of-00002.safetensors"), folder.path().join("copy.safetensors"))
        .unwrap();
    refused(
        SafeTensors::open(folder.path()),
        &["tensor \"", "is listed in", "but lies in \"copy.safetensors\""],
    );
}

/// The `safetensors` crate is the oracle for the tiny models of `transformers`.
#[test]
fn files_of_transformers_are_read_as_the_crate_reads_them() {
    let mut n_files = 0;
    for folder in fs::read_dir(repository("testdata/tiny")).unwrap() {
        let path = folder.unwrap().path().join("model.safetensors");
        let Ok(bytes) = fs::read(&path) else { continue };
        n_files += 1;
        let file = SafeTensors::open(&path).unwrap();
        let oracle = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.tensors().len(), oracle.len());
        for (name, view) in oracle.tensors() {
            let tensor = file.tensor(&name).unwrap();
            assert_eq!(tensor.shape(), view.shape());
            assert_eq!(tensor.format().name, format!("{:?}", view.dtype()));
            assert!(tensor.bytes() == view.data());
        }
    }
    assert!(n_files > 5, "{n_files}");
}

#[test]
fn what_the_crate_wrote_is_read_back() {
    use safetensors::{Dtype, tensor::TensorView};
    let data: Vec<u8> = (0..24).collect();
    let views = [
        ("b", TensorView::new(Dtype::F32, vec![2, 3], &data).unwrap()),
        ("a", TensorView::new(Dtype::I8, vec![24], &data).unwrap()),
    ];
    let bytes = safetensors::serialize(views, None).unwrap();
    let file = SafeTensors::from_bytes(Path::new("memory"), Bytes::owned(bytes)).unwrap();
    assert_eq!(file.tensor("a").unwrap().bytes(), data);
    assert_eq!(file.info("b").unwrap().shape, [2, 3]);
}

#[test]
fn what_we_wrote_is_read_by_the_crate_and_by_us() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.safetensors");
    let original = SafeTensors::open(&golden("types.safetensors")).unwrap();
    let tensors: Vec<_> = original.tensors().iter().map(|t| original.tensor(&t.name).unwrap()).collect();
    write(&path, original.metadata(), tensors.iter().map(NewTensor::from)).unwrap();
    let ours = SafeTensors::open(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!((ours.tensors().len(), theirs.len()), (tensors.len(), tensors.len()));
    assert_eq!(ours.metadata(), original.metadata());
    for tensor in &tensors {
        assert_eq!(ours.tensor(tensor.name()).unwrap().bytes(), tensor.bytes());
        let view = theirs.tensor(tensor.name()).unwrap();
        assert_eq!((view.shape(), view.data()), (tensor.shape(), tensor.bytes()));
    }
    let q8_0 = Format::from_name("Q8_0").unwrap();
    let quantised = NewTensor { name: "q", format: q8_0, shape: &[32], bytes: vec![0; 34].into() };
    refused(write(&path, &BTreeMap::new(), [quantised]), &["safetensors has no type Q8_0"]);
    assert_eq!(fs::read(&path).unwrap(), bytes, "a refused write changed the file");
}
