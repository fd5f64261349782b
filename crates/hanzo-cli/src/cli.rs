//! The command line as it is typed. A command's arguments stand beside the command.
//!
//! Help is written for 80 columns (see `tests/help.rs`): one line a command, defaults in brackets, examples at the end.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::{
    bench::BenchArgs,
    completions::CompletionsArgs,
    devices::DevicesArgs,
    doctor::DoctorArgs,
    imatrix::ImatrixArgs,
    inspect::InspectArgs,
    models::{CopyArgs, ListArgs, PullArgs, RemoveArgs, ShowArgs},
    perplexity::PerplexityArgs,
    quantize::QuantizeArgs,
    run::RunArgs,
    template::TemplateArgs,
    tokenize::{DetokenizeArgs, TokenizeArgs},
};

const EXAMPLES: &str = "\
Examples:
  hanzo run \"Why is the sky blue?\"     fetches a small model once and answers
  hanzo list --catalog                 models that have a short name
  hanzo help run                       the options of a command
  hanzo doctor                         what is wrong, where something is

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. The answer goes
to standard output, all else to standard error.";

/// Run language models on this machine
#[derive(Debug, Parser)]
#[command(name = "hanzo", version, max_term_width = 80, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Pull(PullArgs),
    List(ListArgs),
    Show(ShowArgs),
    Rm(RemoveArgs),
    Cp(CopyArgs),
    Inspect(InspectArgs),
    Bench(BenchArgs),
    Perplexity(PerplexityArgs),
    Imatrix(ImatrixArgs),
    Quantize(Box<QuantizeArgs>),
    Tokenize(TokenizeArgs),
    Detokenize(DetokenizeArgs),
    Template(TemplateArgs),
    Devices(DevicesArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
}

/// Short options of llama.cpp that have more than one letter, and what they are here.
const SHORT_WORDS: [(&str, &str); 4] = [
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-ngl", "--n-gpu-layers"),
    ("-ub", "--ubatch-size"),
];

/// The arguments of the program, with short words in their long form.
pub(crate) fn arguments(typed: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut options = true;
    typed.map(move |arg| {
        options &= arg != "--";
        let word = SHORT_WORDS.iter().find(|(short, _)| options && arg == *short);
        word.map_or(arg, |(_, long)| OsString::from(long))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    /// The words of each `hanzo` call in a shell line; quotes are the only thing of the shell that is known.
    fn calls(line: &str) -> Vec<Vec<String>> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.trim().chars().chain([' ']) {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(q), c) if q == c => quote = None,
                (None, ' ') if word.is_empty() => {}
                (None, ' ') => words.push(std::mem::take(&mut word)),
                (_, c) => word.push(c),
            }
        }
        let stages = words.split(|word| word == "|");
        let call = |stage: &[String]| -> Vec<String> {
            stage.iter().take_while(|word| !["<", ">", ">>", "#"].contains(&word.as_str())).cloned().collect()
        };
        stages.map(call).filter(|call| call.first().is_some_and(|word| word == "hanzo")).collect()
    }

    #[test]
    fn every_call_in_the_documents_is_a_call() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let mut n_calls = 0;
        for document in [
            "README.md",
            "docs/running.md",
            "docs/models.md",
            "docs/sampling.md",
            "docs/templates.md",
            "docs/measuring.md",
            "docs/quantising.md",
        ] {
            let text = std::fs::read_to_string(format!("{root}{document}")).unwrap();
            for line in text.lines().filter(|line| line.starts_with("    ")) {
                for call in calls(line) {
                    n_calls += 1;
                    let parsed = Cli::try_parse_from(&call);
                    assert!(parsed.is_ok(), "{document}: {line}: {}", parsed.unwrap_err());
                }
            }
        }
        assert!(n_calls > 25, "{n_calls} calls were found");
        // What is no call is seen as such.
        assert!(Cli::try_parse_from(&calls("cat x | hanzo run --no-such-flag")[0]).is_err());
    }

    #[test]
    fn the_options_of_run_are_those_of_its_page() {
        let page = include_str!("../../../docs/running.md");
        let run = Cli::command().find_subcommand("run").cloned().unwrap();
        let of_page = |arg: &&clap::Arg| arg.get_help_heading() != Some("Sampling");
        for arg in run.get_arguments().filter(of_page) {
            if let Some(long) = arg.get_long().filter(|long| *long != "help") {
                assert!(page.contains(&format!("`--{long}`")), "docs/running.md lacks --{long}");
            }
        }
    }
}
