//! `hanzo run`: answers a prompt, streaming the text to standard output.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use clap::Args;
use hanzo_engine::{
    CancelToken, Engine, Event, FinishReason, Generation, LoadOptions, Model, ModelFile, PromptStats,
    Request, Summary, load_template, text::EncodeOptions,
};
use serde_json::{Value, json};

use crate::{
    chat,
    compute::ReadingArgs,
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    input,
    loading::Loading,
    output::{note, print},
    prompt,
    sampling::SamplingArgs,
};

/// The model where nobody names one.
pub(crate) const DEFAULT_MODEL: &str = "smollm2:135m";

/// Ends the help.
const EXAMPLES: &str = "\
Examples:
  hanzo run \"Why is the sky blue?\"
  hanzo run -m qwen2.5-coder:1.5b \"FizzBuzz in C\"
  hanzo run -m model.gguf --system \"Be brief.\" < question.txt
  git diff | hanzo run \"What does this change?\"
  hanzo run -i --system \"Be brief.\"

The prompt is PROMPT, the file and standard input, joined. Without any of them,
on a terminal, or with -i, it is a conversation: /help lists its commands.
Without --temp, and unless the model's file recommends a temperature, the most
likely token is taken each time: the same prompt gives the same answer.";

/// Answer a prompt
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// What to answer [default: standard input, or a conversation]
    prompt: Option<String>,
    /// A file with the prompt
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Hold a conversation; a prompt begins it
    #[arg(short, long, conflicts_with_all = ["raw", "json"])]
    interactive: bool,
    /// Model: a file or folder, a catalog name, or a hub id org/repo[:quant]
    #[arg(short, long, value_name = "MODEL", default_value = DEFAULT_MODEL)]
    model: String,
    /// What the model is told about its task before the prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue the prompt as it stands, without the model's chat template
    #[arg(long)]
    raw: bool,
    /// Most tokens of the answer [default: until the model ends it or the context is full]
    #[arg(short = 'n', long, value_name = "N")]
    predict: Option<usize>,
    /// Context: tokens of prompt and answer together [default: as trained, at most 4096]
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Print one JSON object at the end instead of streaming text
    #[arg(long)]
    json: bool,
    /// Do not keep what is typed in a conversation for the next one
    #[arg(long)]
    no_history: bool,
    /// Show the memory plan, and the speed at the end
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    hub: HubArgs,
}

/// Runs the command.
pub(crate) fn run(args: &RunArgs, environment: &Environment) -> Result<()> {
    let converses = converses(args, environment)?;
    let prompt = prompt(args, environment, converses)?;
    let files = args.hub.fetch(&args.model, environment)?;
    let file = ModelFile::open(files.main_path())?;
    let sampling = args.sampling.params(&file)?;
    if let Some(option) = args.sampling.without_effect(&sampling) {
        note(&format!("--{option} has no effect on a greedy answer; --temp makes it another"));
    }
    let template = load_template(&file)?;
    if converses && template.is_none() {
        return Err(chat::no_template(&files.name));
    }
    let prepared = load_options(args, environment).prepare(&file)?;
    let model = Loading::new(environment, args.verbose).model(prepared, args.reading.pre.as_deref())?;
    let template = template.filter(|_| converses);
    let ids = if template.is_some() { Vec::new() } else { encode(args, &prompt, &model)? };
    let backend = model.backend_name();
    let engine = Engine::start(model)?;
    let effective = sampling.effective();
    let request = Request {
        prompt: ids,
        max_tokens: args.predict,
        ignore_eos: args.sampling.ignore_eos,
        sampling,
        stop: args.sampling.stop.clone(),
    };
    if let Some(template) = template {
        let system = args.system.clone();
        let keeps_history = !args.no_history;
        let setup =
            chat::Setup { engine, template, backend, request, system, verbose: args.verbose, keeps_history };
        return chat::run(setup, Some(prompt.as_str()).filter(|text| !text.is_empty()), environment);
    }
    let generation = engine.generate(request)?;
    end_on_interrupt(&generation.cancel_token())?;
    let answer = follow(generation, |piece| if args.json { Ok(()) } else { print(piece) })?;
    let facts =
        Facts { model: &files.name, backend: &backend, context: engine.context(), sampling: effective };
    answer.report(args, &facts)
}

fn load_options(args: &RunArgs, environment: &Environment) -> LoadOptions {
    let reading = &args.reading;
    let [cache_type_k, cache_type_v] = reading.compute.cache_types();
    LoadOptions {
        context: args.ctx_size,
        max_rows: reading.ubatch_size,
        cache_type_k,
        cache_type_v,
        devices: reading.compute.devices(reading.threads, Some(&args.hub), environment),
        pre_tokenizer: reading.pre.clone(),
        ..LoadOptions::default()
    }
}

/// Whether it is a conversation, where standard input is what a person says.
fn converses(args: &RunArgs, environment: &Environment) -> Result<bool> {
    let converses =
        args.interactive || (args.prompt.is_none() && args.file.is_none() && environment.typed_input);
    if converses && (args.raw || args.json) {
        return Err(Error::usage("--raw and --json need a prompt: they are not for a conversation"));
    }
    Ok(converses)
}

/// The prompt: the argument, the file and standard input, joined by line breaks; empty for a conversation alone.
fn prompt(args: &RunArgs, environment: &Environment, converses: bool) -> Result<String> {
    let file = args.file.as_deref().map(input::file).transpose()?;
    let piped = if converses { None } else { input::piped(environment)? };
    let parts = [args.prompt.clone(), file, piped];
    let prompt = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    if prompt.is_empty() && !converses {
        return Err(Error::usage("no prompt: give one as an argument or on standard input"));
    }
    Ok(prompt)
}

/// The prompt's tokens, in the model's chat template where it has one.
fn encode(args: &RunArgs, prompt: &str, model: &Model) -> Result<Vec<u32>> {
    let tokenizer = model.tokenizer();
    let Some(template) = model.template().filter(|_| !args.raw) else {
        if args.system.is_some() {
            return Err(Error::usage("--system needs a model with a chat template, and no --raw"));
        }
        if !args.raw {
            note("the model has no chat template: it continues the prompt");
        }
        return Ok(tokenizer.encode(prompt, EncodeOptions { add_special: true, parse_special: false })?);
    };
    let mut messages = Vec::new();
    if let Some(system) = &args.system {
        messages.push(json!({ "role": "system", "content": system }));
    }
    messages.push(json!({ "role": "user", "content": prompt }));
    prompt::encode(tokenizer, &prompt::render(template, tokenizer, &messages.into(), None, true)?)
}

/// Ends the generation at the first interrupt, the program at the second; at the first where it has ended.
pub(crate) fn end_on_interrupt(cancel: &CancelToken) -> Result<()> {
    static TOKEN: Mutex<Option<CancelToken>> = Mutex::new(None);
    let token = || TOKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if token().replace(cancel.clone()).is_some() {
        return Ok(());
    }
    let handler = move || {
        if let Some(token) = &*token() {
            if token.is_cancelled() {
                crate::abort_by_interrupt();
            }
            token.cancel();
        }
    };
    ctrlc::set_handler(handler).map_err(|e| Error::failed(format!("interrupt handler: {e}")))
}

/// What a report names besides the answer.
struct Facts<'a> {
    model: &'a str,
    backend: &'a str,
    context: usize,
    sampling: Value,
}

/// What came of a generation.
pub(crate) struct Answer {
    pub(crate) text: String,
    prompt: Option<PromptStats>,
    pub(crate) summary: Summary,
}

/// Follows a generation to its end, showing its text as it comes.
pub(crate) fn follow(generation: Generation, mut show: impl FnMut(&str) -> Result<()>) -> Result<Answer> {
    let mut text = String::new();
    let mut prompt = None;
    let mut take = |piece: &str| {
        text.push_str(piece);
        show(piece)
    };
    for event in generation {
        match event? {
            Event::Prompt(stats) => prompt = Some(stats),
            Event::Token { text, .. } => take(&text)?,
            Event::Done(summary) => {
                take(&summary.rest)?;
                return Ok(Answer { text, prompt, summary });
            }
        }
    }
    Err(Error::failed("the engine ended without an answer"))
}

impl Answer {
    fn report(&self, args: &RunArgs, facts: &Facts<'_>) -> Result<()> {
        let Facts { model, backend, context, sampling } = facts;
        let speeds = Speeds::new(self);
        if args.json {
            let object = json!({
                "model": model,
                "backend": backend,
                "text": self.text,
                "finish_reason": self.summary.reason.name(),
                "prompt_tokens": self.prompt.map(|p| p.n_tokens),
                "completion_tokens": self.summary.n_tokens,
                "time_to_first_token_s": speeds.first_s,
                "decode_tokens_per_s": speeds.decode,
                "sampling": sampling,
            });
            print(&format!("{object}\n"))?;
        } else {
            print("\n")?;
        }
        match self.summary.reason {
            FinishReason::Context => {
                note(&format!("the context of {context} tokens is full (finish_reason: length); -c sets it"));
            }
            FinishReason::Cancelled => return Err(Error::interrupted()),
            FinishReason::Stop | FinishReason::MaxTokens => {}
        }
        if args.verbose {
            note(&speeds.sentence(self, backend));
        }
        io::stderr().flush().map_err(Error::output)
    }
}

/// Speeds, where something was timed.
pub(crate) struct Speeds {
    first_s: Option<f64>,
    prefill: Option<f64>,
    decode: Option<f64>,
}

impl Speeds {
    pub(crate) fn new(answer: &Answer) -> Self {
        let first_s = answer.prompt.map(|p| p.time_to_first_token.as_secs_f64());
        let rate = |n: usize, s: f64| (n > 0 && s > 0.0).then(|| n as f64 / s);
        let prefill = answer.prompt.zip(first_s).and_then(|(p, s)| rate(p.n_tokens, s));
        // The first token belongs to the prompt's step.
        let after_first = answer.summary.n_tokens.saturating_sub(1);
        Self { first_s, prefill, decode: rate(after_first, answer.summary.decode_time.as_secs_f64()) }
    }

    pub(crate) fn sentence(&self, answer: &Answer, backend: &str) -> String {
        let number = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.1}"));
        let first_ms = self.first_s.map(|s| s * 1000.0);
        format!(
            "{backend}: prompt {} tokens at {} tok/s, first token after {} ms, answer {} tokens at {} tok/s",
            answer.prompt.map_or(0, |p| p.n_tokens),
            number(self.prefill),
            number(first_ms),
            answer.summary.n_tokens,
            number(self.decode),
        )
    }
}
