//! What the tests of operations share: a counter-based generator, backends side by side, bounds.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say which devices they found")]
#![allow(dead_code, reason = "each test binary uses its part")]

use hanzo_ml::{
    Bytes, DType, Device, QTensor, Result,
    backend::{Backend, Buffer},
    cpu::{Activations, Cpu, CpuOptions},
    gpu::{Gpu, GpuOptions, Products, driver::DriverOptions},
    reference::Reference,
};
use hanzo_quant::Format;

/// Half a unit in the last place of 1: the relative error of one f32 operation.
pub const EPS: f32 = f32::EPSILON / 2.0;

pub use hanzo_ml::numerics::Random as Rng;

/// Weights for the tests' own bounds.
pub trait RandomWeight {
    /// Random blocks of a format, each drawn again until its values are finite and their products with numbers
    /// near 1 neither overflow nor underflow.
    fn weight(&mut self, format: &'static Format, shape: Vec<usize>) -> QTensor;
}

impl RandomWeight for Rng {
    fn weight(&mut self, format: &'static Format, shape: Vec<usize>) -> QTensor {
        let blocks = shape.iter().product::<usize>() / format.block_elems;
        let mut bytes = Vec::with_capacity(blocks * format.block_bytes);
        let mut values = vec![0.0; format.block_elems];
        for _ in 0..blocks {
            let start = bytes.len();
            for attempt in 0.. {
                assert!(attempt < 10_000, "{format:?}: no block of finite values");
                bytes.truncate(start);
                bytes.extend((0..format.block_bytes).map(|_| self.bits() as u8));
                (format.decode)(&bytes[start..], &mut values);
                if values.iter().all(|v| *v == 0.0 || (1e-30..1e30).contains(&v.abs())) {
                    break;
                }
            }
        }
        QTensor::new("weight", format, shape, Bytes::owned(bytes)).unwrap()
    }
}

pub fn up(b: &mut dyn Backend, x: &[f32]) -> Buffer {
    up_as(b, DType::F32, x)
}

pub fn up_as(b: &mut dyn Backend, dtype: DType, x: &[f32]) -> Buffer {
    try_up_as(b, dtype, x).unwrap()
}

/// The same, or why not.
pub fn try_up_as(b: &mut dyn Backend, dtype: DType, x: &[f32]) -> Result<Buffer> {
    let buffer = b.alloc(dtype, x.len())?;
    b.upload_f32(&buffer, x)?;
    Ok(buffer)
}

pub fn up_ids(b: &mut dyn Backend, x: &[u32]) -> Buffer {
    let buffer = b.alloc(DType::U32, x.len()).unwrap();
    b.upload_u32(&buffer, x).unwrap();
    buffer
}

/// A buffer whose contents no operation may use.
pub fn empty(b: &mut dyn Backend, len: usize) -> Buffer {
    up(b, &vec![f32::NAN; len])
}

pub fn down(b: &mut dyn Backend, x: &Buffer) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    b.download_f32(x, &mut out).unwrap();
    out
}

pub fn down_ids(b: &mut dyn Backend, x: &Buffer) -> Vec<u32> {
    let mut out = vec![0; x.len()];
    b.download_u32(x, &mut out).unwrap();
    out
}

/// In f32 arithmetic, as the reference computes.
pub fn in_f32(threads: usize) -> CpuOptions {
    CpuOptions { threads: Some(threads), activations: Activations::F32, repack: false }
}

pub fn cpu(threads: usize) -> Cpu {
    Cpu::new(in_f32(threads)).unwrap()
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Runs an operation on the reference and on CPUs of several thread counts and levels. The CPU's results are the
/// same bits for any number of threads and lie within `bound(i, reference[i])` of the reference, on each level.
pub fn check_op(
    name: &str,
    run: impl Fn(&mut dyn Backend) -> Result<Vec<f32>>,
    bound: impl Fn(usize, f32) -> f32,
) -> Vec<f32> {
    let want = run(&mut Reference::new()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let got = run(&mut cpu(1)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for threads in [2, 3] {
        let other = run(&mut cpu(threads)).unwrap();
        assert!(bits(&got) == bits(&other), "{name}: {threads} threads change the bits");
    }
    let portable = run(&mut Cpu::portable(in_f32(2)).unwrap()).unwrap();
    assert_eq!(got.len(), want.len(), "{name}");
    for (level, values) in [("best", &got), ("portable", &portable)] {
        for (i, (got, want)) in values.iter().zip(&want).enumerate() {
            // One more rounding: the reference's value was rounded when it was read.
            let bound = bound(i, *want) + EPS * want.abs();
            assert!((got - want).abs() <= bound, "{name} ({level})[{i}]: {got} is not {want} ± {bound}");
        }
    }
    check_gpus(name, &run, &want, &bound);
    got
}

/// The names of this machine's GPUs.
pub fn gpu_names() -> &'static [String] {
    static NAMES: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        let mut names = Vec::new();
        for (_, found) in Device::gpus(&DriverOptions::default()) {
            match found {
                Ok(found) => names.extend(found.into_iter().map(|gpu| gpu.device)),
                Err(e) => println!("{e}"),
            }
        }
        names
    });
    &NAMES
}

/// A GPU of this machine.
pub fn gpu(name: &str, products: Products) -> Gpu {
    let options = GpuOptions { products, ..GpuOptions::default() };
    name.parse::<Device>().unwrap().open_gpu(options).unwrap()
}

thread_local! {
    static GPUS: std::cell::RefCell<Vec<Gpu>> = std::cell::RefCell::new(
        gpu_names().iter().map(|name| gpu(name, Products::Float)).collect()
    );
}

/// Runs an operation on every GPU. Sums are taken in another order than on the CPU and exponentials are the device's
/// own, so the bound is four times as wide. What no kernel is for (odd head widths, formats of integers)
/// is refused.
fn check_gpus(
    name: &str,
    run: &impl Fn(&mut dyn Backend) -> Result<Vec<f32>>,
    want: &[f32],
    bound: &impl Fn(usize, f32) -> f32,
) {
    GPUS.with_borrow_mut(|gpus| {
        for gpu in gpus {
            let values = match run(gpu) {
                Ok(values) => values,
                Err(e) => {
                    let text = e.to_string();
                    let refusals = ["no kernel", "multiple of 4"];
                    assert!(refusals.iter().any(|r| text.contains(r)), "{name} on {}: {text}", gpu.name());
                    continue;
                }
            };
            assert_eq!(values.len(), want.len(), "{name}");
            for (i, (got, want)) in values.iter().zip(want).enumerate() {
                // Angles are exact to 2^-32 of a turn.
                let bound = 4.0 * bound(i, *want) + 8.0 * EPS * want.abs() + 5e-9;
                let is_same = got == want || got.is_nan() && want.is_nan();
                assert!(
                    is_same || (got - want).abs() <= bound,
                    "{name} ({})[{i}]: {got} is not {want} ± {bound}",
                    gpu.name()
                );
            }
        }
    });
}
