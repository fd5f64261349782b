//! Reasoning between `<think>` and `</think>`, dimmed on a terminal that shows colours.
//!
//! The tags stay in the text; only codes of ECMA-48 are added. Invariant: any split of the text into pieces gives the same
//! output, because a piece that may be the begin of a tag is held back.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Dims what a model reasons, piece by piece.
pub(super) struct Dimmer {
    colours: bool,
    inside: bool,
    /// Whether the code for dim text is still to be written.
    owes_dim: bool,
    held: String,
}

impl Dimmer {
    /// For one answer; some templates end in the opening tag, so that the answer begins inside.
    pub(super) fn new(colours: bool, prompt: &str) -> Self {
        let inside = prompt.trim_end().ends_with(OPEN);
        Self { colours, inside, owes_dim: inside, held: String::new() }
    }

    /// What to show of the next piece.
    pub(super) fn take(&mut self, piece: &str) -> String {
        if !self.colours {
            return piece.to_owned();
        }
        let mut shown = String::new();
        if std::mem::take(&mut self.owes_dim) {
            shown.push_str(DIM);
        }
        self.held.push_str(piece);
        loop {
            let tag = if self.inside { CLOSE } else { OPEN };
            let Some(at) = self.held.find(tag) else {
                let whole = self.held.len() - begun(&self.held, tag);
                shown.extend(self.held.drain(..whole));
                return shown;
            };
            shown.push_str(&self.held[..at]);
            if self.inside {
                shown.push_str(tag);
                shown.push_str(RESET);
            } else {
                shown.push_str(DIM);
                shown.push_str(tag);
            }
            self.held.drain(..at + tag.len());
            self.inside = !self.inside;
        }
    }

    /// What was held back, and the end of dim text.
    pub(super) fn finish(mut self) -> String {
        let mut shown = std::mem::take(&mut self.held);
        if self.colours && self.inside && !self.owes_dim {
            shown.push_str(RESET);
        }
        shown
    }
}

/// Bytes at the end of the text that may be the begin of the tag.
fn begun(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|&n| text.ends_with(&tag[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&str], colours: bool, prompt: &str) -> String {
        let mut dimmer = Dimmer::new(colours, prompt);
        let mut text: String = pieces.iter().map(|piece| dimmer.take(piece)).collect();
        text.push_str(&dimmer.finish());
        text
    }

    /// Texts, prompts before them, and what they look like.
    const CASES: &[(&str, &str, &str)] = &[
        ("<think>hm é</think>Yes.", "", "\x1b[2m<think>hm é</think>\x1b[0mYes."),
        ("a < b, <thin, </think> <<think>x", "", "a < b, <thin, </think> <\x1b[2m<think>x\x1b[0m"),
        ("hm</think>Yes</thi", "<assistant><think>\n", "\x1b[2mhm</think>\x1b[0mYes</thi"),
        (
            "<think>a</thi</think>b<think>c</think>",
            "",
            "\x1b[2m<think>a</thi</think>\x1b[0mb\x1b[2m<think>c</think>\x1b[0m",
        ),
        ("<think><think></think", "", "\x1b[2m<think><think></think\x1b[0m"),
        ("", "", ""),
        ("", "<think>", ""),
        ("plain 😀", "", "plain 😀"),
    ];

    #[test]
    fn any_split_gives_the_same() {
        for &(text, prompt, wanted) in CASES {
            assert_eq!(shown(&[text], true, prompt).trim_start_matches("\x1b[2m\x1b[0m"), wanted);
            let cuts: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
            let chars: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            assert_eq!(shown(&chars, true, prompt), wanted);
            for &a in &cuts {
                for &b in cuts.iter().filter(|&&b| b >= a) {
                    let pieces = [&text[..a], &text[a..b], &text[b..]];
                    assert_eq!(shown(&pieces, true, prompt).trim_start_matches("\x1b[2m\x1b[0m"), wanted);
                }
            }
        }
    }

    #[test]
    fn nothing_is_held_back_that_is_no_tag() {
        let mut dimmer = Dimmer::new(true, "");
        assert_eq!(dimmer.take("a <"), "a ");
        assert_eq!(dimmer.take("b"), "<b");
    }

    #[test]
    fn text_stays_as_it_is_without_colours() {
        for &(text, prompt, _) in CASES {
            assert_eq!(shown(&[text], false, prompt), text);
        }
    }
}
