//! Handles to storages and weights, shared by the backends.

use super::{Buffer, Weight};
use crate::{Error, QTensor, Result};

/// Storages by the index that a [`Buffer`] carries.
pub(crate) struct Slab<S> {
    slots: Vec<Option<S>>,
    vacant: Vec<usize>,
}

impl<S> Default for Slab<S> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<S> Slab<S> {
    /// Keeps a storage and gives its index.
    pub(crate) fn insert(&mut self, storage: S) -> usize {
        match self.vacant.pop() {
            Some(id) => {
                self.slots[id] = Some(storage);
                id
            }
            None => {
                self.slots.push(Some(storage));
                self.slots.len() - 1
            }
        }
    }

    /// Forgets an index; its storage, if the handle was ours.
    pub(crate) fn remove(&mut self, id: usize) -> Option<S> {
        let storage = self.slots.get_mut(id)?.take()?;
        self.vacant.push(id);
        Some(storage)
    }

    /// Exchanges the storages of two buffers.
    pub(crate) fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        self.get(a).and(self.get(b))?;
        self.slots.swap(a.id, b.id);
        Ok(())
    }

    pub(crate) fn get(&self, buffer: &Buffer) -> Result<&S> {
        self.slots.get(buffer.id).and_then(Option::as_ref).ok_or_else(|| unknown(buffer))
    }

    /// Takes a storage out while an operation writes it; [`Slab::put`] brings it back.
    pub(crate) fn take(&mut self, buffer: &Buffer) -> Result<S> {
        self.slots.get_mut(buffer.id).and_then(Option::take).ok_or_else(|| unknown(buffer))
    }

    pub(crate) fn put(&mut self, buffer: &Buffer, storage: S) {
        self.slots[buffer.id] = Some(storage);
    }
}

/// The error for a buffer that this backend does not hold (made by another one, or in use).
pub(crate) fn unknown(buffer: &Buffer) -> Error {
    Error::op("buffer", format!("{buffer:?} does not belong to this backend"))
}

/// The error for a weight that this backend does not hold.
pub(crate) fn unknown_weight(weight: &Weight) -> Error {
    Error::op("weight", format!("{weight:?} does not belong to this backend"))
}

/// Experts, rows and columns of a tensor `[N, K]` or `[E, N, K]`.
pub(crate) fn dims_of(tensor: &QTensor) -> Result<[usize; 3]> {
    let error = |what: &str| Error::tensor(tensor.name(), format!("shape {:?} is {what}", tensor.shape()));
    let dims = match *tensor.shape() {
        [n, k] => [1, n, k],
        [e, n, k] => [e, n, k],
        _ => return Err(error("no matrix")),
    };
    if dims.contains(&0) { Err(error("empty")) } else { Ok(dims) }
}

/// Weights by the index that a [`Weight`] carries, their bytes as they lie in the file.
#[derive(Default)]
pub(crate) struct Weights(Vec<QTensor>);

impl Weights {
    /// Keeps a tensor `[N, K]` or `[E, N, K]`.
    pub(crate) fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        let [n_experts, n, k] = dims_of(tensor)?;
        self.0.push(tensor.clone());
        Ok(Weight { id: self.0.len() - 1, format: tensor.format(), n_experts, n, k })
    }

    /// The tensor of a handle, in the shape that the handle claims.
    pub(crate) fn get(&self, weight: &Weight) -> Result<&QTensor> {
        let dims = [weight.n_experts, weight.n, weight.k];
        let is_same = |t: &&QTensor| t.format() == weight.format && dims_of(t).is_ok_and(|d| d == dims);
        let tensor = self.0.get(weight.id).filter(is_same);
        tensor.ok_or_else(|| unknown_weight(weight))
    }
}
