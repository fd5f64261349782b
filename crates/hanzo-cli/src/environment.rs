//! The only place that reads the environment: variables, and what the standard streams are.
//!
//! Nothing here chooses how a result is computed; it chooses places and looks.

use std::io::{self, IsTerminal};

/// What the program knows of its surroundings, read once.
pub(crate) struct Environment {
    /// Whether to write colours to standard output: a terminal, and `NO_COLOR` (<https://no-color.org>) is not set.
    pub(crate) colours: bool,
    /// Whether a person types to standard input.
    pub(crate) typed_input: bool,
    /// Whether a person sees standard output.
    pub(crate) shown_output: bool,
    /// Whether standard error is a terminal, where bars can move.
    pub(crate) bars: bool,
    /// Where models are kept and fetched from.
    pub(crate) hub: hanzo_hub::Environment,
}

impl Environment {
    /// Reads the variables and looks at the standard streams.
    pub(crate) fn read() -> Self {
        Self {
            colours: colours(io::stdout().is_terminal(), variable("NO_COLOR"), variable("TERM")),
            typed_input: io::stdin().is_terminal(),
            shown_output: io::stdout().is_terminal(),
            bars: io::stderr().is_terminal(),
            hub: hanzo_hub::Environment::read(hanzo_hub::Os::current(), variable),
        }
    }
}

/// A variable's value; one that is not Unicode counts as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn colours(terminal: bool, no_color: Option<String>, term: Option<String>) -> bool {
    // An empty NO_COLOR counts as unset, as its convention says.
    terminal && no_color.is_none_or(|v| v.is_empty()) && term.is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_that_wants_them() {
        let some = |s: &str| Some(s.to_owned());
        assert!(colours(true, None, None));
        assert!(colours(true, some(""), some("xterm")));
        assert!(!colours(false, None, None));
        assert!(!colours(true, some("0"), None));
        assert!(!colours(true, None, some("dumb")));
    }
}
