//! Help reads well at 80 columns: every command, short and long.

mod support;

use support::Home;

/// The commands that `hanzo --help` lists.
fn commands(help: &str) -> Vec<String> {
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn no_line_of_help_is_wider_than_80_columns() {
    let home = Home::new();
    let help = home.run(&["--help"]).good();
    let commands = commands(&help);
    let wanted = "run pull list show rm cp inspect bench quantize perplexity imatrix tokenize detokenize template devices doctor completions help";
    for command in wanted.split(' ') {
        assert!(commands.iter().any(|c| c == command), "{command} is missing from {help}");
    }
    let mut calls = vec![vec!["--help".to_owned()], vec!["-h".to_owned()]];
    for command in commands.iter().filter(|c| *c != "help") {
        calls.extend(["-h", "--help"].map(|flag| vec![command.clone(), flag.to_owned()]));
        calls.push(vec!["help".to_owned(), command.clone()]);
    }
    for call in calls {
        let words: Vec<&str> = call.iter().map(String::as_str).collect();
        let text = home.run(&words).good();
        assert!(text.contains("Usage: hanzo"), "{call:?}: {text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{call:?}: {line:?} is wider than 80 columns");
        }
        // An example that was broken has a second line that begins with neither the program nor a pipe into it.
        let examples =
            text.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| !line.is_empty());
        for line in examples {
            assert!(
                line.starts_with("  ") && line.contains("hanzo "),
                "{call:?}: a broken example: {line:?}"
            );
        }
    }
}

#[test]
fn every_command_says_what_it_does_in_one_line() {
    let help = Home::new().run(&["--help"]).good();
    let listed: Vec<&str> = help.lines().skip_while(|line| *line != "Commands:").skip(1).collect();
    for line in listed.iter().take_while(|line| !line.is_empty()) {
        assert!(line.starts_with("  ") && !line.starts_with("   "), "{line:?} goes on from the line before");
        assert!(line.split_whitespace().count() > 2, "{line:?} says nothing");
        assert!(!line.ends_with('.'), "{line:?}");
    }
}

#[test]
fn every_command_ends_with_examples_of_itself() {
    let home = Home::new();
    for command in commands(&home.run(&["--help"]).good()).iter().filter(|command| *command != "help") {
        let text = home.run(&[command, "--help"]).good();
        let (before, examples) =
            text.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{command}: {text}"));
        assert!(examples.contains(&format!("hanzo {command}")), "{command}: {examples}");
        assert!(!examples.contains("\nOptions:\n") && before.contains("\nOptions:\n"), "{command}: {text}");
    }
}

#[test]
fn every_option_says_what_it_sets() {
    let home = Home::new();
    let mut n_options = 0;
    for command in commands(&home.run(&["--help"]).good()).iter().filter(|command| *command != "help") {
        let text = home.run(&[command, "--help"]).good();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let option = line.trim_start();
            if !(line.starts_with("  -") || line.starts_with("      --")) {
                continue;
            }
            n_options += 1;
            // What it sets stands two spaces behind the option, or in the next line.
            let beside = option.split_once("  ").map(|(_, rest)| rest.trim());
            let said = beside.or_else(|| lines.peek().map(|next| next.trim())).unwrap_or_default();
            assert!(
                said.split_whitespace().count() > 1 || said == "Threads",
                "{command}: {line:?}: {said:?}"
            );
            assert!(said.starts_with(char::is_uppercase), "{command}: {line:?}: {said:?}");
        }
    }
    assert!(n_options > 100, "{n_options}");
}
