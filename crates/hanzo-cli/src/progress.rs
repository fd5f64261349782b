//! How far long work is: a bar on a terminal; for readings else a line each time on standard error, rarer as they become
//! many.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{environment::Environment, output::note};

/// Lines without a terminal, at most about.
const N_LINES: usize = 20;

/// A bar on standard error; hidden where bars cannot move.
pub(crate) fn bar(total: Option<u64>, template: &str, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(total, target);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Counts steps and shows the last one's value.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    n_done: usize,
    n_steps: usize,
    unit: &'static str,
}

impl Progress {
    /// Of so many steps, called `unit`.
    pub(crate) fn new(n_steps: usize, unit: &'static str, environment: &Environment) -> Self {
        let template = "{wide_bar} {pos}/{len} {msg} {eta}";
        let bar = environment.bars.then(|| bar(Some(n_steps as u64), template, true));
        Self { bar, n_done: 0, n_steps, unit }
    }

    /// A step was done; `value` is what it gave.
    pub(crate) fn step(&mut self, value: &str) {
        self.n_done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_message(value.to_owned());
                bar.inc(1);
            }
            None if self.n_done.is_multiple_of(self.n_steps.div_ceil(N_LINES))
                || self.n_done == self.n_steps =>
            {
                note(&format!("{} of {} {}: {value}", self.n_done, self.n_steps, self.unit));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
