//! The bookkeeping of the paged, grouped key/value cache: which block holds which positions. No tensors here.
//!
//! Layers of one kind and shape form a group and share block tables: one table per (sequence, group). A block
//! is [`KV_BLOCK`] positions. A windowed group gives back blocks that no later row can see.

mod blocks;

pub use blocks::{BlockPool, BlockTable};

use hanzo_ml::backend::KV_BLOCK;

use crate::{Error, Result, spec::DecoderSpec};

/// What a layer keeps of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Every position.
    Full,
    /// The last so many positions.
    Window(usize),
}

/// Layers that share block tables.
#[derive(Debug)]
pub struct CacheGroup {
    /// What they keep.
    pub kind: CacheKind,
    /// Key/value heads, K.
    pub n_kv_heads: usize,
    /// Elements of a head, Hd.
    pub head_dim: usize,
    /// The layers, by index in the decoder.
    pub layers: Vec<usize>,
    /// Their blocks.
    pub pool: BlockPool,
}

/// Names a sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId(usize);

/// One sequence's share of the cache.
#[derive(Debug)]
struct Sequence {
    len: usize,
    tables: Vec<BlockTable>,
}

/// The bookkeeping of all sequences.
#[derive(Debug)]
pub struct Cache {
    groups: Vec<CacheGroup>,
    sequences: Vec<Option<Sequence>>,
    context: usize,
}

impl Cache {
    /// Room for `n_sequences` of up to `context` positions that grow by up to `max_rows` positions a step.
    pub fn new(spec: &DecoderSpec, context: usize, n_sequences: usize, max_rows: usize) -> Self {
        let mut groups: Vec<CacheGroup> = Vec::new();
        for (i, layer) in spec.layers.iter().enumerate() {
            let a = layer.attention();
            let kind = a.window.map_or(CacheKind::Full, CacheKind::Window);
            let same =
                |g: &&mut CacheGroup| (g.kind, g.n_kv_heads, g.head_dim) == (kind, a.n_kv_heads, a.head_dim);
            if let Some(group) = groups.iter_mut().find(same) {
                group.layers.push(i);
                continue;
            }
            let blocks = n_sequences * blocks_per_sequence(kind, context, max_rows);
            groups.push(CacheGroup {
                kind,
                n_kv_heads: a.n_kv_heads,
                head_dim: a.head_dim,
                layers: vec![i],
                pool: BlockPool::new(blocks),
            });
        }
        Self { groups, sequences: Vec::new(), context }
    }

    /// The groups of layers.
    pub fn groups(&self) -> &[CacheGroup] {
        &self.groups
    }

    /// Positions that a sequence may hold.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Begins an empty sequence.
    pub fn begin(&mut self) -> SequenceId {
        let tables = self.groups.iter().map(|_| BlockTable::default()).collect();
        let sequence = Some(Sequence { len: 0, tables });
        if let Some(free) = self.sequences.iter().position(Option::is_none) {
            self.sequences[free] = sequence;
            return SequenceId(free);
        }
        self.sequences.push(sequence);
        SequenceId(self.sequences.len() - 1)
    }

    /// Ends a sequence and gives its blocks back.
    pub fn end(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id.0).and_then(Option::take) {
            for (group, table) in self.groups.iter_mut().zip(sequence.tables) {
                table.release(&mut group.pool);
            }
        }
    }

    /// Positions that a sequence holds.
    pub fn len(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |s| s.len)
    }

    /// Whether a sequence holds nothing.
    pub fn is_empty(&self, id: SequenceId) -> bool {
        self.len(id) == 0
    }

    /// Makes room for `n_rows` more positions and counts them as held.
    ///
    /// # Errors
    /// If the context or the blocks do not suffice; then nothing has changed.
    pub fn grow(&mut self, id: SequenceId, n_rows: usize) -> Result<()> {
        let context = self.context;
        let sequence = self.sequences.get_mut(id.0).and_then(Option::as_mut);
        let sequence = sequence.ok_or_else(|| Error::engine("the sequence has ended"))?;
        let len = sequence.len + n_rows;
        if len > context {
            return Err(Error::request(format!("{len} tokens do not fit the context of {context}")));
        }
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            if let CacheKind::Window(window) = group.kind {
                // The first new row sees the farthest back.
                table.forget((sequence.len + 1).saturating_sub(window) / KV_BLOCK, &mut group.pool);
            }
        }
        let lacks = |(group, table): (&CacheGroup, &BlockTable)| {
            table.missing(len.div_ceil(KV_BLOCK)) > group.pool.free_blocks()
        };
        if self.groups.iter().zip(&sequence.tables).any(lacks) {
            return Err(Error::engine("the key/value cache is full"));
        }
        for (group, table) in self.groups.iter_mut().zip(&mut sequence.tables) {
            table.extend(len.div_ceil(KV_BLOCK), &mut group.pool);
        }
        sequence.len = len;
        Ok(())
    }

    /// The block table of a sequence in a group.
    pub(crate) fn table(&self, id: SequenceId, group: usize) -> &[u32] {
        self.sequence(id).map_or(&[], |s| s.tables[group].blocks())
    }

    /// Checks that every block is free or owned by exactly one table.
    ///
    /// # Errors
    /// A sentence that names the group and the fault.
    pub fn check_integrity(&self) -> std::result::Result<(), String> {
        for (i, group) in self.groups.iter().enumerate() {
            let tables = self.sequences.iter().flatten().map(|s| &s.tables[i]);
            group.pool.check(tables).map_err(|what| format!("cache group {i}: {what}"))?;
        }
        Ok(())
    }

    fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(id.0)?.as_ref()
    }
}

/// Blocks that a sequence can hold at once.
fn blocks_per_sequence(kind: CacheKind, context: usize, max_rows: usize) -> usize {
    let full = context.div_ceil(KV_BLOCK);
    match kind {
        CacheKind::Full => full,
        // A window that begins and rows that end inside a block each.
        CacheKind::Window(window) => full.min((window + max_rows).div_ceil(KV_BLOCK) + 1),
    }
}

#[cfg(test)]
mod tests;
