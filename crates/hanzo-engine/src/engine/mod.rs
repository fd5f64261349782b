//! The engine: one thread that owns a model and runs the requests it is sent, several at a time.
//!
//! A step is three verbs on plain data: schedule, run, commit. A generation is an iterator of events; dropping it
//! or its cancel token's [`CancelToken::cancel`] ends the request at the next step.

mod model;
mod scheduler;
mod stop;
mod worker;

pub use model::{DEFAULT_CONTEXT, LoadOptions, Model, check, load_template, load_tokenizer};

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{Error, Result, sample::SamplingParams, text::Tokenizer};
use stop::{N_STOPS_MAX, STOP_BYTES_MAX};
use worker::{Command, Worker};

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt: Vec<u32>,
    /// Tokens of the answer; `None` is as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Whether tokens that end an answer are never chosen.
    pub ignore_eos: bool,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
}

/// What happens during a generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The prompt is done and the first token chosen.
    Prompt(PromptStats),
    /// One more token; its text may be empty while a character is incomplete or may belong to a stop text.
    Token {
        /// The token's id.
        id: u32,
        /// The text that it completes.
        text: String,
    },
    /// The end.
    Done(Summary),
}

/// How the prompt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptStats {
    /// Tokens of the prompt.
    pub n_tokens: usize,
    /// From the request's arrival to its first token.
    pub time_to_first_token: Duration,
}

/// How a generation went.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Why it ended.
    pub reason: FinishReason,
    /// Text that was still held back.
    pub rest: String,
    /// Tokens of the answer, the one that ended it not counted.
    pub n_tokens: usize,
    /// From the first token to the last.
    pub decode_time: Duration,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its answer, or wrote a stop text.
    Stop,
    /// `max_tokens` were written.
    MaxTokens,
    /// The context is full.
    Context,
    /// The request was cancelled.
    Cancelled,
}

impl FinishReason {
    /// The name in protocols: `stop` or `length`, or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::MaxTokens | Self::Context => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Ends a generation from another thread.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks for the end at the next step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A running generation: an iterator of events that ends after [`Event::Done`] or an error.
pub struct Generation {
    events: mpsc::Receiver<Result<Event>>,
    cancel: CancelToken,
}

impl Generation {
    /// A token that ends this generation.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.events.recv().ok()
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// A model and the thread that runs it.
pub struct Engine {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    tokenizer: Tokenizer,
    context: usize,
    vocab_size: usize,
}

impl Engine {
    /// Gives a model a thread.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn start(model: Model) -> Result<Self> {
        let (commands, receiver) = mpsc::channel();
        let tokenizer = model.tokenizer.clone();
        let context = model.context();
        let vocab_size = model.decoder.spec().vocab_size;
        let worker = Worker::new(model, receiver);
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || worker.run());
        let thread = thread.map_err(|e| Error::engine(format!("no thread for the engine: {e}")))?;
        Ok(Self { commands: Some(commands), thread: Some(thread), tokenizer, context, vocab_size })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Positions of a sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the prompt is empty or fills the context, if an option of sampling is out of range or a stop text too long; if the
    /// engine has ended.
    pub fn generate(&self, request: Request) -> Result<Generation> {
        let n = request.prompt.len();
        if n == 0 {
            return Err(Error::request("the prompt is empty"));
        }
        if n >= self.context {
            let context = self.context;
            return Err(Error::request(format!(
                "the prompt's {n} tokens leave no room in the context of {context}"
            )));
        }
        if let Some(id) = request.prompt.iter().find(|&&id| id as usize >= self.vocab_size) {
            return Err(Error::request(format!("prompt: token {id} is not one of the {}", self.vocab_size)));
        }
        self.check_options(&request)?;
        let (sender, events) = mpsc::channel();
        let cancel = CancelToken::default();
        let command = Command::Submit { request, events: sender, cancel: cancel.clone() };
        let sent = self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok());
        if sent { Ok(Generation { events, cancel }) } else { Err(Error::engine("the engine has ended")) }
    }

    fn check_options(&self, request: &Request) -> Result<()> {
        request.sampling.check().map_err(Error::request)?;
        let n_tokens = self.tokenizer.vocab_size();
        if let Some((id, _)) = request.sampling.logit_bias.iter().find(|(id, _)| *id as usize >= n_tokens) {
            return Err(Error::request(format!(
                "logit-bias: token {id} is not one of the {n_tokens} tokens"
            )));
        }
        if request.stop.len() > N_STOPS_MAX {
            return Err(Error::request(format!(
                "{} stop texts are more than {N_STOPS_MAX}",
                request.stop.len()
            )));
        }
        let odd = request.stop.iter().map(String::len).find(|&n| n == 0 || n > STOP_BYTES_MAX);
        odd.map_or(Ok(()), |n| {
            Err(Error::request(format!("a stop text of {n} bytes; it may have 1 to {STOP_BYTES_MAX}")))
        })
    }
}

impl Drop for Engine {
    /// Ends what still runs and waits for the thread.
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the engine's thread panicked");
        }
    }
}
