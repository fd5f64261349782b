//! Runs an operation on a device, and on the reference beside it.

use std::rc::Rc;

use super::{Depth, Report, Subject, report::Verdict, subject::Arithmetic};
use crate::{
    DType, Result,
    backend::{Backend, Buffer},
    reference::Reference,
};

/// Half a unit in the last place of 1: the relative error of one f32 operation.
pub(super) const EPS: f32 = f32::EPSILON / 2.0;

/// How many times the bounds of f32 arithmetic a device may be off by: sums are taken in any order, and exponentials, square
/// roots and divisions are its own, to a few units in the last place.
const DEVICE_FACTOR: f32 = 4.0;

/// The smallest error of all: angles are exact to 2^-32 of a turn.
const ABSOLUTE: f32 = 5e-9;

/// A device with what was found about it.
pub(super) struct Bench<'a> {
    pub subject: &'a mut dyn Subject,
    pub depth: Depth,
    pub report: Report,
}

impl<'a> Bench<'a> {
    pub(super) fn new(subject: &'a mut dyn Subject, depth: Depth) -> Self {
        let device = subject.backend().name();
        Self { subject, depth, report: Report { device, ..Report::default() } }
    }

    /// Random shapes of an operation: all of them, or the first few.
    pub(super) fn n_shapes(&self, all: u64) -> u64 {
        match self.depth {
            Depth::Brief => all.div_ceil(4),
            Depth::Thorough => all,
        }
    }

    /// Adds one combination; an error of the device is a failure.
    pub(super) fn add(
        &mut self,
        operation: &'static str,
        arithmetic: Option<Arithmetic>,
        what: &str,
        verdict: Result<Verdict>,
    ) {
        let failed = |e: crate::Error| Verdict { failure: Some(e.to_string()), n_flushed: 0 };
        self.report.add(operation, arithmetic, what, verdict.unwrap_or_else(failed));
    }

    /// Runs an operation on the device and on the reference; `bound(i, reference[i])` is what f32 arithmetic may be off by.
    pub(super) fn compare(
        &mut self,
        operation: &'static str,
        shape: &str,
        run: impl Fn(&mut Desk<'_>) -> Result<Vec<f32>>,
        bound: impl Fn(usize, f32) -> f32,
    ) {
        let want = run(&mut Desk::new(&mut Reference::new()));
        let got = run(&mut Desk::new(self.subject.backend()));
        let verdict = want.and_then(|want| {
            let within = |(i, want): (usize, f32)| {
                (want, DEVICE_FACTOR * (bound(i, want) + 2.0 * EPS * want.abs()) + ABSOLUTE)
            };
            let want: Vec<_> = want.into_iter().enumerate().map(within).collect();
            let mut verdict = Verdict::default();
            verdict.compare(shape, &got?, &want);
            Ok(verdict)
        });
        self.add(operation, None, shape, verdict);
    }

    /// The same for operations that move numbers and change none: the bits of the reference.
    pub(super) fn same(
        &mut self,
        operation: &'static str,
        shape: &str,
        run: impl Fn(&mut Desk<'_>) -> Result<Vec<f32>>,
    ) {
        let want = run(&mut Desk::new(&mut Reference::new()));
        let got = run(&mut Desk::new(self.subject.backend()));
        let verdict = want.and_then(|want| {
            let want: Vec<_> = want.into_iter().map(|want| (want, 0.0)).collect();
            let mut verdict = Verdict::default();
            verdict.compare(shape, &got?, &want);
            Ok(verdict)
        });
        self.add(operation, None, shape, verdict);
    }
}

/// A backend with buffers that go back when the desk is left.
pub(super) struct Desk<'a> {
    pub backend: &'a mut dyn Backend,
    buffers: Vec<Rc<Buffer>>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(backend: &'a mut dyn Backend) -> Self {
        Self { backend, buffers: Vec::new() }
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Rc<Buffer>> {
        let buffer = Rc::new(self.backend.alloc(dtype, len)?);
        self.buffers.push(Rc::clone(&buffer));
        Ok(buffer)
    }

    pub(super) fn floats_as(&mut self, dtype: DType, values: &[f32]) -> Result<Rc<Buffer>> {
        let buffer = self.alloc(dtype, values.len())?;
        self.backend.upload_f32(&buffer, values)?;
        Ok(buffer)
    }

    pub(super) fn floats(&mut self, values: &[f32]) -> Result<Rc<Buffer>> {
        self.floats_as(DType::F32, values)
    }

    /// A buffer whose contents no operation may use.
    pub(super) fn empty(&mut self, len: usize) -> Result<Rc<Buffer>> {
        self.floats(&vec![f32::NAN; len])
    }

    pub(super) fn ids(&mut self, values: &[u32]) -> Result<Rc<Buffer>> {
        let buffer = self.alloc(DType::U32, values.len())?;
        self.backend.upload_u32(&buffer, values)?;
        Ok(buffer)
    }

    pub(super) fn read(&mut self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut values = vec![0.0; buffer.len()];
        self.backend.download_f32(buffer, &mut values)?;
        Ok(values)
    }

    pub(super) fn read_ids(&mut self, buffer: &Buffer) -> Result<Vec<u32>> {
        let mut values = vec![0; buffer.len()];
        self.backend.download_u32(buffer, &mut values)?;
        Ok(values)
    }
}

impl Drop for Desk<'_> {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            if let Some(buffer) = Rc::into_inner(buffer) {
                self.backend.free(buffer);
            }
        }
    }
}
