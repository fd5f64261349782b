//! The forward pass.
//!
//! Alphabet as in `hanzo_ml::backend`: T rows, D width, H heads, K key/value heads, Hd head width, F feed-forward
//! width, E experts, S experts per token, V vocabulary.

use std::rc::Rc;

use hanzo_ml::backend::{
    Attention, AttentionPlan, Buffer, Embed, GatedActivation, GatherRows, MatMul, MoeCombine, MoeMatMul,
    QkNorm, RmsNorm, RopeAngles, RopeAppend, RopePairing, Route, ScatterRows, Weight,
};

use super::{
    Decoder, DeviceRope, Output,
    batch::{Chunk, POSITION_AXES, Plan},
    load::{AttentionWeights, FfnWeights, Linear},
    observe::{Observer, Watch},
    step::Step,
};
use crate::{
    Error, Result,
    spec::{AttentionSpec, DecoderSpec, Ffn},
};

impl Decoder {
    /// Runs the rows of a batch through the model and keeps their keys and values.
    ///
    /// # Errors
    /// If a chunk is malformed or the batch has more rows than reserved: nothing has changed then. If the cache is
    /// full or an operation fails: the batch's sequences may have grown without their keys, and must be ended.
    pub fn forward(&mut self, chunks: &[Chunk]) -> Result<Output> {
        self.run(chunks, None, false)
    }

    /// As [`Self::forward`], with every row in every layer: what a step can take of memory.
    pub(super) fn forward_whole(&mut self, chunks: &[Chunk]) -> Result<Output> {
        self.run(chunks, None, true)
    }

    /// As [`Self::forward`], with an observer of every product, of all rows.
    ///
    /// # Errors
    /// As [`Self::forward`], and if the observer refuses.
    pub fn forward_observed(&mut self, chunks: &[Chunk], observer: &mut dyn Observer) -> Result<Output> {
        self.run(chunks, Some(observer), true)
    }

    /// The forward pass. Unless `whole`, only rows whose results are wanted leave the last layer.
    fn run(&mut self, chunks: &[Chunk], observer: Option<&mut dyn Observer>, whole: bool) -> Result<Output> {
        let (hidden, vocab) = (self.spec.hidden_size, self.spec.vocab_size);
        let n_rows: usize = chunks.iter().map(|c| c.rows(hidden)).sum();
        if n_rows > self.options.max_rows {
            let max = self.options.max_rows;
            return Err(Error::request(format!("batch: {n_rows} rows are more than the {max} reserved")));
        }
        let mut plan = Plan::new(chunks, &mut self.cache, hidden, vocab)?;
        if !whole {
            plan.narrow();
        }
        if plan.n_rows == 0 {
            return Ok(Output::default());
        }
        let watch = observer.map(|observer| Watch { names: &self.weights.names, observer });
        let mut step = Step::new(&mut self.backends, watch);
        let shared = self.ropes.iter().enumerate().map(|(place, ropes)| {
            step.go(place);
            Shared::new(&mut step, &plan, &self.spec, ropes)
        });
        let shared = shared.collect::<Result<Vec<_>>>()?;
        let kept = match (&plan.kept, self.placement.layers.last()) {
            (Some(rows), Some(&place)) => {
                step.go(place);
                Some(shared[place].keep(&mut step, &plan, rows)?)
            }
            _ => None,
        };
        step.go(self.placement.embedding);
        let mut residual = embed(&mut step, &plan, &self.weights.embedding, &self.spec)?;
        let mut delta: Option<Rc<Buffer>> = None;
        for (l, (layer, weights)) in self.spec.layers.iter().zip(&self.weights.layers).enumerate() {
            let group = self.cache.groups().iter().position(|g| g.layers.contains(&l));
            let cache = LayerCache {
                group: group.ok_or_else(|| Error::engine(format!("layer {l} is in no cache group")))?,
                k: &self.kv[l].0,
                v: &self.kv[l].1,
            };
            step.carry(self.placement.layers[l], &mut residual, &mut delta)?;
            let mut shared = &shared[step.at()];
            let x = shared.join(&mut step, &residual, delta.take(), &weights.mixer_norm)?;
            let mut q = shared.append(&mut step, layer.attention(), &weights.attention, &cache, &x)?;
            drop(x);
            if let Some(kept) = kept.as_ref().filter(|_| l + 1 == self.spec.layers.len()) {
                if kept.shared.n_rows == 0 {
                    return Ok(Output::default());
                }
                (residual, q) = (kept.of(&mut step, &residual)?, kept.of(&mut step, &q)?);
                shared = &kept.shared;
            }
            let mixed = shared.attention(&mut step, layer.attention(), &weights.attention, &cache, q)?;
            let mixed = shared.post_norm(&mut step, mixed, weights.post_mixer_norm.as_ref())?;
            let x = shared.join(&mut step, &residual, Some(mixed), &weights.ffn_norm)?;
            let out = shared.ffn(&mut step, &layer.ffn, &weights.ffn, &x)?;
            delta = Some(shared.post_norm(&mut step, out, weights.post_ffn_norm.as_ref())?);
        }
        step.carry(self.placement.head, &mut residual, &mut delta)?;
        if let Some(delta) = delta {
            step.backend().add(&residual, &delta)?;
        }
        let shared = &shared[step.at()];
        let head = Head { shared, norm: &self.weights.output_norm, output: &self.weights.output };
        head.results(&mut step, &residual, &self.spec)
    }
}

/// The rows' embeddings, `[T, D]`: looked up for tokens, taken as they are for vectors.
fn embed(step: &mut Step<'_>, plan: &Plan, table: &Weight, spec: &DecoderSpec) -> Result<Rc<Buffer>> {
    let out = step.floats(plan.n_rows * spec.hidden_size)?;
    let ids = step.upload(&plan.ids)?;
    step.backend().embed(&out, &Embed { table, ids: &ids, scale: spec.embedding_scale })?;
    if !plan.embedded_rows.is_empty() {
        let src = step.upload_f32(&plan.embedded)?;
        let rows = step.upload(&plan.embedded_rows)?;
        step.backend().scatter_rows(&out, &ScatterRows { src: &src, rows: &rows })?;
    }
    Ok(out)
}

/// What all layers of a step share, on one device. All that comes from the host comes before the layers, so that a device
/// that enqueues the same launches step after step can do so at once.
struct Shared {
    /// Rows, T.
    n_rows: usize,
    /// D.
    width: usize,
    norm_eps: f32,
    row_seq: Rc<Buffer>,
    row_end: Rc<Buffer>,
    /// Rows whose hidden states, and whose logits, are asked for.
    hidden_rows: Option<Rc<Buffer>>,
    logit_rows: Option<Rc<Buffer>>,
    groups: Vec<SharedGroup>,
    /// Cosines and sines of each rotation.
    angles: Vec<Rotation>,
}

/// The rows that leave the last layer.
struct Kept {
    rows: Rc<Buffer>,
    /// Of all rows, T.
    n_rows: usize,
    shared: Shared,
}

impl Kept {
    /// Those rows of a buffer that has all.
    fn of(&self, step: &mut Step<'_>, x: &Buffer) -> Result<Rc<Buffer>> {
        let out = step.floats(x.len() / self.n_rows * self.shared.n_rows)?;
        step.backend().gather_rows(&out, &GatherRows { src: x, rows: &self.rows })?;
        Ok(out)
    }
}

/// What the layers of one cache group share.
struct SharedGroup {
    slots: Rc<Buffer>,
    row_begin: Rc<Buffer>,
    tables: Rc<Buffer>,
    max_blocks: usize,
}

/// A rotation of this step's rows.
struct Rotation {
    angles: Rc<Buffer>,
    pairing: RopePairing,
}

/// Where a layer keeps its keys and values.
struct LayerCache<'a> {
    group: usize,
    k: &'a Buffer,
    v: &'a Buffer,
}

impl Shared {
    fn new(step: &mut Step<'_>, plan: &Plan, spec: &DecoderSpec, ropes: &[DeviceRope]) -> Result<Self> {
        let group = |step: &mut Step<'_>, g: &super::batch::GroupPlan| {
            Ok::<_, Error>(SharedGroup {
                slots: step.upload(&g.slots)?,
                row_begin: step.upload(&g.row_begin)?,
                tables: step.upload(&g.tables)?,
                max_blocks: g.max_blocks,
            })
        };
        let asked = |step: &mut Step<'_>, rows: &[u32]| {
            if rows.is_empty() { Ok(None) } else { step.upload(rows).map(Some) }
        };
        let groups = plan.groups.iter().map(|g| group(step, g)).collect::<Result<_>>()?;
        let positions = step.upload(&plan.positions)?;
        let mut angles = Vec::with_capacity(ropes.len());
        for (rope, spec) in ropes.iter().zip(&spec.ropes) {
            let out = step.floats(plan.n_rows * spec.pairs() * 2)?;
            let args = RopeAngles {
                positions: &positions,
                n_axes: POSITION_AXES,
                inv_freq: &rope.inv_freq,
                axis: &rope.axis,
                magnitude: rope.magnitude,
            };
            step.backend().rope_angles(&out, &args)?;
            angles.push(Rotation { angles: out, pairing: spec.pairing });
        }
        Ok(Self {
            n_rows: plan.n_rows,
            width: spec.hidden_size,
            norm_eps: spec.norm_eps,
            row_seq: step.upload(&plan.row_seq)?,
            row_end: step.upload(&plan.row_end)?,
            hidden_rows: asked(step, &plan.hidden_rows)?,
            logit_rows: asked(step, &plan.logit_rows)?,
            groups,
            angles,
        })
    }

    /// Adds a part's output to the residual, if there is one yet, and norms the sum for the products of the next part; as
    /// many rows as the residual.
    fn join(
        &self,
        step: &mut Step<'_>,
        residual: &Buffer,
        delta: Option<Rc<Buffer>>,
        weight: &Buffer,
    ) -> Result<Rc<Buffer>> {
        let out = step.floats(residual.len())?;
        let norm = |x| RmsNorm { x, weight: Some(weight), dim: self.width, eps: self.norm_eps };
        match delta {
            Some(delta) => step.backend().norm_for_products(&out, Some(residual), &norm(&delta))?,
            None => step.backend().norm_for_products(&out, None, &norm(residual))?,
        }
        Ok(out)
    }

    /// Norms a part's output before it joins the residual, where the layer asks for it.
    fn post_norm(&self, step: &mut Step<'_>, x: Rc<Buffer>, weight: Option<&Buffer>) -> Result<Rc<Buffer>> {
        match weight {
            Some(_) => self.norm(step, &x, weight, self.width),
            None => Ok(x),
        }
    }

    fn norm(
        &self,
        step: &mut Step<'_>,
        x: &Buffer,
        weight: Option<&Buffer>,
        dim: usize,
    ) -> Result<Rc<Buffer>> {
        let out = step.floats(x.len())?;
        step.backend().rms_norm(&out, &RmsNorm { x, weight, dim, eps: self.norm_eps })?;
        Ok(out)
    }

    fn linear(&self, step: &mut Step<'_>, x: &Buffer, linear: &Linear) -> Result<Rc<Buffer>> {
        let out = step.floats(self.n_rows * linear.weight.n)?;
        step.matmul(&out, &MatMul { x, weight: &linear.weight, bias: linear.bias.as_ref() })?;
        Ok(out)
    }

    /// The same for the rows that leave the last layer. They are rotated by then.
    fn keep(&self, step: &mut Step<'_>, plan: &Plan, rows: &[u32]) -> Result<Kept> {
        let pick = |values: &[u32]| rows.iter().map(|&row| values[row as usize]).collect::<Vec<u32>>();
        let group = |(group, plan): (&SharedGroup, &super::batch::GroupPlan)| {
            Ok::<_, Error>(SharedGroup {
                slots: Rc::clone(&group.slots),
                row_begin: step.upload(&pick(&plan.row_begin))?,
                tables: Rc::clone(&group.tables),
                max_blocks: group.max_blocks,
            })
        };
        let groups = self.groups.iter().zip(&plan.groups).map(group).collect::<Result<_>>()?;
        let shared = Self {
            n_rows: rows.len(),
            width: self.width,
            norm_eps: self.norm_eps,
            row_seq: step.upload(&pick(&plan.row_seq))?,
            row_end: step.upload(&pick(&plan.row_end))?,
            hidden_rows: None,
            logit_rows: None,
            groups,
            angles: Vec::new(),
        };
        Ok(Kept { rows: step.upload(rows)?, n_rows: plan.n_rows, shared })
    }

    /// Keeps the keys and values of `[T, D]` and gives the queries, `[T, H, Hd]`.
    fn append(
        &self,
        step: &mut Step<'_>,
        spec: &AttentionSpec,
        weights: &AttentionWeights,
        cache: &LayerCache<'_>,
        x: &Buffer,
    ) -> Result<Rc<Buffer>> {
        let AttentionSpec { n_heads, n_kv_heads, head_dim, .. } = *spec;
        let group = &self.groups[cache.group];
        let q = self.linear(step, x, &weights.query)?; // [T, H, Hd]
        let k = self.linear(step, x, &weights.key)?; // [T, K, Hd]
        let v = self.linear(step, x, &weights.value)?; // [T, K, Hd]
        let (q_weight, k_weight) = (weights.query_norm.as_ref(), weights.key_norm.as_ref());
        let rotation = spec.rope.map(|rope| &self.angles[rope]);
        let args = RopeAppend {
            k: &k,
            v: &v,
            norm: spec.qk_norm.then_some(QkNorm { q_weight, k_weight, eps: self.norm_eps }),
            angles: rotation.map(|rotation| &*rotation.angles),
            pairing: rotation.map_or(RopePairing::Half, |rotation| rotation.pairing),
            k_cache: cache.k,
            v_cache: cache.v,
            slots: &group.slots,
            n_heads,
            n_kv_heads,
            head_dim,
        };
        step.backend().rope_append(&q, &args)?;
        Ok(q)
    }

    /// `[T, H, Hd]` queries to `[T, D]`.
    fn attention(
        &self,
        step: &mut Step<'_>,
        spec: &AttentionSpec,
        weights: &AttentionWeights,
        cache: &LayerCache<'_>,
        q: Rc<Buffer>,
    ) -> Result<Rc<Buffer>> {
        let AttentionSpec { n_heads, n_kv_heads, head_dim, .. } = *spec;
        let group = &self.groups[cache.group];
        let out = step.floats(q.len())?;
        let plan = AttentionPlan {
            tables: &group.tables,
            max_blocks: group.max_blocks,
            row_seq: &self.row_seq,
            row_begin: &group.row_begin,
            row_end: &self.row_end,
        };
        let args = Attention {
            q: &q,
            k_cache: cache.k,
            v_cache: cache.v,
            plan,
            n_heads,
            n_kv_heads,
            head_dim,
            scale: spec.scale,
            softcap: spec.softcap,
            sinks: None,
        };
        step.backend().attention(&out, &args)?;
        drop(q);
        self.linear(step, &out, &weights.out)
    }

    /// `[T, D]` to `[T, D]`.
    fn ffn(&self, step: &mut Step<'_>, spec: &Ffn, weights: &FfnWeights, x: &Buffer) -> Result<Rc<Buffer>> {
        match (spec, weights) {
            (Ffn::Dense { activation, .. }, FfnWeights::Dense { gate, up, down }) => {
                let gate = self.linear(step, x, gate)?; // [T, F]
                let up = self.linear(step, x, up)?; // [T, F]
                let hidden = step.floats(gate.len())?;
                let args = GatedActivation { gate: &gate, up: &up, activation: *activation };
                step.backend().gated_activation(&hidden, &args)?;
                drop((gate, up));
                self.linear(step, &hidden, down)
            }
            (Ffn::Moe { .. }, FfnWeights::Moe { .. }) => self.moe(step, spec, weights, x),
            _ => Err(Error::engine("a layer's weights are not of its kind")),
        }
    }

    fn moe(&self, step: &mut Step<'_>, spec: &Ffn, weights: &FfnWeights, x: &Buffer) -> Result<Rc<Buffer>> {
        let (
            Ffn::Moe { width, activation, n_experts, n_used, route },
            FfnWeights::Moe { router, gate, up, down },
        ) = (spec, weights)
        else {
            return Err(Error::engine("a layer's weights are not of its kind"));
        };
        let (n_rows, n_used) = (self.n_rows, *n_used);
        let logits = step.floats(n_rows * n_experts)?; // [T, E]
        step.matmul(&logits, &MatMul { x, weight: router, bias: None })?;
        let ids = step.ints(n_rows * n_used)?; // [T, S]
        let mix = step.floats(n_rows * n_used)?; // [T, S]
        let args = Route { logits: &logits, n_experts: *n_experts, n_used, kind: *route };
        step.backend().route(&ids, &mix, &args)?;
        let product = |step: &mut Step<'_>, x: &Buffer, weight: &Weight| {
            let out = step.floats(n_rows * n_used * weight.n)?;
            step.moe_matmul(&out, &MoeMatMul { x, ids: &ids, n_used, weight })?;
            Ok::<_, Error>(out)
        };
        let gate = product(step, x, gate)?; // [T, S, F]
        let up = product(step, x, up)?; // [T, S, F]
        let hidden = step.floats(n_rows * n_used * width)?; // [T, S, F]
        step.backend()
            .gated_activation(&hidden, &GatedActivation { gate: &gate, up: &up, activation: *activation })?;
        let y = product(step, &hidden, down)?; // [T, S, D]
        let out = step.floats(n_rows * self.width)?;
        step.backend().moe_combine(&out, &MoeCombine { y: &y, weights: &mix, n_used })?;
        Ok(out)
    }
}

/// What turns the last residual into results.
struct Head<'a> {
    shared: &'a Shared,
    norm: &'a Buffer,
    output: &'a Weight,
}

impl Head<'_> {
    fn results(&self, step: &mut Step<'_>, residual: &Buffer, spec: &DecoderSpec) -> Result<Output> {
        let mut results = Output::default();
        if let Some(rows) = &self.shared.hidden_rows {
            let hidden = self.normed_rows(step, residual, rows)?;
            results.hidden = vec![0.0; hidden.len()];
            step.backend().download_f32(&hidden, &mut results.hidden)?;
        }
        if let Some(rows) = &self.shared.logit_rows {
            let hidden = self.normed_rows(step, residual, rows)?;
            let logits = step.floats(rows.len() * spec.vocab_size)?; // [rows, V]
            step.matmul(&logits, &MatMul { x: &hidden, weight: self.output, bias: None })?;
            if let Some(cap) = spec.final_softcap {
                step.backend().softcap(&logits, cap)?;
            }
            results.logits = vec![0.0; logits.len()];
            step.backend().download_f32(&logits, &mut results.logits)?;
        }
        Ok(results)
    }

    /// The rows asked for, after the last norm; `[rows, D]`.
    fn normed_rows(&self, step: &mut Step<'_>, residual: &Buffer, rows: &Buffer) -> Result<Rc<Buffer>> {
        let chosen = step.floats(rows.len() * self.shared.width)?;
        step.backend().gather_rows(&chosen, &GatherRows { src: residual, rows })?;
        self.shared.join(step, &chosen, None, self.norm)
    }
}
