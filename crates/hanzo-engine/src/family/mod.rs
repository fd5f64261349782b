//! Model families: each file turns metadata into a [`DecoderSpec`] and back, and names the tensors.
//!
//! A family file has four parts in this order: metadata to spec and back; tensor names; weight fixes at load; its row.
//! No file outside this folder asks for an architecture's name.

mod common;
mod fields;
mod gemma;
mod gemma2;
mod gemma3;
mod llama;
mod mistral;
mod mixtral;
mod names;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod rotation;
pub(crate) mod written;

pub(crate) use fields::{Fields, Flavour};
pub(crate) use names::{Name, Slot};
pub(crate) use rotation::divisors_name;

use hanzo_ml::file::TensorSource;
use written::Keys;

use crate::{Result, spec::DecoderSpec};

/// Everything a family may look at.
pub(crate) struct Facts<'a> {
    /// The GGUF metadata or the fields of config.json.
    pub fields: Fields<'a>,
    /// The tensors, for facts that their presence or shape settles.
    pub tensors: &'a dyn TensorSource,
    /// Rows of the embedding table.
    pub vocab_size: usize,
}

/// A family of models.
pub struct Family {
    /// The name for people.
    pub name: &'static str,
    /// Values of `general.architecture` that it reads.
    pub gguf: &'static [&'static str],
    /// Values of `model_type` that it reads.
    pub hf: &'static [&'static str],
    /// Metadata to spec.
    pub(crate) spec: fn(&Facts<'_>) -> Result<DecoderSpec>,
    /// Tensor names that differ from [`names::BASE`].
    pub(crate) names: &'static [Name],
    /// Constant added to norm weights from Hugging Face files, which store some families' weights less 1.
    pub(crate) norm_offset: f32,
    /// Writes the GGUF keys that the family reads beside those that all share.
    pub(crate) write: fn(&DecoderSpec, &mut Keys),
    /// Fields of config.json without influence on this family's results.
    pub(crate) harmless: &'static [&'static str],
}

/// Every family.
pub static FAMILIES: &[Family] = &[
    llama::FAMILY,
    mistral::FAMILY,
    mixtral::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    qwen3moe::FAMILY,
    gemma::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
];

impl Family {
    /// The family of a `general.architecture` or `model_type`.
    pub fn find(flavour: Flavour, architecture: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|f| f.architectures(flavour).contains(&architecture))
    }

    /// The architecture names of a flavour that it reads.
    pub fn architectures(&self, flavour: Flavour) -> &'static [&'static str] {
        match flavour {
            Flavour::Gguf => self.gguf,
            Flavour::Config => self.hf,
        }
    }

    /// What a converter of today calls a slot's tensor, also of a family that converters give another name.
    pub(crate) fn gguf_name(&self, slot: Slot) -> &'static str {
        let names = self.names.iter().chain(names::BASE).filter(|n| n.slot == slot);
        names.map(|n| n.gguf).find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// The `general.architecture` under which its models are written: its own, or that of the family it is a case of.
    pub(crate) fn written_as(&self) -> &'static str {
        self.gguf.first().copied().unwrap_or(llama::FAMILY.name)
    }

    /// The names of a slot's tensor, to be tried in order.
    pub(crate) fn names(&self, flavour: Flavour, slot: Slot) -> impl Iterator<Item = &'static str> {
        let own = self.names.iter().filter(move |n| n.slot == slot);
        let has_own = own.clone().next().is_some();
        let base = names::BASE.iter().filter(move |n| n.slot == slot && !has_own);
        own.chain(base).map(move |n| match flavour {
            Flavour::Gguf => n.gguf,
            Flavour::Config => n.hf,
        })
    }
}

/// Whether a model has the shape of Llama 2 70B, as llama.cpp tells it: its value projections are small beside the rest.
/// `n_shared`: query heads that share a key/value head.
pub(crate) fn is_70b(architecture: &str, n_layers: usize, n_shared: usize) -> bool {
    let shaped = match architecture {
        "llama" => n_shared != 1,
        "qwen2" | "deci" | "olmo" => true,
        _ => false,
    };
    shaped && n_layers == 80
}
