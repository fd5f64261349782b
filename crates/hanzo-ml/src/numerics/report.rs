//! What was checked and what failed.

use std::fmt;

use super::subject::Arithmetic;

/// Failures of one operation whose words are kept.
const WORDS_MAX: usize = 5;

/// The checks of one operation in one kind of arithmetic.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The operation.
    pub operation: &'static str,
    /// How its products are computed; none for other operations.
    pub arithmetic: Option<Arithmetic>,
    /// Combinations that were checked: a format in all its shapes, or a random shape.
    pub n_checks: usize,
    /// Those of them that failed.
    pub n_failed: usize,
    /// Values that a device without subnormal numbers flushed to zero; they are not failures.
    pub n_flushed: usize,
    /// What failed, for the first few.
    pub failures: Vec<String>,
}

impl Outcome {
    /// The operation with its arithmetic: `matvec int8 f16`.
    pub fn name(&self) -> String {
        match self.arithmetic {
            Some(arithmetic) => format!("{} {arithmetic}", self.operation),
            None => self.operation.to_owned(),
        }
    }
}

/// All checks of a device.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The device.
    pub device: String,
    /// By operation, in the order in which they were checked first.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Combinations checked.
    pub fn n_checks(&self) -> usize {
        self.outcomes.iter().map(|o| o.n_checks).sum()
    }

    /// Combinations that failed.
    pub fn n_failed(&self) -> usize {
        self.outcomes.iter().map(|o| o.n_failed).sum()
    }

    /// Adds one combination.
    pub(super) fn add(
        &mut self,
        operation: &'static str,
        arithmetic: Option<Arithmetic>,
        what: &str,
        verdict: Verdict,
    ) {
        let same = |o: &&mut Outcome| o.operation == operation && o.arithmetic == arithmetic;
        let outcome = match self.outcomes.iter_mut().find(same) {
            Some(outcome) => outcome,
            None => {
                let (failures, n_checks, n_failed, n_flushed) = (Vec::new(), 0, 0, 0);
                self.outcomes.push(Outcome {
                    operation,
                    arithmetic,
                    n_checks,
                    n_failed,
                    n_flushed,
                    failures,
                });
                let last = self.outcomes.len() - 1;
                &mut self.outcomes[last]
            }
        };
        outcome.n_checks += 1;
        outcome.n_flushed += verdict.n_flushed;
        if let Some(failure) = verdict.failure {
            outcome.n_failed += 1;
            if outcome.failures.len() < WORDS_MAX {
                outcome.failures.push(format!("{what}: {failure}"));
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        for outcome in &self.outcomes {
            let n_passed = outcome.n_checks - outcome.n_failed;
            write!(f, "  {}: {n_passed} of {} passed", outcome.name(), outcome.n_checks)?;
            if outcome.n_flushed > 0 {
                write!(f, ", {} subnormal values flushed to zero", outcome.n_flushed)?;
            }
            writeln!(f)?;
            for failure in &outcome.failures {
                writeln!(f, "    {failure}")?;
            }
        }
        write!(f, "{} of {} combinations passed", self.n_checks() - self.n_failed(), self.n_checks())
    }
}

/// What came of one combination: the first failure of its shapes.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub failure: Option<String>,
    pub n_flushed: usize,
}

impl Verdict {
    /// Notes a failure.
    pub(super) fn fail(&mut self, what: impl Into<String>) {
        self.failure.get_or_insert(what.into());
    }

    /// Compares values with bounds; a NaN is within none. `shape` names the operands.
    pub(super) fn compare(&mut self, shape: &str, got: &[f32], want: &[(f32, f32)]) {
        if got.len() != want.len() {
            return self.fail(format!("{shape}: {} values of {}", got.len(), want.len()));
        }
        let (mut n_bad, mut first) = (0usize, None);
        for (i, (&got, &(want, bound))) in got.iter().zip(want).enumerate() {
            let is_same = got == want || got.is_nan() && want.is_nan();
            if is_same || (got - want).abs() <= bound {
                continue;
            }
            if got == 0.0 && want.is_subnormal() {
                self.n_flushed += 1;
                continue;
            }
            n_bad += 1;
            first.get_or_insert((i, got, want, bound));
        }
        if let Some((i, got, want, bound)) = first {
            self.fail(format!(
                "{shape}: {n_bad} wrong values, [{i}] is {got:e} instead of {want:e} ± {bound:.1e}"
            ));
        }
    }
}
