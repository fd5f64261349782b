//! Which format each tensor gets.
//!
//! The choices are `llama-quantize`'s: mixes from [`hanzo_quant::MIXES`], a wish for a tensor before the mix, a relative
//! of the format where rows are no whole blocks of it. Tensors are looked at in the order of layers and names, since
//! mixes count them. Where `llama-quantize` ends with an assertion, the plan is an error that names the tensor.

use std::cmp::Ordering;

use hanzo_ml::file::{
    Array, Metadata, Value,
    imatrix::{Entry, Imatrix},
};
use hanzo_quant::{Format, Mix, Part, Place, Traits, Unpack, fit};
use regex::{Regex, RegexBuilder};

use super::{
    parts,
    source::{Source, SourceTensor},
};
use crate::{Error, Result, family};

/// The version of the block formats (`GGML_QNT_VERSION`).
const QUANTIZATION_VERSION: u32 = 2;
/// Bytes of a pattern once it is compiled.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What to make.
pub struct Options {
    /// The mix.
    pub target: Target,
    /// Every matrix in the mix's base format.
    pub pure: bool,
    /// Leave the output matrix as it is.
    pub keep_output: bool,
    /// Take weights that are quantised already.
    pub requantize: bool,
    /// The format of the output matrix.
    pub output: Option<&'static Format>,
    /// The format of the embedding.
    pub embedding: Option<&'static Format>,
    /// Formats of tensors by name; the first that matches wins. Only where the mix quantises at all.
    pub rules: Vec<TensorRule>,
}

/// What the model becomes.
#[derive(Clone, Copy)]
pub enum Target {
    /// The same tensors, as they are.
    Copy,
    /// A mix of formats.
    Mix(&'static Mix),
}

/// A pattern of tensor names and their format.
pub struct TensorRule {
    pattern: Regex,
    format: &'static Format,
}

impl TensorRule {
    /// A rule from `PATTERN=FORMAT`. The pattern is a regular expression that may match anywhere in the name, in any case.
    ///
    /// # Errors
    /// If it has no `=`, the pattern is none, or there is no encoder of the format.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |what: String| Error::request(format!("{text:?}: {what}"));
        let (pattern, format) = text.rsplit_once('=').ok_or_else(|| bad("not PATTERN=FORMAT".into()))?;
        if pattern.is_empty() {
            return Err(bad("the pattern is empty".into()));
        }
        let pattern = RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_BYTES_MAX).build();
        let format = Format::from_name(format).filter(|f| f.encode.is_some());
        let format = format.ok_or_else(|| bad("no encoder of that format".into()))?;
        Ok(Self { pattern: pattern.map_err(|e| bad(e.to_string()))?, format })
    }
}

/// What is to happen to one tensor.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The format it has.
    pub from: &'static Format,
    /// The format it gets.
    pub to: &'static Format,
    /// The format that it would have got, were its rows whole blocks of it.
    pub wanted: Option<&'static Format>,
    /// Bytes before.
    pub bytes_from: usize,
    /// Bytes after.
    pub bytes_to: usize,
    /// Without an importance matrix the tensor would be garbage.
    pub lacks_importance: bool,
    /// There is an importance matrix, but it has nothing for this tensor, as it mostly has.
    blind: bool,
    importance: Option<Vec<f32>>,
}

impl Planned {
    /// How much each column counts, `[E, K]`.
    pub fn importance(&self) -> Option<&[f32]> {
        self.importance.as_deref()
    }

    /// Whether there is an importance matrix that lacks this tensor, though it should have it.
    pub fn is_blind(&self) -> bool {
        self.blind
    }
}

/// What is to happen to a model.
pub struct Plan<'a> {
    pub(super) source: &'a Source,
    /// In the order of the file.
    pub(super) tensors: Vec<Planned>,
    pub(super) metadata: Metadata,
}

impl<'a> Plan<'a> {
    /// Chooses a format for every tensor.
    ///
    /// # Errors
    /// If a wish cannot be met, or the importance matrix belongs to another model.
    pub fn new(source: &'a Source, options: &Options, imatrix: Option<&Imatrix>) -> Result<Self> {
        let mut order: Vec<usize> = (0..source.tensors().len()).collect();
        order.sort_by(|&a, &b| by_layer(&source.tensors()[a].name, &source.tensors()[b].name));
        let mut chooser = Chooser::new(source, options, imatrix.is_some())?;
        let mut tensors: Vec<Option<Planned>> = vec![None; order.len()];
        for i in order {
            tensors[i] = Some(chooser.plan(&source.tensors()[i], imatrix)?);
        }
        let mut metadata = source.metadata().clone();
        if let Target::Mix(mix) = options.target {
            metadata.insert("general.quantization_version", Value::U32(QUANTIZATION_VERSION));
            metadata.insert("general.file_type", Value::U32(mix.file_type));
        }
        Ok(Self { source, tensors: tensors.into_iter().flatten().collect(), metadata })
    }

    /// Every tensor, in the order of the file.
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// Notes in the file which importance matrix was used, as llama.cpp does.
    pub fn note_imatrix(&mut self, file: &str, imatrix: &Imatrix) {
        let count = |n: usize| Value::U32(u32::try_from(n).unwrap_or(u32::MAX));
        self.metadata.insert("quantize.imatrix.file", Value::String(file.to_owned()));
        if let Some(dataset) = imatrix.datasets.first() {
            self.metadata.insert("quantize.imatrix.dataset", Value::String(dataset.clone()));
        }
        self.metadata.insert("quantize.imatrix.entries_count", count(imatrix.len()));
        if imatrix.chunk_count > 0 {
            self.metadata.insert("quantize.imatrix.chunks_count", Value::U32(imatrix.chunk_count));
        }
    }
}

/// The order in which mixes count: tensors of no layer, then layer by layer, by name.
fn by_layer(a: &str, b: &str) -> Ordering {
    parts::layer(a).cmp(&parts::layer(b)).then_with(|| a.cmp(b))
}

/// Whether a format is more than plain numbers.
pub(super) fn is_quantized(format: &Format) -> bool {
    matches!(format.unpack, Unpack::Int(_))
}

/// Chooses formats one by one, and counts.
struct Chooser<'a> {
    source: &'a Source,
    options: &'a Options,
    traits: Traits,
    n_layers: usize,
    n_values: usize,
    tied: bool,
    /// Tensors of each counted part so far: value, gate, up, down.
    seen: [usize; 4],
}

impl<'a> Chooser<'a> {
    fn new(source: &'a Source, options: &'a Options, importance: bool) -> Result<Self> {
        let metadata = source.metadata();
        let architecture = metadata.str("general.architecture")?.unwrap_or_default();
        let of_model = |key: &str| format!("{architecture}.{key}");
        let n_layers = metadata.usize(&of_model("block_count"))?.unwrap_or(0);
        let n_heads = first_count(metadata, &of_model("attention.head_count"))?;
        let n_kv_heads = first_count(metadata, &of_model("attention.head_count_kv"))?.or(n_heads);
        let n_shared = n_heads.unwrap_or(0).checked_div(n_kv_heads.unwrap_or(0)).unwrap_or(0);
        let traits = Traits {
            n_shared,
            n_experts: metadata.usize(&of_model("expert_count"))?.unwrap_or(0),
            is_70b: family::is_70b(architecture, n_layers, n_shared),
            importance,
        };
        let names = || source.tensors().iter().map(|t| t.name.as_str());
        let tied = !names().any(|name| name == parts::OUTPUT);
        let n_values = names().filter(|name| parts::part(name, tied) == Part::Value).count();
        Ok(Self { source, options, traits, n_layers, n_values, tied, seen: [0; 4] })
    }

    fn plan(&mut self, tensor: &SourceTensor, imatrix: Option<&Imatrix>) -> Result<Planned> {
        let SourceTensor { name, format: from, shape, .. } = tensor;
        let columns = shape.last().copied().unwrap_or(1);
        let (wanted, to) = match self.options.target {
            Target::Mix(mix) if !self.is_kept(tensor) => self.choose(mix, tensor, columns)?,
            _ => (*from, *from),
        };
        let error = |what: String| self.source.error(format!("tensor {name}: {what}"));
        let bytes = |format: &Format| {
            let rows = shape.iter().rev().skip(1).product::<usize>();
            format.bytes_of(columns).and_then(|bytes| bytes.checked_mul(rows)).ok_or_else(|| {
                error(format!("rows of {columns} elements are not whole blocks of {}", format.name))
            })
        };
        if to != *from && is_quantized(from) && !self.options.requantize {
            return Err(error(format!(
                "it is {} already, and to quantise again loses more; start from a model in F16, BF16 or F32, or ask \
                 for it (--allow-requantize)",
                from.name
            )));
        }
        let (encodes, entry) = (is_quantized(to) && to != *from, imatrix.and_then(|m| m.get(name)));
        let importance = match entry.filter(|_| encodes) {
            Some(entry) => importance(entry, name, shape).map_err(error)?,
            None => None,
        };
        let needs = match self.options.target {
            Target::Mix(mix) if encodes => mix.needs_importance(to),
            _ => false,
        };
        let outer = name == parts::OUTPUT || parts::is_embedding(name);
        Ok(Planned {
            bytes_from: bytes(from)?,
            bytes_to: bytes(to)?,
            lacks_importance: needs && !outer && importance.is_none(),
            blind: encodes && !outer && imatrix.is_some() && importance.is_none(),
            name: name.clone(),
            shape: shape.clone(),
            from,
            to,
            wanted: (wanted != to).then_some(wanted),
            importance,
        })
    }

    fn is_kept(&self, tensor: &SourceTensor) -> bool {
        parts::is_kept(&tensor.name, &tensor.shape)
            || (self.options.keep_output && tensor.name == parts::OUTPUT)
    }

    /// The format that a tensor should have, and the one that it can have.
    fn choose(
        &mut self,
        mix: &Mix,
        tensor: &SourceTensor,
        columns: usize,
    ) -> Result<(&'static Format, &'static Format)> {
        let name = tensor.name.as_str();
        let rule = self.options.rules.iter().find(|rule| rule.pattern.is_match(name));
        let ruled = parts::is_layer_embedding(name) && rule.is_some();
        let wish = match () {
            () if parts::is_embedding(name) && !ruled => self.options.embedding,
            () if name == parts::OUTPUT => self.options.output,
            () => None,
        };
        if let Some(wish) = wish {
            return Ok((wish, wish));
        }
        if !is_quantized(mix.base()) {
            return Ok((mix.base(), mix.base()));
        }
        let wanted = match rule {
            Some(rule) => rule.format,
            None if self.options.pure => mix.base(),
            None => self.by_mix(mix, tensor, columns)?,
        };
        let fitting = fit(wanted, columns).ok_or_else(|| {
            let what = format!("rows of {columns} elements are not whole blocks of {}", wanted.name);
            self.source.error(format!("tensor {name}: {what}, which has no relative with smaller blocks"))
        })?;
        Ok((wanted, fitting))
    }

    fn by_mix(&mut self, mix: &Mix, tensor: &SourceTensor, columns: usize) -> Result<&'static Format> {
        let part = parts::part(&tensor.name, self.tied);
        if let (Part::Output, Some(format)) = (part, self.options.output) {
            return Ok(format);
        }
        let counter = match part {
            Part::Value => Some(0),
            Part::Gate => Some(1),
            Part::Up => Some(2),
            Part::Down => Some(3),
            _ => None,
        };
        let idx = counter.map_or(0, |c| self.seen[c]);
        let mut layer = idx;
        if self.traits.n_experts > 1 && matches!(part, Part::Gate | Part::Up | Part::Down) {
            // Experts may lie anywhere in a file: there the name tells the layer.
            let named = parts::layer(&tensor.name).filter(|&layer| layer < self.n_layers);
            layer = named.ok_or_else(|| {
                let n = self.n_layers;
                self.source.error(format!("tensor {}: its name tells no layer of {n}", tensor.name))
            })?;
        }
        let count = if part == Part::Value { self.n_values } else { self.n_layers };
        let stacked = tensor.shape.len() > 2 && tensor.shape[tensor.shape.len() - 3] > 1;
        let format = mix.format(&self.traits, &Place { part, columns, stacked, idx, layer, count });
        if let Some(c) = counter {
            self.seen[c] += 1;
        }
        Ok(format)
    }
}

/// A count, or the first of one count a layer.
fn first_count(metadata: &Metadata, key: &str) -> Result<Option<usize>> {
    if let Some(Value::Array(array)) = metadata.get(key) {
        let first = match array {
            Array::U32(counts) => counts.first().copied(),
            Array::I32(counts) => counts.first().and_then(|&n| u32::try_from(n).ok()),
            _ => None,
        };
        return Ok(first.map(|n| n as usize));
    }
    Ok(metadata.usize(key)?)
}

/// The importance of a tensor's columns; none where an entry of an embedding has another size, which is harmless.
fn importance(entry: &Entry, name: &str, shape: &[usize]) -> std::result::Result<Option<Vec<f32>>, String> {
    let columns = shape.last().copied().unwrap_or(1);
    let n_matrices = if shape.len() > 2 { shape[shape.len() - 3] } else { 1 };
    let means = entry.means();
    if means.len() == columns * n_matrices {
        return Ok(Some(means));
    }
    if parts::is_embedding(name) {
        return Ok(None);
    }
    let have = means.len();
    Err(format!("the importance matrix has {have} columns for it, not {columns} for each of {n_matrices}"))
}
