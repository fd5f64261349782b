//! From the tensors of a file to the weights of a decoder on a device.

use hanzo_ml::{
    Bytes, DType, QTensor,
    backend::{Backend, Buffer, Weight},
};

use super::layout::{Found, Layout};
use crate::{
    Error, Result,
    family::{Flavour, Slot},
    model_file::ModelFile,
    spec::{DecoderSpec, Ffn},
};

/// The weights of a decoder.
pub(super) struct DecoderWeights {
    pub embedding: Weight,
    pub output_norm: Buffer,
    /// The embedding again where the file has no output matrix of its own.
    pub output: Weight,
    pub layers: Vec<LayerWeights>,
    /// The name that a GGUF file has for each weight, whatever the file is.
    pub names: Vec<(Weight, String)>,
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
pub(super) fn load(
    file: &ModelFile,
    spec: &DecoderSpec,
    backend: &mut dyn Backend,
) -> Result<DecoderWeights> {
    let mut loader = Loader { layout: Layout::new(file, spec)?, file, backend, names: Vec::new() };
    let (embedding, output) = match loader.layout.get(Slot::Output, 0) {
        Some(_) => (loader.table(Slot::TokenEmbedding, 0)?, loader.matrix(Slot::Output, 0)?),
        None => {
            let both = loader.matrix(Slot::TokenEmbedding, 0)?;
            (both.clone(), both)
        }
    };
    let output_norm = loader.vector(Slot::OutputNorm, 0)?;
    let layers = spec.layers.iter().enumerate().map(|(l, layer)| loader.layer(l, &layer.ffn));
    let layers = layers.collect::<Result<_>>()?;
    let names = loader.names;
    Ok(DecoderWeights { embedding, output_norm, output, layers, names })
}

struct Loader<'a> {
    layout: Layout,
    file: &'a ModelFile,
    backend: &'a mut dyn Backend,
    names: Vec<(Weight, String)>,
}

impl Loader<'_> {
    fn layer(&mut self, l: usize, ffn: &Ffn) -> Result<LayerWeights> {
        Ok(LayerWeights {
            mixer_norm: self.vector(Slot::MixerNorm, l)?,
            attention: AttentionWeights {
                query: self.linear(Slot::Query, Slot::QueryBias, l)?,
                key: self.linear(Slot::Key, Slot::KeyBias, l)?,
                value: self.linear(Slot::Value, Slot::ValueBias, l)?,
                out: self.linear(Slot::AttentionOut, Slot::AttentionOutBias, l)?,
                query_norm: self.opt_vector(Slot::QueryNorm, l)?,
                key_norm: self.opt_vector(Slot::KeyNorm, l)?,
            },
            post_mixer_norm: self.opt_vector(Slot::PostMixerNorm, l)?,
            ffn_norm: self.vector(Slot::FfnNorm, l)?,
            ffn: self.ffn(l, ffn)?,
            post_ffn_norm: self.opt_vector(Slot::PostFfnNorm, l)?,
        })
    }

    fn ffn(&mut self, l: usize, ffn: &Ffn) -> Result<FfnWeights> {
        match ffn {
            Ffn::Dense { .. } => Ok(FfnWeights::Dense {
                gate: self.linear(Slot::Gate, Slot::GateBias, l)?,
                up: self.linear(Slot::Up, Slot::UpBias, l)?,
                down: self.linear(Slot::Down, Slot::DownBias, l)?,
            }),
            Ffn::Moe { .. } => Ok(FfnWeights::Moe {
                router: self.matrix(Slot::Router, l)?,
                gate: self.matrix(Slot::ExpertGate, l)?,
                up: self.matrix(Slot::ExpertUp, l)?,
                down: self.matrix(Slot::ExpertDown, l)?,
            }),
        }
    }

    fn linear(&mut self, weight: Slot, bias: Slot, l: usize) -> Result<Linear> {
        Ok(Linear { weight: self.matrix(weight, l)?, bias: self.opt_vector(bias, l)? })
    }

    fn matrix(&mut self, slot: Slot, l: usize) -> Result<Weight> {
        self.weight(slot, l, |backend, tensor| backend.load(tensor))
    }

    /// A matrix of which only rows are looked up.
    fn table(&mut self, slot: Slot, l: usize) -> Result<Weight> {
        self.weight(slot, l, |backend, tensor| backend.load_table(tensor))
    }

    fn weight(
        &mut self,
        slot: Slot,
        l: usize,
        load: fn(&mut dyn Backend, &QTensor) -> hanzo_ml::Result<Weight>,
    ) -> Result<Weight> {
        let tensor = self.tensor(slot, l)?.ok_or_else(|| absent(slot, l))?;
        let weight = load(self.backend, &tensor)?;
        self.names.push((weight.clone(), self.gguf_name(slot, l)?));
        Ok(weight)
    }

    /// What a GGUF file of today calls a slot's tensor.
    fn gguf_name(&self, slot: Slot, l: usize) -> Result<String> {
        let found = self.layout.get(slot, l).map(|found| found.names.as_slice());
        if let (Flavour::Gguf, Some([name])) = (self.file.flavour(), found) {
            return Ok(name.clone());
        }
        Ok(self.file.family()?.gguf_name(slot).replace("{l}", &l.to_string()))
    }

    fn vector(&mut self, slot: Slot, l: usize) -> Result<Buffer> {
        self.opt_vector(slot, l)?.ok_or_else(|| absent(slot, l))
    }

    fn opt_vector(&mut self, slot: Slot, l: usize) -> Result<Option<Buffer>> {
        let Some(tensor) = self.tensor(slot, l)? else { return Ok(None) };
        let mut values = tensor.to_f32();
        if slot.is_norm() && self.file.flavour() == Flavour::Config {
            let offset = self.file.family()?.norm_offset;
            values.iter_mut().for_each(|v| *v += offset);
        }
        let buffer = self.backend.alloc(DType::F32, values.len())?;
        self.backend.upload_f32(&buffer, &values)?;
        Ok(Some(buffer))
    }

    fn tensor(&self, slot: Slot, l: usize) -> Result<Option<QTensor>> {
        let Some(Found { names, shape }) = self.layout.get(slot, l) else { return Ok(None) };
        let tensors = self.file.tensors();
        if let [name] = names.as_slice()
            && tensors.info(name).is_some_and(|info| info.shape == *shape)
        {
            return Ok(Some(tensors.tensor(name)?));
        }
        let parts = names.iter().map(|name| tensors.tensor(name)).collect::<hanzo_ml::Result<Vec<_>>>()?;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
        let format = parts.first().ok_or_else(|| absent(slot, l))?.format();
        Ok(Some(QTensor::new(&names[0], format, shape.clone(), Bytes::owned(bytes))?))
    }
}

/// A tensor that the layout promised.
fn absent(slot: Slot, l: usize) -> Error {
    Error::engine(format!("layer {l} has no {slot:?}"))
}
