//! Importance matrices: both containers, and files that lie.

use std::path::Path;

use hanzo_ml::{
    Bytes, Result,
    file::imatrix::{Entry, Imatrix},
};

use crate::{allocations::allocated, refused};

fn read(bytes: &[u8]) -> Result<Imatrix> {
    Imatrix::from_bytes(Path::new("matrix"), Bytes::owned(bytes.to_vec()))
}

fn made() -> Imatrix {
    let mut imatrix = Imatrix::default();
    imatrix.datasets = vec!["wiki.txt".into()];
    (imatrix.chunk_count, imatrix.chunk_size) = (3, 16);
    imatrix.insert("blk.0.attn_q.weight", Entry::new(vec![2.0, 0.0, 6.0, 4.0], vec![2.0]).unwrap());
    let experts = Entry::new(vec![3.0, 9.0, 0.0, 0.0], vec![48.0, 0.0]).unwrap();
    imatrix.insert("blk.0.ffn_up_exps.weight", experts);
    imatrix
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let (gguf, dat) = (folder.path().join("m.gguf"), folder.path().join("m.dat"));
    made().write(&gguf).unwrap();
    assert_eq!(Imatrix::open(&gguf).unwrap(), made());

    // The older file holds means times calls: 48 rows are 3 chunks of 16, 2 rows still one.
    made().write_dat(&dat).unwrap();
    let old = Imatrix::open(&dat).unwrap();
    assert_eq!((old.chunk_count, &old.datasets), (3, &made().datasets));
    let sums = |name: &str| old.get(name).unwrap().sums().to_vec();
    assert_eq!(sums("blk.0.attn_q.weight"), [1.0, 0.0, 3.0, 2.0]);
    assert_eq!(sums("blk.0.ffn_up_exps.weight"), [3.0 / 16.0, 9.0 / 16.0, 3.0, 3.0]);
    assert_eq!(old.get("blk.0.ffn_up_exps.weight").unwrap().counts(), [3.0]);
    for (name, entry) in made().iter() {
        assert_eq!(old.get(name).unwrap().means(), entry.means());
    }
}

#[test]
fn means_are_one_where_nothing_was_seen() {
    let imatrix = made();
    assert_eq!(imatrix.get("blk.0.attn_q.weight").unwrap().means(), [1.0, 0.0, 3.0, 2.0]);
    assert_eq!(imatrix.get("blk.0.ffn_up_exps.weight").unwrap().means(), [0.0625, 0.1875, 1.0, 1.0]);
}

#[test]
fn entries_that_cannot_be_are_refused() {
    for (sums, counts) in [
        (vec![1.0; 3], vec![1.0; 2]),
        (vec![], vec![]),
        (vec![], vec![1.0]),
        (vec![f32::NAN], vec![1.0]),
        (vec![-1.0], vec![1.0]),
        (vec![1.0], vec![f32::INFINITY]),
    ] {
        assert!(Entry::new(sums.clone(), counts.clone()).is_err(), "{sums:?} {counts:?}");
    }
}

#[test]
fn a_gguf_file_without_importance_is_refused() {
    let model = std::fs::read(crate::golden("plain.gguf")).unwrap();
    refused(read(&model), &["matrix", "not an importance matrix"]);
}

/// An entry of the older file.
fn dat(name: &[u8], n_calls: i32, n_values: i32, values: &[f32]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let ints = [n_calls.to_le_bytes(), n_values.to_le_bytes()].concat();
    [&(name.len() as i32).to_le_bytes()[..], name, &ints, &values].concat()
}

fn file(n_entries: i32, entries: &[Vec<u8>], rest: &[u8]) -> Vec<u8> {
    [&n_entries.to_le_bytes()[..], &entries.concat(), rest].concat()
}

#[test]
fn files_of_the_older_kind_may_end_early() {
    let entry = dat(b"w", 0, 2, &[1.0, 2.0]);
    let bare = read(&file(1, std::slice::from_ref(&entry), &[])).unwrap();
    assert_eq!((bare.get("w").unwrap().means(), bare.chunk_count), (vec![1.0, 2.0], 0));
    let counted = read(&file(1, std::slice::from_ref(&entry), &7i32.to_le_bytes())).unwrap();
    assert_eq!((counted.chunk_count, counted.datasets.len()), (7, 0));
}

#[test]
fn lies_are_refused_before_memory_is_taken() {
    let entry = dat(b"w", 1, 1, &[1.0]);
    let cases: [(Vec<u8>, &str); 9] = [
        (vec![], "the number of entries takes 4 bytes"),
        (file(0, &[], &[]), "no tensor ends in"),
        (file(-1, &[], &[]), "the number of entries is -1"),
        (file(i32::MAX, std::slice::from_ref(&entry), &[]), "the number of entries is 2147483647"),
        (file(1, &[dat(b"w", 1, i32::MAX, &[1.0])], &[0; 9]), "the number of values is 2147483647"),
        (file(1, &[dat(b"w", 1, -1, &[1.0])], &[]), "the number of values is -1"),
        (file(1, &[dat(b"w", 1, 0, &[])], &[0; 9]), "0 sums do not belong to 1 counts"),
        (file(1, &[dat(b"\xff", 1, 1, &[1.0])], &[]), "invalid utf-8"),
        (file(2, &[entry.clone(), entry], &[0; 9]), "is there a second time"),
    ];
    for (bytes, phrase) in &cases {
        let (result, used) = allocated(|| read(bytes));
        refused(result, &["matrix", phrase]);
        assert!(used < 65536, "{phrase}: {used} bytes allocated");
    }
    let negative = read(&file(1, &[dat(b"a\nb", 1, 1, &[1.0])], &[]));
    assert!(!negative.unwrap_err().to_string().contains('\n'));
}

/// Any cut and any changed byte is an error or another matrix, never a panic.
#[test]
fn cut_and_changed_files_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("m.gguf"), folder.path().join("m.dat")];
    made().write(&paths[0]).unwrap();
    made().write_dat(&paths[1]).unwrap();
    for path in &paths {
        let whole = std::fs::read(path).unwrap();
        for n in 0..whole.len() {
            let _ = read(&whole[..n]);
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[n] ^= flip;
                let (_, used) = allocated(|| read(&changed));
                assert!(used <= 64 * whole.len() + 65536, "byte {n}: {used}");
            }
        }
    }
}

/// What llama.cpp wrote (`testdata/golden/imatrix`, made by `tools/oracle/imatrix.py`), in both containers.
#[test]
fn what_llama_cpp_wrote_is_read() {
    let folder = crate::repository("testdata/golden/imatrix");
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    for name in ["fox.gguf", "fox.dat"] {
        let imatrix = Imatrix::open(&folder.join(name)).unwrap();
        assert_eq!((imatrix.chunk_count, imatrix.datasets.as_slice()), (3, &["fox.txt".to_owned()][..]));
        assert_eq!(
            imatrix.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>()
        );
        for (weight, facts) in &expected {
            let means = imatrix.get(weight).unwrap().means();
            let sum = means.iter().copied().map(f64::from).sum::<f64>();
            let ours = [means.len() as f64, means[0].into(), means[means.len() - 1].into(), sum];
            for (ours, fact) in ours.iter().zip(facts.as_array().unwrap()) {
                let fact = fact.as_f64().unwrap();
                assert!((ours - fact).abs() <= 1e-6 * fact.abs(), "{name} {weight}: {ours}, not {fact}");
            }
        }
    }
}
