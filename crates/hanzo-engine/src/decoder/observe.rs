//! Looks at what goes into the products of a step, without a part in them.
//!
//! An observer costs a step that has none nothing but the question whether there is one. With one, the inputs of every
//! product are copied back from the device.

use hanzo_ml::backend::{Backend, MatMul, MoeMatMul, Weight};

use crate::{Error, Result};

/// Sees the inputs of products.
pub trait Observer {
    /// Whether a weight's products are to be shown; `name` is what a GGUF file calls it.
    fn wants(&self, name: &str) -> bool;

    /// A product that is about to be made.
    ///
    /// # Errors
    /// If the observer wants the step to end.
    fn product(&mut self, product: &Product<'_>) -> Result<()>;
}

/// What goes into a product with a weight `[N, K]`, or with some of `[E, N, K]`.
#[derive(Debug)]
pub struct Product<'a> {
    /// The weight's name in a GGUF file.
    pub name: &'a str,
    /// E; 1 for a dense matrix.
    pub n_experts: usize,
    /// K.
    pub k: usize,
    /// `[rows, K]`.
    pub x: &'a [f32],
    /// Which experts see which rows; `None` for a dense matrix.
    pub routing: Option<Routing<'a>>,
}

/// Which experts a step's tokens go to.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    /// `[T, S]`: experts, each below [`Product::n_experts`].
    pub ids: &'a [u32],
    /// S. The input has T rows that a token's experts share, or T · S rows.
    pub n_used: usize,
}

impl Product<'_> {
    /// Every row of the input with the expert whose matrix it meets; 0 for a dense matrix.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &[f32])> {
        let row = |i: usize| &self.x[i * self.k..(i + 1) * self.k];
        let n_rows = self.x.len() / self.k.max(1);
        let dense = self.routing.is_none().then(|| (0..n_rows).map(move |i| (0, row(i))));
        let routed = self.routing.map(|Routing { ids, n_used }| {
            let shared = n_rows < ids.len();
            let place = move |i: usize| if shared { i / n_used } else { i };
            ids.iter().enumerate().map(move |(i, &expert)| (expert as usize, row(place(i))))
        });
        dense.into_iter().flatten().chain(routed.into_iter().flatten())
    }
}

/// A weight at its place, and the name that a GGUF file has for it, whatever the file is.
#[derive(Debug)]
pub(super) struct Named {
    pub place: usize,
    pub weight: Weight,
    pub name: String,
}

/// The observer of a step and the names of the weights.
pub(super) struct Watch<'a> {
    pub names: &'a [Named],
    pub observer: &'a mut dyn Observer,
}

impl<'a> Watch<'a> {
    pub fn dense(&mut self, at: usize, backend: &mut dyn Backend, args: &MatMul<'_>) -> Result<()> {
        let Some(name) = self.wanted(at, args.weight)? else { return Ok(()) };
        let mut x = vec![0.0; args.x.len()];
        backend.download_f32(args.x, &mut x)?;
        self.observer.product(&Product { name, n_experts: 1, k: args.weight.k, x: &x, routing: None })
    }

    pub fn experts(&mut self, at: usize, backend: &mut dyn Backend, args: &MoeMatMul<'_>) -> Result<()> {
        let Some(name) = self.wanted(at, args.weight)? else { return Ok(()) };
        let mut x = vec![0.0; args.x.len()];
        backend.download_f32(args.x, &mut x)?;
        let mut ids = vec![0; args.ids.len()];
        backend.download_u32(args.ids, &mut ids)?;
        let Weight { n_experts, k, .. } = *args.weight;
        if let Some(id) = ids.iter().find(|&&id| id as usize >= n_experts) {
            return Err(Error::engine(format!("{name}: expert {id} of {n_experts}")));
        }
        let routing = Some(Routing { ids: &ids, n_used: args.n_used });
        self.observer.product(&Product { name, n_experts, k, x: &x, routing })
    }

    /// The weight's name, where the observer wants its products.
    fn wanted(&self, at: usize, weight: &Weight) -> Result<Option<&'a str>> {
        let named = self.names.iter().find(|named| named.place == at && named.weight == *weight);
        let named = named.ok_or_else(|| Error::engine("a weight of a product has no name"))?;
        Ok(Some(named.name.as_str()).filter(|name| self.observer.wants(name)))
    }
}
