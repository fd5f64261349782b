//! Messages to the prompt of a model: its chat template's text, and the tokens of that.

use hanzo_engine::text::{ChatTemplate, EncodeOptions, RenderOptions, Tokenizer};
use serde_json::Value;

use crate::error::Result;

/// Messages, and the tools they may name, in a chat template; with `begins_answer`, up to the begin of an answer.
pub(crate) fn render(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    messages: &Value,
    tools: Option<&Value>,
    begins_answer: bool,
) -> Result<String> {
    let text_of = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id));
    let options = RenderOptions {
        add_generation_prompt: begins_answer,
        tools,
        bos_token: text_of(tokenizer.bos()),
        eos_token: text_of(tokenizer.eos()),
        ..RenderOptions::default()
    };
    Ok(template.render(messages, &options)?)
}

/// The tokens of a rendered prompt.
pub(crate) fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    // Many templates write the first token themselves.
    let bos = tokenizer.bos().and_then(|id| tokenizer.token_text(id));
    let add_special = !bos.is_some_and(|bos| text.starts_with(bos));
    Ok(tokenizer.encode(text, EncodeOptions { add_special, parse_special: true })?)
}
