//! The backend: memory, weights and kernels of one device.

use half::{
    bf16, f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};
use hanzo_kernel::table_words;

use super::{
    blocks,
    driver::DriverOptions,
    launcher::{Launcher, Which, number},
    memory::Memory,
    ops::Quantised,
    replay::Replaying,
    runtime::{MemoryId, Runtime},
    weights::Weights,
};
use crate::{
    DType, Error, QTensor, Result,
    backend::{
        Attention, Backend, Buffer, Embed, Footprint, GatedActivation, GatherRows, KvAppend, MatMul,
        MemoryInfo, MoeCombine, MoeMatMul, RmsNorm, Rope, RopeAngles, RopeAppend, Route, ScatterRows, Weight,
        WeightShape,
        check::{check_copy, check_swap},
    },
};

/// Workgroup size of the kernels that stride over their elements.
const STRIDE_THREADS: usize = 256;

/// Workgroups of such a launch at most: the least that any API allows along an axis.
const GROUPS_MAX: usize = 65_535;

/// How products with integer weights are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Products {
    /// Activations stay floats.
    #[default]
    Float,
    /// Activations are rounded to 8 bits in groups of 32, and products are integers.
    Int8,
    /// Products of many rows on matrix units, with factors rounded to f16.
    Matrix,
}

/// What a [`Gpu`] may use.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// How products are computed.
    pub products: Products,
    /// What activations are rounded to before a product reads them: f32 (they stay as they are), f16 or bf16.
    pub activations: DType,
    /// Where libraries and compiled kernels are.
    pub driver: DriverOptions,
}

/// The GPU backend.
pub struct Gpu {
    pub(super) runtime: Box<dyn Runtime>,
    pub(super) options: GpuOptions,
    pub(super) weights: Weights,
    pub(super) memory: Memory,
    launcher: Launcher,
    /// The formats' lattices.
    tables: MemoryId,
    /// Memory for the course of the operation in progress.
    scratch: Vec<Buffer>,
    /// The rows that were quantised last.
    pub(super) quantised: Option<Quantised>,
}

/// Bytes of words.
fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

impl Gpu {
    /// A backend on a runtime.
    ///
    /// # Errors
    /// If the device has no memory for the tables.
    pub fn new(runtime: Box<dyn Runtime>, options: GpuOptions) -> Result<Self> {
        let mut runtime = if runtime.can_capture() { Box::new(Replaying::new(runtime)) } else { runtime };
        let words = bytes_of(&table_words());
        let tables = runtime.alloc(words.len())?;
        runtime.upload(tables, 0, &words)?;
        Ok(Self {
            runtime,
            options,
            weights: Weights::default(),
            memory: Memory::default(),
            launcher: Launcher::default(),
            tables,
            scratch: Vec::new(),
            quantised: None,
        })
    }

    /// Computes products so from now on.
    ///
    /// # Errors
    /// Activations of a type that products do not read.
    pub fn set_arithmetic(&mut self, products: Products, activations: DType) -> Result<()> {
        number("products", activations)?;
        (self.options.products, self.options.activations) = (products, activations);
        self.forget_quantised();
        Ok(())
    }

    /// Whether the device has matrix units that products use.
    pub fn has_matrices(&self) -> bool {
        self.runtime.limits().matrix_side == Some(16)
    }

    /// The runtime, to measure and to ask for memory.
    pub fn runtime(&mut self) -> &mut dyn Runtime {
        &mut *self.runtime
    }

    pub(super) fn place(&self, buffer: &Buffer) -> Result<MemoryId> {
        self.memory.get(buffer)
    }

    /// Places of buffers with the names that kernels give them.
    pub(super) fn places<'n>(&self, named: &[(&'n str, &Buffer)]) -> Result<Vec<(&'n str, MemoryId)>> {
        let mut places = named.iter().map(|(n, b)| Ok((*n, self.place(b)?))).collect::<Result<Vec<_>>>()?;
        places.push(("tables", self.tables));
        Ok(places)
    }

    pub(super) fn launch(
        &mut self,
        which: &Which<'_>,
        buffers: &[(&str, MemoryId)],
        params: &[u32],
        grid: [u32; 3],
    ) -> Result<()> {
        let watched = self.quantised.as_ref().map(|q| q.of);
        let written = self.launcher.launch(&mut *self.runtime, which, buffers, params, grid, watched);
        // A launch that failed may have been run all the same.
        if written.as_ref().is_ok_and(|written| *written) || written.is_err() {
            self.forget_quantised();
        }
        written.map(|_| ())
    }

    /// A launch of a kernel without axes, whose threads stride over `n` elements.
    pub(super) fn stride(
        &mut self,
        which: &Which<'_>,
        buffers: &[(&str, &Buffer)],
        params: &[u32],
        n: usize,
    ) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        let places = self.places(buffers)?;
        self.launch(which, &places, params, [stride_groups(n), 1, 1])
    }

    /// Memory for the course of one operation, which runs in [`Gpu::scoped`].
    pub(super) fn scratch(&mut self, dtype: DType, len: usize) -> Result<MemoryId> {
        let buffer = self.memory.alloc(&mut *self.runtime, dtype, len)?;
        let memory = self.memory.get(&buffer);
        self.scratch.push(buffer);
        memory
    }

    /// Takes scratch memory out of the operation that made it.
    pub(super) fn keep_scratch(&mut self, memory: MemoryId) -> Option<Buffer> {
        let place = self.scratch.iter().position(|b| self.memory.get(b).is_ok_and(|m| m == memory))?;
        Some(self.scratch.swap_remove(place))
    }

    /// Runs an operation. Its scratch memory goes back when it ends, however it ends: the next one runs after it.
    pub(super) fn scoped<R>(&mut self, operation: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let result = operation(self);
        for buffer in self.scratch.drain(..) {
            self.memory.free(&buffer);
        }
        result
    }
}

/// Workgroups for `n` elements.
pub(super) fn stride_groups(n: usize) -> u32 {
    n.div_ceil(STRIDE_THREADS).clamp(1, GROUPS_MAX) as u32
}

/// Workgroups for `n` rows, which stride over rows past them.
pub(super) fn row_groups(n: usize) -> u32 {
    n.clamp(1, GROUPS_MAX) as u32
}

/// The values of the bytes of a buffer of numbers.
pub(super) fn floats_of(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
    match dtype {
        DType::F16 => halves().map(|v| f16::from_bits(v).to_f32()).collect(),
        DType::BF16 => halves().map(|v| bf16::from_bits(v).to_f32()).collect(),
        DType::F32 | DType::Q8_0 | DType::U32 => {
            bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
        }
    }
}

/// A size as the kernels take it.
pub(super) fn word(op: &'static str, size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::op(op, format!("{size} is more than kernels can count")))
}

impl Backend for Gpu {
    fn name(&self) -> String {
        self.runtime.name()
    }

    fn memory(&self) -> Option<MemoryInfo> {
        self.runtime.memory().ok()
    }

    fn is_host(&self) -> bool {
        false
    }

    fn footprint(&self, shape: &WeightShape, _table: bool) -> Footprint {
        Footprint { own: Weights::bytes(shape), mapped: 0 }
    }

    fn buffer_bytes(&self, dtype: DType, len: usize) -> Option<usize> {
        Memory::bytes(dtype, len)
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        self.memory.alloc(&mut *self.runtime, dtype, len)
    }

    fn free(&mut self, buffer: Buffer) {
        self.forget_quantised_of(&buffer);
        self.memory.free(&buffer);
    }

    fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        check_swap(a, b)?;
        self.memory.swap(a, b)
    }

    fn upload_f32(&mut self, dst: &Buffer, data: &[f32]) -> Result<()> {
        check_copy("upload_f32", dst, data.len(), true)?;
        if let Some(format) = dst.dtype.format() {
            return self.upload(dst, &blocks::lay(dst.dtype, format, data)?);
        }
        let words: Vec<u16> = match dst.dtype {
            DType::F16 => {
                let mut half = vec![0u16; data.len()];
                half.reinterpret_cast_mut::<f16>().convert_from_f32_slice(data);
                half
            }
            DType::BF16 => {
                let mut half = vec![0u16; data.len()];
                half.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(data);
                half
            }
            DType::F32 | DType::Q8_0 | DType::U32 => {
                let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
                return self.upload(dst, &bytes);
            }
        };
        let bytes: Vec<u8> = words.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.upload(dst, &bytes)
    }

    fn upload_u32(&mut self, dst: &Buffer, data: &[u32]) -> Result<()> {
        check_copy("upload_u32", dst, data.len(), false)?;
        self.upload(dst, &bytes_of(data))
    }

    fn download_f32(&mut self, src: &Buffer, out: &mut [f32]) -> Result<()> {
        check_copy("download_f32", src, out.len(), true)?;
        let bytes = self.download(src)?;
        out.copy_from_slice(&match src.dtype.format() {
            Some(format) => blocks::values(format, &bytes, src.len),
            None => floats_of(src.dtype, &bytes),
        });
        Ok(())
    }

    fn download_u32(&mut self, src: &Buffer, out: &mut [u32]) -> Result<()> {
        check_copy("download_u32", src, out.len(), false)?;
        let bytes = self.download(src)?;
        let words = bytes.as_chunks::<4>().0.iter();
        out.iter_mut().zip(words).for_each(|(o, v)| *o = u32::from_le_bytes(*v));
        Ok(())
    }

    fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        self.weights.load(&mut *self.runtime, tensor)
    }

    fn embed(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()> {
        self.embed_to(out, args)
    }

    fn gather_rows(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()> {
        self.gather_to(out, args)
    }

    fn scatter_rows(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()> {
        self.scatter_to(out, args)
    }

    fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        self.scoped(|gpu| gpu.matmul_to(out, args))
    }

    fn add(&mut self, acc: &Buffer, x: &Buffer) -> Result<()> {
        self.add_to(acc, x)
    }

    fn rms_norm(&mut self, out: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        self.rms_norm_to(out, None, args, false)
    }

    fn add_rms_norm(&mut self, out: &Buffer, acc: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        self.rms_norm_to(out, Some(acc), args, false)
    }

    fn norm_for_products(&mut self, out: &Buffer, acc: Option<&Buffer>, args: &RmsNorm<'_>) -> Result<()> {
        self.scoped(|gpu| gpu.rms_norm_to(out, acc, args, true))
    }

    fn rope_angles(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()> {
        self.rope_angles_to(out, args)
    }

    fn rope(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()> {
        self.rope_to(x, args)
    }

    fn kv_append(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()> {
        self.kv_append_to(cache, args)
    }

    fn rope_append(&mut self, q: &Buffer, args: &RopeAppend<'_>) -> Result<()> {
        self.rope_append_to(q, args)
    }

    fn attention(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()> {
        self.scoped(|gpu| gpu.attention_to(out, args))
    }

    fn gated_activation(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()> {
        self.gated_to(out, args)
    }

    fn softcap(&mut self, x: &Buffer, cap: f32) -> Result<()> {
        self.softcap_to(x, cap)
    }

    fn route(&mut self, ids: &Buffer, weights: &Buffer, args: &Route<'_>) -> Result<()> {
        self.route_to(ids, weights, args)
    }

    fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        self.scoped(|gpu| gpu.moe_matmul_to(out, args))
    }

    fn moe_combine(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()> {
        self.moe_combine_to(out, args)
    }
}

impl Gpu {
    fn upload(&mut self, dst: &Buffer, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.forget_quantised_of(dst);
        let place = self.place(dst)?;
        self.runtime.upload(place, 0, bytes)
    }

    fn download(&mut self, src: &Buffer) -> Result<Vec<u8>> {
        let mut bytes = vec![0; blocks::bytes_of(src.dtype, src.len).unwrap_or(0)];
        if !bytes.is_empty() {
            let place = self.place(src)?;
            self.runtime.download(place, 0, &mut bytes)?;
        }
        Ok(bytes)
    }
}
