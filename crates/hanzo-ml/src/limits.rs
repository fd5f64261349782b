//! What a machine can do at most, measured: bytes read from memory and arithmetic in registers, with given threads.
//!
//! Decoding streams every weight once a token, so its bound is the read bandwidth; reading a prompt is bound by the
//! arithmetic. A speed without its bound says little. Each figure is the best of several rounds: a limit is what the machine
//! can do when nobody disturbs it.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls loops compiled for a found feature set")
)]

use std::{hint::black_box, time::Instant};

use crate::{Error, Result, parallel::Parallel};

/// Bytes that a round of reading streams: many times the last cache.
const READ_BYTES: usize = 256 << 20;
/// Bytes that a thread reads at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Rounds of which the best counts.
const ROUNDS: usize = 5;
/// Stretches of arithmetic of a round.
const STRETCHES: usize = 64;
/// Steps of a stretch.
const STEPS: usize = 1 << 15;
/// Independent sums, enough to hide the latency of an addition behind the others.
const CHAINS: usize = 12;

/// What the machine can do with some number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Threads that measured.
    pub threads: usize,
    /// Bytes read from memory in a second.
    pub read_bytes_per_s: f64,
    /// Multiplications and additions of f32 in a second, with the widest vectors of this processor.
    pub f32_ops_per_s: f64,
    /// Multiplications and additions of 8-bit integers into 32-bit sums in a second; `None` where there is no loop for this
    /// processor.
    pub int8_ops_per_s: Option<f64>,
}

/// Measures for about half a second.
///
/// # Errors
/// If 256 MiB cannot be allocated.
pub fn measure(parallel: &Parallel) -> Result<Limits> {
    let mut memory: Vec<u64> = Vec::new();
    let words = READ_BYTES / size_of::<u64>();
    memory.try_reserve_exact(words).map_err(|e| Error::op("limits", e.to_string()))?;
    // Not zeros: pages of zeros may all be one page.
    memory.extend(0..words as u64);
    let chunks: Vec<&[u64]> = memory.chunks(CHUNK_BYTES / size_of::<u64>()).collect();
    let read = best_seconds(|| parallel.for_each(chunks.len(), || (), |i, ()| read(chunks[i])));
    let rate = |ops: fn() -> f64| {
        let all = ops() * STRETCHES as f64;
        all / best_seconds(|| parallel.for_each(STRETCHES, || (), |_, ()| _ = ops()))
    };
    Ok(Limits {
        threads: parallel.n_threads(),
        read_bytes_per_s: READ_BYTES as f64 / read,
        f32_ops_per_s: rate(f32_loop()),
        int8_ops_per_s: int8_loop().map(rate),
    })
}

/// The least seconds of several rounds after one that warms up.
fn best_seconds(round: impl Fn()) -> f64 {
    round();
    let time = |_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

/// Adds words up, so that each must be loaded.
#[inline(always)]
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; 16];
    for words in words.as_chunks::<16>().0 {
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

fn read(words: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as asked on the line above.
        black_box(unsafe { x86::sum_avx2(words) });
        return;
    }
    black_box(sum(words));
}

/// The loop of f32 arithmetic for this processor; it returns the operations that it did.
fn f32_loop() -> fn() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F, as asked on the line above.
            return || unsafe { x86::f32_avx512() };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA, as asked on the line above.
            return || unsafe { x86::f32_avx2() };
        }
    }
    f32_portable
}

/// The loop of 8-bit products for this processor, if there is one.
fn int8_loop() -> Option<fn() -> f64> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor has AVX-512F and VNNI, as asked on the line above.
            return Some(|| unsafe { x86::int8_avx512_vnni() });
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("avxvnni") {
            // SAFETY: the processor has AVX2 and AVX-VNNI, as asked on the line above.
            return Some(|| unsafe { x86::int8_avx_vnni() });
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as asked on the line above.
            return Some(|| unsafe { x86::int8_avx2() });
        }
    }
    None
}

/// Operations of a stretch of `lanes` multiplications and additions a step and chain.
const fn ops(lanes: usize) -> f64 {
    (2 * lanes * CHAINS * STEPS) as f64
}

/// Vectors of four, which every target of ours has.
fn f32_portable() -> f64 {
    let (a, b) = (black_box([0.5f32; 4]), black_box([0.25f32; 4]));
    let mut sums = [[0.0f32; 4]; CHAINS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            for i in 0..4 {
                // The fused form is a call of a function where the target does not promise the instruction.
                sum[i] = if cfg!(target_arch = "aarch64") {
                    a[i].mul_add(sum[i], b[i])
                } else {
                    a[i] * sum[i] + b[i]
                };
            }
        }
    }
    black_box(sums);
    ops(4)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The loops of x86-64, one for each set of features.

    use std::{
        arch::{asm, x86_64::*},
        hint::black_box,
    };

    use super::{CHAINS, STEPS, ops, sum};

    #[target_feature(enable = "avx2")]
    pub(super) fn sum_avx2(words: &[u64]) -> u64 {
        sum(words)
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn f32_avx2() -> f64 {
        let (a, b) = (black_box(_mm256_set1_ps(0.5)), black_box(_mm256_set1_ps(0.25)));
        let mut sums = [b; CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
        ops(8)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn f32_avx512() -> f64 {
        let (a, b) = (black_box(_mm512_set1_ps(0.5)), black_box(_mm512_set1_ps(0.25)));
        let mut sums = [b; CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
        ops(16)
    }

    /// Pairs to 16 bits, pairs of these to 32 bits, and the sum: what a product of bytes takes without VNNI.
    #[target_feature(enable = "avx2")]
    pub(super) fn int8_avx2() -> f64 {
        let (x, weights) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(1)));
        let ones = black_box(_mm256_set1_epi16(1));
        let mut sums = [ones; CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                let pairs = _mm256_maddubs_epi16(new_value(x), weights);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        black_box(sums);
        ops(32)
    }

    /// The same register, as far as the compiler knows with other contents, so that no product is taken out of a loop.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new_value(mut x: __m256i) -> __m256i {
        // SAFETY: there are no instructions.
        unsafe { asm!("/* {0} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) };
        x
    }

    #[target_feature(enable = "avx2,avxvnni")]
    pub(super) fn int8_avx_vnni() -> f64 {
        let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(1)));
        let mut sums = [b; CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm256_dpbusd_avx_epi32(*sum, a, b);
            }
        }
        black_box(sums);
        ops(32)
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8_avx512_vnni() -> f64 {
        let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(1)));
        let mut sums = [b; CHAINS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
        ops(64)
    }
}
