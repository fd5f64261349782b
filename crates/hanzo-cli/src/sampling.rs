//! The options of sampling on the command line: the engine's table, walked.

use std::collections::HashMap;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use hanzo_engine::{
    ModelFile,
    sample::{OPTIONS, SamplingOption, SamplingParams},
};

use crate::error::Result;

/// Where help lists them.
const HEADING: &str = "Sampling";

/// What the command line says about choosing tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplingArgs {
    given: HashMap<&'static str, Vec<String>>,
    /// The model cannot end its answer.
    pub(crate) ignore_eos: bool,
    /// Texts that end the answer.
    pub(crate) stop: Vec<String>,
}

impl SamplingArgs {
    /// What is in force: an option given here beats the model file, which beats the default. The seed is fixed.
    pub(crate) fn params(&self, file: &ModelFile) -> Result<SamplingParams> {
        let mut params = SamplingParams::recommended(file)?;
        for option in OPTIONS {
            if let Some(texts) = self.given.get(option.name) {
                // The parser has accepted these texts.
                option.set(&mut params, texts).map_err(crate::error::Error::usage)?;
            }
        }
        Ok(params.with_seed())
    }

    /// The first option that has no effect on a greedy answer, where one was given.
    pub(crate) fn without_effect(&self, params: &SamplingParams) -> Option<&'static str> {
        let idle =
            |option: &&SamplingOption| option.needs_temperature() && self.given.contains_key(option.name);
        OPTIONS.iter().filter(|_| params.temp <= 0.0).find(idle).map(|option| option.name)
    }
}

impl Args for SamplingArgs {
    fn augment_args(command: Command) -> Command {
        let command = OPTIONS.iter().fold(command, |command, option| command.arg(argument(option)));
        let ignore_eos = Arg::new("ignore-eos").long("ignore-eos").action(ArgAction::SetTrue);
        let stop = Arg::new("stop").long("stop").value_name("TEXT").action(ArgAction::Append);
        command
            .arg(ignore_eos.help("Never choose a token that ends the answer").help_heading(HEADING))
            .arg(stop.help("End the answer before TEXT; repeatable").help_heading(HEADING))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(option: &'static SamplingOption) -> Arg {
    let default = option.texts_of(&SamplingParams::default());
    // Breakers hold line breaks.
    let default: Vec<String> = default.iter().map(|text| text.escape_debug().to_string()).collect();
    let default =
        if default.is_empty() { String::new() } else { format!(" [default: {}]", default.join(" ")) };
    let action = if option.repeats() { ArgAction::Append } else { ArgAction::Set };
    let check = move |text: &str| {
        let set = option.set(&mut SamplingParams::default(), &[text.to_owned()]);
        set.map(|()| text.to_owned())
    };
    let arg = Arg::new(option.name)
        .long(option.name)
        .value_name(option.placeholder)
        .help(format!("{}{default}", option.doc))
        .help_heading(HEADING)
        .action(action)
        .allow_hyphen_values(true)
        .value_parser(check);
    let arg = option.short.map_or(arg.clone(), |short| arg.short(short));
    option.alias.map_or(arg.clone(), |alias| arg.visible_alias(alias))
}

impl FromArgMatches for SamplingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        let all =
            |name: &str| matches.get_many::<String>(name).map(|texts| texts.cloned().collect::<Vec<_>>());
        for option in OPTIONS {
            if let Some(texts) = all(option.name) {
                self.given.insert(option.name, texts);
            }
        }
        self.ignore_eos |= matches.get_flag("ignore-eos");
        self.stop = all("stop").unwrap_or_default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> std::result::Result<SamplingArgs, String> {
        let command = SamplingArgs::augment_args(Command::new("test"));
        let matches =
            command.try_get_matches_from(std::iter::once(&"test").chain(words)).map_err(|e| e.to_string())?;
        SamplingArgs::from_arg_matches(&matches).map_err(|e| e.to_string())
    }

    #[test]
    fn options_are_read() {
        let words = "--temperature 0.5 --top-k -1 --seed -1 -l 5-inf -l 6+1 --stop a --stop b --ignore-eos --top-n-sigma=-1";
        let args = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(args.given["temp"], ["0.5"]);
        assert_eq!(args.given["top-k"], ["-1"]);
        assert_eq!(args.given["logit-bias"], ["5-inf", "6+1"]);
        assert_eq!(args.stop, ["a", "b"]);
        assert!(args.ignore_eos);
    }

    #[test]
    fn wrong_values_are_named() {
        let error = parse(&["--samplers", "top_k;top_q"]).unwrap_err();
        assert!(error.contains("--samplers") && error.contains("there is no sampler \"top_q\""), "{error}");
        let error = parse(&["--top-p", "7"]).unwrap_err();
        assert!(error.contains("--top-p") && error.contains("7 is not within 0 and 1"), "{error}");
    }
}
