//! Microseconds that choosing a token takes, by vocabulary and options. Not a test: prints what it measures.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{sync::Arc, time::Instant};

use hanzo_engine::sample::{Sampler, SamplingOption, SamplingParams};

const N_STEPS: u32 = 200;

fn main() {
    for vocab in [49_152u32, 151_936, 262_144] {
        for settings in [
            &[][..],
            &[("temp", "0.8")],
            &[("temp", "0.8"), ("repeat-penalty", "1.1")],
            &[("temp", "0.8"), ("top-k", "0")],
            &[("temp", "0.8"), ("top-k", "0"), ("top-p", "1"), ("min-p", "0")],
            &[("temp", "0.8"), ("mirostat", "2")],
        ] {
            let mut params = SamplingParams { seed: Some(1), ..SamplingParams::default() };
            for (name, text) in settings {
                let option = SamplingOption::find(name).expect("the name is one of the table's");
                option.set(&mut params, &[(*text).to_owned()]).expect("the value is within its range");
            }
            // Roughly normal, by a sum of uniform numbers from a multiplicative hash.
            let uniform = |i: u32| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 16_777_216.0;
            let logit = |i: u32| 4.0 * ((0..6).map(|j| uniform(i * 6 + j + 1)).sum::<f32>() - 3.0);
            let logits: Vec<f32> = (0..vocab).map(logit).collect();
            let mut sampler = Sampler::new(params, &[1, 2, 3], Arc::new(|_| Vec::new()));
            let start = Instant::now();
            for _ in 0..N_STEPS {
                std::hint::black_box(sampler.sample(&logits));
            }
            println!(
                "{vocab:7} {:8.1} us {settings:?}",
                start.elapsed().as_secs_f64() * 1e6 / f64::from(N_STEPS)
            );
        }
    }
}
