//! Decoding on a device gives the bits of the scalar decoders, for every format, on random blocks.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{Gpu, Random, bytes_u32, floats};
use hanzo_kernel::{Planes, specs, table_words};

/// Rows and elements of a row: whole blocks of every format, and an odd length for plain numbers.
const N_ROWS: usize = 37;
const K: usize = 1024;
const K_PLAIN: usize = 77;

/// Results of one format.
#[derive(Default)]
struct Count {
    n: usize,
    n_bad: usize,
    /// Zeros where the result is a subnormal number: some devices flush those.
    n_flushed: usize,
}

fn compare(got: &[f32], want: &[f32]) -> Count {
    let mut count = Count { n: want.len(), ..Count::default() };
    for (got, want) in got.iter().zip(want) {
        if got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan() {
            continue;
        }
        if want.abs() < f32::MIN_POSITIVE && *got == 0.0 {
            count.n_flushed += 1;
        } else {
            count.n_bad += 1;
        }
    }
    count
}

#[test]
fn every_format_decodes_to_the_bits_of_the_cpu() {
    let Some(gpu) = Gpu::open("every_format_decodes_to_the_bits_of_the_cpu") else { return };
    let mut random = Random(1);
    let tables = bytes_u32(&table_words());
    let specs = specs().into_iter().filter(|s| s.kernel.name == "dequantize").collect::<Vec<_>>();
    println!("{} formats on {}, subgroups {:?}", specs.len(), gpu.name, gpu.subgroups);
    let mut n_bad = 0;
    for spec in &specs {
        let format = spec.format.unwrap();
        let k = if format.block_elems == 1 { K_PLAIN } else { K };
        let mut bytes = random.bytes(format.bytes_of(N_ROWS * k).unwrap());
        // A scale that leads its block is subnormal here and there, as E8M0 or as f32; quants times it may be normal.
        for block in bytes.chunks_exact_mut(format.block_bytes.max(4)).step_by(5) {
            (block[0], block[2], block[3]) = (block[0] & 1, block[2] & 0x7f, block[3] & 0x80);
        }
        let mut want = vec![0.0; N_ROWS * k];
        (format.decode)(&bytes, &mut want);
        let planes = Planes::new(format, N_ROWS, k).unwrap();
        let mut device = vec![0xa5; planes.bytes()];
        planes.lay(&bytes, &mut device).unwrap();
        let n_groups = N_ROWS * planes.row_groups();
        let params = [planes.n_blocks(), planes.row_groups(), k, n_groups].map(|v| v as u32);
        let out = vec![0xff; want.len() * 4];
        let buffers: [(&str, &[u8]); 3] = [("w", &device), ("tables", &tables), ("out", &out)];
        // A grid smaller than the work, so that threads stride.
        let result = gpu.run(spec, &buffers, &params, [3, 1, 1]);
        let count = compare(&floats(&result["out"]), &want);
        println!("{:8} {:6} values, {} bad, {} flushed", format.name, count.n, count.n_bad, count.n_flushed);
        n_bad += count.n_bad;
    }
    assert!(specs.len() >= 27, "{} formats", specs.len());
    assert_eq!(n_bad, 0);
}
