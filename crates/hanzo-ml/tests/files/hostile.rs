//! The hostile files of testdata/hostile (see its README) and what is too large or too many to be committed.

use std::{fs, path::Path};

use hanzo_ml::{
    Bytes, Result,
    file::{gguf::Gguf, safetensors::SafeTensors},
};

use crate::{allocations::allocated, refused, repository};

/// Opens a file by its name and drops it again.
pub fn open(path: &Path) -> Result<()> {
    if path.extension().is_some_and(|e| e == "gguf") {
        Gguf::open(path).map(drop)
    } else {
        SafeTensors::open(path).map(drop)
    }
}

/// Reads bytes as both kinds of file; hostile bytes may do anything but panic, hang or allocate without bound.
pub fn read_both(bytes: &[u8]) {
    let name = Path::new("bytes");
    // Reading costs at most the file's size times 64, measured generously: freed bytes count, and errors are text.
    let (_, used) =
        allocated(|| Gguf::from_bytes(name, Bytes::owned(bytes.to_vec())).map(|f| touch_gguf(&f)));
    assert!(used <= 64 * bytes.len() + 65536, "GGUF: {used} bytes for {}", bytes.len());
    let (_, used) =
        allocated(|| SafeTensors::from_bytes(name, Bytes::owned(bytes.to_vec())).map(|f| touch(&f)));
    assert!(used <= 64 * bytes.len() + 65536, "safetensors: {used} bytes for {}", bytes.len());
}

fn touch_gguf(file: &Gguf) {
    for info in file.tensors() {
        assert_eq!(file.tensor(&info.name).unwrap().bytes().len(), info.bytes());
    }
}

fn touch(file: &SafeTensors) {
    for info in file.tensors() {
        assert_eq!(file.tensor(&info.name).unwrap().bytes().len(), info.bytes());
    }
}

#[test]
fn every_hostile_file_is_refused_with_its_reason() {
    let folder = repository("testdata/hostile");
    let table = fs::read_to_string(folder.join("expected.tsv")).unwrap();
    let mut n_files = 0;
    for line in table.lines() {
        let (name, phrase) = line.split_once('\t').unwrap();
        n_files += 1;
        let (result, used) = allocated(|| open(&folder.join(name)));
        refused(result, &[name, phrase]);
        assert!(used < 1 << 20, "{name}: {used} bytes allocated");
    }
    // The table and the README are there too: no file escapes the test.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), n_files + 2);
}

/// What the fuzzers found interesting stays tested without them.
#[test]
fn the_fuzz_corpus_is_read_without_harm() {
    let mut n_files = 0;
    for target in ["gguf_header", "safetensors_header"] {
        for file in fs::read_dir(repository("fuzz/corpus").join(target)).unwrap() {
            read_both(&fs::read(file.unwrap().path()).unwrap());
            n_files += 1;
        }
    }
    assert!(n_files > 50, "{n_files}");
}

fn key(key: &str, type_id: u32, value: &[u8]) -> Vec<u8> {
    [&(key.len() as u64).to_le_bytes(), key.as_bytes(), &type_id.to_le_bytes(), value].concat()
}

fn gguf(n_tensors: u64, n_keys: u64, rest: &[u8]) -> Result<Gguf> {
    let counts = [n_tensors.to_le_bytes(), n_keys.to_le_bytes()].concat();
    let bytes = [b"GGUF", &3u32.to_le_bytes()[..], &counts, rest].concat();
    Gguf::from_bytes(Path::new("built.gguf"), Bytes::owned(bytes))
}

/// Files whose size lets a count pass its bound by the bytes that are left still meet the limits.
#[test]
fn limits_hold_in_large_files_too() {
    let string = |n: usize| [&(n as u64).to_le_bytes()[..], &vec![b'a'; n]].concat();
    let large = 64 << 20;
    let array =
        |n: u64| key("k", 9, &[&0u32.to_le_bytes()[..], &n.to_le_bytes(), &vec![0; n as usize]].concat());
    refused(
        gguf(0, 1, &array((1 << 24) + 1)),
        &["the array length is 16777217, above the limit of 16777216"],
    );
    assert!(gguf(0, 1, &array(1 << 24)).is_ok());
    refused(gguf(0, (1 << 16) + 1, &vec![0; 1 << 21]), &["the metadata count is 65537, above the limit"]);
    refused(gguf((1 << 18) + 1, 0, &vec![0; 9 << 20]), &["the tensor count is 262145, above the limit"]);
    // Three strings within their own limit that make a header beyond its limit.
    let strings = ["a", "b", "c"].map(|k| key(k, 8, &string(large - 64))).concat();
    refused(gguf(0, 3, &strings), &["\"c\": the header is larger than the limit of 134217728 bytes"]);
}

#[test]
fn a_header_of_many_keys_is_read_in_little_memory() {
    let n = 60_000u64;
    let rest: Vec<u8> = (0..n).flat_map(|i| key(&format!("{i:x}"), 0, &[1])).collect();
    let (file, used) = allocated(|| gguf(0, n, &rest).unwrap());
    assert_eq!(file.metadata().len(), 60_000);
    assert!(used <= 64 * rest.len(), "{used} bytes for {}", rest.len());
}

#[test]
fn long_and_control_names_do_not_reach_the_terminal() {
    let text = gguf(0, 1, &key("a\x1b[31m", 0, &[1])).unwrap_err().to_string();
    assert!(!text.contains('\x1b'), "{text:?}");
}
