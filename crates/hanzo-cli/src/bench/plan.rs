//! What is measured: every combination of the lists on the command line.

use clap::ValueEnum;

/// One measurement, to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// Prompt tokens to be read; 0 for a test of generation.
    pub n_prompt: usize,
    /// Tokens to be generated; 0 for a test of reading.
    pub n_gen: usize,
    /// Tokens that the context holds before.
    pub depth: usize,
}

/// One setting of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Threads; `None` is the default.
    pub threads: Option<usize>,
    /// Tokens handed over at once.
    pub batch: usize,
    /// Rows of a step.
    pub ubatch: usize,
}

/// How the results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A Markdown table
    Md,
    /// One JSON array
    Json,
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a header
    Csv,
}

impl Test {
    /// The name of the row: `pp512`, `tg128 @ d4096`.
    pub fn name(&self) -> String {
        let what = if self.n_gen == 0 { format!("pp{}", self.n_prompt) } else { format!("tg{}", self.n_gen) };
        if self.depth == 0 { what } else { format!("{what} @ d{}", self.depth) }
    }

    /// Tokens that the clock counts.
    pub fn n_tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }
}

/// All tests: for each depth the prompts, then the generations; a length of 0 is left out.
pub(super) fn tests(prompts: &[usize], gens: &[usize], depths: &[usize]) -> Vec<Test> {
    let at = |depth| {
        let prompts = prompts.iter().map(move |&n_prompt| Test { n_prompt, n_gen: 0, depth });
        let gens = gens.iter().map(move |&n_gen| Test { n_prompt: 0, n_gen, depth });
        prompts.chain(gens).filter(|test| test.n_tokens() > 0)
    };
    depths.iter().flat_map(|&depth| at(depth)).collect()
}

/// All settings.
pub(super) fn settings(threads: &[usize], batches: &[usize], ubatches: &[usize]) -> Vec<Setting> {
    let threads: Vec<Option<usize>> =
        if threads.is_empty() { vec![None] } else { threads.iter().copied().map(Some).collect() };
    let mut all = Vec::new();
    for &threads in &threads {
        for &batch in batches {
            all.extend(ubatches.iter().map(|&ubatch| Setting { threads, batch, ubatch }));
        }
    }
    all
}

/// Mean and sample standard deviation.
pub(super) fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_multiplied_and_zeros_left_out() {
        let names: Vec<String> = tests(&[512, 0], &[128], &[0, 4096]).iter().map(Test::name).collect();
        assert_eq!(names, ["pp512", "tg128", "pp512 @ d4096", "tg128 @ d4096"]);
        assert_eq!(settings(&[1, 2], &[2048], &[256, 512]).len(), 4);
        assert_eq!(settings(&[], &[2048], &[512])[0].threads, None);
    }

    #[test]
    fn deviation_is_that_of_a_sample() {
        // Of 2, 4, 4, 4, 5, 5, 7, 9 the mean is 5 and the sum of squares 32.
        let (mean, deviation) = mean_and_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert!((mean - 5.0).abs() < 1e-12 && (deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }
}
