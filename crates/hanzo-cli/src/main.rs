//! The `hanzo` program: parses the command line, runs one command, turns its outcome into an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Standard output holds the answer alone; all else goes to standard
//! error. A reader that closes the pipe early has what it wanted: that is no error.

mod bench;
mod chat;
mod cli;
mod completions;
mod compute;
mod cpu;
mod devices;
mod doctor;
mod environment;
mod error;
mod fetch;
mod imatrix;
mod input;
mod inspect;
mod loading;
mod machine;
mod models;
mod output;
mod perplexity;
mod progress;
mod prompt;
mod quantize;
mod run;
mod sampling;
mod template;
mod tokenize;

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
/// Exit code after an interrupt, as shells have it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(cli::arguments(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return show_usage(&error),
    };
    match execute(cli.command, &Environment::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) if error.is_interrupted() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            show_error(&error);
            if error.is_usage() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Ends the program at once, for a second interrupt.
#[expect(clippy::exit, reason = "the person at the terminal asked twice")]
fn abort_by_interrupt() {
    std::process::exit(i32::from(INTERRUPTED))
}

/// Runs one command.
fn execute(command: Command, environment: &Environment) -> Result<()> {
    match command {
        Command::Run(args) => run::run(&args, environment),
        Command::Pull(args) => models::pull(&args, environment),
        Command::List(args) => models::list(&args, environment),
        Command::Show(args) => models::show(&args, environment),
        Command::Rm(args) => models::remove(&args, environment),
        Command::Cp(args) => models::copy(&args, environment),
        Command::Bench(args) => bench::run(&args, environment),
        Command::Perplexity(args) => perplexity::run(&args, environment),
        Command::Imatrix(args) => imatrix::run(&args, environment),
        Command::Quantize(args) => quantize::run(&args, environment),
        Command::Inspect(args) => inspect::run(&args, environment),
        Command::Tokenize(args) => tokenize::tokenize(&args, environment),
        Command::Detokenize(args) => tokenize::detokenize(&args, environment),
        Command::Template(args) => template::run(&args, environment),
        Command::Devices(args) => devices::run(&args, environment),
        Command::Doctor(args) => doctor::run(&args, environment),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Prints help, the version, or what is wrong with the command line.
fn show_usage(error: &clap::Error) -> ExitCode {
    // A closed stream leaves nobody to tell.
    drop(error.print());
    u8::try_from(error.exit_code()).map_or(ExitCode::from(USAGE), ExitCode::from)
}

fn show_error(error: &Error) {
    // A closed stream leaves nobody to tell.
    drop(writeln!(io::stderr().lock(), "error: {error}"));
}
