//! Which rows run next: a pure state machine without tensors or clocks.
//!
//! `schedule` takes one row of each answer that is being written, then fills the step with prompts in order of
//! arrival; `commit` takes the sampled tokens. A prompt that is given in part has no place for a token.

use std::collections::VecDeque;

use crate::cache::SequenceId;

/// Names a job for the life of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct JobId(pub u64);

/// What a step may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Sequences in the cache at once.
    pub n_sequences: usize,
    /// Rows of a step.
    pub max_rows: usize,
}

/// The rows of one job in a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobRows {
    pub job: JobId,
    pub sequence: SequenceId,
    pub tokens: Vec<u32>,
}

/// The rows of a step. Only jobs in `sampled` get a token.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Batch {
    /// Prompts of which more follows.
    pub partial: Vec<JobRows>,
    /// Jobs whose last row says what comes next.
    pub sampled: Vec<JobRows>,
}

/// A job's place in its prompt or answer.
#[derive(Debug)]
struct Job {
    id: JobId,
    sequence: SequenceId,
    prompt: Vec<u32>,
    n_given: usize,
    /// The token that the last step sampled and no step has run.
    next: Option<u32>,
}

/// Waiting and running jobs.
#[derive(Debug)]
pub(super) struct Scheduler {
    limits: Limits,
    waiting: VecDeque<(JobId, Vec<u32>)>,
    running: Vec<Job>,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Self {
        Self { limits, waiting: VecDeque::new(), running: Vec::new() }
    }

    /// Queues a prompt of at least one token.
    pub fn submit(&mut self, job: JobId, prompt: Vec<u32>) {
        debug_assert!(!prompt.is_empty(), "the request was checked");
        self.waiting.push_back((job, prompt));
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Forgets a job; its sequence, if it had one, is the caller's to end.
    pub fn remove(&mut self, job: JobId) -> Option<SequenceId> {
        self.waiting.retain(|(id, _)| *id != job);
        let running = self.running.iter().position(|j| j.id == job)?;
        Some(self.running.remove(running).sequence)
    }

    /// The next step. `begin` makes a sequence for a job that leaves the queue.
    pub fn schedule(&mut self, mut begin: impl FnMut() -> SequenceId) -> Batch {
        while self.running.len() < self.limits.n_sequences {
            let Some((id, prompt)) = self.waiting.pop_front() else { break };
            self.running.push(Job { id, sequence: begin(), prompt, n_given: 0, next: None });
        }
        let mut batch = Batch::default();
        let mut room = self.limits.max_rows;
        for job in &self.running {
            if let Some(token) = job.next.filter(|_| room > 0) {
                room -= 1;
                batch.sampled.push(job.rows(vec![token]));
            }
        }
        for job in self.running.iter().filter(|job| job.next.is_none()) {
            let rest = &job.prompt[job.n_given..];
            let rows = job.rows(rest[..rest.len().min(room)].to_vec());
            room -= rows.tokens.len();
            if rows.tokens.len() == rest.len() {
                batch.sampled.push(rows);
            } else if !rows.tokens.is_empty() {
                batch.partial.push(rows);
            }
        }
        batch
    }

    /// Counts a step's rows as given and keeps what was sampled, one token for each of `batch.sampled`.
    pub fn commit(&mut self, batch: &Batch, tokens: &[u32]) {
        for rows in &batch.partial {
            if let Some(job) = self.find(rows.job) {
                job.n_given += rows.tokens.len();
            }
        }
        for (rows, &token) in batch.sampled.iter().zip(tokens) {
            if let Some(job) = self.find(rows.job) {
                job.n_given = job.prompt.len();
                job.next = Some(token);
            }
        }
    }

    fn find(&mut self, id: JobId) -> Option<&mut Job> {
        self.running.iter_mut().find(|job| job.id == id)
    }
}

impl Job {
    fn rows(&self, tokens: Vec<u32>) -> JobRows {
        JobRows { job: self.id, sequence: self.sequence, tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::Cache,
        testing::{Rng, tiny_spec},
    };

    /// Runs random traffic and checks that each job sees its prompt once, in order, then its own tokens.
    #[test]
    fn every_job_gets_its_rows_in_order() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let limits = Limits { n_sequences: 3, max_rows: 8 };
            let mut cache = Cache::new(&tiny_spec(&[None]), 64, limits.n_sequences, limits.max_rows);
            let mut scheduler = Scheduler::new(limits);
            let n_jobs = 12u64;
            let prompts: Vec<Vec<u32>> = (0..n_jobs)
                .map(|id| (0..1 + rng.below(20)).map(|i| (id * 100) as u32 + i as u32).collect())
                .collect();
            let mut seen: Vec<Vec<u32>> = vec![Vec::new(); prompts.len()];
            let mut next_job = 0;
            let mut steps = 0;
            while next_job < n_jobs || !scheduler.is_idle() {
                steps += 1;
                assert!(steps < 1000, "the loop spins");
                if next_job < n_jobs && rng.below(2) == 0 {
                    scheduler.submit(JobId(next_job), prompts[next_job as usize].clone());
                    next_job += 1;
                }
                let batch = scheduler.schedule(|| cache.begin());
                let all = || batch.partial.iter().chain(&batch.sampled);
                assert!(all().map(|rows| rows.tokens.len()).sum::<usize>() <= limits.max_rows);
                assert!(scheduler.is_idle() || all().next().is_some(), "running jobs and an empty step");
                for rows in all() {
                    seen[rows.job.0 as usize].extend(&rows.tokens);
                }
                let tokens: Vec<u32> = batch.sampled.iter().map(|rows| 10_000 + rows.job.0 as u32).collect();
                scheduler.commit(&batch, &tokens);
                for rows in &batch.sampled {
                    let id = rows.job.0 as usize;
                    if seen[id].len() >= prompts[id].len() + 5 {
                        cache.end(scheduler.remove(rows.job).unwrap());
                    }
                }
                cache.check_integrity().unwrap();
            }
            for (id, (seen, prompt)) in (0u32..).zip(seen.iter().zip(&prompts)) {
                assert_eq!(seen[..prompt.len()], prompt[..]);
                assert!(seen[prompt.len()..].iter().all(|&t| t == 10_000 + id), "job {id}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_queued_job_can_be_removed() {
        let mut scheduler = Scheduler::new(Limits { n_sequences: 1, max_rows: 4 });
        scheduler.submit(JobId(1), vec![1]);
        assert_eq!(scheduler.remove(JobId(1)), None);
        assert!(scheduler.is_idle());
    }
}
