//! The engine's thread.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::Instant,
};

use super::{
    CancelToken, Event, FinishReason, Model, PromptStats, Request, Summary,
    scheduler::{Batch, JobId, JobRows, Limits, Scheduler},
    stop::StopWatch,
};
use crate::{
    Error, Result,
    decoder::{Chunk, Rows},
    sample::{Sampler, TokenBytes},
    text::DecodeStream,
};

/// Everything that the thread is told.
pub(super) enum Command {
    Submit { request: Request, events: mpsc::Sender<Result<Event>>, cancel: CancelToken },
}

/// A request that waits or runs.
struct Job {
    request: Request,
    events: mpsc::Sender<Result<Event>>,
    cancel: CancelToken,
    arrived: Instant,
    first_token: Option<Instant>,
    n_tokens: usize,
    sampler: Sampler,
    text: DecodeStream,
    stop: StopWatch,
    /// A stop text was written: what comes after it is no part of the answer.
    stopped: bool,
}

pub(super) struct Worker {
    model: Model,
    commands: mpsc::Receiver<Command>,
    scheduler: Scheduler,
    jobs: HashMap<JobId, Job>,
    n_jobs: u64,
}

impl Worker {
    pub fn new(model: Model, commands: mpsc::Receiver<Command>) -> Self {
        let options = model.decoder.options();
        let limits = Limits { n_sequences: options.n_sequences, max_rows: options.max_rows };
        Self { model, commands, scheduler: Scheduler::new(limits), jobs: HashMap::new(), n_jobs: 0 }
    }

    /// Runs until the engine is dropped.
    pub fn run(mut self) {
        while self.take_commands() {
            self.end_cancelled();
            let batch = self.scheduler.schedule(|| self.model.decoder.begin());
            if batch.partial.is_empty() && batch.sampled.is_empty() {
                continue;
            }
            let step = catch_unwind(AssertUnwindSafe(|| self.step(&batch)));
            let step = step.unwrap_or_else(|_| Err(Error::engine("a step panicked; this is a bug of Hanzo")));
            match step {
                Ok(tokens) => self.commit(&batch, &tokens),
                Err(error) => self.fail(&batch, &error),
            }
        }
    }

    /// Takes what has been sent, waiting if there is nothing else to do; false when the engine is dropped.
    fn take_commands(&mut self) -> bool {
        if self.scheduler.is_idle() {
            match self.commands.recv() {
                Ok(command) => self.accept(command),
                Err(_) => return false,
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.accept(command),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn accept(&mut self, command: Command) {
        let Command::Submit { request, events, cancel } = command;
        let id = JobId(self.n_jobs);
        self.n_jobs += 1;
        self.scheduler.submit(id, request.prompt.clone());
        let job = Job {
            sampler: self.sampler(&request),
            text: self.model.tokenizer.stream(true),
            stop: StopWatch::new(request.stop.clone()),
            stopped: false,
            request,
            events,
            cancel,
            arrived: Instant::now(),
            first_token: None,
            n_tokens: 0,
        };
        self.jobs.insert(id, job);
    }

    fn sampler(&self, request: &Request) -> Sampler {
        let mut params = request.sampling.clone();
        let tokenizer = self.model.tokenizer.clone();
        if request.ignore_eos {
            params.logit_bias.extend(tokenizer.end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)));
        }
        let token_bytes: TokenBytes =
            Arc::new(move |id| tokenizer.token_bytes(id).unwrap_or_default().to_vec());
        Sampler::new(params, &request.prompt, token_bytes)
    }

    fn end_cancelled(&mut self) {
        let cancelled = self.jobs.iter().filter(|(_, job)| job.cancel.is_cancelled());
        let cancelled: Vec<JobId> = cancelled.map(|(&id, _)| id).collect();
        for id in cancelled {
            self.finish(id, FinishReason::Cancelled);
        }
    }

    /// Runs the rows and chooses a token for each of `batch.sampled`.
    fn step(&mut self, batch: &Batch) -> Result<Vec<u32>> {
        let chunk = |rows: &JobRows, logits| Chunk { logits, ..Chunk::tokens(rows.sequence, &rows.tokens) };
        let sampled = batch.sampled.iter().map(|rows| chunk(rows, Rows::Last));
        let partial = batch.partial.iter().map(|rows| chunk(rows, Rows::None));
        let chunks: Vec<Chunk> = sampled.chain(partial).collect();
        let output = self.model.decoder.forward(&chunks)?;
        let vocab = self.model.decoder.spec().vocab_size;
        let sample = |(rows, logits): (&JobRows, &[f32])| {
            let job = self.jobs.get_mut(&rows.job).ok_or_else(|| Error::engine("a job ran that is gone"))?;
            Ok(job.sampler.sample(logits))
        };
        batch.sampled.iter().zip(output.logits.chunks_exact(vocab)).map(sample).collect()
    }

    fn commit(&mut self, batch: &Batch, tokens: &[u32]) {
        self.scheduler.commit(batch, tokens);
        for (rows, &token) in batch.sampled.iter().zip(tokens) {
            if let Some(reason) = self.emit(rows.job, token) {
                self.finish(rows.job, reason);
            }
        }
    }

    /// Sends a token; says whether the answer ends with it.
    fn emit(&mut self, id: JobId, token: u32) -> Option<FinishReason> {
        let job = self.jobs.get_mut(&id)?;
        if job.first_token.is_none() {
            let now = Instant::now();
            job.first_token = Some(now);
            let stats = PromptStats {
                n_tokens: job.request.prompt.len(),
                time_to_first_token: now.duration_since(job.arrived),
            };
            job.send(Ok(Event::Prompt(stats)));
        }
        if job.request.max_tokens == Some(0) {
            return Some(FinishReason::MaxTokens);
        }
        if !job.request.ignore_eos && self.model.tokenizer.end_of_generation().contains(&token) {
            return Some(FinishReason::Stop);
        }
        job.n_tokens += 1;
        let (text, stopped) = job.stop.push(&job.text.push(token));
        job.send(Ok(Event::Token { id: token, text }));
        if stopped {
            job.stopped = true;
            return Some(FinishReason::Stop);
        }
        if job.request.max_tokens.is_some_and(|max| job.n_tokens >= max) {
            return Some(FinishReason::MaxTokens);
        }
        // The token itself would be the sequence's next row.
        let full = job.request.prompt.len() + job.n_tokens > self.model.context();
        full.then_some(FinishReason::Context)
    }

    fn finish(&mut self, id: JobId, reason: FinishReason) {
        if let Some(sequence) = self.scheduler.remove(id) {
            self.model.decoder.end(sequence);
        }
        if let Some(job) = self.jobs.remove(&id) {
            let decode_time = job.first_token.map(|t| t.elapsed()).unwrap_or_default();
            let n_tokens = job.n_tokens;
            let (events, rest, stopped) = job.finish();
            let reason = if stopped { FinishReason::Stop } else { reason };
            let summary = Summary { reason, rest, n_tokens, decode_time };
            // A receiver that is gone has cancelled.
            drop(events.send(Ok(Event::Done(summary))));
        }
    }

    /// Ends every job of a step that failed; those that wait go on.
    fn fail(&mut self, batch: &Batch, error: &Error) {
        for rows in batch.partial.iter().chain(&batch.sampled) {
            if let Some(sequence) = self.scheduler.remove(rows.job) {
                self.model.decoder.end(sequence);
            }
            if let Some(job) = self.jobs.remove(&rows.job) {
                job.send(Err(Error::engine(error.to_string())));
            }
        }
    }
}

impl Job {
    /// Where to send the end, the text that was still held back, and whether that completed a stop text.
    fn finish(mut self) -> (mpsc::Sender<Result<Event>>, String, bool) {
        if self.stopped {
            return (self.events, String::new(), true);
        }
        let (mut rest, stopped) = self.stop.push(&self.text.finish());
        rest.push_str(&self.stop.finish());
        (self.events, rest, stopped)
    }

    fn send(&self, event: Result<Event>) {
        if self.events.send(event).is_err() {
            self.cancel.cancel();
        }
    }
}
