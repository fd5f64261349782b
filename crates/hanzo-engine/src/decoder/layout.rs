//! Which tensors a spec asks for and where the file has them, without reading any.
//!
//! Every tensor of the file is asked for or known to be derived; anything else is an error that names it: the
//! model would compute something that the spec does not say.

use std::collections::{HashMap, HashSet};

use hanzo_ml::file::{TensorInfo, TensorSource};

use crate::{
    Error, Result,
    family::{Family, Flavour, Slot},
    model_file::ModelFile,
    spec::{DecoderSpec, Ffn, LayerSpec},
};

/// Where the file has each tensor of a decoder.
pub(crate) struct Layout {
    found: HashMap<(Slot, usize), Found>,
}

/// The tensor or, where experts lie apart, the tensors of one slot.
pub(crate) struct Found {
    /// Names in the file; several are experts to be stacked.
    pub names: Vec<String>,
    /// The shape in the decoder, experts first.
    pub shape: Vec<usize>,
}

/// A tensor that a spec asks for.
struct Wanted {
    slot: Slot,
    layer: usize,
    shape: Vec<usize>,
    required: bool,
}

impl Layout {
    /// Finds every tensor of a spec and checks its shape.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, or is not asked for.
    pub fn new(file: &ModelFile, spec: &DecoderSpec) -> Result<Self> {
        let family = file.family()?;
        let mut found = HashMap::new();
        for wanted in wanted(spec, file.is_untied()) {
            match find(file, family, &wanted)? {
                Some(tensor) => {
                    found.insert((wanted.slot, wanted.layer), tensor);
                }
                None if wanted.required => {
                    let name = family.names(file.flavour(), wanted.slot).next().unwrap_or_default();
                    let name = name.replace("{l}", &wanted.layer.to_string()).replace("{e}", "0");
                    return Err(file.error(format!("tensor {name} is missing")));
                }
                None => {}
            }
        }
        let layout = Self { found };
        layout.refuse_surplus(file, family)?;
        Ok(layout)
    }

    /// The tensor of a slot, where the file has one.
    pub fn get(&self, slot: Slot, layer: usize) -> Option<&Found> {
        self.found.get(&(slot, layer))
    }

    /// Every tensor that was found, outer ones first, then layer by layer.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, usize, &Found)> {
        let mut all: Vec<_> = self.found.iter().map(|(&(slot, layer), found)| (slot, layer, found)).collect();
        all.sort_by_key(|&(slot, layer, _)| (!slot.is_outer(), layer, slot as usize));
        all.into_iter()
    }

    fn refuse_surplus(&self, file: &ModelFile, family: &Family) -> Result<()> {
        const SHOWN: usize = 8;
        let used: HashSet<&str> = self.found.values().flat_map(|f| &f.names).map(String::as_str).collect();
        // The rotation's constants: read with the metadata in GGUF, derived from them elsewhere.
        let derived = |name: &str| {
            family.names(Flavour::Gguf, Slot::RopeDivisors).any(|n| n == name)
                || name.ends_with(".rotary_emb.inv_freq")
        };
        let surplus = file.tensors().names().filter(|name| !used.contains(name) && !derived(name));
        let surplus: Vec<&str> = surplus.collect();
        if surplus.is_empty() {
            return Ok(());
        }
        let shown = surplus.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = if surplus.len() > SHOWN { " …" } else { "" };
        Err(file.error(format!("{} tensors are not supported: {shown}{more}", surplus.len())))
    }
}

/// The tensor of a slot; names are tried in the order of the family's table.
fn find(file: &ModelFile, family: &Family, wanted: &Wanted) -> Result<Option<Found>> {
    let tensors = file.tensors();
    for pattern in family.names(file.flavour(), wanted.slot).filter(|name| !name.is_empty()) {
        let pattern = pattern.replace("{l}", &wanted.layer.to_string());
        let apart = pattern.contains("{e}");
        let Some(first) = tensors.info(&pattern.replace("{e}", "0")) else { continue };
        let (n, shape) = if apart { (wanted.shape[0], &wanted.shape[1..]) } else { (1, &wanted.shape[..]) };
        let names: Vec<String> = (0..n).map(|e| pattern.replace("{e}", &e.to_string())).collect();
        for name in &names {
            check(file, tensors, name, shape, first)?;
        }
        return Ok(Some(Found { names, shape: wanted.shape.clone() }));
    }
    Ok(None)
}

fn check(
    file: &ModelFile,
    tensors: &dyn TensorSource,
    name: &str,
    shape: &[usize],
    first: &TensorInfo,
) -> Result<()> {
    let error = |what: String| Err::<(), Error>(file.error(format!("tensor {name} {what}")));
    let Some(info) = tensors.info(name) else { return error("is missing".to_owned()) };
    if info.shape != shape {
        return error(format!("has shape {:?}, but the metadata ask for {shape:?}", info.shape));
    }
    if info.format != first.format {
        return error(format!("is {:?}, but {} is {:?}", info.format, first.name, first.format));
    }
    Ok(())
}

/// Every tensor of a decoder.
fn wanted(spec: &DecoderSpec, untied: bool) -> Vec<Wanted> {
    let (vocab, width) = (spec.vocab_size, spec.hidden_size);
    let outer = |slot, shape: &[usize], required| Wanted { slot, layer: 0, shape: shape.to_vec(), required };
    let mut all = vec![
        outer(Slot::TokenEmbedding, &[vocab, width], true),
        outer(Slot::Output, &[vocab, width], untied),
        outer(Slot::OutputNorm, &[width], true),
    ];
    for (l, layer) in spec.layers.iter().enumerate() {
        let mut add = |slot, shape: &[usize], required| {
            all.push(Wanted { slot, layer: l, shape: shape.to_vec(), required });
        };
        add(Slot::MixerNorm, &[width], true);
        add(Slot::FfnNorm, &[width], true);
        if layer.post_mixer_norm {
            add(Slot::PostMixerNorm, &[width], true);
        }
        if layer.post_ffn_norm {
            add(Slot::PostFfnNorm, &[width], true);
        }
        add_attention(layer, width, &mut add);
        add_ffn(&layer.ffn, width, &mut add);
    }
    all
}

fn add_attention(layer: &LayerSpec, width: usize, add: &mut impl FnMut(Slot, &[usize], bool)) {
    let a = layer.attention();
    let (q, kv) = (a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim);
    for (weight, bias, n, k) in [
        (Slot::Query, Slot::QueryBias, q, width),
        (Slot::Key, Slot::KeyBias, kv, width),
        (Slot::Value, Slot::ValueBias, kv, width),
        (Slot::AttentionOut, Slot::AttentionOutBias, width, q),
    ] {
        add(weight, &[n, k], true);
        add(bias, &[n], false);
    }
    if a.qk_norm {
        add(Slot::QueryNorm, &[a.head_dim], true);
        add(Slot::KeyNorm, &[a.head_dim], true);
    }
}

fn add_ffn(ffn: &Ffn, width: usize, add: &mut impl FnMut(Slot, &[usize], bool)) {
    match *ffn {
        Ffn::Dense { width: f, .. } => {
            for (weight, bias, n, k) in [
                (Slot::Gate, Slot::GateBias, f, width),
                (Slot::Up, Slot::UpBias, f, width),
                (Slot::Down, Slot::DownBias, width, f),
            ] {
                add(weight, &[n, k], true);
                add(bias, &[n], false);
            }
        }
        Ffn::Moe { width: f, n_experts, .. } => {
            add(Slot::Router, &[n_experts, width], true);
            add(Slot::ExpertGate, &[n_experts, f, width], true);
            add(Slot::ExpertUp, &[n_experts, f, width], true);
            add(Slot::ExpertDown, &[n_experts, width, f], true);
        }
    }
}
