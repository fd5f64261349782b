//! The forward pass.
//!
//! Alphabet as in `hanzo_ml::backend`: T rows, D width, H heads, K key/value heads, Hd head width, F feed-forward
//! width, E experts, S experts per token, V vocabulary.

use std::rc::Rc;

use hanzo_ml::backend::{
    Attention, AttentionPlan, Buffer, Embed, GatedActivation, GatherRows, KvAppend, MatMul, MoeCombine,
    MoeMatMul, RmsNorm, Rope, RopeAngles, Route, ScatterRows, Weight,
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
        self.run(chunks, None)
    }

    /// As [`Self::forward`], with an observer of every product.
    ///
    /// # Errors
    /// As [`Self::forward`], and if the observer refuses.
    pub fn forward_observed(&mut self, chunks: &[Chunk], observer: &mut dyn Observer) -> Result<Output> {
        self.run(chunks, Some(observer))
    }

    fn run(&mut self, chunks: &[Chunk], observer: Option<&mut dyn Observer>) -> Result<Output> {
        let (hidden, vocab) = (self.spec.hidden_size, self.spec.vocab_size);
        let n_rows: usize = chunks.iter().map(|c| c.rows(hidden)).sum();
        if n_rows > self.options.max_rows {
            let max = self.options.max_rows;
            return Err(Error::request(format!("batch: {n_rows} rows are more than the {max} reserved")));
        }
        let plan = Plan::new(chunks, &mut self.cache, hidden, vocab)?;
        if plan.n_rows == 0 {
            return Ok(Output::default());
        }
        let watch = observer.map(|observer| Watch { names: &self.weights.names, observer });
        let mut step = Step::new(&mut *self.backend, watch);
        let shared = Shared::new(&mut step, &plan, &self.spec, &self.ropes)?;
        let residual = embed(&mut step, &plan, &self.weights.embedding, &self.spec)?;
        let mut delta: Option<Rc<Buffer>> = None;
        for (l, (layer, weights)) in self.spec.layers.iter().zip(&self.weights.layers).enumerate() {
            let group = self.cache.groups().iter().position(|g| g.layers.contains(&l));
            let place = LayerPlace {
                group: group.ok_or_else(|| Error::engine(format!("layer {l} is in no cache group")))?,
                k_cache: &self.kv[l].0,
                v_cache: &self.kv[l].1,
            };
            let x = shared.join(&mut step, &residual, delta.take(), &weights.mixer_norm)?;
            let mixed = shared.attention(&mut step, layer.attention(), &weights.attention, &place, &x)?;
            let mixed = shared.post_norm(&mut step, mixed, weights.post_mixer_norm.as_ref())?;
            let x = shared.join(&mut step, &residual, Some(mixed), &weights.ffn_norm)?;
            let out = shared.ffn(&mut step, &layer.ffn, &weights.ffn, &x)?;
            delta = Some(shared.post_norm(&mut step, out, weights.post_ffn_norm.as_ref())?);
        }
        if let Some(delta) = delta {
            step.backend.add(&residual, &delta)?;
        }
        let head = Head { shared: &shared, norm: &self.weights.output_norm, output: &self.weights.output };
        head.results(&mut step, &plan, &residual, &self.spec)
    }
}

/// The rows' embeddings, `[T, D]`: looked up for tokens, taken as they are for vectors.
fn embed(step: &mut Step<'_>, plan: &Plan, table: &Weight, spec: &DecoderSpec) -> Result<Rc<Buffer>> {
    let out = step.floats(plan.n_rows * spec.hidden_size)?;
    let ids = step.upload(&plan.ids)?;
    step.backend.embed(&out, &Embed { table, ids: &ids, scale: spec.embedding_scale })?;
    if !plan.embedded_rows.is_empty() {
        let src = step.upload_f32(&plan.embedded)?;
        let rows = step.upload(&plan.embedded_rows)?;
        step.backend.scatter_rows(&out, &ScatterRows { src: &src, rows: &rows })?;
    }
    Ok(out)
}

/// What all layers of a step share, on the device.
struct Shared {
    /// Rows, T.
    n_rows: usize,
    /// D.
    width: usize,
    norm_eps: f32,
    row_seq: Rc<Buffer>,
    row_end: Rc<Buffer>,
    groups: Vec<SharedGroup>,
    /// Cosines and sines of each rotation.
    angles: Vec<Rotation>,
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
    pairing: hanzo_ml::backend::RopePairing,
}

/// Where a layer keeps its keys and values.
struct LayerPlace<'a> {
    group: usize,
    k_cache: &'a Buffer,
    v_cache: &'a Buffer,
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
            step.backend.rope_angles(&out, &args)?;
            angles.push(Rotation { angles: out, pairing: spec.pairing });
        }
        Ok(Self {
            n_rows: plan.n_rows,
            width: spec.hidden_size,
            norm_eps: spec.norm_eps,
            row_seq: step.upload(&plan.row_seq)?,
            row_end: step.upload(&plan.row_end)?,
            groups,
            angles,
        })
    }

    /// Adds a part's output to the residual and norms the sum for the next part; `[T, D]`.
    fn join(
        &self,
        step: &mut Step<'_>,
        residual: &Buffer,
        delta: Option<Rc<Buffer>>,
        weight: &Buffer,
    ) -> Result<Rc<Buffer>> {
        let out = step.floats(self.n_rows * self.width)?;
        let norm = |x| RmsNorm { x, weight: Some(weight), dim: self.width, eps: self.norm_eps };
        match delta {
            Some(delta) => step.backend.add_rms_norm(&out, residual, &norm(&delta))?,
            None => step.backend.rms_norm(&out, &norm(residual))?,
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
        step.backend.rms_norm(&out, &RmsNorm { x, weight, dim, eps: self.norm_eps })?;
        Ok(out)
    }

    fn linear(&self, step: &mut Step<'_>, x: &Buffer, linear: &Linear) -> Result<Rc<Buffer>> {
        let out = step.floats(self.n_rows * linear.weight.n)?;
        step.matmul(&out, &MatMul { x, weight: &linear.weight, bias: linear.bias.as_ref() })?;
        Ok(out)
    }

    /// `[T, D]` to `[T, D]`.
    fn attention(
        &self,
        step: &mut Step<'_>,
        spec: &AttentionSpec,
        weights: &AttentionWeights,
        place: &LayerPlace<'_>,
        x: &Buffer,
    ) -> Result<Rc<Buffer>> {
        let AttentionSpec { n_heads, n_kv_heads, head_dim, .. } = *spec;
        let group = &self.groups[place.group];
        let mut q = self.linear(step, x, &weights.query)?; // [T, H, Hd]
        let mut k = self.linear(step, x, &weights.key)?; // [T, K, Hd]
        let v = self.linear(step, x, &weights.value)?; // [T, K, Hd]
        if spec.qk_norm {
            q = self.norm(step, &q, weights.query_norm.as_ref(), head_dim)?;
            k = self.norm(step, &k, weights.key_norm.as_ref(), head_dim)?;
        }
        if let Some(rope) = spec.rope {
            let Rotation { angles, pairing } = &self.angles[rope];
            let rope = |n_heads| Rope { angles, n_heads, head_dim, pairing: *pairing };
            step.backend.rope(&q, &rope(n_heads))?;
            step.backend.rope(&k, &rope(n_kv_heads))?;
        }
        let append = |x| KvAppend { x, slots: &group.slots, n_kv_heads, head_dim };
        step.backend.kv_append(place.k_cache, &append(&k))?;
        step.backend.kv_append(place.v_cache, &append(&v))?;
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
            k_cache: place.k_cache,
            v_cache: place.v_cache,
            plan,
            n_heads,
            n_kv_heads,
            head_dim,
            scale: spec.scale,
            softcap: spec.softcap,
            sinks: None,
        };
        step.backend.attention(&out, &args)?;
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
                step.backend.gated_activation(&hidden, &args)?;
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
        step.backend.route(&ids, &mix, &args)?;
        let product = |step: &mut Step<'_>, x: &Buffer, weight: &Weight| {
            let out = step.floats(n_rows * n_used * weight.n)?;
            step.moe_matmul(&out, &MoeMatMul { x, ids: &ids, n_used, weight })?;
            Ok::<_, Error>(out)
        };
        let gate = product(step, x, gate)?; // [T, S, F]
        let up = product(step, x, up)?; // [T, S, F]
        let hidden = step.floats(n_rows * n_used * width)?; // [T, S, F]
        step.backend
            .gated_activation(&hidden, &GatedActivation { gate: &gate, up: &up, activation: *activation })?;
        let y = product(step, &hidden, down)?; // [T, S, D]
        let out = step.floats(n_rows * self.width)?;
        step.backend.moe_combine(&out, &MoeCombine { y: &y, weights: &mix, n_used })?;
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
    fn results(
        &self,
        step: &mut Step<'_>,
        plan: &Plan,
        residual: &Buffer,
        spec: &DecoderSpec,
    ) -> Result<Output> {
        let mut results = Output::default();
        if !plan.hidden_rows.is_empty() {
            let hidden = self.normed_rows(step, residual, &plan.hidden_rows)?;
            results.hidden = vec![0.0; hidden.len()];
            step.backend.download_f32(&hidden, &mut results.hidden)?;
        }
        if !plan.logit_rows.is_empty() {
            let hidden = self.normed_rows(step, residual, &plan.logit_rows)?;
            let logits = step.floats(plan.logit_rows.len() * spec.vocab_size)?; // [rows, V]
            step.matmul(&logits, &MatMul { x: &hidden, weight: self.output, bias: None })?;
            if let Some(cap) = spec.final_softcap {
                step.backend.softcap(&logits, cap)?;
            }
            results.logits = vec![0.0; logits.len()];
            step.backend.download_f32(&logits, &mut results.logits)?;
        }
        Ok(results)
    }

    /// The rows asked for, after the last norm; `[rows, D]`.
    fn normed_rows(&self, step: &mut Step<'_>, residual: &Buffer, rows: &[u32]) -> Result<Rc<Buffer>> {
        let indices = step.upload(rows)?;
        let chosen = step.floats(rows.len() * self.shared.width)?;
        step.backend.gather_rows(&chosen, &GatherRows { src: residual, rows: &indices })?;
        self.shared.norm(step, &chosen, Some(self.norm), self.shared.width)
    }
}
