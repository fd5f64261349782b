//! GGUF files of PyPI's `gguf` package (see testdata/golden/files/README.md) and of our own writer.

use std::{borrow::Cow, fs, path::Path};

use hanzo_ml::{
    Bytes,
    file::{
        Array, Metadata, TensorSource, Value,
        gguf::{Gguf, NewInfo, NewTensor, Writer, write},
    },
};
use hanzo_quant::Format;
use serde_json::{Value as Json, json};

use crate::{expected, golden, hex, refused, repository};

/// A value as expected.json spells it: its type's name and its content, floats as their bits.
pub fn to_json(value: &Value) -> Json {
    let content = match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::F32(v) => json!(v.to_bits()),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F64(v) => json!(v.to_bits()),
        Value::Array(array) => match array {
            Array::U8(v) => json!(v),
            Array::I8(v) => json!(v),
            Array::U16(v) => json!(v),
            Array::I16(v) => json!(v),
            Array::U32(v) => json!(v),
            Array::I32(v) => json!(v),
            Array::F32(v) => json!(v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
            Array::Bool(v) => json!(v),
            Array::String(v) => json!(v),
            Array::U64(v) => json!(v),
            Array::I64(v) => json!(v),
            Array::F64(v) => json!(v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        },
    };
    json!([value.type_name(), content])
}

/// Compares with `[name, type, shape, offset, byte count, hex]` rows.
pub fn check_tensors(file: &Gguf, rows: &[Json]) {
    assert_eq!(file.tensors().len(), rows.len());
    for (info, row) in file.tensors().iter().zip(rows) {
        let tensor = file.tensor(&info.name).unwrap();
        let found = json!([
            info.name,
            info.format.name,
            info.shape,
            info.range.start,
            info.bytes(),
            hex(tensor.bytes()),
        ]);
        assert_eq!(&found, row);
        assert_eq!(tensor.shape(), info.shape);
        assert_eq!(file.info(&info.name), Some(info));
    }
}

pub fn check_metadata(file: &Gguf, want: &Json, ignore: &str) {
    let want = want.as_object().unwrap();
    let keys = file.metadata().iter().filter(|(k, _)| ignore.is_empty() || !k.starts_with(ignore)).count();
    assert_eq!(keys, want.len());
    for (key, value) in want {
        assert_eq!(&to_json(file.metadata().get(key).unwrap()), value, "{key}");
    }
}

#[test]
fn files_of_the_python_writer_are_read_exactly() {
    for name in ["plain.gguf", "aligned.gguf", "version-2.gguf"] {
        let file = Gguf::open(&golden(name)).unwrap();
        let want = expected(name);
        assert_eq!(json!(file.version()), want["version"]);
        assert_eq!(json!(file.alignment()), want["alignment"]);
        assert_eq!(file.file_bytes(), fs::metadata(golden(name)).unwrap().len());
        check_metadata(&file, &want["metadata"], "");
        check_tensors(&file, want["tensors"].as_array().unwrap());
        let names: Vec<&str> = TensorSource::names(&file).collect();
        assert_eq!(
            names,
            ["norm.weight", "half.weight", "q8.weight", "experts.weight", "four.weight", "ids"]
        );
    }
}

#[test]
fn a_file_in_memory_is_the_same_as_on_disk() {
    let bytes = fs::read(golden("plain.gguf")).unwrap();
    let file = Gguf::from_bytes(Path::new("memory"), Bytes::owned(bytes)).unwrap();
    check_tensors(&file, expected("plain.gguf")["tensors"].as_array().unwrap());
    refused(file.tensor("nothing"), &["memory", "tensor \"nothing\" is missing"]);
}

#[test]
fn a_vocabulary_without_tensors_is_a_file() {
    let file = Gguf::open(&golden("vocabulary.gguf")).unwrap();
    assert!(file.tensors().is_empty());
    assert_eq!(file.metadata().strings("tokenizer.ggml.tokens").unwrap().unwrap(), ["a", "b"]);
}

#[test]
fn a_big_endian_file_is_refused_by_name() {
    let how = "convert it with gguf_convert_endian";
    refused(Gguf::open(&golden("big-endian.gguf")), &["big-endian.gguf", "big-endian GGUF (version 3)", how]);
}

#[test]
fn what_is_no_file_is_refused() {
    refused(Gguf::open(&repository("testdata")), &["not a regular file"]);
    refused(Gguf::open(Path::new("/nowhere/model.gguf")), &["/nowhere/model.gguf"]);
    #[cfg(unix)]
    refused(Gguf::open(Path::new("/dev/zero")), &["/dev/zero", "not a regular file"]);
}

/// Every tiny model of llama.cpp's converter opens, and its tensors lie where they should.
#[test]
fn files_of_the_llama_cpp_converter_are_read() {
    let mut n_files = 0;
    for folder in fs::read_dir(repository("testdata/tiny")).unwrap() {
        let path = folder.unwrap().path().join("model.gguf");
        if !path.exists() {
            continue;
        }
        n_files += 1;
        let file = Gguf::open(&path).unwrap();
        assert!(file.metadata().str("general.architecture").unwrap().is_some());
        for info in file.tensors() {
            assert_eq!(file.tensor(&info.name).unwrap().to_f32().len(), info.elems());
        }
    }
    assert!(n_files > 5, "{n_files}");
}

fn tensors_of(file: &Gguf) -> Vec<hanzo_ml::QTensor> {
    file.tensors().iter().map(|t| file.tensor(&t.name).unwrap()).collect()
}

#[test]
fn what_the_writer_wrote_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.gguf", "aligned.gguf"] {
        let original = Gguf::open(&golden(name)).unwrap();
        let copy = folder.path().join(name);
        let tensors = tensors_of(&original);
        write(&copy, original.metadata(), tensors.iter().map(NewTensor::from)).unwrap();
        // The Python writer lays files out alike, so even the bytes are the same.
        assert!(fs::read(&copy).unwrap() == fs::read(golden(name)).unwrap());
        let read = Gguf::open(&copy).unwrap();
        check_metadata(&read, &expected(name)["metadata"], "");
        check_tensors(&read, expected(name)["tensors"].as_array().unwrap());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file was left behind");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.gguf");
    let (f32, q8_0) = (Format::from_name("F32").unwrap(), Format::from_name("Q8_0").unwrap());
    let new = |name, format, shape, n| NewTensor { name, format, shape, bytes: Cow::Owned(vec![0; n]) };
    let none = Metadata::default();
    let cases = [
        (vec![new("a", f32, &[2][..], 8), new("a", f32, &[2], 8)], "\"a\" is there more than once"),
        (vec![new("a", f32, &[2], 4)], "4 bytes do not fit shape [2]"),
        (vec![new("a", q8_0, &[33], 34)], "not whole blocks"),
        (vec![new("", f32, &[1], 4)], "is empty"),
        (vec![new("a", f32, &[1, 1, 1, 1, 1], 4)], "5 dimensions"),
        (vec![new("a", f32, &[], 4)], "0 dimensions"),
        (vec![new("a", f32, &[0], 0)], "contain zero"),
    ];
    for (tensors, phrase) in cases {
        refused(write(&path, &none, tensors), &[phrase]);
    }
    for alignment in [0, 24, 1 << 20] {
        let mut metadata = Metadata::default();
        metadata.insert("general.alignment", Value::U32(alignment));
        refused(write(&path, &metadata, []), &[&format!("general.alignment is {alignment}")]);
    }
    let mut metadata = Metadata::default();
    metadata.insert("a\nkey", Value::U8(1));
    refused(write(&path, &metadata, []), &["control characters"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a refused file was left behind");
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, &Metadata::default(), []).unwrap();
    let old = fs::read(&path).unwrap();
    let f32 = Format::from_name("F32").unwrap();
    let bad = NewTensor { name: "a", format: f32, shape: &[2], bytes: Cow::Borrowed(&[0; 4]) };
    assert!(write(&path, &Metadata::default(), [bad]).is_err());
    assert_eq!(fs::read(&path).unwrap(), old);
    refused(write(&folder.path().join("absent/model.gguf"), &Metadata::default(), []), &["absent"]);
    // A folder in the target's place: the temporary file is complete when the rename fails, and goes away again.
    fs::create_dir(folder.path().join("taken.gguf")).unwrap();
    refused(write(&folder.path().join("taken.gguf"), &Metadata::default(), []), &["taken.gguf"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file was left behind");
}

#[test]
fn a_file_written_in_pieces_is_the_file_written_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.gguf", "aligned.gguf"] {
        let original = Gguf::open(&golden(name)).unwrap();
        let tensors = tensors_of(&original);
        let infos: Vec<NewInfo<'_>> = tensors
            .iter()
            .map(|t| NewInfo { name: t.name(), format: t.format(), shape: t.shape() })
            .collect();
        let copy = folder.path().join(name);
        let mut writer = Writer::create(&copy, original.metadata(), &infos).unwrap();
        assert!(!copy.exists());
        for tensor in &tensors {
            tensor.bytes().chunks(7).for_each(|piece| writer.append(piece).unwrap());
        }
        assert_eq!(writer.file_bytes() as u64, original.file_bytes());
        refused(writer.append(&[0]), &["1 bytes", "which lacks 0"]);
        writer.finish().unwrap();
        assert!(fs::read(&copy).unwrap() == fs::read(golden(name)).unwrap());
    }
    let f32 = Format::from_name("F32").unwrap();
    let info = NewInfo { name: "a", format: f32, shape: &[2] };
    let mut writer = Writer::create(&folder.path().join("part.gguf"), &Metadata::default(), &[info]).unwrap();
    refused(writer.append(&[0; 9]), &["9 bytes for tensor 0, which lacks 8"]);
    writer.append(&[0; 5]).unwrap();
    refused(writer.finish(), &["tensor 0 of 1 is incomplete"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file was left behind");
}
