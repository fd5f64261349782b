//! The command line as it is typed. A command's arguments stand beside the command.

use clap::{Parser, Subcommand};

use crate::{inspect::InspectArgs, run::RunArgs};

/// Runs language models on this machine.
#[derive(Debug, Parser)]
#[command(name = "hanzo", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Inspect(InspectArgs),
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
