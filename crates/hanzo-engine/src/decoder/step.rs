//! The buffers of one step: taken from the backends' pools, reused within the step, given back at its end.
//!
//! A step is at one place at a time; everything it is asked for happens there.

use std::rc::Rc;

use hanzo_ml::{
    DType,
    backend::{Backend, Buffer, MatMul, MoeMatMul},
};

use super::observe::Watch;
use crate::Result;

/// One step on its backends. Buffers that nobody else holds any more serve again.
pub(super) struct Step<'a> {
    backends: &'a mut [Box<dyn Backend>],
    at: usize,
    /// Buffers with their places.
    live: Vec<(usize, Rc<Buffer>)>,
    watch: Option<Watch<'a>>,
}

impl<'a> Step<'a> {
    /// A step that is at the first place.
    pub fn new(backends: &'a mut [Box<dyn Backend>], watch: Option<Watch<'a>>) -> Self {
        Self { backends, at: 0, live: Vec::new(), watch }
    }

    /// Where the step is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The backend there.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backends[self.at]
    }

    /// Goes to a place without taking anything along.
    pub fn go(&mut self, place: usize) {
        self.at = place;
    }

    /// Goes to a place with the residual, which what is still to be added joins before.
    pub fn carry(
        &mut self,
        place: usize,
        residual: &mut Rc<Buffer>,
        delta: &mut Option<Rc<Buffer>>,
    ) -> Result<()> {
        if place == self.at {
            return Ok(());
        }
        if let Some(delta) = delta.take() {
            self.backend().add(residual, &delta)?;
        }
        let mut values = vec![0.0; residual.len()];
        self.backend().download_f32(residual, &mut values)?;
        self.at = place;
        *residual = self.upload_f32(&values)?;
        Ok(())
    }

    /// A product with a weight. Every product of the decoder is made here or in [`Self::moe_matmul`], where an
    /// observer sees it.
    pub fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        let backend = &mut *self.backends[self.at];
        if let Some(watch) = &mut self.watch {
            watch.dense(self.at, backend, args)?;
        }
        Ok(backend.matmul(out, args)?)
    }

    /// A product with the weights of chosen experts.
    pub fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        let backend = &mut *self.backends[self.at];
        if let Some(watch) = &mut self.watch {
            watch.experts(self.at, backend, args)?;
        }
        Ok(backend.moe_matmul(out, args)?)
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
        self.backend().upload_u32(&buffer, data)?;
        Ok(buffer)
    }

    /// A float buffer that holds `data`.
    pub fn upload_f32(&mut self, data: &[f32]) -> Result<Rc<Buffer>> {
        let buffer = self.floats(data.len())?;
        self.backend().upload_f32(&buffer, data)?;
        Ok(buffer)
    }

    fn buffer(&mut self, dtype: DType, len: usize) -> Result<Rc<Buffer>> {
        let at = self.at;
        let idle = |(place, b): &&(usize, Rc<Buffer>)| {
            *place == at && Rc::strong_count(b) == 1 && b.dtype() == dtype && b.len() == len
        };
        if let Some((_, buffer)) = self.live.iter().find(idle) {
            return Ok(Rc::clone(buffer));
        }
        let buffer = Rc::new(self.backend().alloc(dtype, len)?);
        self.live.push((at, Rc::clone(&buffer)));
        Ok(buffer)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        for (place, buffer) in self.live.drain(..) {
            if let Some(buffer) = Rc::into_inner(buffer) {
                self.backends[place].free(buffer);
            }
        }
    }
}
