//! `hanzo template`: the prompt that a model's chat template makes of messages.

use std::path::{Path, PathBuf};

use clap::Args;
use hanzo_engine::load_template;
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::{Error, Result},
    input, output, prompt,
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
    let begins_answer = !args.no_generation_prompt;
    let text = prompt::render(&template, &tokenizer, &messages, tools.as_ref(), begins_answer)?;
    if args.json {
        let ids = prompt::encode(&tokenizer, &text)?;
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
