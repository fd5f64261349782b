//! What a decoder will take of its devices' memory, before anything is loaded.
//!
//! Nothing is estimated by a formula: the code that loads and the forward pass of the largest step run on backends that only
//! count ([`Counting`]). What a backend uses within one operation is not seen.

use hanzo_ml::{
    DType, QTensor,
    backend::{Backend, Buffer, Counting, Footprint, Ledger, MemoryInfo, Weight, WeightShape},
};

use super::{
    Chunk, Decoder, DecoderOptions, Placement, Rows,
    load::{self, Purpose, Shelf},
};
use crate::{Error, Result, cache::Cache, model_file::ModelFile, spec::DecoderSpec};

/// What a model will take of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Positions of a sequence.
    pub context: usize,
    /// Of each device in use.
    pub devices: Vec<DevicePlan>,
}

/// What a model will take of a device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePlan {
    /// The device's name.
    pub device: String,
    /// Layers there.
    pub n_layers: usize,
    /// Weights, as they lie there.
    pub weights: Footprint,
    /// The key/value cache of its layers.
    pub cache_bytes: usize,
    /// Buffers of the largest step.
    pub workspace_bytes: usize,
    /// The device's memory before, where it is known.
    pub memory: Option<MemoryInfo>,
}

impl DevicePlan {
    /// Bytes that must be free: all but what is mapped.
    pub fn own_bytes(&self) -> usize {
        self.weights.own.saturating_add(self.cache_bytes).saturating_add(self.workspace_bytes)
    }

    /// Whether so many bytes more than needed are free; also where that is not known.
    pub fn fits(&self, spare_bytes: usize) -> bool {
        self.memory.is_none_or(|memory| self.own_bytes().saturating_add(spare_bytes) <= memory.free)
    }
}

/// What a decoder with these options takes of each backend. `n_logit_rows` are the rows of a step whose logits are wanted,
/// at most; rows of prompts need those of the last alone.
pub(super) fn measure(
    file: &ModelFile,
    spec: &DecoderSpec,
    backends: &[&dyn Backend],
    placement: &Placement,
    options: DecoderOptions,
    n_logit_rows: usize,
) -> Result<MemoryPlan> {
    placement.check(spec.layers.len(), backends.len())?;
    let (mut counting, ledgers): (Vec<Box<dyn Backend>>, Vec<Ledger>) = backends
        .iter()
        .map(|_| {
            let (counting, ledger) = Counting::new();
            (Box::new(counting) as Box<dyn Backend>, ledger)
        })
        .unzip();
    let taken = || backends.iter().zip(&ledgers).map(|(&rules, ledger)| bytes(rules, ledger));
    let mut weights = vec![Footprint::default(); backends.len()];
    let mut shelf = Counted { rules: backends, counting: &mut counting, weights: &mut weights };
    let loaded = load::load(file, spec, placement, &mut shelf)?;
    let ropes = super::load_ropes(file, spec, options.context, &mut counting)?;
    for (footprint, own) in weights.iter_mut().zip(taken()) {
        *footprint += Footprint { own, mapped: 0 };
    }
    let cache = Cache::new(spec, options.context, options.n_sequences, options.max_rows);
    let kv = super::alloc_kv(spec, &cache, options, placement, &mut counting)?;
    let cache_bytes: Vec<usize> = taken().collect();
    let (spec, placement) = (spec.clone(), placement.clone());
    let mut decoder =
        Decoder { spec, options, backends: counting, placement, weights: loaded, cache, kv, ropes };
    let mut workspace = vec![0; backends.len()];
    for (n_rows, rows) in [(options.max_rows, Rows::Last), (n_logit_rows.min(options.max_rows), Rows::All)] {
        let output_bytes = step(&mut decoder, n_rows, rows)?;
        let mut taken: Vec<usize> = taken().collect();
        // Where the results are given to the caller.
        if let Some(host) = backends.iter().position(|backend| backend.is_host()) {
            taken[host] = taken[host].saturating_add(output_bytes);
        }
        workspace.iter_mut().zip(taken).for_each(|(most, bytes)| *most = bytes.max(*most));
    }
    let of = |place: usize| DevicePlan {
        device: backends[place].name(),
        n_layers: decoder.placement.n_layers_at(place),
        weights: weights[place],
        cache_bytes: cache_bytes[place],
        workspace_bytes: workspace[place],
        memory: backends[place].memory(),
    };
    let devices = (0..backends.len()).filter(|&place| decoder.placement.uses(place)).map(of).collect();
    Ok(MemoryPlan { context: options.context, devices })
}

/// Runs a step of so many rows: of one sequence, or of as many as they need. Bytes of its results.
fn step(decoder: &mut Decoder, n_rows: usize, rows: Rows) -> Result<usize> {
    let context = decoder.options.context;
    let n_sequences = n_rows.div_ceil(context.max(1)).min(decoder.options.n_sequences);
    let sequences: Vec<_> = (0..n_sequences).map(|_| decoder.begin()).collect();
    let mut left = n_rows;
    let chunks = sequences.iter().map(|&sequence| {
        let n = left.min(context);
        left -= n;
        Chunk { logits: rows, ..Chunk::tokens(sequence, &vec![0; n]) }
    });
    let chunks: Vec<Chunk> = chunks.collect();
    let output = decoder.forward_whole(&chunks)?;
    sequences.into_iter().for_each(|sequence| decoder.end(sequence));
    Ok(output.logits.len().saturating_add(output.hidden.len()).saturating_mul(size_of::<f32>()))
}

/// Bytes of what a ledger has, by the rules of a backend.
fn bytes(rules: &dyn Backend, ledger: &Ledger) -> usize {
    let bytes = |(dtype, len): (DType, usize)| rules.buffer_bytes(dtype, len).unwrap_or(usize::MAX);
    ledger.take().into_iter().map(bytes).fold(0, usize::saturating_add)
}

/// Takes no tensor, only what it would take.
struct Counted<'a> {
    /// The backends that will have them.
    rules: &'a [&'a dyn Backend],
    counting: &'a mut [Box<dyn Backend>],
    weights: &'a mut [Footprint],
}

impl Shelf for Counted<'_> {
    fn weight(
        &mut self,
        place: usize,
        shape: &WeightShape,
        purpose: Purpose,
        _read: &dyn Fn() -> Result<QTensor>,
    ) -> Result<Weight> {
        let (rules, table) = (self.rules[place], purpose == Purpose::Table);
        let mut footprint = rules.footprint(shape, table);
        if purpose == Purpose::Both {
            // Rows are looked up in the file where a copy serves products alone.
            footprint.mapped = footprint.mapped.max(rules.footprint(shape, true).mapped);
        }
        self.weights[place] += footprint;
        Ok(shape.unloaded())
    }

    fn vector(&mut self, place: usize, len: usize, _read: &dyn Fn() -> Result<Vec<f32>>) -> Result<Buffer> {
        Ok(self.counting[place].alloc(DType::F32, len)?)
    }
}

/// The error of a plan that does not fit: its numbers, and what to do next.
pub(super) fn refusal(device: &DevicePlan, context: usize, advice: &[String]) -> Error {
    let DevicePlan { device: name, n_layers, weights, cache_bytes, workspace_bytes, memory } = device;
    let free = memory.map_or(0, |memory| memory.free);
    Error::request(format!(
        "{name}: the model does not fit in memory: weights {} of {n_layers} layers, cache {} for {context} tokens, workspace {}, \
         in all {}, but {} are free; next: {}",
        in_words(weights.own),
        in_words(*cache_bytes),
        in_words(*workspace_bytes),
        in_words(device.own_bytes()),
        in_words(free),
        advice.join(", or "),
    ))
}

/// Bytes as people read them.
fn in_words(bytes: usize) -> String {
    let (bytes, units) = (bytes as f64, ["B", "KiB", "MiB", "GiB", "TiB"]);
    let power = (bytes.max(1.0).log2() / 10.0) as usize;
    let power = power.min(units.len() - 1);
    let digits = if power == 0 { 0 } else { 2 };
    format!("{:.digits$} {}", bytes / 1024f64.powi(power as i32), units[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_words() {
        let words = [0, 1023, 1024, 98 << 20, (5 << 30) + (1 << 29), usize::MAX].map(in_words);
        assert_eq!(words[..5], ["0 B", "1023 B", "1.00 KiB", "98.00 MiB", "5.50 GiB"]);
        assert!(words[5].ends_with(" TiB"));
    }
}
