//! A backend that computes nothing and remembers what it was asked to allocate, so that what a model will take is known
//! from the code that will take it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Attention, Backend, Buffer, Embed, GatedActivation, GatherRows, KvAppend, MatMul, MoeCombine, MoeMatMul,
    RmsNorm, Rope, RopeAngles, Route, ScatterRows, Weight, WeightShape, slab::dims_of,
};
use crate::{DType, QTensor, Result};

/// What was allocated.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    allocated: Vec<(DType, usize)>,
    /// What was given back and serves again.
    idle: Vec<(DType, usize)>,
}

impl Ledger {
    /// Types and lengths of all buffers since the last call; one that was freed serves again.
    pub fn take(&self) -> Vec<(DType, usize)> {
        std::mem::take(&mut *self.entries()).allocated
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts allocations; every operation succeeds at once, every download leaves what is there.
#[derive(Debug, Default)]
pub struct Counting {
    ledger: Ledger,
    n_buffers: usize,
}

impl Counting {
    /// A backend, and what it will have allocated.
    pub fn new() -> (Self, Ledger) {
        let ledger = Ledger::default();
        (Self { ledger: ledger.clone(), n_buffers: 0 }, ledger)
    }
}

impl Backend for Counting {
    fn name(&self) -> String {
        "counting".to_owned()
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        let mut entries = self.ledger.entries();
        match entries.idle.iter().position(|&idle| idle == (dtype, len)) {
            Some(i) => {
                entries.idle.swap_remove(i);
            }
            None => entries.allocated.push((dtype, len)),
        }
        drop(entries);
        self.n_buffers += 1;
        Ok(Buffer { id: self.n_buffers, dtype, len })
    }

    fn free(&mut self, buffer: Buffer) {
        self.ledger.entries().idle.push((buffer.dtype, buffer.len));
    }

    fn swap(&mut self, _: &Buffer, _: &Buffer) -> Result<()> {
        Ok(())
    }

    fn upload_f32(&mut self, _: &Buffer, _: &[f32]) -> Result<()> {
        Ok(())
    }

    fn upload_u32(&mut self, _: &Buffer, _: &[u32]) -> Result<()> {
        Ok(())
    }

    fn download_f32(&mut self, _: &Buffer, _: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn download_u32(&mut self, _: &Buffer, _: &mut [u32]) -> Result<()> {
        Ok(())
    }

    fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        let [n_experts, n, k] = dims_of(tensor)?;
        Ok(WeightShape { format: tensor.format(), n_experts, n, k }.unloaded())
    }

    fn embed(&mut self, _: &Buffer, _: &Embed<'_>) -> Result<()> {
        Ok(())
    }

    fn gather_rows(&mut self, _: &Buffer, _: &GatherRows<'_>) -> Result<()> {
        Ok(())
    }

    fn scatter_rows(&mut self, _: &Buffer, _: &ScatterRows<'_>) -> Result<()> {
        Ok(())
    }

    fn matmul(&mut self, _: &Buffer, _: &MatMul<'_>) -> Result<()> {
        Ok(())
    }

    fn add(&mut self, _: &Buffer, _: &Buffer) -> Result<()> {
        Ok(())
    }

    fn rms_norm(&mut self, _: &Buffer, _: &RmsNorm<'_>) -> Result<()> {
        Ok(())
    }

    fn add_rms_norm(&mut self, _: &Buffer, _: &Buffer, _: &RmsNorm<'_>) -> Result<()> {
        Ok(())
    }

    fn rope_angles(&mut self, _: &Buffer, _: &RopeAngles<'_>) -> Result<()> {
        Ok(())
    }

    fn rope(&mut self, _: &Buffer, _: &Rope<'_>) -> Result<()> {
        Ok(())
    }

    fn kv_append(&mut self, _: &Buffer, _: &KvAppend<'_>) -> Result<()> {
        Ok(())
    }

    fn attention(&mut self, _: &Buffer, _: &Attention<'_>) -> Result<()> {
        Ok(())
    }

    fn gated_activation(&mut self, _: &Buffer, _: &GatedActivation<'_>) -> Result<()> {
        Ok(())
    }

    fn softcap(&mut self, _: &Buffer, _: f32) -> Result<()> {
        Ok(())
    }

    fn route(&mut self, _: &Buffer, _: &Buffer, _: &Route<'_>) -> Result<()> {
        Ok(())
    }

    fn moe_matmul(&mut self, _: &Buffer, _: &MoeMatMul<'_>) -> Result<()> {
        Ok(())
    }

    fn moe_combine(&mut self, _: &Buffer, _: &MoeCombine<'_>) -> Result<()> {
        Ok(())
    }
}
