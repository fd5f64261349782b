//! The conversation of `hanzo run`: a loop over lines that are commands, or messages that the model answers.
//!
//! Each turn renders the whole conversation in the model's chat template. The loop knows its terminal only as a [`Screen`],
//! so that it is tested without one. What a person does wrong is told and the conversation goes on; only streams that
//! cannot be read or written end it.

mod commands;
mod history;
mod message;
mod screen;
#[cfg(test)]
mod tests;
mod thinking;
mod transcript;

use std::{io, path::Path};

use hanzo_engine::{
    Engine, FinishReason, Request,
    sample::{OPTIONS, SamplingOption},
    text::ChatTemplate,
};

use crate::{
    environment::Environment,
    error::{Error, Result},
    prompt,
    run::{Answer, Speeds, end_on_interrupt, follow},
};
use commands::Command;
use message::{Assembly, Message};
use screen::{Lines, Screen, Terminal, Typed};
use thinking::Dimmer;
use transcript::Transcript;

/// A conversation's model and how it is asked.
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) template: ChatTemplate,
    /// The device's name.
    pub(crate) backend: String,
    /// What every answer is asked for with; the prompt is made anew each time.
    pub(crate) request: Request,
    /// What the model is told about its task.
    pub(crate) system: Option<String>,
    /// Whether speeds are told after each answer.
    pub(crate) verbose: bool,
    /// Whether what is typed on a terminal is kept for the next conversation.
    pub(crate) keeps_history: bool,
}

/// Talks until the person leaves; `first` is asked before anything is typed.
///
/// # Errors
/// If a standard stream cannot be read or written.
pub(crate) fn run(setup: Setup, first: Option<&str>, environment: &Environment) -> Result<()> {
    let keeps_history = setup.keeps_history;
    let mut chat = Chat::new(setup, environment.colours);
    if environment.typed_input && environment.shown_output {
        let history = environment.history.clone().filter(|_| keeps_history);
        let mut terminal = Terminal::new(history)?;
        terminal.note("/help lists commands, Ctrl-D leaves");
        return chat.talk(&mut terminal, first);
    }
    chat.talk(&mut Lines { reader: io::stdin().lock(), prompts: environment.typed_input }, first)
}

struct Chat {
    setup: Setup,
    transcript: Transcript,
    colours: bool,
    /// How the last answer went.
    speed: Option<String>,
}

impl Chat {
    fn new(mut setup: Setup, colours: bool) -> Self {
        let transcript = Transcript { system: setup.system.take(), turns: Vec::new() };
        Self { setup, transcript, colours, speed: None }
    }

    fn talk(&mut self, screen: &mut impl Screen, first: Option<&str>) -> Result<()> {
        if let Some(question) = first {
            self.answer(question, screen)?;
        }
        let mut assembly = Assembly::default();
        loop {
            let prompt = if assembly.is_begun() { "... " } else { ">>> " };
            let line = match screen.line(prompt)? {
                Typed::Line(line) => line,
                Typed::Cleared => {
                    assembly.clear();
                    continue;
                }
                Typed::End => {
                    if assembly.is_begun() {
                        screen.note("the last message was not ended and is not sent");
                    }
                    return Ok(());
                }
            };
            match assembly.take(&line) {
                Err(why) => screen.note(&format!("error: {why}")),
                Ok(None) => {}
                Ok(Some(Message::Quoted(text))) => self.answer(&text, screen)?,
                Ok(Some(Message::Plain(text))) if text.trim().is_empty() => {}
                Ok(Some(Message::Plain(text))) => match commands::parse(&text) {
                    None => self.answer(&text, screen)?,
                    Some(Ok(Command::Exit)) => return Ok(()),
                    Some(Ok(command)) => {
                        let told = self.obey(command).unwrap_or_else(|why| format!("error: {why}"));
                        screen.note(&told);
                    }
                    Some(Err(why)) => screen.note(&format!("error: {why}")),
                },
            }
        }
    }

    /// Does what a command says; gives what to tell.
    fn obey(&mut self, command: Command) -> std::result::Result<String, String> {
        match command {
            Command::Help => Ok(commands::help()),
            Command::System(None) => {
                Ok(self.transcript.system.clone().unwrap_or_else(|| "there is no system message".to_owned()))
            }
            Command::System(Some(text)) => {
                self.transcript.system = (!text.is_empty()).then_some(text);
                let is_set = self.transcript.system.is_some();
                Ok((if is_set { "system message set" } else { "system message taken away" }).to_owned())
            }
            Command::Clear => {
                self.transcript.turns.clear();
                Ok("the conversation is forgotten".to_owned())
            }
            Command::Load(path) => self.load(&path),
            Command::Save(path) => {
                self.transcript.save(&path)?;
                Ok(format!("saved {} turns to {}", self.transcript.turns.len(), path.display()))
            }
            Command::Stats => Ok(self.stats()),
            Command::Set(name, value) => self.set(&name, &value),
            // The loop ends before.
            Command::Exit => Ok(String::new()),
        }
    }

    fn load(&mut self, path: &Path) -> std::result::Result<String, String> {
        self.transcript = Transcript::load(path)?;
        Ok(format!("loaded {} turns from {}", self.transcript.turns.len(), path.display()))
    }

    fn set(&mut self, name: &str, value: &str) -> std::result::Result<String, String> {
        let find = |option: &&SamplingOption| option.name == name || option.alias == Some(name);
        let option = OPTIONS.iter().find(find);
        let option = option.ok_or_else(|| format!("there is no option {name:?}; /stats lists them"))?;
        let texts: Vec<String> = if option.repeats() {
            value.split_whitespace().map(str::to_owned).collect()
        } else {
            vec![value.to_owned()]
        };
        option
            .set(&mut self.setup.request.sampling, &texts)
            .map_err(|why| format!("{}: {why}", option.name))?;
        let sampling = &mut self.setup.request.sampling;
        *sampling = sampling.clone().with_seed();
        let idle = sampling.temp <= 0.0 && option.needs_temperature();
        let hint = if idle { " (without effect until temp is above 0)" } else { "" };
        Ok(format!("{}{hint}", value_line(option, &self.setup)))
    }

    fn stats(&self) -> String {
        let context = self.setup.engine.context();
        // A template may refuse a conversation that ends here.
        let n_used = self.prompt(None).map_or_else(|_| "?".to_owned(), |(_, ids)| ids.len().to_string());
        let mut lines = vec![
            format!("context: {n_used} of {context} tokens, {} turns", self.transcript.turns.len()),
            self.speed.clone().unwrap_or_else(|| format!("{}: no answer yet", self.setup.backend)),
        ];
        lines.extend(OPTIONS.iter().map(|option| format!("  {}", value_line(option, &self.setup))));
        lines.join("\n")
    }

    /// The text and the tokens of the conversation, and of a question that has no answer yet.
    fn prompt(&self, question: Option<&str>) -> Result<(String, Vec<u32>)> {
        let messages = self.transcript.messages(question);
        if messages.as_array().is_none_or(Vec::is_empty) {
            return Ok((String::new(), Vec::new()));
        }
        let tokenizer = self.setup.engine.tokenizer();
        let text = prompt::render(&self.setup.template, tokenizer, &messages, None, question.is_some())?;
        let ids = prompt::encode(tokenizer, &text)?;
        Ok((text, ids))
    }

    /// Answers a question. It becomes part of the conversation with what there is of its answer.
    fn answer(&mut self, question: &str, screen: &mut impl Screen) -> Result<()> {
        match self.generate(question, screen) {
            Ok(Some(answer)) => self.close(question, answer, screen),
            Ok(None) => {}
            Err(error) if error.is_output() => return Err(error),
            Err(error) => screen.note(&format!("error: {error}")),
        }
        Ok(())
    }

    fn generate(&mut self, question: &str, screen: &mut impl Screen) -> Result<Option<Answer>> {
        let (text, ids) = self.prompt(Some(question))?;
        let context = self.setup.engine.context();
        if ids.len() >= context {
            screen.note(&format!(
                "the conversation and this message are {} tokens, and the context has {context} (finish_reason: length): \
                 /clear begins anew, -c sets a larger context",
                ids.len(),
            ));
            return Ok(None);
        }
        let request = Request { prompt: ids, ..self.setup.request.clone() };
        let generation = self.setup.engine.generate(request)?;
        end_on_interrupt(&generation.cancel_token())?;
        // The same question does not get the same answer twice, and the first seed settles them all.
        let seed = &mut self.setup.request.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(1));
        let mut dimmer = Dimmer::new(self.colours, &text);
        let followed = follow(generation, |piece| screen.show(&dimmer.take(piece)));
        // Whatever happened, dim text ends here.
        screen.show(&format!("{}\n", dimmer.finish()))?;
        followed.map(Some)
    }

    fn close(&mut self, question: &str, answer: Answer, screen: &mut impl Screen) {
        let context = self.setup.engine.context();
        match answer.summary.reason {
            FinishReason::Context => screen.note(&format!(
                "the context of {context} tokens is full (finish_reason: length): /clear begins anew, -c sets a larger \
                 context"
            )),
            FinishReason::MaxTokens => screen.note("the answer has as many tokens as -n allows (finish_reason: length)"),
            FinishReason::Cancelled => screen.note("stopped"),
            FinishReason::Stop => {}
        }
        let speed = Speeds::new(&answer).sentence(&answer, &self.setup.backend);
        if self.setup.verbose {
            screen.note(&speed);
        }
        self.speed = Some(speed);
        // A question that was stopped before its answer began was not asked.
        if answer.summary.reason != FinishReason::Cancelled || !answer.text.is_empty() {
            self.transcript.turns.push((question.to_owned(), answer.text));
        }
    }
}

fn value_line(option: &SamplingOption, setup: &Setup) -> String {
    let values = option.texts_of(&setup.request.sampling);
    // Breakers hold line breaks.
    let values: Vec<String> = values.iter().map(|text| text.escape_debug().to_string()).collect();
    format!("{} {}", option.name, values.join(" ")).trim_end().to_owned()
}

/// The model has no chat template.
pub(crate) fn no_template(model: &str) -> Error {
    Error::usage(format!(
        "{model} has no chat template, which a conversation needs; it can continue a text: hanzo run -m {model} \"Once upon a time\""
    ))
}
