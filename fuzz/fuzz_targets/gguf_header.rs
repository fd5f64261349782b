//! Any bytes as a GGUF file: an error, or a file whose tensors all lie inside it.
#![no_main]

use std::path::Path;

use hanzo_ml::{Bytes, file::gguf::Gguf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match Gguf::from_bytes(Path::new("fuzz.gguf"), Bytes::owned(data.to_vec())) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => {
            let mut n_bytes = 0;
            for info in file.tensors() {
                let tensor = file.tensor(&info.name).expect("a listed tensor is there");
                assert_eq!(tensor.bytes().len(), info.bytes());
                n_bytes += info.bytes();
            }
            // Ranges do not overlap, so they cannot hold more than the file does.
            assert!(n_bytes <= data.len());
            for (key, value) in file.metadata().iter() {
                assert!(!key.is_empty() && !value.type_name().is_empty());
                let _ = (file.metadata().u32(key), file.metadata().f32(key), file.metadata().str(key));
                let _ = (file.metadata().u32s(key), file.metadata().f32s(key), file.metadata().bools(key));
            }
        }
    }
});
