//! The multi-threaded CPU backend. Its operations are those of the reference until each has its own kernel.

use crate::{
    DType, QTensor, Result,
    backend::{
        Attention, Backend, Buffer, Embed, GatedActivation, GatherRows, KvAppend, MatMul, MoeCombine,
        MoeMatMul, RmsNorm, Rope, RopeAngles, Route, ScatterRows, Weight,
    },
    parallel::Parallel,
    reference::Reference,
};

/// What a [`Cpu`] may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads; by default one per physical core.
    pub threads: Option<usize>,
}

/// The CPU backend.
pub struct Cpu {
    inner: Reference,
    parallel: Parallel,
}

impl Cpu {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the number of threads is 0 or too large, or the system starts none.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Ok(Self { inner: Reference::new(), parallel: Parallel::new(options.threads)? })
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu ({} threads)", self.parallel.n_threads())
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        self.inner.alloc(dtype, len)
    }

    fn free(&mut self, buffer: Buffer) {
        self.inner.free(buffer);
    }

    fn upload_f32(&mut self, dst: &Buffer, data: &[f32]) -> Result<()> {
        self.inner.upload_f32(dst, data)
    }

    fn upload_u32(&mut self, dst: &Buffer, data: &[u32]) -> Result<()> {
        self.inner.upload_u32(dst, data)
    }

    fn download_f32(&mut self, src: &Buffer, out: &mut [f32]) -> Result<()> {
        self.inner.download_f32(src, out)
    }

    fn download_u32(&mut self, src: &Buffer, out: &mut [u32]) -> Result<()> {
        self.inner.download_u32(src, out)
    }

    fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        self.inner.load(tensor)
    }

    fn embed(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()> {
        self.inner.embed(out, args)
    }

    fn gather_rows(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()> {
        self.inner.gather_rows(out, args)
    }

    fn scatter_rows(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()> {
        self.inner.scatter_rows(out, args)
    }

    fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        self.inner.matmul(out, args)
    }

    fn add(&mut self, acc: &Buffer, x: &Buffer) -> Result<()> {
        self.inner.add(acc, x)
    }

    fn rms_norm(&mut self, out: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        self.inner.rms_norm(out, args)
    }

    fn add_rms_norm(&mut self, out: &Buffer, acc: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        self.inner.add_rms_norm(out, acc, args)
    }

    fn rope_angles(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()> {
        self.inner.rope_angles(out, args)
    }

    fn rope(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()> {
        self.inner.rope(x, args)
    }

    fn kv_append(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()> {
        self.inner.kv_append(cache, args)
    }

    fn attention(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()> {
        self.inner.attention(out, args)
    }

    fn gated_activation(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()> {
        self.inner.gated_activation(out, args)
    }

    fn softcap(&mut self, x: &Buffer, cap: f32) -> Result<()> {
        self.inner.softcap(x, cap)
    }

    fn route(&mut self, ids: &Buffer, weights: &Buffer, args: &Route<'_>) -> Result<()> {
        self.inner.route(ids, weights, args)
    }

    fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        self.inner.moe_matmul(out, args)
    }

    fn moe_combine(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()> {
        self.inner.moe_combine(out, args)
    }
}
