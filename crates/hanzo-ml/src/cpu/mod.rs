//! The multi-threaded CPU backend: f32 arithmetic in vectors of eight lanes, products with plain numbers in f32 (`float`), and
//! those with quantised weights in integers (`int8`).
//!
//! Every output element is computed by one thread in an order that depends on its own operands alone (see `dot` and
//! `int8`), so results are the same bits for any batch composition and any number of threads on one processor
//! type. A quantised weight is re-laid at load for vectors, bit for bit, and its mapped pages are given back; with
//! [`CpuOptions::repack`] off, or products in f32, weights stay in the file's bytes. Freed buffers are reused.

mod attention;
mod dot;
mod float;
mod int8;
mod math;
mod matmul;
mod memory;
mod prefetch;
mod rows;
mod simd;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use hanzo_quant::Format;

use int8::{Int8Level, Interleaved, LastActivations};
use memory::{Cells, Floats, Memory, decode_blocks, encode_blocks};
use simd::Level;

use crate::{
    DType, QTensor, Result,
    backend::{
        Attention, Backend, Buffer, Embed, Footprint, GatedActivation, GatherRows, KvAppend, MatMul,
        MemoryInfo, MoeCombine, MoeMatMul, RmsNorm, Rope, RopeAngles, Route, ScatterRows, Weight,
        WeightShape,
        check::{check_copy, check_swap},
        slab::{Weights, unknown},
    },
    host,
    parallel::Parallel,
};

/// What products with quantised weights make of their activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// Blocks of 32 signed bytes, dotted with the weight's quants in integers.
    #[default]
    Int8,
    /// As they are; the weight's values are decoded to f32.
    F32,
}

/// What a [`Cpu`] may use.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads; by default one per physical core.
    pub threads: Option<usize>,
    /// Arithmetic of products with quantised weights. Plain float weights are always multiplied in f32.
    pub activations: Activations,
    /// Whether weights are copied at load into the layout that integer products read fastest; without it they read the
    /// file's bytes, slower. Results are the same bits.
    pub repack: bool,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { threads: None, activations: Activations::default(), repack: true }
    }
}

/// The CPU backend.
pub struct Cpu {
    memory: Memory,
    weights: Weights,
    /// The re-laid form of each weight that has one.
    interleaved: Vec<Option<Interleaved>>,
    activations: LastActivations,
    floats: float::Scratch,
    parallel: Parallel,
    level: Level,
    int8: Int8Level,
    options: CpuOptions,
}

impl Cpu {
    /// A backend that uses the best instructions of this processor.
    ///
    /// # Errors
    /// If the number of threads is 0 or too large, or the system starts none.
    pub fn new(options: CpuOptions) -> Result<Self> {
        Self::with_level(options, Level::detect(), Int8Level::detect())
    }

    /// A backend that uses only instructions which every processor of the target has; for comparisons.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    pub fn portable(options: CpuOptions) -> Result<Self> {
        Self::with_level(options, Level::Portable, Int8Level::Portable)
    }

    fn with_level(options: CpuOptions, level: Level, int8: Int8Level) -> Result<Self> {
        let parallel = Parallel::new(options.threads)?;
        let (memory, weights) = (Memory::default(), Weights::default());
        let (activations, floats) = (LastActivations::default(), float::Scratch::default());
        let interleaved = Vec::new();
        Ok(Self { memory, weights, interleaved, activations, floats, parallel, level, int8, options })
    }

    /// The instructions that products with quantised weights use, by [`CpuOptions::activations`]; `portable` for those that
    /// every processor of the target has.
    pub fn instructions(&self) -> &'static str {
        match self.options.activations {
            Activations::Int8 => self.int8.name(),
            Activations::F32 => self.level.name(),
        }
    }

    /// Number of threads, the caller's included.
    pub fn n_threads(&self) -> usize {
        self.parallel.n_threads()
    }

    /// Whether weights of a format are copied at load into another layout.
    fn re_lays(&self, format: &Format) -> bool {
        let Activations::Int8 = self.options.activations else { return false };
        self.options.repack && Interleaved::helps(format)
    }

    /// Lets `f` write a buffer that is taken out of the memory meanwhile. It comes back after a panic too: the
    /// cache of a model must outlive the request that met a bug of ours.
    fn write(&mut self, out: &Buffer, f: impl FnOnce(&Self, &mut Cells) -> Result<()>) -> Result<()> {
        let mut cells = self.memory.take(out)?;
        self.activations.forget(out);
        let result = catch_unwind(AssertUnwindSafe(|| f(self, &mut cells)));
        self.memory.put(out, cells);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The same for f32 buffers.
    fn write_f32(&mut self, out: &Buffer, f: impl FnOnce(&Self, &mut [f32]) -> Result<()>) -> Result<()> {
        self.write(out, |cpu, cells| match cells {
            Cells::F32(y) => f(cpu, y),
            Cells::F16(_) | Cells::BF16(_) | Cells::Q8_0(_) | Cells::U32(_) => Err(unknown(out)),
        })
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        format!("cpu ({} threads, {})", self.parallel.n_threads(), self.instructions())
    }

    fn memory(&self) -> Option<MemoryInfo> {
        host::memory()
    }

    fn footprint(&self, shape: &WeightShape, table: bool) -> Footprint {
        if !table && self.re_lays(shape.format) {
            Footprint { own: Interleaved::bytes(shape), mapped: 0 }
        } else {
            Footprint { own: 0, mapped: shape.file_bytes() }
        }
    }

    fn alloc(&mut self, dtype: DType, len: usize) -> Result<Buffer> {
        self.memory.alloc(dtype, len)
    }

    fn free(&mut self, buffer: Buffer) {
        self.activations.forget(&buffer);
        self.memory.free(&buffer);
    }

    fn swap(&mut self, a: &Buffer, b: &Buffer) -> Result<()> {
        check_swap(a, b)?;
        self.activations.forget(a);
        self.activations.forget(b);
        self.memory.swap(a, b)
    }

    fn upload_f32(&mut self, dst: &Buffer, data: &[f32]) -> Result<()> {
        check_copy("upload_f32", dst, data.len(), true)?;
        self.write(dst, |_, cells| {
            match cells {
                Cells::F32(y) => y.copy_from_slice(data),
                Cells::F16(y) => y.reinterpret_cast_mut::<half::f16>().convert_from_f32_slice(data),
                Cells::BF16(y) => y.reinterpret_cast_mut::<half::bf16>().convert_from_f32_slice(data),
                Cells::Q8_0(y) => encode_blocks(DType::Q8_0, data, y),
                Cells::U32(_) => return Err(unknown(dst)),
            }
            Ok(())
        })
    }

    fn upload_u32(&mut self, dst: &Buffer, data: &[u32]) -> Result<()> {
        check_copy("upload_u32", dst, data.len(), false)?;
        self.write(dst, |_, cells| match cells {
            Cells::U32(y) => {
                y.copy_from_slice(data);
                Ok(())
            }
            Cells::F32(_) | Cells::F16(_) | Cells::BF16(_) | Cells::Q8_0(_) => Err(unknown(dst)),
        })
    }

    fn download_f32(&mut self, src: &Buffer, out: &mut [f32]) -> Result<()> {
        check_copy("download_f32", src, out.len(), true)?;
        match self.memory.floats(src)? {
            Floats::F32(x) => out.copy_from_slice(x),
            Floats::F16(x) => x.convert_to_f32_slice(out),
            Floats::BF16(x) => x.convert_to_f32_slice(out),
            Floats::Q8_0(x) => decode_blocks(DType::Q8_0, x, out),
        }
        Ok(())
    }

    fn download_u32(&mut self, src: &Buffer, out: &mut [u32]) -> Result<()> {
        check_copy("download_u32", src, out.len(), false)?;
        out.copy_from_slice(self.memory.u32(src)?);
        Ok(())
    }

    fn load(&mut self, tensor: &QTensor) -> Result<Weight> {
        let weight = self.weights.load(tensor)?;
        let re_laid = self.re_lays(tensor.format());
        self.interleaved.push(re_laid.then(|| Interleaved::new(&self.parallel, tensor)).transpose()?);
        Ok(weight)
    }

    fn load_table(&mut self, tensor: &QTensor) -> Result<Weight> {
        let weight = self.weights.load(tensor)?;
        self.interleaved.push(None);
        Ok(weight)
    }

    fn embed(&mut self, out: &Buffer, args: &Embed<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.embed_to(out, y, args))
    }

    fn gather_rows(&mut self, out: &Buffer, args: &GatherRows<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.gather_to(out, y, args))
    }

    fn scatter_rows(&mut self, out: &Buffer, args: &ScatterRows<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.scatter_to(out, y, args))
    }

    fn matmul(&mut self, out: &Buffer, args: &MatMul<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.matmul_to(out, y, args))
    }

    fn add(&mut self, acc: &Buffer, x: &Buffer) -> Result<()> {
        self.write_f32(acc, |cpu, y| cpu.add_to(acc, y, x))
    }

    fn rms_norm(&mut self, out: &Buffer, args: &RmsNorm<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.rms_norm_to(out, y, args))
    }

    fn rope_angles(&mut self, out: &Buffer, args: &RopeAngles<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.rope_angles_to(out, y, args))
    }

    fn rope(&mut self, x: &Buffer, args: &Rope<'_>) -> Result<()> {
        self.write_f32(x, |cpu, y| cpu.rope_to(x, y, args))
    }

    fn kv_append(&mut self, cache: &Buffer, args: &KvAppend<'_>) -> Result<()> {
        self.write(cache, |cpu, y| cpu.kv_append_to(cache, y, args))
    }

    fn attention(&mut self, out: &Buffer, args: &Attention<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.attention_to(out, y, args))
    }

    fn gated_activation(&mut self, out: &Buffer, args: &GatedActivation<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.gated_to(out, y, args))
    }

    fn softcap(&mut self, x: &Buffer, cap: f32) -> Result<()> {
        self.write_f32(x, |cpu, y| cpu.softcap_to(x, y, cap))
    }

    fn route(&mut self, ids: &Buffer, weights: &Buffer, args: &Route<'_>) -> Result<()> {
        args.check(ids, weights)?;
        let mut chosen = self.memory.take(ids)?;
        let result = match &mut chosen {
            Cells::U32(y) => self.write_f32(weights, |cpu, w| cpu.route_to(y, w, args)),
            Cells::F32(_) | Cells::F16(_) | Cells::BF16(_) | Cells::Q8_0(_) => Err(unknown(ids)),
        };
        self.memory.put(ids, chosen);
        result
    }

    fn moe_matmul(&mut self, out: &Buffer, args: &MoeMatMul<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.moe_matmul_to(out, y, args))
    }

    fn moe_combine(&mut self, out: &Buffer, args: &MoeCombine<'_>) -> Result<()> {
        self.write_f32(out, |cpu, y| cpu.moe_combine_to(out, y, args))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_outlives_a_panic_while_it_is_written() {
        let mut cpu = Cpu::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
        let buffer = cpu.alloc(DType::F32, 1).unwrap();
        cpu.upload_f32(&buffer, &[7.0]).unwrap();
        let panics = |cpu: &mut Cpu| cpu.write(&buffer, |_, _| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(|| panics(&mut cpu))).is_err());
        let mut out = [0.0];
        cpu.download_f32(&buffer, &mut out).unwrap();
        assert_eq!(out, [7.0]);
    }
}
