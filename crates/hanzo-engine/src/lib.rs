//! Models, tokenization, KV cache and generation.
