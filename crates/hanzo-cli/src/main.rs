//! The `hanzo` program: parses the command line, runs one command, turns its outcome into an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage. Standard output holds the answer alone; all else goes to standard
//! error. A reader that closes the pipe early has what it wanted: that is no error.

mod cli;
mod environment;
mod error;
mod inspect;
mod output;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;

use cli::{Cli, Command};
use environment::Environment;
use error::{Error, Result};

/// Exit code of wrong usage, as `clap` has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return show_usage(&error),
    };
    match run(cli.command, &Environment::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => show_error(&error),
    }
}

/// Runs one command.
fn run(command: Command, environment: &Environment) -> Result<()> {
    match command {
        Command::Inspect(args) => inspect::run(&args, environment),
    }
}

/// Prints help, the version, or what is wrong with the command line.
fn show_usage(error: &clap::Error) -> ExitCode {
    // A closed stream leaves nobody to tell.
    drop(error.print());
    u8::try_from(error.exit_code()).map_or(ExitCode::from(USAGE), ExitCode::from)
}

fn show_error(error: &Error) -> ExitCode {
    // A closed stream leaves nobody to tell.
    drop(writeln!(io::stderr().lock(), "error: {error}"));
    ExitCode::FAILURE
}
