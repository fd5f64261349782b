//! The command line as it is typed. A command's arguments stand beside the command.
//!
//! Help is written for 80 columns (see `tests/help.rs`): one line a command, defaults in brackets, examples at the end.

use clap::{Parser, Subcommand};

use crate::{
    completions::CompletionsArgs,
    devices::DevicesArgs,
    doctor::DoctorArgs,
    inspect::InspectArgs,
    models::{CopyArgs, ListArgs, PullArgs, RemoveArgs, ShowArgs},
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
    Tokenize(TokenizeArgs),
    Detokenize(DetokenizeArgs),
    Template(TemplateArgs),
    Devices(DevicesArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
