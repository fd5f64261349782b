//! Truncated and randomly damaged files: an error or a valid file, never harm.

use std::{fs, path::Path};

use hanzo_ml::{
    Bytes,
    file::{gguf::Gguf, safetensors::SafeTensors},
};

use crate::{golden, hostile::read_both, refused};

/// Numbers of a linear congruential generator (Knuth's MMIX constants): the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn every_truncation_of_a_gguf_says_how_many_bytes_are_missing() {
    let bytes = fs::read(golden("plain.gguf")).unwrap();
    let whole = Gguf::open(&golden("plain.gguf")).unwrap();
    let end = whole.tensors().iter().map(|t| t.range.end).max().unwrap();
    for len in 0..bytes.len() {
        let cut = Gguf::from_bytes(Path::new("cut.gguf"), Bytes::owned(bytes[..len].to_vec()));
        if len < end {
            refused(cut, &["cut.gguf", "bytes are missing"]);
        } else {
            // The padding behind the last tensor may be absent.
            assert!(cut.is_ok());
        }
    }
    let header_end = whole.tensors().iter().map(|t| t.range.start).min().unwrap();
    for len in header_end..end {
        let cut = Gguf::from_bytes(Path::new("cut.gguf"), Bytes::owned(bytes[..len].to_vec()));
        refused(cut, &[&format!("{} bytes are missing from {len}", end - len)]);
    }
}

#[test]
fn every_truncation_of_a_safetensors_file_says_that_bytes_are_missing() {
    let bytes = fs::read(golden("types.safetensors")).unwrap();
    for len in 0..bytes.len() {
        let cut = SafeTensors::from_bytes(Path::new("cut"), Bytes::owned(bytes[..len].to_vec()));
        refused(cut, &["missing"]);
    }
    let longer = [&bytes[..], b"x"].concat();
    refused(
        SafeTensors::from_bytes(Path::new("long"), Bytes::owned(longer)),
        &["1 bytes follow the last tensor"],
    );
}

/// Damage that a random byte alone would rarely do: extreme numbers of all widths.
const EXTREMES: [&[u8]; 8] = [
    &[0; 8],
    &[0xff; 8],
    &[0xff; 4],
    &[0, 0, 0, 0, 0, 0, 0, 0x80],
    &[0, 0, 0, 0, 1, 0, 0, 0],
    &[0x7f],
    &[9],
    &[0; 1],
];

#[test]
fn damaged_files_do_no_harm() {
    let mut random = Random(1);
    for name in ["plain.gguf", "split-00002-of-00003.gguf", "types.safetensors"] {
        let original = fs::read(golden(name)).unwrap();
        for _ in 0..4000 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() - 1);
                let extreme = EXTREMES[random.below(EXTREMES.len())];
                match random.below(3) {
                    0 => bytes[at] = random.below(256) as u8,
                    1 => bytes.iter_mut().skip(at).zip(extreme).for_each(|(b, e)| *b = *e),
                    _ => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len() - 1))),
                }
            }
            read_both(&bytes);
        }
    }
}
