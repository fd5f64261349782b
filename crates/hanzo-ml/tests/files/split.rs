//! Split models: three parts of PyPI's `gguf` writer, and of our own.

use std::{fs, path::Path};

use hanzo_ml::file::{
    Metadata, Value,
    gguf::{Gguf, NewTensor, write, write_split},
};
use tempfile::TempDir;

use crate::{
    expected,
    gguf::{check_metadata, check_tensors},
    golden, hex, refused,
};

fn part(number: usize, count: usize) -> String {
    format!("split-{number:05}-of-{count:05}.gguf")
}

/// A folder with copies of the golden parts, as `(number in the golden name, new name)`.
fn folder(parts: &[(usize, String)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, name) in parts {
        fs::copy(golden(&part(*number, 3)), folder.path().join(name)).unwrap();
    }
    folder
}

/// The bytes of a golden part with a metadata number replaced.
fn patched(number: usize, key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = fs::read(golden(&part(number, 3))).unwrap();
    let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap() + key.len() + 4;
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

#[test]
fn any_part_opens_the_whole_model() {
    let want = expected("split");
    let rows: Vec<_> =
        want["tensors"].as_array().unwrap().iter().flat_map(|p| p.as_array().unwrap().clone()).collect();
    for number in 1..=3 {
        let file = Gguf::open(&golden(&part(number, 3))).unwrap();
        assert_eq!(file.n_parts(), 3);
        check_metadata(&file, &want["metadata"], "split.");
        check_tensors(&file, &rows);
        let parts: Vec<usize> = file.tensors().iter().map(|t| t.part).collect();
        assert_eq!(parts, [0, 0, 1, 1, 2, 2]);
        let bytes: u64 = (1..=3).map(|n| fs::metadata(golden(&part(n, 3))).unwrap().len()).sum();
        assert_eq!(file.file_bytes(), bytes);
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = folder(&[(1, part(1, 3)), (3, part(3, 3))]);
    for number in [1, 3] {
        let opened = Gguf::open(&folder.path().join(part(number, 3)));
        refused(opened, &["part 2 of 3 is missing", "split-00002-of-00003.gguf"]);
    }
}

#[test]
fn a_wrong_count_is_refused() {
    let renamed = folder(&[(1, part(1, 2)), (2, part(2, 2))]);
    refused(Gguf::open(&renamed.path().join(part(1, 2))), &["metadata says part 1 of 3, its name 1 of 2"]);
    let patched_part = folder(&[(1, part(1, 3)), (2, part(2, 3)), (3, part(3, 3))]);
    fs::write(patched_part.path().join(part(2, 3)), patched(2, "split.count", &4u16.to_le_bytes())).unwrap();
    let opened = Gguf::open(&patched_part.path().join(part(1, 3)));
    refused(opened, &["split-00002-of-00003.gguf: it should be part 2 of 3", "says part 2 of 4"]);
}

#[test]
fn a_wrong_order_is_refused() {
    let swapped = folder(&[(1, part(1, 3)), (3, part(2, 3)), (2, part(3, 3))]);
    let opened = Gguf::open(&swapped.path().join(part(1, 3)));
    refused(opened, &["it should be part 2 of 3", "metadata says part 3 of 3"]);
    refused(Gguf::open(&swapped.path().join(part(2, 3))), &["metadata says part 3 of 3, its name 2 of 3"]);
}

#[test]
fn a_wrong_tensor_total_is_refused() {
    let folder = folder(&[]);
    for number in 1..=3 {
        let bytes = patched(number, "split.tensors.count", &7i32.to_le_bytes());
        fs::write(folder.path().join(part(number, 3)), bytes).unwrap();
    }
    let opened = Gguf::open(&folder.path().join(part(1, 3)));
    refused(opened, &["split.tensors.count is 7 but the 3 parts hold 6 tensors"]);
}

#[test]
fn a_part_under_a_foreign_name_or_in_memory_is_refused() {
    let folder = folder(&[(2, "model.gguf".into())]);
    let opened = Gguf::open(&folder.path().join("model.gguf"));
    refused(opened, &["part 2 of 3 of a split model", "does not end in -00002-of-00003.gguf"]);
    let bytes = hanzo_ml::Bytes::owned(fs::read(golden(&part(2, 3))).unwrap());
    refused(Gguf::from_bytes(Path::new("memory"), bytes), &["memory: part 2 of 3 of a split model"]);
}

#[test]
fn a_whole_file_among_the_parts_is_refused() {
    let folder = folder(&[(1, part(1, 3)), (3, part(3, 3))]);
    fs::copy(golden("plain.gguf"), folder.path().join(part(2, 3))).unwrap();
    refused(
        Gguf::open(&folder.path().join(part(1, 3))),
        &["it should be part 2 of 3 but has no split.count"],
    );
}

/// Two models of as many parts in one folder, a part taken from the other.
#[test]
fn a_part_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let original = Gguf::open(&golden("plain.gguf")).unwrap();
    let tensors: Vec<_> = original.tensors().iter().map(|t| original.tensor(&t.name).unwrap()).collect();
    let new = || tensors.iter().map(NewTensor::from);
    let a = write_split(folder.path(), "a", original.metadata(), new(), 2).unwrap();
    let b = write_split(folder.path(), "b", original.metadata(), new().rev(), 2).unwrap();
    fs::copy(&b[2], &a[1]).unwrap();
    refused(Gguf::open(&a[0]), &["it should be part 2 of 3"]);
    fs::copy(&b[1], &a[1]).unwrap();
    assert!(Gguf::open(&a[0]).is_ok(), "the middle parts hold the same tensors");
    fs::copy(&b[2], &a[2]).unwrap();
    refused(Gguf::open(&a[0]), &["is there more than once"]);
}

#[test]
fn what_the_split_writer_wrote_is_read_back_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.gguf", "aligned.gguf"] {
        let original = Gguf::open(&golden(name)).unwrap();
        let tensors: Vec<_> = original.tensors().iter().map(|t| original.tensor(&t.name).unwrap()).collect();
        for per_part in [1, 4, 6, 9] {
            let new = tensors.iter().map(NewTensor::from);
            let paths = write_split(folder.path(), "m", original.metadata(), new, per_part).unwrap();
            assert_eq!(paths.len(), 6usize.div_ceil(per_part));
            let split = Gguf::open(&paths[0]).unwrap();
            assert_eq!(split.n_parts(), paths.len());
            for info in original.tensors() {
                let (found, want) = (split.tensor(&info.name).unwrap(), original.tensor(&info.name).unwrap());
                assert_eq!(hex(found.bytes()), hex(want.bytes()));
            }
            // Writing it whole again drops the split keys and gives the original file.
            let joined = folder.path().join("joined.gguf");
            let parts: Vec<_> = split.tensors().iter().map(|t| split.tensor(&t.name).unwrap()).collect();
            write(&joined, split.metadata(), parts.iter().map(NewTensor::from)).unwrap();
            assert!(fs::read(&joined).unwrap() == fs::read(golden(name)).unwrap());
        }
    }
    let none = write_split(folder.path(), "none", &Metadata::default(), [], 5).unwrap();
    assert_eq!(none.len(), 1);
    refused(write_split(folder.path(), "none", &Metadata::default(), [], 0), &["a part of zero tensors"]);
}

#[test]
fn metadata_that_differs_between_parts_is_refused() {
    let folder = folder(&[(1, part(1, 3)), (3, part(3, 3))]);
    let second = Gguf::open(&golden(&part(2, 3))).unwrap();
    let own: Vec<_> =
        second.tensors().iter().filter(|t| t.part == 1).map(|t| second.tensor(&t.name).unwrap()).collect();
    let mut metadata = Metadata::default();
    metadata.insert("general.name", Value::String("another".into()));
    // The writer drops split keys, so they are put under a name of the same length and patched back.
    for (key, value) in
        [("split_no", Value::U16(1)), ("split_count", Value::U16(3)), ("split_tensors_count", Value::I32(6))]
    {
        metadata.insert(key, value);
    }
    let path = folder.path().join(part(2, 3));
    write(&path, &metadata, own.iter().map(NewTensor::from)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    for key in ["split.no", "split.count", "split.tensors.count"] {
        let placeholder = key.replace('.', "_");
        let at = bytes.windows(key.len()).position(|w| w == placeholder.as_bytes()).unwrap();
        bytes[at..at + key.len()].copy_from_slice(key.as_bytes());
    }
    fs::write(&path, bytes).unwrap();
    refused(Gguf::open(&path), &["metadata key \"general.name\" differs from the first part's"]);
}
