//! Model names, the catalog, downloads and the local model cache. Knows nothing of tensors.
