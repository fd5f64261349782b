//! Any bytes as a safetensors file: an error, or a file whose tensors all lie inside it.
#![no_main]

use std::path::Path;

use hanzo_ml::{Bytes, file::safetensors::SafeTensors};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match SafeTensors::from_bytes(Path::new("fuzz.safetensors"), Bytes::owned(data.to_vec())) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => {
            let mut n_bytes = 0;
            for info in file.tensors() {
                let tensor = file.tensor(&info.name).expect("a listed tensor is there");
                assert_eq!(tensor.bytes().len(), info.bytes());
                n_bytes += info.bytes();
            }
            for other in file.unsupported() {
                assert!(file.tensor(&other.name).is_err());
            }
            assert!(n_bytes <= data.len());
        }
    }
});
