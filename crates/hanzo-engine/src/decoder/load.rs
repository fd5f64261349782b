//! From the tensors of a file to the weights of a decoder on a device.
//!
//! Every tensor of the file is consumed or known to be derived; anything else is an error that names it.

use std::collections::HashSet;

use hanzo_ml::{
    Bytes, DType, QTensor,
    backend::{Backend, Buffer, Weight},
};

use crate::{
    Result,
    family::{Family, Flavour, Slot},
    model_file::ModelFile,
    spec::{DecoderSpec, Ffn, LayerSpec},
};

/// The weights of a decoder.
pub(super) struct DecoderWeights {
    pub embedding: Weight,
    pub output_norm: Buffer,
    /// The embedding again where the file has no output matrix of its own.
    pub output: Weight,
    pub layers: Vec<LayerWeights>,
}

/// The weights of a layer.
pub(super) struct LayerWeights {
    pub mixer_norm: Buffer,
    pub attention: AttentionWeights,
    pub post_mixer_norm: Option<Buffer>,
    pub ffn_norm: Buffer,
    pub ffn: FfnWeights,
    pub post_ffn_norm: Option<Buffer>,
}

/// The projections of an attention layer.
pub(super) struct AttentionWeights {
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub out: Linear,
    pub query_norm: Option<Buffer>,
    pub key_norm: Option<Buffer>,
}

/// The weights of a feed-forward part.
pub(super) enum FfnWeights {
    Dense { gate: Linear, up: Linear, down: Linear },
    Moe { router: Weight, gate: Weight, up: Weight, down: Weight },
}

/// A matrix with an optional bias.
pub(super) struct Linear {
    pub weight: Weight,
    pub bias: Option<Buffer>,
}

/// Loads every tensor that the spec asks for.
pub(super) fn load(file: &ModelFile, spec: &DecoderSpec, backend: &mut dyn Backend) -> Result<DecoderWeights> {
    let mut loader = Loader { file, family: file.family()?, backend, used: HashSet::new() };
    let (vocab, width) = (spec.vocab_size, spec.hidden_size);
    let embedding = loader.matrix(Slot::TokenEmbedding, 0, vocab, width)?;
    let output = match loader.opt_matrix(Slot::Output, 0, vocab, width)? {
        Some(output) => output,
        None => embedding.clone(),
    };
    let output_norm = loader.vector(Slot::OutputNorm, 0, width)?;
    let layers = spec.layers.iter().enumerate().map(|(l, layer)| loader.layer(l, layer, width));
    let layers = layers.collect::<Result<_>>()?;
    loader.finish()?;
    Ok(DecoderWeights { embedding, output_norm, output, layers })
}

struct Loader<'a> {
    file: &'a ModelFile,
    family: &'static Family,
    backend: &'a mut dyn Backend,
    used: HashSet<String>,
}

impl Loader<'_> {
    fn layer(&mut self, l: usize, layer: &LayerSpec, width: usize) -> Result<LayerWeights> {
        Ok(LayerWeights {
            mixer_norm: self.vector(Slot::MixerNorm, l, width)?,
            attention: self.attention(l, layer, width)?,
            post_mixer_norm: self.vector_if(layer.post_mixer_norm, Slot::PostMixerNorm, l, width)?,
            ffn_norm: self.vector(Slot::FfnNorm, l, width)?,
            ffn: self.ffn(l, &layer.ffn, width)?,
            post_ffn_norm: self.vector_if(layer.post_ffn_norm, Slot::PostFfnNorm, l, width)?,
        })
    }

    fn attention(&mut self, l: usize, layer: &LayerSpec, width: usize) -> Result<AttentionWeights> {
        let a = layer.attention();
        let (q, kv) = (a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim);
        Ok(AttentionWeights {
            query: self.linear((Slot::Query, Slot::QueryBias), l, q, width)?,
            key: self.linear((Slot::Key, Slot::KeyBias), l, kv, width)?,
            value: self.linear((Slot::Value, Slot::ValueBias), l, kv, width)?,
            out: self.linear((Slot::AttentionOut, Slot::AttentionOutBias), l, width, q)?,
            query_norm: self.vector_if(a.qk_norm, Slot::QueryNorm, l, a.head_dim)?,
            key_norm: self.vector_if(a.qk_norm, Slot::KeyNorm, l, a.head_dim)?,
        })
    }

    fn ffn(&mut self, l: usize, ffn: &Ffn, hidden: usize) -> Result<FfnWeights> {
        match *ffn {
            Ffn::Dense { width, .. } => Ok(FfnWeights::Dense {
                gate: self.linear((Slot::Gate, Slot::GateBias), l, width, hidden)?,
                up: self.linear((Slot::Up, Slot::UpBias), l, width, hidden)?,
                down: self.linear((Slot::Down, Slot::DownBias), l, hidden, width)?,
            }),
            Ffn::Moe { width, n_experts, .. } => Ok(FfnWeights::Moe {
                router: self.matrix(Slot::Router, l, n_experts, hidden)?,
                gate: self.experts(Slot::ExpertGate, l, [n_experts, width, hidden])?,
                up: self.experts(Slot::ExpertUp, l, [n_experts, width, hidden])?,
                down: self.experts(Slot::ExpertDown, l, [n_experts, hidden, width])?,
            }),
        }
    }

    fn linear(&mut self, (weight, bias): (Slot, Slot), l: usize, n: usize, k: usize) -> Result<Linear> {
        Ok(Linear { weight: self.matrix(weight, l, n, k)?, bias: self.opt_vector(bias, l, n)? })
    }

    fn matrix(&mut self, slot: Slot, l: usize, n: usize, k: usize) -> Result<Weight> {
        self.opt_matrix(slot, l, n, k)?.ok_or_else(|| self.missing(slot, l))
    }

    fn opt_matrix(&mut self, slot: Slot, l: usize, n: usize, k: usize) -> Result<Option<Weight>> {
        let Some(tensor) = self.tensor(slot, l, 1)? else { return Ok(None) };
        self.expect_shape(&tensor, &[n, k])?;
        Ok(Some(self.backend.load(&tensor)?))
    }

    fn experts(&mut self, slot: Slot, l: usize, shape: [usize; 3]) -> Result<Weight> {
        let tensor = self.tensor(slot, l, shape[0])?.ok_or_else(|| self.missing(slot, l))?;
        self.expect_shape(&tensor, &shape)?;
        Ok(self.backend.load(&tensor)?)
    }

    fn vector(&mut self, slot: Slot, l: usize, len: usize) -> Result<Buffer> {
        self.opt_vector(slot, l, len)?.ok_or_else(|| self.missing(slot, l))
    }

    fn vector_if(&mut self, wanted: bool, slot: Slot, l: usize, len: usize) -> Result<Option<Buffer>> {
        if wanted { self.vector(slot, l, len).map(Some) } else { Ok(None) }
    }

    fn opt_vector(&mut self, slot: Slot, l: usize, len: usize) -> Result<Option<Buffer>> {
        let Some(tensor) = self.tensor(slot, l, 1)? else { return Ok(None) };
        self.expect_shape(&tensor, &[len])?;
        let mut values = tensor.to_f32();
        if slot.is_norm() && self.file.flavour() == Flavour::Config {
            values.iter_mut().for_each(|v| *v += self.family.norm_offset);
        }
        let buffer = self.backend.alloc(DType::F32, len)?;
        self.backend.upload_f32(&buffer, &values)?;
        Ok(Some(buffer))
    }

    /// The tensor of a slot, experts stacked if the file has them apart.
    fn tensor(&mut self, slot: Slot, l: usize, n_experts: usize) -> Result<Option<QTensor>> {
        let family = self.family;
        for pattern in family.names(self.file.flavour(), slot).filter(|name| !name.is_empty()) {
            let pattern = pattern.replace("{l}", &l.to_string());
            let first = pattern.replace("{e}", "0");
            if self.file.tensors().info(&first).is_none() {
                continue;
            }
            if first == pattern {
                return self.take(&pattern).map(Some);
            }
            return self.stack(&pattern, n_experts).map(Some);
        }
        Ok(None)
    }

    fn take(&mut self, name: &str) -> Result<QTensor> {
        let tensor = self.file.tensors().tensor(name)?;
        self.used.insert(name.to_owned());
        Ok(tensor)
    }

    fn stack(&mut self, pattern: &str, n_experts: usize) -> Result<QTensor> {
        let first = self.take(&pattern.replace("{e}", "0"))?;
        let mut bytes = Vec::with_capacity(first.bytes().len().saturating_mul(n_experts));
        bytes.extend_from_slice(first.bytes());
        for e in 1..n_experts {
            let tensor = self.take(&pattern.replace("{e}", &e.to_string()))?;
            if tensor.shape() != first.shape() || tensor.format() != first.format() {
                let what = "differs from expert 0 in shape or type";
                return Err(hanzo_ml::Error::tensor(tensor.name(), what).into());
            }
            bytes.extend_from_slice(tensor.bytes());
        }
        let shape = [&[n_experts], first.shape()].concat();
        Ok(QTensor::new(pattern, first.format(), shape, Bytes::owned(bytes))?)
    }

    fn expect_shape(&self, tensor: &QTensor, shape: &[usize]) -> Result<()> {
        if tensor.shape() == shape {
            return Ok(());
        }
        let what = format!("tensor {} has shape {:?}, but the metadata ask for {shape:?}", tensor.name(), tensor.shape());
        Err(self.file.error(what))
    }

    fn missing(&self, slot: Slot, l: usize) -> crate::Error {
        let name = self.family.names(self.file.flavour(), slot).next().unwrap_or_default();
        self.file.error(format!("tensor {} is missing", name.replace("{l}", &l.to_string()).replace("{e}", "0")))
    }

    /// Fails on a tensor that nothing asked for: the model computes something that the spec does not say.
    fn finish(&self) -> Result<()> {
        let tensors = self.file.tensors();
        // The rotation's constants: read with the metadata in GGUF, derived from them elsewhere.
        let derived = |name: &str| {
            self.family.names(Flavour::Gguf, Slot::RopeDivisors).any(|n| n == name)
                || name.ends_with(".rotary_emb.inv_freq")
        };
        let left: Vec<&str> = tensors.names().filter(|name| !self.used.contains(*name) && !derived(name)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let (shown, more) = (left.iter().take(8).copied().collect::<Vec<_>>().join(", "), left.len() > 8);
        let more = if more { " …" } else { "" };
        Err(self.file.error(format!("{} tensors are not supported: {shown}{more}", left.len())))
    }
}
