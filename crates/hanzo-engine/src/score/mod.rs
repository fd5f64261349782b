//! How well a model predicts a text: windows of it, the likelihood of each next token, and how two models' predictions
//! differ.
//!
//! The definition is that of llama.cpp's perplexity tool: a text is cut into windows; the first token of each becomes the
//! beginning-of-sequence token where the vocabulary asks for one; the predictions of a window's second half are scored, so
//! that each has some context. A window is read by the decoder's public step, several at once where they are short.

mod base;
mod divergence;
mod likelihood;

pub use base::{BaseReader, BaseRow, BaseWriter};
pub use divergence::{Divergence, DivergenceSummary, Percentile};
pub use likelihood::{Estimate, Mean, surprises};

use std::ops::Range;

use hanzo_ml::parallel::{Grid, Parallel};

use crate::{
    Error, Result,
    cache::SequenceId,
    decoder::{Chunk, Decoder, Observer, Rows},
    text::{EncodeOptions, Tokenizer},
};

/// The logits that a step may hold, in bytes.
const LOGIT_BYTES_MAX: usize = 256 << 20;

/// A text in windows, and which predictions of each are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    tokens: Vec<u32>,
    size: usize,
    stride: usize,
    scored: Range<usize>,
    n_windows: usize,
    bos: Option<u32>,
}

impl Windows {
    /// Windows of `size` tokens side by side, of which the second half is scored; at most `n_max` of them. `bos` takes the
    /// place of each window's first token.
    ///
    /// # Errors
    /// If a window has fewer than 4 tokens, or there are not 2 windows: one half is context alone.
    pub fn side_by_side(
        tokens: Vec<u32>,
        size: usize,
        n_max: Option<usize>,
        bos: Option<u32>,
    ) -> Result<Self> {
        let n_tokens = tokens.len();
        if size < 4 {
            return Err(Error::request(format!("a window of {size} tokens is too short; 4 are needed")));
        }
        if n_tokens / 2 < size {
            return Err(Error::request(format!(
                "the text has {n_tokens} tokens; two windows of {size} are needed"
            )));
        }
        let n_windows = (n_tokens / size).min(n_max.unwrap_or(usize::MAX));
        Self::new(tokens, size, size, size / 2..size - 1, n_windows, bos)
    }

    /// Windows of `size` tokens that begin `stride` tokens apart, of which the last `stride` predictions are scored.
    ///
    /// # Errors
    /// As [`Self::side_by_side`]; also if the stride is 0 or not less than the window.
    pub fn strided(
        tokens: Vec<u32>,
        size: usize,
        stride: usize,
        n_max: Option<usize>,
        bos: Option<u32>,
    ) -> Result<Self> {
        if stride == 0 || stride >= size {
            return Err(Error::request(format!("stride {stride} is not within 1 and {}", size.max(2) - 1)));
        }
        let whole = Self::side_by_side(tokens, size, None, bos)?;
        let n_windows = (whole.tokens.len() - size).div_ceil(stride).min(n_max.unwrap_or(usize::MAX));
        Self::new(whole.tokens, size, stride, size - stride - 1..size - 1, n_windows, bos)
    }

    fn new(
        tokens: Vec<u32>,
        size: usize,
        stride: usize,
        scored: Range<usize>,
        n_windows: usize,
        bos: Option<u32>,
    ) -> Result<Self> {
        if n_windows == 0 {
            return Err(Error::request("no window of the text is asked for"));
        }
        Ok(Self { tokens, size, stride, scored, n_windows, bos })
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.n_windows
    }

    /// Never: there is a window.
    pub fn is_empty(&self) -> bool {
        self.n_windows == 0
    }

    /// Tokens of a window.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Predictions scored in each window.
    pub fn n_scored(&self) -> usize {
        self.scored.len()
    }

    /// The tokens of all windows, where they lie side by side.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens[..self.tokens.len().min(self.n_windows * self.size)]
    }

    /// A window's tokens as they stand in the text.
    fn text(&self, window: usize) -> &[u32] {
        &self.tokens[window * self.stride..][..self.size]
    }

    /// A window's tokens as the model reads them.
    fn read(&self, window: usize) -> Vec<u32> {
        let mut tokens = self.text(window).to_vec();
        if let Some(bos) = self.bos {
            tokens[0] = bos;
        }
        tokens
    }
}

/// A text's tokens for [`Windows`], and what stands at the beginning of each window.
///
/// # Errors
/// If the vocabulary cannot express the text, or puts a token behind each text: then the windows of a text are no texts.
pub fn tokenize(tokenizer: &Tokenizer, text: &str) -> Result<(Vec<u32>, Option<u32>)> {
    if !tokenizer.suffix().is_empty() {
        return Err(Error::request(
            "the vocabulary ends every text with a token: windows of a text have no end",
        ));
    }
    let tokens = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: false })?;
    Ok((tokens, tokenizer.prefix().first().copied()))
}

/// Predictions of one window, as they come: all of a window before those of the next.
#[derive(Debug)]
pub struct Scored<'a> {
    /// The window.
    pub window: usize,
    /// Whether these are the window's last.
    pub ends_window: bool,
    /// The token that follows each row.
    pub next: &'a [u32],
    /// `[next, V]`.
    pub logits: &'a [f32],
}

/// Reads windows with a decoder.
pub struct Scorer {
    decoder: Decoder,
    parallel: Parallel,
}

impl Scorer {
    /// A scorer; the decoder's context must hold a window, and its sequences say how many are read at once.
    ///
    /// # Errors
    /// If the threads cannot be had.
    pub fn new(decoder: Decoder, threads: Option<usize>) -> Result<Self> {
        Ok(Self { decoder, parallel: Parallel::new(threads)? })
    }

    /// The decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// How many windows of `size` tokens a step of `max_rows` rows should read at once.
    pub fn n_together(size: usize, max_rows: usize, vocab_size: usize) -> usize {
        let half = size.div_ceil(2).max(1);
        (max_rows.min(logit_rows(vocab_size)) / half).max(1)
    }

    /// Gives the predictions of every window to `each`, which may end the reading by an error of its own.
    ///
    /// # Errors
    /// If a step fails, or `each` does.
    pub fn score<E: From<Error>>(
        &mut self,
        windows: &Windows,
        mut each: impl FnMut(&Parallel, Scored<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let vocab = self.decoder.spec().vocab_size;
        let max_rows = self.decoder.options().max_rows;
        // Where several are read at once, the scored rows of all are one step: windows stay in their order.
        let fitting = max_rows.min(logit_rows(vocab)) / windows.n_scored();
        let together = self.decoder.options().n_sequences.min(fitting).max(1);
        let group = |first: usize| first..(first + together).min(windows.len());
        for group in (0..windows.len()).step_by(together).map(group) {
            let texts: Vec<Vec<u32>> = group.clone().map(|window| windows.read(window)).collect();
            let sequences: Vec<SequenceId> = texts.iter().map(|_| self.decoder.begin()).collect();
            let rows = max_rows / texts.len();
            for part in parts(0..windows.scored.start, rows) {
                self.step(&sequences, &texts, part, Rows::None).map_err(E::from)?;
            }
            for part in parts(windows.scored.clone(), rows.min(logit_rows(vocab) / texts.len())) {
                let ends_window = part.end == windows.scored.end;
                let next = part.start + 1..part.end + 1;
                let n_logits = part.len() * vocab;
                let logits = self.step(&sequences, &texts, part, Rows::All).map_err(E::from)?;
                for (window, logits) in group.clone().zip(logits.chunks_exact(n_logits)) {
                    let next = &windows.text(window)[next.clone()];
                    each(&self.parallel, Scored { window, ends_window, next, logits })?;
                }
            }
            sequences.into_iter().for_each(|sequence| self.decoder.end(sequence));
        }
        Ok(())
    }

    fn step(
        &mut self,
        sequences: &[SequenceId],
        texts: &[Vec<u32>],
        part: Range<usize>,
        logits: Rows,
    ) -> Result<Vec<f32>> {
        let chunk = |(&sequence, text): (&SequenceId, &Vec<u32>)| Chunk {
            logits,
            ..Chunk::tokens(sequence, &text[part.clone()])
        };
        let chunks: Vec<Chunk> = sequences.iter().zip(texts).map(chunk).collect();
        Ok(self.decoder.forward(&chunks)?.logits)
    }
}

/// Reads windows with an observer of every product, whole; `each` hears of every window that was read. Logits are
/// computed, for an observer of the output matrix, where `with_output` is set.
///
/// # Errors
/// If a step fails, or `each` does.
pub fn observe<E: From<Error>, O: Observer>(
    decoder: &mut Decoder,
    windows: &Windows,
    with_output: bool,
    observer: &mut O,
    mut each: impl FnMut(&O, usize) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let vocab = decoder.spec().vocab_size;
    let max_rows = decoder.options().max_rows;
    let (rows, logits) =
        if with_output { (max_rows.min(logit_rows(vocab)), Rows::All) } else { (max_rows, Rows::None) };
    for window in 0..windows.len() {
        let text = windows.read(window);
        let sequence = decoder.begin();
        for part in parts(0..text.len(), rows) {
            let chunk = Chunk { logits, ..Chunk::tokens(sequence, &text[part]) };
            decoder.forward_observed(&[chunk], observer).map_err(E::from)?;
        }
        decoder.end(sequence);
        each(observer, window)?;
    }
    Ok(())
}

/// Rows of a step whose logits a reading wants, at most.
pub fn n_logit_rows(max_rows: usize, vocab_size: usize) -> usize {
    max_rows.min(logit_rows(vocab_size))
}

/// Rows whose logits a step may hold.
fn logit_rows(vocab_size: usize) -> usize {
    (LOGIT_BYTES_MAX / 4 / vocab_size.max(1)).max(1)
}

/// A range in parts of at most `n`, and at least 1.
fn parts(range: Range<usize>, n: usize) -> impl Iterator<Item = Range<usize>> {
    let n = n.max(1);
    range.clone().step_by(n).map(move |start| start..(start + n).min(range.end))
}

/// Computes something of every row, on all threads.
///
/// # Errors
/// If a row's logits are not finite.
fn per_row<T: Send + Default + Clone>(
    parallel: &Parallel,
    scored: &Scored<'_>,
    compute: impl Fn(usize, &[f32], u32) -> Option<T> + Sync,
) -> Result<Vec<T>> {
    let vocab = scored.logits.len() / scored.next.len().max(1);
    let mut results: Vec<Option<T>> = vec![None; scored.next.len()];
    let grid = Grid::line(scored.next.len(), 1);
    parallel.for_each_tile(
        &mut results,
        grid,
        || (),
        |mut tile, ()| {
            let first = tile.cols().start;
            for (i, result) in (first..).zip(tile.row(0)) {
                *result = compute(i, &scored.logits[i * vocab..(i + 1) * vocab], scored.next[i]);
            }
        },
    );
    results.into_iter().collect::<Option<Vec<T>>>().ok_or_else(|| not_finite(scored.window))
}

fn not_finite(window: usize) -> Error {
    Error::engine(format!("window {}: a logit is not a finite number", window + 1))
}

#[cfg(test)]
mod tests;
