//! Rotations and the cache against their formulas in f64, on a device and on odd shapes.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{
    Gpu, Random, assert_near, bytes_f32, bytes_u32, cache_bytes, cache_params, cache_values, find, flag,
    floats, round_to,
};
use hanzo_kernel::Number;

struct Heads {
    n_rows: usize,
    n_heads: usize,
    head_dim: usize,
    n_pairs: usize,
}

/// `[rows, heads, head_dim]` rotated by `[rows, pairs, 2]`.
fn rotated(x: &[f64], angles: &[f32], h: &Heads, adjacent: bool) -> Vec<f64> {
    let mut y = x.to_vec();
    for (i, head) in y.chunks_exact_mut(h.head_dim).enumerate() {
        for p in 0..h.n_pairs {
            let (a, b) = if adjacent { (2 * p, 2 * p + 1) } else { (p, p + h.n_pairs) };
            let angle = &angles[(i / h.n_heads * h.n_pairs + p) * 2..][..2];
            let (cos, sin) = (f64::from(angle[0]), f64::from(angle[1]));
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
    y
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

#[test]
fn rotations_equal_f64() {
    let Some(gpu) = Gpu::open("rotations_equal_f64") else { return };
    let mut random = Random(10);
    let h = Heads { n_rows: 3, n_heads: 5, head_dim: 22, n_pairs: 9 };
    let x = random.units(h.n_rows * h.n_heads * h.head_dim);
    let angles = random.units(h.n_rows * h.n_pairs * 2);
    for adjacent in [false, true] {
        let n = (h.n_rows * h.n_heads * h.n_pairs) as u32;
        let result = gpu.run(
            &find("rope", None, &[flag("ADJACENT", adjacent)]),
            &[("angles", &bytes_f32(&angles)), ("x", &bytes_f32(&x))],
            &[n, h.n_pairs as u32, h.n_heads as u32, h.head_dim as u32],
            [1, 1, 1],
        );
        assert_near("rope", &floats(&result["x"]), &rotated(&wide(&x), &angles, &h, adjacent), 1e-6);
    }
}

/// The place in a cache `[block, heads, 32, head_dim]`.
fn cache_place(slot: u32, head: usize, n_heads: usize, head_dim: usize) -> usize {
    ((slot as usize / 32 * n_heads + head) * 32 + slot as usize % 32) * head_dim
}

#[test]
fn rows_are_appended_to_the_cache() {
    let Some(gpu) = Gpu::open("rows_are_appended_to_the_cache") else { return };
    let mut random = Random(11);
    let n_heads = 3;
    let slots = [65u32, 0, 31, 95];
    for &number in Number::CACHE {
        // Blocks that share a word of scales belong to different rows, where heads have an odd number of them.
        let head_dim = if number == Number::Q8_0 { 96 } else { 20 };
        let n = 3 * n_heads * 32 * head_dim;
        // Of all sizes, those of a group alike.
        let x: Vec<f32> = random
            .units(slots.len() * n_heads * head_dim)
            .iter()
            .enumerate()
            .map(|(i, v)| v * 10f32.powi((i / 32 % 9) as i32 - 4))
            .collect();
        let mut cache = cache_bytes(number, &vec![0.0; n]);
        // What the other half of a word has must stay.
        cache.fill(0x11);
        let result = gpu.run(
            &find("kv_append", Some(number), &[]),
            &[("x", &bytes_f32(&x)), ("slots", &bytes_u32(&slots)), ("cache", &cache)],
            &[&[x.len() as u32 / 4, n_heads as u32, head_dim as u32 / 4], &cache_params(number, n)[..]]
                .concat(),
            [1, 1, 1],
        );
        let mut want = cache_values(number, &cache);
        for (i, x) in x.chunks_exact(head_dim).enumerate() {
            let to = cache_place(slots[i / n_heads], i % n_heads, n_heads, head_dim);
            want[to..to + head_dim].copy_from_slice(x);
            round_to(number, &mut want[to..to + head_dim]);
        }
        assert_eq!(cache_values(number, &result["cache"]), want, "{number:?}");
    }
}

#[test]
fn the_fused_rotation_equals_its_parts() {
    let Some(gpu) = Gpu::open("the_fused_rotation_equals_its_parts") else { return };
    let mut random = Random(12);
    let (n_rows, n_heads, n_kv, head_dim, n_pairs) = (3usize, 4usize, 2usize, 96usize, 32usize);
    let q = random.units(n_rows * n_heads * head_dim);
    let (k, v) = (random.units(n_rows * n_kv * head_dim), random.units(n_rows * n_kv * head_dim));
    let angles = random.units(n_rows * n_pairs * 2);
    let (q_weight, k_weight) = (random.units(head_dim), random.units(head_dim));
    let slots = [33u32, 2, 63];
    for (norm, adjacent, number) in [
        (true, false, Number::F16),
        (false, true, Number::F32),
        (true, true, Number::Bf16),
        (true, false, Number::Q8_0),
    ] {
        let n = 2 * n_kv * 32 * head_dim;
        let cache = cache_bytes(number, &vec![0.0; n]);
        let buffers = [
            ("q", bytes_f32(&q)),
            ("k", bytes_f32(&k)),
            ("v", bytes_f32(&v)),
            ("angles", bytes_f32(&angles)),
            ("slots", bytes_u32(&slots)),
            ("q_weight", bytes_f32(&q_weight)),
            ("k_weight", bytes_f32(&k_weight)),
            ("k_cache", cache.clone()),
            ("v_cache", cache),
        ];
        let buffers: Vec<(&str, &[u8])> = buffers.iter().map(|(n, b)| (*n, &b[..])).collect();
        let params = [n_rows, n_heads, n_kv, head_dim, n_pairs].map(|v| v as u32);
        let result = gpu.run(
            &find("rope_append", Some(number), &[flag("NORM", norm), flag("ADJACENT", adjacent)]),
            &buffers,
            &[&params[..], &[1e-6f32.to_bits()], &cache_params(number, n)].concat(),
            [2, (n_heads + 2 * n_kv) as u32, 1],
        );
        let normed = |x: &[f32], weight: &[f32]| -> Vec<f64> {
            let mut y = wide(x);
            for head in y.chunks_exact_mut(head_dim).filter(|_| norm) {
                let mean = head.iter().map(|v| v * v).sum::<f64>() / head_dim as f64;
                let factor = 1.0 / (mean + 1e-6).sqrt();
                head.iter_mut().zip(weight).for_each(|(v, w)| *v *= factor * f64::from(*w));
            }
            y
        };
        let h = Heads { n_rows, n_heads, head_dim, n_pairs };
        let want = rotated(&normed(&q, &q_weight), &angles, &h, adjacent);
        assert_near("q", &floats(&result["q"]), &want, 2e-6);
        let h = Heads { n_heads: n_kv, ..h };
        let keys = rotated(&normed(&k, &k_weight), &angles, &h, adjacent);
        let tolerance = [1e-6, 6e-4, 5e-3, 1.5e-2][number as usize];
        for (name, rows) in [("k_cache", keys), ("v_cache", wide(&v))] {
            let mut want = vec![0.0; n];
            for (i, row) in rows.chunks_exact(head_dim).enumerate() {
                let to = cache_place(slots[i / n_kv], i % n_kv, n_kv, head_dim);
                want[to..to + head_dim].copy_from_slice(row);
            }
            assert_near(name, &cache_values(number, &result[name]), &want, tolerance);
        }
    }
}
