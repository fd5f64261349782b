//! Weights that no single buffer of a device holds lie in parts, and every operation gives the bits that it gives with the
//! weight in one piece.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say which devices they found")]

mod common;

use common::*;
use hanzo_kernel::Target;
use hanzo_ml::{
    Device, QTensor, Result,
    backend::{Backend, Embed, MatMul, MoeMatMul},
    gpu::{
        EventId, Gpu, GpuOptions, Launch, Limits, MemoryId, MemoryInfo, Products, ProgramId, ProgramSource,
        Runtime,
        wgpu::{Api, Wgpu},
    },
};
use hanzo_quant::Format;

/// Room for the activations below, and for no weight.
const BUFFER_BYTES: usize = 48 << 10;

/// A device with small buffers.
struct Small {
    device: Wgpu,
    limits: Limits,
}

impl Runtime for Small {
    fn name(&self) -> String {
        self.device.name()
    }

    fn target(&self) -> Target {
        self.device.target()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.device.memory()
    }

    fn alloc(&mut self, bytes: usize) -> Result<MemoryId> {
        self.device.alloc(bytes)
    }

    fn free(&mut self, memory: MemoryId) {
        self.device.free(memory);
    }

    fn upload(&mut self, dst: MemoryId, offset: usize, data: &[u8]) -> Result<()> {
        self.device.upload(dst, offset, data)
    }

    fn download(&mut self, src: MemoryId, offset: usize, out: &mut [u8]) -> Result<()> {
        self.device.download(src, offset, out)
    }

    fn copy(&mut self, dst: (MemoryId, usize), src: (MemoryId, usize), bytes: usize) -> Result<()> {
        self.device.copy(dst, src, bytes)
    }

    fn fill(&mut self, dst: MemoryId, value: u8, bytes: usize) -> Result<()> {
        self.device.fill(dst, value, bytes)
    }

    fn compile(&mut self, sources: &[ProgramSource<'_>]) -> Result<Vec<ProgramId>> {
        self.device.compile(sources)
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.device.launch(launch)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.device.synchronize()
    }

    fn record(&mut self) -> Result<EventId> {
        self.device.record()
    }

    fn elapsed_ms(&mut self, from: EventId, to: EventId) -> Result<f32> {
        self.device.elapsed_ms(from, to)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// An operation on the device as it is and on the one with small buffers.
fn check(what: &str, gpus: &mut [Gpu; 2], tensor: &QTensor, run: impl Fn(&mut Gpu, &QTensor) -> Vec<f32>) {
    let [whole, parts] = gpus.each_mut().map(|gpu| bits(&run(gpu, tensor)));
    assert!(whole.iter().any(|v| *v != 0), "{what}");
    assert_eq!(whole.len(), parts.len());
    let differs = whole.iter().zip(&parts).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: the first value that differs");
}

fn multiply(gpu: &mut Gpu, tensor: &QTensor, rows: usize) -> Vec<f32> {
    let mut rng = Rng::new(rows as u64);
    let weight = gpu.load(tensor).unwrap();
    let (x, bias) = (up(gpu, &rng.floats(rows * weight.k)), up(gpu, &rng.floats(weight.n)));
    let out = empty(gpu, rows * weight.n);
    let bias = (rows % 2 == 1).then_some(&bias);
    gpu.matmul(&out, &MatMul { x: &x, weight: &weight, bias }).unwrap();
    down(gpu, &out)
}

fn look_up(gpu: &mut Gpu, tensor: &QTensor) -> Vec<f32> {
    let table = gpu.load(tensor).unwrap();
    let ids = [299, 0, 64, 63, 127, 128, 299, 47, 48, 1];
    let (ids_buffer, out) = (up_ids(gpu, &ids), empty(gpu, ids.len() * table.k));
    gpu.embed(&out, &Embed { table: &table, ids: &ids_buffer, scale: 1.5 }).unwrap();
    down(gpu, &out)
}

fn experts(gpu: &mut Gpu, tensor: &QTensor, tokens: usize) -> Vec<f32> {
    let mut rng = Rng::new(tokens as u64);
    let weight = gpu.load(tensor).unwrap();
    let ids: Vec<u32> = (0..tokens).flat_map(|_| rng.distinct(4, weight.n_experts)).collect();
    let (x, ids_buffer) = (up(gpu, &rng.floats(tokens * weight.k)), up_ids(gpu, &ids));
    let out = empty(gpu, ids.len() * weight.n);
    gpu.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids_buffer, n_used: 4, weight: &weight }).unwrap();
    down(gpu, &out)
}

#[test]
fn weights_in_parts_give_the_same_bits() {
    let device = Device::Wgpu { api: Api::Vulkan, index: 0 };
    for products in [Products::Float, Products::Int8] {
        let options = GpuOptions { products, ..GpuOptions::default() };
        let whole = match device.open_gpu(options.clone()) {
            Ok(gpu) => gpu,
            Err(e) => {
                println!("{e}");
                return;
            }
        };
        let small = Wgpu::open(Api::Vulkan, 0).unwrap();
        let limits = Limits { buffer_bytes: BUFFER_BYTES, ..small.limits().clone() };
        let parts = Gpu::new(Box::new(Small { device: small, limits }), options).unwrap();
        let mut gpus = [whole, parts];
        for name in ["Q8_0", "Q4_K", "F16"] {
            let format = Format::from_name(name).unwrap();
            let mut rng = Rng::new(7);
            // Parts of 64, 128 and 48 rows.
            let tensor = rng.weight(format, vec![300, 512]);
            assert!(tensor.bytes().len() > BUFFER_BYTES);
            for rows in [1, 5, 20] {
                let what = format!("{name} × {rows} {products:?}");
                check(&what, &mut gpus, &tensor, |gpu, tensor| multiply(gpu, tensor, rows));
            }
            if products == Products::Float {
                check(name, &mut gpus, &tensor, look_up);
            }
            // One to four experts a part.
            let tensor = rng.weight(format, vec![5, 40, 512]);
            for tokens in [3, 19] {
                let what = format!("{name} experts, {tokens} tokens, {products:?}");
                check(&what, &mut gpus, &tensor, |gpu, tensor| experts(gpu, tensor, tokens));
            }
        }
    }
}

/// What cannot be cut is refused with its size and the device's.
#[test]
fn what_no_buffer_holds_is_told() {
    let Ok(device) = Wgpu::open(Api::Vulkan, 0) else { return };
    let limits = Limits { buffer_bytes: BUFFER_BYTES, ..device.limits().clone() };
    let mut gpu = Gpu::new(Box::new(Small { device, limits }), GpuOptions::default()).unwrap();
    let tensor = Rng::new(3).weight(Format::from_name("F32").unwrap(), vec![2, 20, 1024]);
    let error = gpu.load(&tensor).unwrap_err().to_string();
    assert_eq!(error, "tensor weight: an expert is 81920 bytes; this device's largest buffer has 49152");
    let error = gpu.alloc(hanzo_ml::DType::F16, 24_577).unwrap_err().to_string();
    assert!(error.contains("24577 elements of F16 are 49154 bytes; the largest buffer of "), "{error}");
    assert!(error.contains(" has 49152 "), "{error}");
    let fits = gpu.alloc(hanzo_ml::DType::F16, 24_576).unwrap();
    gpu.free(fits);
}
