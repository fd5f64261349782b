//! A ragged batch: rows of several sequences in one step, and the plan that tells the device where each row is.

use std::ops::Range;

use hanzo_ml::backend::KV_BLOCK;

use crate::{
    Error, Result,
    cache::{Cache, CacheKind, SequenceId},
};

/// Axes of a position: text uses the first alone.
pub const POSITION_AXES: usize = 3;

/// What the rows of a chunk are.
#[derive(Clone, Debug)]
pub enum Input {
    /// Token ids.
    Tokens(Vec<u32>),
    /// Embedding vectors `[rows, D]`, taken as they are.
    Embeddings(Vec<f32>),
}

/// Rows whose results are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// No row.
    None,
    /// The chunk's last row.
    Last,
    /// Every row.
    All,
}

/// Consecutive rows of one sequence.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Which sequence they extend.
    pub sequence: SequenceId,
    /// The rows.
    pub input: Input,
    /// The position of each row on each axis; `None` is the row's index in the sequence on every axis.
    pub positions: Option<Vec<[u32; POSITION_AXES]>>,
    /// Rows of this chunk that see each other in both directions, as ranges of row indices.
    pub bidirectional: Vec<Range<usize>>,
    /// Rows whose logits are wanted.
    pub logits: Rows,
    /// Rows whose final hidden states (after the last norm) are wanted.
    pub hidden: Rows,
}

impl Chunk {
    /// Tokens of one sequence, with the logits of the last.
    pub fn tokens(sequence: SequenceId, tokens: &[u32]) -> Self {
        Self {
            sequence,
            input: Input::Tokens(tokens.to_vec()),
            positions: None,
            bidirectional: Vec::new(),
            logits: Rows::Last,
            hidden: Rows::None,
        }
    }

    /// Number of rows, for a model of `hidden_size`.
    pub fn rows(&self, hidden_size: usize) -> usize {
        match &self.input {
            Input::Tokens(ids) => ids.len(),
            Input::Embeddings(values) => values.len() / hidden_size,
        }
    }

    fn check(&self, hidden_size: usize, vocab_size: usize) -> Result<()> {
        let rows = self.rows(hidden_size);
        let fault = match &self.input {
            Input::Tokens(ids) => ids
                .iter()
                .find(|&&id| id as usize >= vocab_size)
                .map(|id| format!("token {id} of {vocab_size}")),
            Input::Embeddings(values) => (values.len() != rows * hidden_size)
                .then(|| format!("{} values are not rows of {hidden_size}", values.len())),
        };
        let short = self.positions.as_ref().filter(|p| p.len() != rows);
        let fault = fault.or(short.map(|p| format!("{} positions for {rows} rows", p.len())));
        let outside = self.bidirectional.iter().find(|s| s.start > s.end || s.end > rows);
        let fault = fault.or(outside.map(|s| format!("span {s:?} of {rows} rows")));
        fault.map_or(Ok(()), |what| Err(Error::request(format!("batch: {what}"))))
    }
}

/// What the device is told about a step. T rows, B sequences.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Rows, T.
    pub n_rows: usize,
    /// `[T]`: token ids; 0 where the row is an embedding.
    pub ids: Vec<u32>,
    /// Rows that are embeddings, and their values.
    pub embedded_rows: Vec<u32>,
    pub embedded: Vec<f32>,
    /// `[T, axes]`.
    pub positions: Vec<u32>,
    /// `[T]`: the batch's sequence of each row.
    pub row_seq: Vec<u32>,
    /// One past the last cache index that each row sees.
    pub row_end: Vec<u32>,
    /// What differs between cache groups.
    pub groups: Vec<GroupPlan>,
    /// Rows whose logits, and whose hidden states, are wanted; after [`Self::narrow`] by their places in `kept`.
    pub logit_rows: Vec<u32>,
    pub hidden_rows: Vec<u32>,
    /// The rows that leave the last layer, if not all do.
    pub kept: Option<Vec<u32>>,
}

/// Where one cache group keeps the rows of a step.
#[derive(Debug, Default)]
pub(super) struct GroupPlan {
    /// `[T]`: where each row's key and value go.
    pub slots: Vec<u32>,
    /// `[T]`: first cache index that each row sees.
    pub row_begin: Vec<u32>,
    /// `[B, max_blocks]`.
    pub tables: Vec<u32>,
    pub max_blocks: usize,
}

impl Plan {
    /// Checks the chunks, makes room for them in the cache and says where everything is.
    ///
    /// # Errors
    /// If a chunk is malformed (nothing has changed then) or the cache is full (sequences before the one that
    /// did not fit have grown; the caller ends them).
    pub fn new(chunks: &[Chunk], cache: &mut Cache, hidden_size: usize, vocab_size: usize) -> Result<Self> {
        for (i, chunk) in chunks.iter().enumerate() {
            chunk.check(hidden_size, vocab_size)?;
            if chunks[..i].iter().any(|c| c.sequence == chunk.sequence) {
                return Err(Error::request("batch: one sequence has two chunks"));
            }
        }
        let mut plan =
            Self { groups: cache.groups().iter().map(|_| GroupPlan::default()).collect(), ..Self::default() };
        for (seq, chunk) in (0..).zip(chunks) {
            let first = cache.len(chunk.sequence);
            cache.grow(chunk.sequence, chunk.rows(hidden_size))?;
            plan.add_rows(seq, first, chunk, hidden_size)?;
        }
        plan.place(chunks, cache);
        Ok(plan)
    }

    fn add_rows(&mut self, seq: u32, first: usize, chunk: &Chunk, hidden_size: usize) -> Result<()> {
        let rows = chunk.rows(hidden_size);
        let start = self.n_rows;
        let narrow =
            |i: usize| u32::try_from(i).map_err(|_| Error::request(format!("position {i} is too large")));
        match &chunk.input {
            Input::Tokens(ids) => self.ids.extend(ids),
            Input::Embeddings(values) => {
                self.ids.extend(std::iter::repeat_n(0, rows));
                self.embedded.extend(values);
                for row in start..start + rows {
                    self.embedded_rows.push(narrow(row)?);
                }
            }
        }
        for row in 0..rows {
            let index = narrow(first + row)?;
            let position = chunk.positions.as_ref().map_or([index; POSITION_AXES], |p| p[row]);
            self.positions.extend(position);
            self.row_seq.push(seq);
            let span = chunk.bidirectional.iter().filter(|s| s.contains(&row)).map(|s| s.end).max();
            self.row_end.push(narrow(first + span.unwrap_or(row + 1))?);
        }
        let wanted = |rows_wanted: Rows| match rows_wanted {
            Rows::None => start..start,
            Rows::Last => (start + rows).saturating_sub(1).max(start)..start + rows,
            Rows::All => start..start + rows,
        };
        for row in wanted(chunk.logits) {
            self.logit_rows.push(narrow(row)?);
        }
        for row in wanted(chunk.hidden) {
            self.hidden_rows.push(narrow(row)?);
        }
        self.n_rows += rows;
        Ok(())
    }

    /// Lets only those rows leave the last layer whose results are wanted: the others have nothing more to give once their
    /// keys and values are in the cache.
    pub fn narrow(&mut self) {
        let mut kept = [&self.logit_rows[..], &self.hidden_rows].concat();
        kept.sort_unstable();
        kept.dedup();
        if kept.len() == self.n_rows {
            return;
        }
        for row in self.logit_rows.iter_mut().chain(&mut self.hidden_rows) {
            // All are there, and not more than rows, which are counted in u32.
            *row = kept.partition_point(|kept| kept < row) as u32;
        }
        self.kept = Some(kept);
    }

    /// Fills in the groups, once every sequence has its blocks.
    fn place(&mut self, chunks: &[Chunk], cache: &Cache) {
        let n_rows_of = |seq: u32| self.row_seq.iter().filter(|&&s| s == seq).count();
        let n_rows: Vec<usize> = (0..).zip(chunks).map(|(seq, _)| n_rows_of(seq)).collect();
        for (g, (plan, group)) in self.groups.iter_mut().zip(cache.groups()).enumerate() {
            let tables: Vec<&[u32]> = chunks.iter().map(|c| cache.table(c.sequence, g)).collect();
            plan.max_blocks = tables.iter().map(|t| t.len()).max().unwrap_or(0);
            for ((table, chunk), n_rows) in tables.iter().zip(chunks).zip(&n_rows) {
                plan.tables.extend(*table);
                plan.tables.extend(std::iter::repeat_n(0, plan.max_blocks - table.len()));
                let len = cache.len(chunk.sequence);
                for index in len - n_rows..len {
                    // Both fit: `add_rows` has narrowed the index, and blocks are counted in u32.
                    plan.slots.push(table[index / KV_BLOCK] * KV_BLOCK as u32 + (index % KV_BLOCK) as u32);
                    plan.row_begin.push(match group.kind {
                        CacheKind::Full => 0,
                        CacheKind::Window(window) => (index + 1).saturating_sub(window) as u32,
                    });
                }
            }
        }
    }
}
