//! The commands of a conversation: one table that parsing, help and completion walk.

use std::path::{Path, PathBuf};

use hanzo_engine::sample::OPTIONS;

/// What a person may ask of the conversation itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    /// A new system message; `None` shows the present one, an empty one takes it away.
    System(Option<String>),
    Clear,
    Load(PathBuf),
    Save(PathBuf),
    Stats,
    /// A sampling option and its value.
    Set(String, String),
    Exit,
}

/// A row of the table.
struct Row {
    name: &'static str,
    argument: &'static str,
    doc: &'static str,
    /// Makes the command of what follows its name.
    make: fn(&str) -> Result<Command, String>,
}

static ROWS: &[Row] = &[
    Row { name: "/help", argument: "", doc: "this list", make: |rest| alone(rest, Command::Help) },
    Row {
        name: "/system",
        argument: "[TEXT]",
        doc: "show or set the system message; - takes it away",
        make: |rest| {
            Ok(Command::System(match rest {
                "" => None,
                "-" => Some(String::new()),
                text => Some(text.to_owned()),
            }))
        },
    },
    Row {
        name: "/clear",
        argument: "",
        doc: "forget the conversation, keep the system message",
        make: |rest| alone(rest, Command::Clear),
    },
    Row {
        name: "/load",
        argument: "FILE",
        doc: "go on with a conversation from a file",
        make: |rest| Ok(Command::Load(file(rest)?)),
    },
    Row {
        name: "/save",
        argument: "FILE",
        doc: "write the conversation to a file",
        make: |rest| Ok(Command::Save(file(rest)?)),
    },
    Row {
        name: "/stats",
        argument: "",
        doc: "context in use, speed, sampling options",
        make: |rest| alone(rest, Command::Stats),
    },
    Row {
        name: "/set",
        argument: "NAME VALUE",
        doc: "change a sampling option, such as: /set temp 0.7",
        make: |rest| {
            let (name, value) = rest.split_once(char::is_whitespace).ok_or("it needs a name and a value")?;
            // As on the command line and as in /stats.
            let name = name.trim_start_matches('-').replace('_', "-");
            Ok(Command::Set(name, value.trim().to_owned()))
        },
    },
    Row { name: "/exit", argument: "", doc: "leave", make: |rest| alone(rest, Command::Exit) },
];

/// Ends [`help`].
const HINTS: &str = "\
A line that ends in \\ goes on in the next one.
\"\"\" begins and ends a text of many lines.
Ctrl-C stops the answer or clears the line, Ctrl-D leaves.";

fn alone(rest: &str, command: Command) -> Result<Command, String> {
    if rest.is_empty() { Ok(command) } else { Err(format!("it takes nothing, and {rest:?} was given")) }
}

fn file(rest: &str) -> Result<PathBuf, String> {
    if rest.is_empty() { Err("it needs the name of a file".to_owned()) } else { Ok(Path::new(rest).into()) }
}

/// The command of a line that begins with `/`; `None` for any other line.
///
/// # Errors
/// Why the line is no command.
pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
    let line = line.trim();
    if !line.starts_with('/') {
        return None;
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some(match ROWS.iter().find(|row| row.name == name) {
        Some(row) => (row.make)(rest.trim()).map_err(|why| format!("{name}: {why}")),
        None => Err(format!(
            "there is no command {name:?}; /help lists them, and a message that begins with / is written \"\"\"so\"\"\""
        )),
    })
}

/// The table for people.
pub(super) fn help() -> String {
    let width = ROWS.iter().map(|row| row.name.len() + row.argument.len() + 1).max().unwrap_or(0);
    let mut text = String::new();
    for row in ROWS {
        let call = format!("{} {}", row.name, row.argument);
        text.push_str(&format!("{call:width$}  {}\n", row.doc));
    }
    text + HINTS
}

/// What may stand where the cursor is: the byte where it begins, and each whole word. A space ends what takes more.
pub(super) fn complete(before_cursor: &str) -> (usize, Vec<String>) {
    if let Some(begun) = before_cursor.strip_prefix("/set ") {
        let fits = |name: &&str| name.starts_with(begun);
        let names = OPTIONS.iter().map(|option| option.name).filter(fits);
        return ("/set ".len(), names.map(|name| format!("{name} ")).collect());
    }
    if !before_cursor.starts_with('/') {
        return (0, Vec::new());
    }
    let fits = ROWS.iter().filter(|row| row.name.starts_with(before_cursor));
    let word = |row: &Row| format!("{}{}", row.name, if row.argument.is_empty() { "" } else { " " });
    (0, fits.map(word).collect())
}

/// Where the name of a file begins, if the cursor is in one.
pub(super) fn file_start(before_cursor: &str) -> Option<usize> {
    let is_file = |row: &&Row| row.argument == "FILE" && before_cursor.starts_with(&format!("{} ", row.name));
    ROWS.iter().find(is_file).map(|row| row.name.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(line: &str) -> Command {
        parse(line).unwrap().unwrap()
    }

    #[test]
    fn commands_are_read() {
        assert_eq!(good("/help"), Command::Help);
        assert_eq!(good("  /exit \t"), Command::Exit);
        assert_eq!(good("/clear"), Command::Clear);
        assert_eq!(good("/stats"), Command::Stats);
        assert_eq!(good("/system"), Command::System(None));
        assert_eq!(good("/system -"), Command::System(Some(String::new())));
        assert_eq!(good("/system  Be brief. "), Command::System(Some("Be brief.".to_owned())));
        assert_eq!(good("/load a b.json"), Command::Load("a b.json".into()));
        assert_eq!(good("/save\tx"), Command::Save("x".into()));
        let set = |name: &str, value: &str| Command::Set(name.to_owned(), value.to_owned());
        assert_eq!(good("/set temp 0.5"), set("temp", "0.5"));
        assert_eq!(good("/set --top_k  7"), set("top-k", "7"));
        assert_eq!(good("/set logit-bias 5+1 6-inf"), set("logit-bias", "5+1 6-inf"));
    }

    #[test]
    fn what_is_no_command_is_told() {
        for (line, wanted) in [
            ("/", "no command \"/\""),
            ("/house/x is what?", "no command \"/house/x\""),
            ("/Help", "no command"),
            ("/helpme", "no command"),
            ("/help me", "/help: it takes nothing"),
            ("/load", "/load: it needs the name"),
            ("/save  ", "/save: it needs the name"),
            ("/set", "/set: it needs a name and a value"),
            ("/set temp", "/set: it needs a name and a value"),
        ] {
            let error = parse(line).unwrap().unwrap_err();
            assert!(error.contains(wanted), "{line}: {error}");
        }
        assert_eq!(parse("Hello /help"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn every_command_is_in_the_help_at_80_columns() {
        let help = help();
        for name in ["/help", "/system", "/clear", "/load", "/save", "/stats", "/set", "/exit"] {
            assert!(help.lines().any(|line| line.split(' ').next() == Some(name)), "{name}");
        }
        assert!(help.lines().all(|line| line.len() <= 80), "{help}");
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(
            complete("/s"),
            (0, vec!["/system ".to_owned(), "/save ".into(), "/stats".into(), "/set ".into()])
        );
        assert_eq!(complete("/e"), (0, vec!["/exit".to_owned()]));
        assert_eq!(complete("/").1.len(), 8);
        assert_eq!(
            complete("/set top-"),
            (5, vec!["top-k ".to_owned(), "top-p ".into(), "top-n-sigma ".into()])
        );
        assert_eq!(complete("/set temp 0"), (5, vec![]));
        assert_eq!(complete("Hello"), (0, vec![]));
        assert_eq!(complete(""), (0, vec![]));
        assert_eq!(file_start("/load a"), Some(6));
        assert_eq!(file_start("/load"), None);
        assert_eq!(file_start("/system a"), None);
    }
}
