//! Saved predictions of a model, to compare another with: the file that llama.cpp's perplexity tool writes with
//! `--kl-divergence-base` (`tools/perplexity/perplexity.cpp`), little-endian:
//!
//! * `_logits_`, then the window's size, the vocabulary's and the number of windows, 32 bits each;
//! * the tokens of all windows, 32 bits each;
//! * for each scored row (those from the middle of a window to its last but one): scale and minimum, f32, and for each token
//!   of the vocabulary 16 bits q, where `ln p = scale · q + minimum`; one more value where the vocabulary is odd.
//!
//! What is less likely than the most likely token by `exp(16)` or more is written as the minimum. Files are hostile: their
//! length must be what their header says before anything is read by it.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
};

use hanzo_ml::{
    file::AtomicFile,
    parallel::{Grid, Parallel},
};

use super::{Scored, Windows, likelihood::log_sum_exp};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"_logits_";
/// Magic and three numbers.
const HEADER_BYTES: u64 = 20;
/// What a row can say below its most likely token, in nats.
const RANGE: f32 = 16.0;
/// The values of a row before those of the vocabulary: scale and minimum, two each.
const ROW_HEAD: usize = 4;

/// 16-bit values of a row.
fn row_len(vocab_size: usize) -> usize {
    vocab_size.next_multiple_of(2) + ROW_HEAD
}

/// Writes such a file. It appears whole, by [`Self::finish`], or not at all.
pub struct BaseWriter {
    file: AtomicFile,
    vocab_size: usize,
}

impl BaseWriter {
    /// Begins a file of all predictions of these windows, which lie side by side.
    ///
    /// # Errors
    /// If the file cannot be created, or its numbers do not fit 31 bits.
    pub fn create(path: &Path, windows: &Windows, vocab_size: usize) -> Result<Self> {
        let mut file = AtomicFile::create(path)?;
        file.write(MAGIC)?;
        for n in [windows.size(), vocab_size, windows.len()] {
            let n =
                i32::try_from(n).map_err(|_| Error::request(format!("{n} is too large for saved logits")))?;
            file.write(&n.to_le_bytes())?;
        }
        let tokens: Vec<u8> = windows.tokens().iter().flat_map(|id| id.to_le_bytes()).collect();
        file.write(&tokens)?;
        Ok(Self { file, vocab_size })
    }

    /// Writes the predictions of a part of a window; parts come in their order.
    ///
    /// # Errors
    /// If a logit is not a finite number, or the file cannot be written.
    pub fn write(&mut self, parallel: &Parallel, scored: &Scored<'_>) -> Result<()> {
        let len = row_len(self.vocab_size);
        let mut rows = vec![0u16; scored.next.len() * len];
        let grid = Grid { rows: scored.next.len(), cols: len, tile_rows: 1, tile_cols: len };
        parallel.for_each_tile(
            &mut rows,
            grid,
            || (),
            |mut tile, ()| {
                for i in tile.rows() {
                    encode(&scored.logits[i * self.vocab_size..(i + 1) * self.vocab_size], tile.row(i));
                }
            },
        );
        if rows.chunks_exact(len).any(|row| row[..2] == NOT_FINITE) {
            return Err(super::not_finite(scored.window));
        }
        let bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
        Ok(self.file.write(&bytes)?)
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> Result<()> {
        Ok(self.file.commit()?)
    }
}

/// The scale of a row whose logits are not finite: a number that no other row has.
const NOT_FINITE: [u16; 2] = [0xffff, 0xffff];

/// Writes a row of logits.
fn encode(logits: &[f32], row: &mut [u16]) {
    let Some(norm) = log_sum_exp(logits) else { return row[..2].copy_from_slice(&NOT_FINITE) };
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min).max(max - RANGE);
    let scale = (max - min) / 65535.0;
    let bits = |x: f32| [(x.to_bits() & 0xffff) as u16, (x.to_bits() >> 16) as u16];
    let (head, values) = row.split_at_mut(ROW_HEAD);
    head[..2].copy_from_slice(&bits(scale));
    head[2..].copy_from_slice(&bits((f64::from(min) - norm) as f32));
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    for (value, &logit) in values.iter_mut().zip(logits) {
        // A cast to a narrower integer saturates.
        *value = ((logit - min) * inverse).round_ties_even() as u16;
    }
}

/// Reads such a file.
pub struct BaseReader {
    path: PathBuf,
    file: BufReader<File>,
    windows: Windows,
    vocab_size: usize,
    rows_left: usize,
}

/// What the other model said at one place, of a file that was read.
#[derive(Clone, Copy, Debug)]
pub struct BaseRow<'a> {
    scale: f32,
    minimum: f32,
    quants: &'a [u16],
}

impl BaseRow<'_> {
    /// `ln p` of every token.
    pub fn log_probs(&self) -> impl Iterator<Item = f32> {
        self.quants.iter().map(|&q| self.scale * f32::from(q) + self.minimum)
    }
}

impl BaseReader {
    /// Opens a file of predictions over a vocabulary of `vocab_size`; `bos` is as in [`Windows::side_by_side`].
    ///
    /// # Errors
    /// If the file cannot be read, is no such file, is not as long as it says, or is of another vocabulary.
    pub fn open(path: &Path, vocab_size: usize, bos: Option<u32>) -> Result<Self> {
        let io = |e: std::io::Error| fault(path, e.to_string());
        let file = File::open(path).map_err(io)?;
        let n_bytes = file.metadata().map_err(io)?.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut head = [0; HEADER_BYTES as usize];
        let short = |_| fault(path, "is no file of saved logits");
        file.read_exact(&mut head).map_err(short)?;
        let (magic, numbers) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(fault(path, "is no file of saved logits"));
        }
        let number = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| numbers[4 * i + b])) as usize;
        let (size, vocab, n_windows) = (number(0), number(1), number(2));
        if vocab != vocab_size {
            return Err(fault(path, format!("is of a vocabulary of {vocab}, the model has {vocab_size}")));
        }
        let n_tokens = size.checked_mul(n_windows);
        let n_rows = size.checked_sub(1 + size / 2).and_then(|n| n.checked_mul(n_windows));
        let row_bytes = row_len(vocab) * 2;
        let wanted = n_tokens
            .and_then(|n| n.checked_mul(4))
            .zip(n_rows.and_then(|n| n.checked_mul(row_bytes)))
            .and_then(|(tokens, rows)| tokens.checked_add(rows)?.checked_add(head.len()));
        let (Some(n_tokens), Some(n_rows)) = (n_tokens.filter(|&n| n > 0), n_rows.filter(|&n| n > 0)) else {
            return Err(fault(path, format!("says that it has {n_windows} windows of {size} tokens")));
        };
        if wanted.map(|n| n as u64) != Some(n_bytes) {
            let what = format!("has {n_bytes} bytes, which {n_windows} windows of {size} tokens do not take");
            return Err(fault(path, what));
        }
        let mut bytes = vec![0; n_tokens * 4];
        file.read_exact(&mut bytes).map_err(io)?;
        let tokens: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(fault(path, format!("has token {id} of {vocab_size}")));
        }
        let windows = Windows::new(tokens, size, size, size / 2..size - 1, n_windows, bos)?;
        Ok(Self { path: path.into(), file, windows, vocab_size, rows_left: n_rows })
    }

    /// The windows that the predictions are of.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The next `n` rows, for [`Self::row`].
    ///
    /// # Errors
    /// If there are fewer, the file cannot be read, or a row's scale or minimum is none.
    pub fn read(&mut self, n: usize) -> Result<Vec<u16>> {
        self.rows_left =
            self.rows_left.checked_sub(n).ok_or_else(|| fault(&self.path, "has no more predictions"))?;
        let mut bytes = vec![0; n * row_len(self.vocab_size) * 2];
        self.file.read_exact(&mut bytes).map_err(|e| fault(&self.path, e.to_string()))?;
        let rows: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        for i in 0..n {
            let BaseRow { scale, minimum, .. } = Self::row(&rows, i, self.vocab_size);
            let largest = scale * f32::from(u16::MAX) + minimum;
            // A probability is at most 1; roundings may make it a little more.
            if !(scale >= 0.0 && minimum.is_finite() && largest < 0.1) {
                return Err(fault(&self.path, format!("has a row of scale {scale} and minimum {minimum}")));
            }
        }
        Ok(rows)
    }

    /// Row `i` of rows that [`Self::read`] gave.
    pub fn row(rows: &[u16], i: usize, vocab_size: usize) -> BaseRow<'_> {
        let len = row_len(vocab_size);
        let row = &rows[i * len..(i + 1) * len];
        let number = |at: usize| f32::from_bits(u32::from(row[at]) | u32::from(row[at + 1]) << 16);
        BaseRow { scale: number(0), minimum: number(2), quants: &row[ROW_HEAD..ROW_HEAD + vocab_size] }
    }
}

fn fault(path: &Path, what: impl Into<String>) -> Error {
    Error::model(path.display(), what)
}
