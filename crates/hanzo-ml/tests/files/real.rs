//! Real model files against what PyPI's `gguf` reader says of them.

use hanzo_ml::file::gguf::Gguf;

use crate::{allocations::allocated, repository};

/// File, architecture, keys, tensors, tokens, last token, last tensor, its offset, elements of all tensors.
type Facts = (&'static str, &'static str, usize, usize, usize, &'static str, &'static str, usize, usize);

const FACTS: [Facts; 5] = [
    (
        "gemma-3-270m.Q4_K_M.gguf",
        "gemma3",
        33,
        236,
        262144,
        "<unused6241>",
        "blk.17.post_ffw_norm.weight",
        253110464,
        268098176,
    ),
    (
        "nomic-embed-text-v1.5.f16.gguf",
        "nomic-bert",
        22,
        112,
        30522,
        "～",
        "blk.9.layer_output_norm.weight",
        274287488,
        136727040,
    ),
    (
        "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf",
        "qwen2",
        26,
        291,
        151936,
        "[PAD151935]",
        "output_norm.weight",
        491396480,
        630167424,
    ),
    (
        "qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf",
        "qwen2",
        26,
        339,
        151936,
        "[PAD151935]",
        "output_norm.weight",
        1117314624,
        1777088000,
    ),
    (
        "smollm2-135m-instruct.Q4_1.gguf",
        "llama",
        33,
        272,
        49152,
        "ectable",
        "output_norm.weight",
        98360128,
        134515008,
    ),
];

#[test]
fn real_models_hold_what_the_python_reader_says() {
    for (name, architecture, n_keys, n_tensors, n_tokens, last_token, last_tensor, offset, elems) in FACTS {
        let path = repository("models").join(name);
        if !path.exists() {
            println!("SKIPPED {name}: python3 tools/models/fetch.py models all fetches it");
            continue;
        }
        // The weights are mapped: what opening allocates depends on the vocabulary alone.
        let (file, used) = allocated(|| Gguf::open(&path).unwrap());
        assert!(used < 400 * n_tokens + (1 << 20), "{name}: {used} bytes allocated");
        let metadata = file.metadata();
        assert_eq!(metadata.str("general.architecture").unwrap(), Some(architecture));
        assert_eq!((metadata.len(), file.tensors().len()), (n_keys, n_tensors), "{name}");
        let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!((tokens.len(), tokens.last().unwrap().as_str()), (n_tokens, last_token));
        let last = file.tensors().last().unwrap();
        assert_eq!((last.name.as_str(), last.range.start), (last_tensor, offset));
        assert_eq!(file.tensors().iter().map(|t| t.elems()).sum::<usize>(), elems);
    }
}
