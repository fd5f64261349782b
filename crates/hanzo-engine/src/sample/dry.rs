//! DRY, "don't repeat yourself" (by p-e-w, <https://github.com/oobabooga/text-generation-webui/pull/5677>): a token that would
//! extend a repetition of at least `allowed_length` tokens loses `multiplier · base^(length − allowed_length)`.
//!
//! A repetition is a run that ends the text and stands earlier in it too. It does not reach across a sequence breaker. Breakers
//! are looked for in the text of the window itself, so it does not matter how they are cut into tokens: a run may begin after
//! the token in which a breaker ends. A token that holds a breaker is never penalised.

use std::collections::HashMap;

use super::{Context, SamplerKind, SamplingParams, TokenBytes, candidates::Candidates, last_n};

pub(super) static DRY: SamplerKind =
    SamplerKind { name: "dry", aliases: &[], changes_logits: true, is_on, apply };

/// Exponents are cut where `base^exponent` would leave the range of f32: the logarithm of its largest number.
const LN_MAX: f64 = 88.722_839_1;

/// Whether there is anything to do.
pub(super) fn is_on(params: &SamplingParams) -> bool {
    params.dry_multiplier > 0.0 && params.dry_penalty_last_n > 0
}

fn apply(candidates: &mut Candidates, context: &Context<'_>) {
    let params = context.params;
    let window = last_n(context.history, params.dry_penalty_last_n);
    let breakers: Vec<&[u8]> =
        params.dry_sequence_breakers.iter().map(|b| b.as_bytes()).filter(|b| !b.is_empty()).collect();
    let length_max = window.len() - after_last_breaker(window, &breakers, context.token_bytes);
    let lengths = repetitions(window, length_max, params.dry_allowed_length);
    if lengths.is_empty() {
        return;
    }
    let ln_base = f64::from(params.dry_base).ln();
    let exponent_max = if ln_base > 1e-6 { (LN_MAX / ln_base).floor() } else { f64::INFINITY };
    candidates.edit_some(lengths.keys().copied(), |candidate| {
        let length = lengths[&candidate.id];
        if holds_any(&(context.token_bytes)(candidate.id), &breakers) {
            return candidate.logit;
        }
        let exponent = ((length - params.dry_allowed_length) as f64).min(exponent_max);
        candidate.logit - (f64::from(params.dry_multiplier) * (ln_base * exponent).exp()) as f32
    });
}

/// Index of the first token after the one in which the last breaker ends.
fn after_last_breaker(window: &[u32], breakers: &[&[u8]], token_bytes: &TokenBytes) -> usize {
    let longest = breakers.iter().map(|b| b.len()).max().unwrap_or(0);
    if longest == 0 {
        return 0;
    }
    // Goes back token by token. `text` is what follows, no more of it than a breaker that begins in the token can reach.
    let mut text: Vec<u8> = Vec::new();
    let mut lengths: Vec<usize> = Vec::new();
    for (idx, &id) in window.iter().enumerate().rev() {
        let piece = token_bytes(id);
        let tail = text.len().min(longest - 1);
        let mut next = piece.clone();
        next.extend_from_slice(&text[..tail]);
        text = next;
        lengths.push(piece.len());
        // The end of the last breaker that begins in this token.
        let ends = breakers.iter().flat_map(|b| {
            let starts = 0..piece.len().min((text.len() + 1).saturating_sub(b.len()));
            starts.filter(|&s| text[s..].starts_with(b)).map(|s| s + b.len())
        });
        if let Some(end) = ends.max() {
            // The token that holds the byte before `end`.
            let mut reached = 0;
            let within = lengths.iter().rev().take_while(|&&n| {
                reached += n;
                reached < end
            });
            return idx + within.count() + 1;
        }
    }
    0
}

fn holds_any(text: &[u8], breakers: &[&[u8]]) -> bool {
    breakers.iter().any(|b| text.windows(b.len()).any(|w| w == *b))
}

/// For each token that would extend a repetition, the length of the longest one, `length_max` at most.
fn repetitions(window: &[u32], length_max: usize, length_min: usize) -> HashMap<u32, usize> {
    let mut lengths: HashMap<u32, usize> = HashMap::new();
    if length_max < length_min {
        return lengths;
    }
    let backwards: Vec<u32> = window.iter().rev().copied().collect();
    for (distance, &common) in common_prefixes(&backwards).iter().enumerate().skip(1) {
        let length = common.min(length_max);
        if length >= length_min {
            let longest = lengths.entry(backwards[distance - 1]).or_default();
            *longest = length.max(*longest);
        }
    }
    lengths
}

/// For each position, how many items from there equal those from the beginning (the Z function; linear time).
fn common_prefixes(items: &[u32]) -> Vec<usize> {
    let n = items.len();
    let mut common = vec![0; n];
    // The match that reaches furthest: items[begin..end] equal items[..end - begin].
    let (mut begin, mut end) = (0, 0);
    for i in 1..n {
        let mut length = if i < end { common[i - begin].min(end - i) } else { 0 };
        while i + length < n && items[length] == items[i + length] {
            length += 1;
        }
        if i + length > end {
            (begin, end) = (i, i + length);
        }
        common[i] = length;
    }
    common
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::Rng;

    #[test]
    fn common_prefixes_by_definition() {
        let mut rng = Rng::new(3);
        for n in 0..60 {
            for _ in 0..20 {
                let items: Vec<u32> = (0..n).map(|_| rng.below(2) as u32).collect();
                let fast = common_prefixes(&items);
                for i in 1..n {
                    let slow = items[i..].iter().zip(&items).take_while(|(a, b)| a == b).count();
                    assert_eq!(fast[i], slow, "{items:?} at {i}");
                }
            }
        }
    }

    /// Every breaker is found wherever it is cut, against a search in the whole text.
    #[test]
    fn breakers_are_found_across_tokens() {
        const PIECES: [&str; 7] = ["a", "b", "ab", "\n", "a\nb", "", "ba"];
        let token_bytes: TokenBytes = Arc::new(|id| PIECES[id as usize].as_bytes().to_vec());
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let window: Vec<u32> = (0..rng.below(8)).map(|_| rng.below(PIECES.len()) as u32).collect();
            let breaker = ["\n", "ab", "aba", "bb\n", "aab"][rng.below(5)];
            let text: String = window.iter().map(|&id| PIECES[id as usize]).collect();
            let mut expected = 0;
            if let Some(start) = text.as_bytes().windows(breaker.len()).rposition(|w| w == breaker.as_bytes())
            {
                let mut reached = 0;
                expected = 1 + window
                    .iter()
                    .take_while(|&&id| {
                        reached += PIECES[id as usize].len();
                        reached < start + breaker.len()
                    })
                    .count();
            }
            let found = after_last_breaker(&window, &[breaker.as_bytes()], &token_bytes);
            assert_eq!(found, expected, "{window:?} {breaker:?}");
        }
    }
}
