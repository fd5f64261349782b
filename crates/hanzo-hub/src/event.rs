//! What a fetch reports while it works; the caller draws it.

/// One step of a fetch. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A name is being looked up (a hub id asks the hub for its file list here).
    Resolving {
        /// The model's full name.
        name: String,
    },
    /// Another fetch of the same model holds the lock; this one waits for its result.
    Waiting {
        /// What is waited for.
        name: String,
    },
    /// The licence of what is about to be downloaded; always comes before the first byte of it.
    Licence {
        /// The model's full name.
        name: String,
        /// Licence as its publisher states it, or "unknown".
        licence: String,
        /// Bytes of the files, where known.
        size: Option<u64>,
    },
    /// A source is being tried.
    Source {
        /// The source in words, with its address.
        source: String,
        /// False where the uploader is not the model's publisher: an unofficial package.
        official: bool,
    },
    /// A source gave nothing; the next one is tried.
    SourceFailed {
        /// The source in words.
        source: String,
        /// Why.
        error: String,
    },
    /// Bytes of the download so far, over all files of the model.
    Progress {
        /// Bytes here.
        done: u64,
        /// Bytes in all, where known.
        total: Option<u64>,
    },
    /// A file that is here is being hashed.
    Verifying {
        /// The file's name.
        file: String,
    },
    /// The model is in the cache.
    Done {
        /// The model's full name.
        name: String,
    },
}
