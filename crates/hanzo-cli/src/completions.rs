//! `hanzo completions`: a script that teaches a shell the commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{cli::Cli, error::Result, output};

const EXAMPLES: &str = "\
Examples:
  hanzo completions bash > ~/.local/share/bash-completion/completions/hanzo
  hanzo completions zsh > ~/.zfunc/_hanzo
  hanzo completions fish > ~/.config/fish/completions/hanzo.fish
  hanzo completions powershell >> $PROFILE";

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hanzo", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
