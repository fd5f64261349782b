//! `hanzo tokenize` and `hanzo detokenize`: a model's vocabulary at work, without its weights.

use clap::Args;
use hanzo_engine::{
    ModelFile, load_tokenizer,
    text::{EncodeOptions, Tokenizer},
};
use serde_json::json;

use crate::{
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    input, output,
};

const TOKENIZE_EXAMPLES: &str = "\
Examples:
  hanzo tokenize \"Hello there\"                a line for each token
  hanzo tokenize --ids < story.txt | wc -w    how many tokens a text has
  hanzo tokenize -m model.gguf --parse-special \"<|im_start|>user\"";

const DETOKENIZE_EXAMPLES: &str = "\
Examples:
  hanzo detokenize 19556 665
  hanzo tokenize --ids \"Hello\" | hanzo detokenize";

/// Which vocabulary.
#[derive(Debug, Args)]
pub(crate) struct VocabularyArgs {
    /// Model: a file or folder, a catalog name, or a hub id org/repo[:quant]
    #[arg(short, long, value_name = "MODEL", default_value = crate::run::DEFAULT_MODEL)]
    model: String,
    /// Pre-tokenizer, where the file does not name a known one
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

impl VocabularyArgs {
    /// The model's name, its file and its vocabulary; fetched if need be.
    pub(crate) fn open(&self, environment: &Environment) -> Result<(String, ModelFile, Tokenizer)> {
        let files = self.hub.fetch(&self.model, environment)?;
        let file = ModelFile::open(files.main_path())?;
        let tokenizer = load_tokenizer(&file, self.pre.as_deref())?;
        Ok((files.name, file, tokenizer))
    }
}

/// Show the tokens of a text
#[derive(Debug, Args)]
#[command(after_help = TOKENIZE_EXAMPLES)]
pub(crate) struct TokenizeArgs {
    /// The text [default: standard input, as it is]
    text: Option<String>,
    /// Print the ids alone, in one line
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Add no begin and end tokens
    #[arg(long)]
    no_special: bool,
    /// Read control tokens such as <|im_end|> in the text
    #[arg(long)]
    parse_special: bool,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
}

/// Show the text of token ids
#[derive(Debug, Args)]
#[command(after_help = DETOKENIZE_EXAMPLES)]
pub(crate) struct DetokenizeArgs {
    /// Token ids [default: from standard input, commas and brackets allowed]
    ids: Vec<u32>,
    /// Leave control tokens out
    #[arg(long)]
    skip_special: bool,
    #[command(flatten)]
    vocabulary: VocabularyArgs,
}

/// Runs `tokenize`.
pub(crate) fn tokenize(args: &TokenizeArgs, environment: &Environment) -> Result<()> {
    let text = match &args.text {
        Some(text) => text.clone(),
        None => input::piped(environment)?
            .ok_or_else(|| Error::usage("no text: give it as an argument or on standard input"))?,
    };
    let (model, _, tokenizer) = args.vocabulary.open(environment)?;
    let options = EncodeOptions { add_special: !args.no_special, parse_special: args.parse_special };
    let ids = tokenizer.encode(&text, options)?;
    let shown = if args.json {
        let tokens = ids.iter().map(|&id| json!({ "id": id, "text": piece(&tokenizer, id) }));
        let tokens: Vec<_> = tokens.collect();
        format!("{}\n", json!({ "model": model, "n_tokens": ids.len(), "ids": ids, "tokens": tokens }))
    } else if args.ids {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        format!("{}\n", ids.join(" "))
    } else {
        // Quoted, so that spaces show and nothing in a vocabulary can steer the terminal.
        ids.iter().map(|&id| format!("{id:>8}  {:?}\n", piece(&tokenizer, id))).collect()
    };
    output::print(&shown)
}

/// A token's text; for a part of a character, U+FFFD.
fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    match tokenizer.token_text(id) {
        Some(text) if tokenizer.is_special(id) => text.to_owned(),
        _ => String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned(),
    }
}

/// Runs `detokenize`.
pub(crate) fn detokenize(args: &DetokenizeArgs, environment: &Environment) -> Result<()> {
    let ids = if args.ids.is_empty() {
        let none = || Error::usage("no ids: give them as arguments or on standard input");
        let ids = parse_ids(&input::piped(environment)?.ok_or_else(none)?)?;
        if ids.is_empty() {
            return Err(none());
        }
        ids
    } else {
        args.ids.clone()
    };
    let (_, _, tokenizer) = args.vocabulary.open(environment)?;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.vocab_size()) {
        let last = tokenizer.vocab_size().saturating_sub(1);
        return Err(Error::failed(format!("token {id} is not in the vocabulary, whose last is {last}")));
    }
    output::print(&format!("{}\n", tokenizer.decode(&ids, args.skip_special)))
}

/// Ids apart by spaces, line breaks, commas or the brackets of a JSON list.
fn parse_ids(text: &str) -> Result<Vec<u32>> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']'));
    let ids = words.filter(|word| !word.is_empty()).map(|word| {
        let wrong = |_| Error::failed(format!("{:?} is not a token id", output::shortened(word, 40)));
        word.parse().map_err(wrong)
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_every_usual_form() {
        for text in ["1 2 30", "[1, 2, 30]\n", "1\n2\n30\n", " 1,2,30, "] {
            assert_eq!(parse_ids(text).unwrap(), [1, 2, 30], "{text:?}");
        }
        assert!(parse_ids("").unwrap().is_empty());
        for text in ["1 x", "-1", "4294967296", "1.5", "{1}"] {
            assert!(parse_ids(text).is_err(), "{text:?}");
        }
    }
}
