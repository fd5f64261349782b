//! `hanzo template`: the prompt that a model's chat template makes of messages.

use std::path::{Path, PathBuf};

use clap::Args;
use hanzo_engine::{
    load_template,
    text::{EncodeOptions, RenderOptions, Tokenizer},
};
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::{Error, Result},
    input, output,
    tokenize::VocabularyArgs,
};

const EXAMPLES: &str = "\
Examples:
  hanzo template \"Hello\"
  hanzo template -m model.gguf --messages chat.json --tools tools.json
  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | hanzo template --messages -";

/// Show the prompt that the chat template makes
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TemplateArgs {
    /// A user's message [default: standard input]
    #[arg(conflicts_with = "messages")]
    prompt: Option<String>,
    /// JSON list of messages with role and content; - is standard input
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// What the model is told about its task before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "messages")]
    system: Option<String>,
    /// JSON list of tools that the model may call
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// End after the last message, without the begin of an answer
    #[arg(long)]
    no_generation_prompt: bool,
    /// Print JSON: the text and its token ids
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
}

/// Runs the command.
pub(crate) fn run(args: &TemplateArgs, environment: &Environment) -> Result<()> {
    let messages = messages(args, environment)?;
    let tools = args.tools.as_deref().map(|path| list(path, "tools")).transpose()?;
    let (model, file, tokenizer) = args.vocabulary.open(environment)?;
    let Some(template) = load_template(&file)? else {
        return Err(Error::failed(format!("{model} has no chat template")));
    };
    let text_of = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id));
    let options = RenderOptions {
        add_generation_prompt: !args.no_generation_prompt,
        tools: tools.as_ref(),
        bos_token: text_of(tokenizer.bos()),
        eos_token: text_of(tokenizer.eos()),
        ..RenderOptions::default()
    };
    let text = template.render(&messages, &options)?;
    if args.json {
        let ids = encode(&tokenizer, &text)?;
        return output::print(&format!("{}\n", json!({ "model": model, "text": text, "ids": ids })));
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    output::print(&format!("{text}{end}"))
}

fn messages(args: &TemplateArgs, environment: &Environment) -> Result<Json> {
    if let Some(path) = &args.messages {
        return list(path, "messages");
    }
    let prompt = match &args.prompt {
        Some(prompt) => prompt.clone(),
        None => input::piped(environment)?
            .ok_or_else(|| Error::usage("no prompt: give one, or --messages FILE, or standard input"))?,
    };
    let system = args.system.iter().map(|text| json!({ "role": "system", "content": text }));
    Ok(system.chain([json!({ "role": "user", "content": prompt })]).collect())
}

/// A JSON file that holds a list of objects.
fn list(path: &Path, what: &str) -> Result<Json> {
    let value = input::json(path)?;
    match &value {
        Json::Array(items) if items.iter().all(Json::is_object) => Ok(value),
        _ => Err(Error::failed(format!("{}: {what} are a JSON list of objects", path.display()))),
    }
}

/// The ids of a rendered prompt.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    // Many templates write the first token themselves.
    let bos = tokenizer.bos().and_then(|id| tokenizer.token_text(id));
    let add_special = !bos.is_some_and(|bos| text.starts_with(bos));
    Ok(tokenizer.encode(text, EncodeOptions { add_special, parse_special: true })?)
}
