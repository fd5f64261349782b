//! The buffers of one step: taken from the backend's pool, reused within the step, given back at its end.

use std::rc::Rc;

use hanzo_ml::{
    DType,
    backend::{Backend, Buffer, MatMul, MoeMatMul},
};

use super::observe::Watch;
use crate::Result;

/// One step on a backend. Buffers that nobody else holds any more serve again.
pub(super) struct Step<'a> {
    pub backend: &'a mut dyn Backend,
    live: Vec<Rc<Buffer>>,
    watch: Option<Watch<'a>>,
}

impl<'a> Step<'a> {
    pub fn new(backend: &'a mut dyn Backend, watch: Option<Watch<'a>>) -> Self {
        Self { backend, live: Vec::new(), watch }
    }

    /// A product with a weight. Every product of the decoder is made here or in [`Self::moe_matmul`], where an
    /// observer sees it.
    pub fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            watch.dense(self.backend, args)?;
        }
        Ok(self.backend.matmul(out, args)?)
    }

    /// A product with the weights of chosen experts.
    pub fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        if let Some(watch) = &mut self.watch {
            watch.experts(self.backend, args)?;
        }
        Ok(self.backend.moe_matmul(out, args)?)
    }

    /// A float buffer with unspecified contents.
    pub fn floats(&mut self, len: usize) -> Result<Rc<Buffer>> {
        self.buffer(DType::F32, len)
    }

    /// An integer buffer with unspecified contents.
    pub fn ints(&mut self, len: usize) -> Result<Rc<Buffer>> {
        self.buffer(DType::U32, len)
    }

    /// An integer buffer that holds `data`.
    pub fn upload(&mut self, data: &[u32]) -> Result<Rc<Buffer>> {
        let buffer = self.ints(data.len())?;
        self.backend.upload_u32(&buffer, data)?;
        Ok(buffer)
    }

    /// A float buffer that holds `data`.
    pub fn upload_f32(&mut self, data: &[f32]) -> Result<Rc<Buffer>> {
        let buffer = self.floats(data.len())?;
        self.backend.upload_f32(&buffer, data)?;
        Ok(buffer)
    }

    fn buffer(&mut self, dtype: DType, len: usize) -> Result<Rc<Buffer>> {
        let idle = |b: &&Rc<Buffer>| Rc::strong_count(b) == 1 && b.dtype() == dtype && b.len() == len;
        if let Some(buffer) = self.live.iter().find(idle) {
            return Ok(Rc::clone(buffer));
        }
        let buffer = Rc::new(self.backend.alloc(dtype, len)?);
        self.live.push(Rc::clone(&buffer));
        Ok(buffer)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        for buffer in self.live.drain(..) {
            if let Some(buffer) = Rc::into_inner(buffer) {
                self.backend.free(buffer);
            }
        }
    }
}
