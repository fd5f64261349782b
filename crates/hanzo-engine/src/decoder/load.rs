//! From the tensors of a file to the weights of a decoder, each at its place.

use hanzo_ml::{
    Bytes, DType, QTensor,
    backend::{Backend, Buffer, Weight, WeightShape},
};

use super::{
    Placement,
    layout::{Found, Layout},
    observe::Named,
};
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
    pub names: Vec<Named>,
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

/// What a weight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Products.
    Product,
    /// Rows that are looked up.
    Table,
    /// An embedding that is the output matrix too.
    Both,
}

/// What takes the tensors of a model.
pub(super) trait Shelf {
    /// Takes a weight.
    fn weight(
        &mut self,
        place: usize,
        shape: &WeightShape,
        purpose: Purpose,
        read: &dyn Fn() -> Result<QTensor>,
    ) -> Result<Weight>;

    /// Takes `len` floats.
    fn vector(&mut self, place: usize, len: usize, read: &dyn Fn() -> Result<Vec<f32>>) -> Result<Buffer>;
}

/// The devices take them.
pub(super) struct Shelves<'a> {
    pub backends: &'a mut [Box<dyn Backend>],
    /// Hears how many more bytes of the file are there.
    pub progress: &'a mut dyn FnMut(usize),
}

impl Shelf for Shelves<'_> {
    fn weight(
        &mut self,
        place: usize,
        shape: &WeightShape,
        purpose: Purpose,
        read: &dyn Fn() -> Result<QTensor>,
    ) -> Result<Weight> {
        let (backend, tensor) = (&mut self.backends[place], read()?);
        let weight = match purpose {
            Purpose::Product | Purpose::Both => backend.load(&tensor)?,
            Purpose::Table => backend.load_table(&tensor)?,
        };
        (self.progress)(shape.file_bytes());
        Ok(weight)
    }

    fn vector(&mut self, place: usize, _len: usize, read: &dyn Fn() -> Result<Vec<f32>>) -> Result<Buffer> {
        let (backend, values) = (&mut self.backends[place], read()?);
        let buffer = backend.alloc(DType::F32, values.len())?;
        backend.upload_f32(&buffer, &values)?;
        Ok(buffer)
    }
}

/// Loads every tensor that the spec asks for to its place.
pub(super) fn load(
    file: &ModelFile,
    spec: &DecoderSpec,
    placement: &Placement,
    shelf: &mut dyn Shelf,
) -> Result<DecoderWeights> {
    let (layout, at) = (Layout::new(file, spec)?, placement.embedding);
    let mut loader = Loader { layout, file, shelf, at, names: Vec::new() };
    let tied = loader.layout.get(Slot::Output, 0).is_none();
    let (embedding, output) = if tied && placement.head == placement.embedding {
        let both = loader.weight(Slot::TokenEmbedding, 0, Purpose::Both)?;
        (both.clone(), both)
    } else {
        let embedding = loader.weight(Slot::TokenEmbedding, 0, Purpose::Table)?;
        loader.at = placement.head;
        (embedding, loader.matrix(if tied { Slot::TokenEmbedding } else { Slot::Output }, 0)?)
    };
    let output_norm = loader.vector(Slot::OutputNorm, 0)?;
    let layers = spec.layers.iter().zip(&placement.layers).enumerate().map(|(l, (layer, &place))| {
        loader.at = place;
        loader.layer(l, &layer.ffn)
    });
    let layers = layers.collect::<Result<_>>()?;
    let names = loader.names;
    Ok(DecoderWeights { embedding, output_norm, output, layers, names })
}

struct Loader<'a> {
    layout: Layout,
    file: &'a ModelFile,
    shelf: &'a mut dyn Shelf,
    /// The place that tensors go to.
    at: usize,
    names: Vec<Named>,
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
        self.weight(slot, l, Purpose::Product)
    }

    fn weight(&mut self, slot: Slot, l: usize, purpose: Purpose) -> Result<Weight> {
        let (file, absent) = (self.file, || absent(slot, l));
        let found = self.layout.get(slot, l).ok_or_else(absent)?;
        let info = found.names.first().and_then(|name| file.tensors().info(name)).ok_or_else(absent)?;
        let shape = WeightShape::new(info.format, &found.shape).ok_or_else(absent)?;
        let weight = self.shelf.weight(self.at, &shape, purpose, &|| read(file, found))?;
        let name = self.gguf_name(slot, l)?;
        self.names.push(Named { place: self.at, weight: weight.clone(), name });
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
        let Some(found) = self.layout.get(slot, l) else { return Ok(None) };
        let file = self.file;
        let values = || {
            let mut values = read(file, found)?.to_f32();
            if slot.is_norm() && file.flavour() == Flavour::Config {
                let offset = file.family()?.norm_offset;
                values.iter_mut().for_each(|v| *v += offset);
            }
            Ok(values)
        };
        self.shelf.vector(self.at, found.shape.iter().product(), &values).map(Some)
    }
}

/// The tensor of a slot, or its parts, stacked.
fn read(file: &ModelFile, found: &Found) -> Result<QTensor> {
    let (Found { names, shape }, tensors) = (found, file.tensors());
    if let [name] = names.as_slice()
        && tensors.info(name).is_some_and(|info| info.shape == *shape)
    {
        return Ok(tensors.tensor(name)?);
    }
    let parts = names.iter().map(|name| tensors.tensor(name)).collect::<hanzo_ml::Result<Vec<_>>>()?;
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
    let first = parts.first().ok_or_else(|| Error::engine("a tensor has no parts"))?;
    Ok(QTensor::new(first.name(), first.format(), shape.clone(), Bytes::owned(bytes))?)
}

/// A tensor that the layout promised.
fn absent(slot: Slot, l: usize) -> Error {
    Error::engine(format!("layer {l} has no {slot:?}"))
}
