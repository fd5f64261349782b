//! The operation layer on the recording runtime: which kernels, how many workgroups, which memory; without a GPU.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::*;
use hanzo_kernel::Target;
use hanzo_ml::{
    Bytes, DType, QTensor,
    backend::{
        Attention, AttentionPlan, Backend, Buffer, MatMul, MoeMatMul, QkNorm, RmsNorm, RopeAppend,
        RopePairing, Weight,
    },
    gpu::{
        Gpu, GpuOptions, MemoryId, Products,
        null::{Null, Record, Records},
    },
};
use hanzo_quant::Format;

fn gpu(products: Products) -> (Gpu, Records) {
    let (null, records) = Null::new(Target::Cuda, 64 << 20);
    let gpu = Gpu::new(Box::new(null), GpuOptions { products, ..GpuOptions::default() }).unwrap();
    records.take();
    (gpu, records)
}

/// Kernel and grid of each launch.
fn launches(records: &Records) -> Vec<(String, [u32; 3])> {
    let launch = |r| match r {
        Record::Launch(name, grid, ..) => Some((name, grid)),
        _ => None,
    };
    records.take().into_iter().filter_map(launch).collect()
}

fn load(gpu: &mut Gpu, format: &str, shape: Vec<usize>) -> Weight {
    let format = Format::from_name(format).unwrap();
    let tensor = Rng::new(1).weight(format, shape);
    gpu.load(&tensor).unwrap()
}

fn multiply(gpu: &mut Gpu, weight: &Weight, rows: usize) {
    let (x, out) = (empty(gpu, rows * weight.k), empty(gpu, rows * weight.n));
    gpu.matmul(&out, &MatMul { x: &x, weight, bias: None }).unwrap();
    gpu.free(x);
    gpu.free(out);
}

#[test]
fn few_rows_are_matvec_and_many_are_tiles() {
    let (mut gpu, records) = gpu(Products::Float);
    let weight = load(&mut gpu, "Q4_K", vec![100, 256]);
    let mut launch = |rows| {
        records.take();
        multiply(&mut gpu, &weight, rows);
        launches(&records).remove(0)
    };
    // Eight weight rows a workgroup; one or four columns.
    assert_eq!(launch(1), ("qmatvec_q4_k_f32_cols1".into(), [13, 1, 1]));
    assert_eq!(launch(3), ("qmatvec_q4_k_f32_cols4".into(), [13, 1, 1]));
    assert_eq!(launch(16), ("qmatvec_q4_k_f32_cols4".into(), [13, 4, 1]));
    // Tiles of 64 × 64.
    assert_eq!(launch(17), ("qmatmul_q4_k_f32_fma".into(), [2, 1, 1]));
    assert_eq!(launch(129), ("qmatmul_q4_k_f32_fma".into(), [2, 3, 1]));
    records.take();
    multiply(&mut gpu, &weight, 0);
    assert_eq!(launches(&records), []);
}

#[test]
fn int8_products_round_their_activations_first() {
    let (mut gpu, records) = gpu(Products::Int8);
    let weight = load(&mut gpu, "Q8_0", vec![64, 512]);
    multiply(&mut gpu, &weight, 5);
    let want = [("quantize_f32".to_owned(), [3, 1, 1]), ("qmatvec_q8_0_int8_cols8".to_owned(), [8, 1, 1])];
    assert_eq!(launches(&records), want);
    // Plain numbers have no integers.
    let weight = load(&mut gpu, "F16", vec![64, 512]);
    multiply(&mut gpu, &weight, 5);
    assert_eq!(launches(&records), [("qmatvec_f16_f32_cols4".to_owned(), [8, 2, 1])]);
}

/// Kernels alone.
fn kernels(records: &Records) -> Vec<String> {
    launches(records).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn products_share_what_was_quantised_until_it_changes() {
    let (mut gpu, records) = gpu(Products::Int8);
    let weight = load(&mut gpu, "Q4_0", vec![32, 64]);
    let (x, out, other) = (empty(&mut gpu, 128), empty(&mut gpu, 64), empty(&mut gpu, 128));
    let product = "qmatvec_q4_0_int8_cols2";
    let args = MatMul { x: &x, weight: &weight, bias: None };
    gpu.matmul(&out, &args).unwrap();
    gpu.matmul(&out, &args).unwrap();
    assert_eq!(kernels(&records), ["quantize_f32", product, product]);
    // A kernel that writes to it, an upload, and another buffer's product come between.
    gpu.add(&x, &other).unwrap();
    gpu.matmul(&out, &args).unwrap();
    gpu.upload_f32(&x, &[1.0; 128]).unwrap();
    gpu.matmul(&out, &args).unwrap();
    gpu.matmul(&out, &MatMul { x: &other, ..args }).unwrap();
    gpu.matmul(&out, &args).unwrap();
    let want = [
        "add",
        "quantize_f32",
        product,
        "quantize_f32",
        product,
        "quantize_f32",
        product,
        "quantize_f32",
        product,
    ];
    assert_eq!(kernels(&records), want);
    // The norm before makes the bytes at once, and reading them changes nothing.
    let norm = RmsNorm { x: &other, weight: None, dim: 64, eps: 1e-6 };
    gpu.norm_for_products(&x, None, &norm).unwrap();
    gpu.matmul(&out, &args).unwrap();
    gpu.add(&other, &x).unwrap();
    gpu.matmul(&out, &args).unwrap();
    assert_eq!(kernels(&records), ["rms_norm_quantize", product, "add", product]);
    // With its buffer it goes.
    gpu.free(x);
    let x = empty(&mut gpu, 128);
    gpu.matmul(&out, &MatMul { x: &x, weight: &weight, bias: None }).unwrap();
    assert_eq!(kernels(&records), ["quantize_f32", product]);
}

#[test]
fn activations_of_other_types_are_rounded_first() {
    let (mut gpu, records) = gpu(Products::Float);
    let weight = load(&mut gpu, "Q4_0", vec![32, 64]);
    gpu.set_arithmetic(Products::Float, DType::BF16).unwrap();
    multiply(&mut gpu, &weight, 1);
    assert_eq!(kernels(&records), ["cast_bf16_from_f32", "qmatvec_q4_0_bf16_cols1"]);
    gpu.set_arithmetic(Products::Int8, DType::F16).unwrap();
    multiply(&mut gpu, &weight, 1);
    assert_eq!(kernels(&records), ["cast_f16_from_f32", "quantize_f16", "qmatvec_q4_0_int8_cols1"]);
    assert!(gpu.set_arithmetic(Products::Float, DType::U32).is_err());
}

#[test]
fn norm_rotation_and_cache_write_are_one_launch() {
    let (mut gpu, records) = gpu(Products::Float);
    let (rows, n_heads, n_kv_heads, head_dim) = (3, 4, 2, 64);
    let (q, k) = (empty(&mut gpu, rows * n_heads * head_dim), empty(&mut gpu, rows * n_kv_heads * head_dim));
    let v = empty(&mut gpu, k.len());
    let cache = |gpu: &mut Gpu| gpu.alloc(DType::F16, 2 * n_kv_heads * 32 * head_dim).unwrap();
    let (k_cache, v_cache) = (cache(&mut gpu), cache(&mut gpu));
    let (angles, slots) = (empty(&mut gpu, rows * head_dim), up_ids(&mut gpu, &[0, 1, 2]));
    let (q_weight, k_weight) = (empty(&mut gpu, head_dim), empty(&mut gpu, head_dim));
    let norm = QkNorm { q_weight: Some(&q_weight), k_weight: Some(&k_weight), eps: 1e-6 };
    let args = |norm, angles| RopeAppend {
        k: &k,
        v: &v,
        norm,
        angles,
        pairing: RopePairing::Half,
        k_cache: &k_cache,
        v_cache: &v_cache,
        slots: &slots,
        n_heads,
        n_kv_heads,
        head_dim,
    };
    records.take();
    gpu.rope_append(&q, &args(None, Some(&angles))).unwrap();
    gpu.rope_append(&q, &args(Some(norm), Some(&angles))).unwrap();
    let grid = [3, 8, 1];
    assert_eq!(launches(&records), [("rope_append_f16".into(), grid), ("rope_append_f16_norm".into(), grid)]);
    // What the kernel has no form for is done step by step.
    gpu.rope_append(&q, &args(Some(QkNorm { q_weight: None, ..norm }), None)).unwrap();
    assert_eq!(kernels(&records), ["rms_norm", "rms_norm_weight", "kv_append_f16", "kv_append_f16"]);
}

#[test]
fn many_pairs_are_sorted_by_expert() {
    let (mut gpu, records) = gpu(Products::Float);
    let weight = load(&mut gpu, "Q4_0", vec![8, 32, 64]);
    let mut launch = |tokens: usize| {
        let ids = up_ids(&mut gpu, &vec![0; tokens * 2]);
        let (x, out) = (empty(&mut gpu, tokens * 64), empty(&mut gpu, tokens * 2 * 32));
        records.take();
        gpu.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids, n_used: 2, weight: &weight }).unwrap();
        launches(&records)
    };
    assert_eq!(launch(32), [("qmatvec_q4_0_f32_moe_cols1".to_owned(), [4, 64, 1])]);
    // 66 pairs need two tiles; each of eight experts may leave one more unfilled.
    let want =
        [("moe_plan_tile_rows64".to_owned(), [1, 1, 1]), ("qmatmul_q4_0_f32_fma_moe".to_owned(), [1, 10, 1])];
    assert_eq!(launch(33), want);
}

fn attend(gpu: &mut Gpu, rows: usize, max_blocks: usize, heads: (usize, usize)) {
    let (n_heads, n_kv_heads) = heads;
    let head_dim = 128;
    let cells = max_blocks * n_kv_heads * 32 * head_dim;
    let cache = |gpu: &mut Gpu| gpu.alloc(DType::F16, cells).unwrap();
    let (k_cache, v_cache) = (cache(gpu), cache(gpu));
    let (q, out) = (empty(gpu, rows * n_heads * head_dim), empty(gpu, rows * n_heads * head_dim));
    let ids = |gpu: &mut Gpu, n| up_ids(gpu, &vec![0; n]);
    let (tables, row_seq) = (ids(gpu, max_blocks), ids(gpu, rows));
    let (row_begin, row_end) = (ids(gpu, rows), ids(gpu, rows));
    let plan = AttentionPlan {
        tables: &tables,
        max_blocks,
        row_seq: &row_seq,
        row_begin: &row_begin,
        row_end: &row_end,
    };
    let args = Attention {
        q: &q,
        k_cache: &k_cache,
        v_cache: &v_cache,
        plan,
        n_heads,
        n_kv_heads,
        head_dim,
        scale: 1.0,
        softcap: None,
        sinks: None,
    };
    gpu.attention(&out, &args).unwrap();
}

#[test]
fn attention_splits_long_ranges_until_the_device_is_full() {
    let (mut gpu, records) = gpu(Products::Float);
    let mut launch = |rows, max_blocks, heads| {
        records.take();
        attend(&mut gpu, rows, max_blocks, heads);
        launches(&records)
    };
    let one = launch(1, 4, (8, 2));
    assert_eq!(one, [("attention_decode_f16_head_max128_heads4".to_owned(), [1, 2, 1])]);
    // 16 processors twice over, by 2 workgroups: 16 parts of 4,096 positions.
    let split = launch(1, 128, (8, 2));
    assert_eq!(split[0], ("attention_decode_f16_head_max128_heads4_split".to_owned(), [1, 2, 16]));
    assert_eq!(split[1], ("attention_combine".to_owned(), [1, 1, 1]));
    // Many rows fill the device by themselves, and more go in tiles of 16.
    assert_eq!(launch(16, 128, (8, 2))[0].1, [16, 2, 1]);
    let tiles = launch(40, 8, (3, 1));
    assert_eq!(tiles, [("attention_prefill_f16_head_max128".to_owned(), [3, 3, 1])]);
}

#[test]
fn memory_is_used_again_and_kernels_are_compiled_once() {
    let (mut gpu, records) = gpu(Products::Float);
    let norm = |gpu: &mut Gpu| -> Vec<Buffer> {
        let (x, weight, out) = (empty(gpu, 3000), empty(gpu, 1000), empty(gpu, 3000));
        gpu.rms_norm(&out, &RmsNorm { x: &x, weight: Some(&weight), dim: 1000, eps: 1e-6 }).unwrap();
        vec![x, weight, out]
    };
    let buffers = norm(&mut gpu);
    let first = records.take();
    let n_allocs = first.iter().filter(|r| matches!(r, Record::Alloc(..))).count();
    assert_eq!(n_allocs, 3);
    assert!(first.contains(&Record::Compile("rms_norm_weight".into())));
    buffers.into_iter().for_each(|b| gpu.free(b));
    let buffers = norm(&mut gpu);
    let second = records.take();
    assert!(!second.iter().any(|r| matches!(r, Record::Alloc(..) | Record::Compile(_))), "{second:?}");
    let Some(Record::Launch(_, grid, memory, params)) = second.last() else { panic!("{second:?}") };
    assert_eq!((grid, &params[..]), (&[3, 1, 1], &[3, 1000, 1e-6f32.to_bits()][..]));
    let distinct: std::collections::HashSet<&MemoryId> = memory.iter().collect();
    assert_eq!(distinct.len(), 3);
    buffers.into_iter().for_each(|b| gpu.free(b));
}

/// When the device is full, what was kept for reuse goes back first; then the error says how much was asked for.
#[test]
fn a_full_device_gives_kept_memory_back() {
    let (mut gpu, records) = gpu(Products::Float);
    let a = gpu.alloc(DType::F32, 10 << 20).unwrap();
    gpu.free(a);
    let b = gpu.alloc(DType::F32, 12 << 20).unwrap();
    let records = records.take();
    assert!(records.iter().any(|r| matches!(r, Record::Free(_))), "{records:?}");
    let error = gpu.alloc(DType::F32, 8 << 20).unwrap_err().to_string();
    assert!(error.contains("no memory for 33554432 bytes"), "{error}");
    gpu.free(b);
}

/// Of an operation whose second piece of scratch memory does not fit, the first piece is used again.
#[test]
fn an_operation_that_fails_keeps_no_memory() {
    let (mut gpu, records) = gpu(Products::Int8);
    let weight = load(&mut gpu, "Q8_0", vec![32, 1 << 20]);
    let (x, out) = (gpu.alloc(DType::F32, 1 << 20).unwrap(), empty(&mut gpu, 32));
    // A megabyte for the bytes, and none of the quarter that their scales want.
    let free = gpu.runtime().memory().unwrap().free;
    let rest = gpu.alloc(DType::U32, (free - (1 << 20) - 4096) / 4 / (1 << 18) * (1 << 18)).unwrap();
    let mut fill = Vec::new();
    while gpu.runtime().memory().unwrap().free > (1 << 20) + 512 {
        fill.push(gpu.alloc(DType::U32, 128).unwrap());
    }
    for _ in 0..3 {
        let error = gpu.matmul(&out, &MatMul { x: &x, weight: &weight, bias: None }).unwrap_err().to_string();
        assert!(error.contains("no memory for 262144 bytes"), "{error}");
    }
    gpu.free(rest);
    records.take();
    gpu.matmul(&out, &MatMul { x: &x, weight: &weight, bias: None }).unwrap();
    assert_eq!(kernels(&records), ["quantize_f32", "qmatvec_q8_0_int8_cols1"]);
}

#[test]
fn what_no_kernel_can_do_is_refused() {
    let (mut gpu, _) = gpu(Products::Float);
    let tensor = Rng::new(1).weight(Format::from_name("I32").unwrap(), vec![2, 32]);
    let error = gpu.load(&tensor).unwrap_err().to_string();
    assert_eq!(error, "tensor weight: no kernel reads weights of format I32");
}

/// A weight over the limit of a buffer is several launches, each with its own rows or experts.
#[test]
fn weights_over_the_limit_are_launched_in_parts() {
    let (null, records) = Null::new(Target::Cuda, 64 << 20);
    let null = null.with_buffer_bytes(256 << 10);
    let mut gpu = Gpu::new(Box::new(null), GpuOptions::default()).unwrap();
    records.take();
    // 544 bytes a row: 481 rows fit, 448 are whole tiles.
    let weight = load(&mut gpu, "Q8_0", vec![1000, 512]);
    let allocs = |records: &[Record]| -> Vec<usize> {
        records.iter().filter_map(|r| if let Record::Alloc(_, n) = r { Some(*n) } else { None }).collect()
    };
    let all = records.take();
    assert_eq!(allocs(&all), [448 * 544, 448 * 544, 104 * 544]);
    // Every byte once, in its place.
    let mut places: Vec<(MemoryId, usize, usize)> = Vec::new();
    for record in &all {
        if let Record::Upload { to, at, bytes } = record {
            places.push((*to, *at, *bytes));
        }
    }
    assert_eq!(places.iter().map(|p| p.2).sum::<usize>(), 1000 * 544);
    multiply(&mut gpu, &weight, 2);
    let all = records.take();
    let launches: Vec<_> = all
        .iter()
        .filter_map(
            |r| if let Record::Launch(_, grid, _, words) = r { Some((grid[0], words[3])) } else { None },
        )
        .collect();
    assert_eq!(launches, [(56, 448), (56, 448), (13, 104)]);
    // Two rows of results of 1,000 values, from the first value of each part on.
    let copies: Vec<_> = all
        .iter()
        .filter_map(|r| if let Record::Copy { at, bytes, .. } = r { Some((*at, *bytes)) } else { None })
        .collect();
    let want = [(0, 1792), (4000, 1792), (1792, 1792), (5792, 1792), (3584, 416), (7584, 416)];
    assert_eq!(copies, want);
    // Experts of 34,816 bytes, seven a part.
    let weight = load(&mut gpu, "Q8_0", vec![16, 64, 512]);
    let ids = up_ids(&mut gpu, &[3, 9]);
    let (x, out) = (empty(&mut gpu, 512), empty(&mut gpu, 128));
    records.take();
    gpu.moe_matmul(&out, &MoeMatMul { x: &x, ids: &ids, n_used: 2, weight: &weight }).unwrap();
    let parts: Vec<_> = records
        .take()
        .iter()
        .filter_map(|r| if let Record::Launch(.., words) = r { Some((words[6], words[7])) } else { None })
        .collect();
    assert_eq!(parts, [(0, 7), (7, 7), (14, 2)]);
}

/// A large weight is copied in pieces that begin at whole words, and each byte once.
#[test]
fn large_weights_are_copied_in_pieces() {
    let (mut gpu, records) = gpu(Products::Float);
    let load = |gpu: &mut Gpu, format: &str, rows: usize| {
        let format = Format::from_name(format).unwrap();
        let bytes = vec![0; format.bytes_of(rows * 2048).unwrap()];
        let tensor = QTensor::new("large", format, vec![rows, 2048], Bytes::owned(bytes)).unwrap();
        records.take();
        gpu.load(&tensor).unwrap();
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for record in records.take() {
            if let Record::Upload { at, bytes, .. } = record {
                pieces.push((at, bytes));
            }
        }
        pieces.sort_unstable();
        pieces
    };
    // Of Q6_K the fields ql, qh, scales and d have 128, 64, 16 and 2 bytes a block.
    let pieces = load(&mut gpu, "Q6_K", 15_001);
    assert!(pieces.len() > 4 && pieces.iter().all(|(at, _)| at % 4 == 0), "{pieces:?}");
    for (a, b) in pieces.iter().zip(&pieces[1..]) {
        // Planes are padded to 16 bytes.
        assert!((0..16).contains(&(b.0 - (a.0 + a.1))), "{a:?} {b:?}");
    }
    assert_eq!(pieces.iter().map(|p| p.1).sum::<usize>(), 15_001 * 8 * 210);
    let pieces = load(&mut gpu, "F16", 10_000);
    assert_eq!(pieces.len(), 5);
}
