//! What a parallel region costs, by the public interface alone, so that two implementations can be compared.
//!
//! `cargo bench -p hanzo-ml --bench parallel [-- THREADS]`. Figures are microseconds of a call, the 10th percentile and the
//! median: on a machine that others use too, the first says more.
//!
//! * `empty`: one item a thread, nothing to do: what a region adds to an operation.
//! * `meeting`: one item a thread, each waits for the others: how soon all threads are at work, and gone again.
//! * `work N µs`: arithmetic of N µs on one thread, in 16 items a thread: with two threads half of N is ideal.
//! * `gap N µs`: the meeting, after N µs of serial work: whether threads are still awake then.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and fails loudly")]

use std::{
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use hanzo_ml::parallel::Parallel;

/// Microseconds of one call: the 10th percentile and the median of `n` calls; `untimed` comes before each call.
fn measure(n: usize, mut untimed: impl FnMut(), mut timed: impl FnMut()) -> [f64; 2] {
    let mut calls: Vec<f64> = (0..n)
        .map(|_| {
            untimed();
            let begin = Instant::now();
            timed();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    calls.sort_by(f64::total_cmp);
    [calls[n / 10], calls[n / 2]]
}

/// So many dependent multiplications and additions.
fn arithmetic(n: usize) {
    let mut x = black_box(1.0f32);
    for _ in 0..n {
        x = x * 0.999 + 0.5;
    }
    black_box(x);
}

/// Each of the items waits for all others, or for a while where the threads do not come.
fn meeting(parallel: &Parallel) {
    let n = parallel.n_threads();
    let here = AtomicUsize::new(0);
    parallel.for_each(
        n,
        || (),
        |_, ()| {
            here.fetch_add(1, Ordering::Relaxed);
            let begin = Instant::now();
            while here.load(Ordering::Relaxed) < n && begin.elapsed().as_millis() < 5 {
                std::hint::spin_loop();
            }
        },
    );
}

fn main() {
    let threads = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(2);
    let parallel = Parallel::new(Some(threads)).unwrap();
    let per_us = 100_000.0 / measure(100, || (), || arithmetic(100_000))[0];
    let print = |name: &str, [low, median]: [f64; 2]| println!("{name:14} {low:9.2} {median:9.2}");
    println!("{threads} threads, µs       p10    median");
    print("empty", measure(20_000, || (), || parallel.for_each(threads, || (), |_, ()| ())));
    print("meeting", measure(3000, || (), || meeting(&parallel)));
    for us in [5.0, 20.0, 100.0, 1000.0] {
        let items = threads * 16;
        let n = (us * per_us) as usize / items;
        let time = measure(1000, || (), || parallel.for_each(items, || (), |_, ()| arithmetic(n)));
        print(&format!("work {us} µs"), time);
    }
    for us in [10.0, 30.0, 100.0, 1000.0] {
        let time = measure(500, || arithmetic((us * per_us) as usize), || meeting(&parallel));
        print(&format!("gap {us} µs"), time);
    }
}
