//! The decoder: one forward pass that reads a [`DecoderSpec`], over a ragged batch and the paged cache.

mod batch;
mod forward;
pub(crate) mod layout;
mod load;
mod observe;
mod place;
mod plan;
mod prepare;
mod step;

pub use batch::{Chunk, Input, POSITION_AXES, Rows};
pub use observe::{Observer, Product, Routing};
pub use place::{DeviceMap, Placement, Split};
pub use plan::{DevicePlan, MemoryPlan};
pub use prepare::{Devices, Prepared};

use hanzo_ml::{
    DType,
    backend::{Backend, Buffer, KV_BLOCK},
    file::TensorInfo,
};

use crate::{
    Error, Result,
    cache::{Cache, CacheGroup, SequenceId},
    model_file::ModelFile,
    rope::RopeTable,
    spec::DecoderSpec,
};
use load::{DecoderWeights, Shelves};

/// What a decoder reserves when it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct DecoderOptions {
    /// Positions of a sequence.
    pub context: usize,
    /// Sequences at once.
    pub n_sequences: usize,
    /// Rows of a step; longer prompts are given in chunks.
    pub max_rows: usize,
    /// Element type of cached keys.
    pub cache_type_k: DType,
    /// Element type of cached values.
    pub cache_type_v: DType,
}

/// A model on its devices, with its cache.
pub struct Decoder {
    spec: DecoderSpec,
    options: DecoderOptions,
    backends: Vec<Box<dyn Backend>>,
    /// Which backend has what; the cache of a layer is where the layer is.
    placement: Placement,
    weights: DecoderWeights,
    cache: Cache,
    /// Keys and values of each layer, `[block, K, 32, Hd]`.
    kv: Vec<(Buffer, Buffer)>,
    /// The rotations at each place.
    ropes: Vec<Vec<DeviceRope>>,
}

/// A rotation's constants on the device.
struct DeviceRope {
    inv_freq: Buffer,
    axis: Buffer,
    magnitude: f32,
}

/// The results of a step, in the order of the batch's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// `[rows asked for, V]`.
    pub logits: Vec<f32>,
    /// `[rows asked for, D]`, after the last norm.
    pub hidden: Vec<f32>,
}

impl Decoder {
    /// Loads a model.
    ///
    /// # Errors
    /// If the model is not supported, a tensor does not fit, or the device lacks memory.
    pub fn load(file: &ModelFile, backend: Box<dyn Backend>, options: DecoderOptions) -> Result<Self> {
        Self::load_with(file, file.spec()?, backend, options)
    }

    /// Loads a model with a spec of the caller's, which tests change.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(
        file: &ModelFile,
        spec: DecoderSpec,
        backend: Box<dyn Backend>,
        options: DecoderOptions,
    ) -> Result<Self> {
        let placement = Placement::single(spec.layers.len());
        Self::load_placed(file, spec, vec![backend], placement, options, &mut |_, _| ())
    }

    /// Loads a model to several devices. `progress` hears how many bytes of the weights are there, and of how many.
    ///
    /// # Errors
    /// As [`Self::load`], and if the placement does not fit.
    pub fn load_placed(
        file: &ModelFile,
        spec: DecoderSpec,
        mut backends: Vec<Box<dyn Backend>>,
        placement: Placement,
        options: DecoderOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        placement.check(spec.layers.len(), backends.len())?;
        check_cache_types(&spec, &options)?;
        let total = file.tensors().tensors().iter().map(TensorInfo::bytes).sum();
        let mut done = 0;
        let mut progress = |bytes: usize| {
            done += bytes;
            progress(done, total);
        };
        let mut shelves = Shelves { backends: &mut backends, progress: &mut progress };
        let weights = load::load(file, &spec, &placement, &mut shelves)?;
        let cache = Cache::new(&spec, options.context, options.n_sequences, options.max_rows);
        let kv = alloc_kv(&spec, &cache, options, &placement, &mut backends)?;
        let ropes = load_ropes(file, &spec, options.context, &mut backends)?;
        Ok(Self { spec, options, backends, placement, weights, cache, kv, ropes })
    }

    /// What the model is made of.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// What was reserved.
    pub fn options(&self) -> &DecoderOptions {
        &self.options
    }

    /// The devices' names.
    pub fn backend_name(&self) -> String {
        let used = self.backends.iter().enumerate().filter(|(place, _)| self.placement.uses(*place));
        used.map(|(_, backend)| backend.name()).collect::<Vec<_>>().join(" + ")
    }

    /// Which device has what.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The cache's bookkeeping.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Begins an empty sequence.
    pub fn begin(&mut self) -> SequenceId {
        self.cache.begin()
    }

    /// Ends a sequence and gives its share of the cache back.
    pub fn end(&mut self, sequence: SequenceId) {
        self.cache.end(sequence);
    }
}

/// Checks that a model's metadata and tensors are supported, without reading a weight.
///
/// # Errors
/// As [`Decoder::load`], but for memory.
pub fn check(file: &ModelFile) -> Result<DecoderSpec> {
    let spec = file.spec()?;
    layout::Layout::new(file, &spec)?;
    Ok(spec)
}

/// Checks that the heads of every layer hold whole blocks of the cache's types.
///
/// # Errors
/// Names the layer, its heads and the type.
pub fn check_cache_types(spec: &DecoderSpec, options: &DecoderOptions) -> Result<()> {
    for (name, dtype) in [("cache-type-k", options.cache_type_k), ("cache-type-v", options.cache_type_v)] {
        let (elems, whole) = (dtype.block_elems(), |hd: usize| hd.is_multiple_of(dtype.block_elems()));
        let heads = || spec.layers.iter().map(|layer| layer.attention().head_dim).enumerate();
        if let Some((l, hd)) = heads().find(|&(_, hd)| !whole(hd)) {
            let dtype = format!("{dtype:?}").to_lowercase();
            return Err(Error::request(format!(
                "{name} {dtype}: layer {l} has heads of {hd} elements, not a multiple of {elems}"
            )));
        }
    }
    Ok(())
}

/// Elements of the keys, or of the values, of one layer; `None` if that overflows.
fn kv_elems(group: &CacheGroup) -> Option<usize> {
    let row = group.n_kv_heads.checked_mul(group.head_dim)?;
    group.pool.n_blocks().checked_mul(KV_BLOCK)?.checked_mul(row)
}

fn alloc_kv(
    spec: &DecoderSpec,
    cache: &Cache,
    options: DecoderOptions,
    placement: &Placement,
    backends: &mut [Box<dyn Backend>],
) -> Result<Vec<(Buffer, Buffer)>> {
    let mut alloc = |l: usize| {
        let group = cache.groups().iter().find(|g| g.layers.contains(&l));
        let group = group.ok_or_else(|| Error::engine(format!("layer {l} is in no cache group")))?;
        let len = kv_elems(group)
            .ok_or_else(|| Error::request("the key/value cache is too large; lower the context"))?;
        let backend = &mut backends[placement.layers[l]];
        Ok((backend.alloc(options.cache_type_k, len)?, backend.alloc(options.cache_type_v, len)?))
    };
    (0..spec.layers.len()).map(&mut alloc).collect()
}

/// The rotations' constants, at each place.
fn load_ropes(
    file: &ModelFile,
    spec: &DecoderSpec,
    context: usize,
    backends: &mut [Box<dyn Backend>],
) -> Result<Vec<Vec<DeviceRope>>> {
    let tables = spec.ropes.iter().map(|rope| rope.table(context));
    let tables = tables.collect::<std::result::Result<Vec<_>, _>>();
    let tables = tables.map_err(|what| Error::model(file.path().display(), what))?;
    let at = |backend: &mut Box<dyn Backend>| {
        let rope = |table: &RopeTable| {
            let inv_freq = backend.alloc(DType::F32, table.inv_freq.len())?;
            backend.upload_f32(&inv_freq, &table.inv_freq)?;
            let axis = backend.alloc(DType::U32, table.axis.len())?;
            backend.upload_u32(&axis, &table.axis)?;
            Ok(DeviceRope { inv_freq, axis, magnitude: table.magnitude })
        };
        tables.iter().map(rope).collect()
    };
    backends.iter_mut().map(at).collect()
}

#[cfg(test)]
mod tests {
    use hanzo_ml::backend::Counting;

    use super::*;
    use crate::testing::tiny_spec;

    fn cache_bytes(spec: &DecoderSpec, options: DecoderOptions) -> usize {
        let cache = Cache::new(spec, options.context, options.n_sequences, options.max_rows);
        let placement = Placement::single(spec.layers.len());
        let (counting, ledger) = Counting::new();
        alloc_kv(spec, &cache, options, &placement, &mut [Box::new(counting)]).unwrap();
        ledger.take().into_iter().map(|(dtype, len)| dtype.bytes_of(len).unwrap()).sum()
    }

    #[test]
    fn the_cache_takes_the_bytes_of_its_types() {
        let mut spec = tiny_spec(&[None, None]);
        let mut options = DecoderOptions {
            context: 64,
            n_sequences: 1,
            max_rows: 8,
            cache_type_k: DType::F16,
            cache_type_v: DType::Q8_0,
        };
        for layer in &mut spec.layers {
            (layer.attention_mut().n_kv_heads, layer.attention_mut().head_dim) = (3, 96);
        }
        check_cache_types(&spec, &options).unwrap();
        // Keys of 2 bytes; values in blocks of 32 of 34 bytes.
        let elems = 2 * 64 * 3 * 96;
        assert_eq!(cache_bytes(&spec, options), elems * 2 + elems / 32 * 34);
        options.cache_type_v = DType::F32;
        assert_eq!(cache_bytes(&spec, options), elems * 6);
        options.cache_type_k = DType::Q8_0;
        spec.layers[1].attention_mut().head_dim = 80;
        let error = check_cache_types(&spec, &options).unwrap_err().to_string();
        assert!(error.contains("cache-type-k q8_0: layer 1 has heads of 80"), "{error}");
    }
}
