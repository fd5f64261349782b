//! Stop texts: ends an answer before the first of them that is complete, although the text comes in pieces.
//!
//! What could be the beginning of a stop text is held back until it is decided. Invariant: however the text is cut into
//! pieces, the same of it comes out, and none of the stop text that ended it.

/// Stop texts of a request.
pub(super) const N_STOPS_MAX: usize = 64;
/// Bytes of a stop text.
pub(super) const STOP_BYTES_MAX: usize = 1024;

/// Watches a text for stop texts.
#[derive(Debug)]
pub(super) struct StopWatch {
    stops: Vec<String>,
    held: String,
}

impl StopWatch {
    /// Watches for texts, none of them empty.
    pub fn new(stops: Vec<String>) -> Self {
        debug_assert!(stops.iter().all(|stop| !stop.is_empty()), "the request was checked");
        Self { stops, held: String::new() }
    }

    /// Takes a piece; gives what is certain to come before any stop text, and whether one was reached, after which nothing
    /// more is held.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        // The first to be complete ends the text, whatever began before it; so it would if the text came byte by byte.
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at)));
        if let Some((_, start)) = found.min() {
            self.held.truncate(start);
            return (std::mem::take(&mut self.held), true);
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let first = self.held.len().saturating_sub(longest.saturating_sub(1));
        let undecided = |start: &usize| {
            let tail = &self.held.as_bytes()[*start..];
            self.stops.iter().any(|stop| stop.as_bytes().starts_with(tail))
        };
        // A stop text begins with a character, so such a tail does too.
        let start = (first..self.held.len()).find(undecided).unwrap_or(self.held.len());
        let tail = self.held.split_off(start);
        (std::mem::replace(&mut self.held, tail), false)
    }

    /// The end of the text: what is still held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    fn all(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut watch = StopWatch::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let mut text = String::new();
        for piece in pieces {
            let (more, stopped) = watch.push(piece);
            text.push_str(&more);
            if stopped {
                return (text, true);
            }
        }
        text.push_str(&watch.finish());
        (text, false)
    }

    /// Any way to cut a text gives what a search in the whole text gives.
    #[test]
    fn cuts_do_not_matter() {
        let alphabet = ["a", "b", "é", "ab", "\u{1f600}"];
        let mut rng = Rng::new(4);
        let mut n_stopped = 0;
        for _ in 0..5000 {
            let mut word =
                |max: usize| -> String { (0..1 + rng.below(max)).map(|_| alphabet[rng.below(5)]).collect() };
            let text = word(12);
            let stops: Vec<String> = (0..3).map(|_| word(3)).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let ends = stops.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at)));
            let end = ends.min().map(|(_, start)| start);
            let expected = (text[..end.unwrap_or(text.len())].to_owned(), end.is_some());
            let mut pieces = vec![];
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let cuts: Vec<usize> = (0..=rest.len()).filter(|&i| rest.is_char_boundary(i)).collect();
                let (piece, tail) = rest.split_at(cuts[rng.below(cuts.len())]);
                pieces.push(piece);
                rest = tail;
            }
            n_stopped += usize::from(expected.1);
            assert_eq!(all(&stops, &pieces), expected, "{text:?} {stops:?} {pieces:?}");
        }
        assert!((1000..4900).contains(&n_stopped), "{n_stopped} texts stopped");
    }

    #[test]
    fn only_what_is_undecided_is_held() {
        let mut watch = StopWatch::new(vec!["###".to_owned(), "\nUser:".to_owned()]);
        assert_eq!(watch.push("one #"), ("one ".to_owned(), false));
        assert_eq!(watch.push("two"), ("#two".to_owned(), false));
        assert_eq!(watch.push(" ##\nUse"), (" ##".to_owned(), false));
        assert_eq!(watch.push("d"), ("\nUsed".to_owned(), false));
        assert_eq!(watch.push("##"), (String::new(), false));
        assert_eq!(watch.push("#x"), (String::new(), true));
        assert_eq!(watch.finish(), "");
    }

    #[test]
    fn without_stop_texts_nothing_is_held() {
        assert_eq!(all(&[], &["a", "", "b"]), ("ab".to_owned(), false));
    }
}
