//! Blocks of one cache group: a pool of free ones, and the table of one sequence.

/// The free blocks of a group.
#[derive(Debug)]
pub struct BlockPool {
    n_blocks: usize,
    free: Vec<u32>,
}

/// The blocks of one sequence in logical order. Forgotten ones stay in the table as block 0 and are not owned.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<u32>,
    n_forgotten: usize,
}

impl BlockPool {
    /// A pool of free blocks `0..n_blocks`.
    pub fn new(n_blocks: usize) -> Self {
        let last = u32::try_from(n_blocks).unwrap_or(u32::MAX);
        Self { n_blocks: last as usize, free: (0..last).rev().collect() }
    }

    /// Blocks in all.
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Blocks that no table owns.
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Checks that free and owned blocks are all blocks, each once.
    pub(super) fn check<'a>(&self, tables: impl Iterator<Item = &'a BlockTable>) -> Result<(), String> {
        let mut seen = vec![0u32; self.n_blocks];
        let owned = tables.flat_map(|table| &table.blocks[table.n_forgotten..]);
        for &block in self.free.iter().chain(owned) {
            *seen.get_mut(block as usize).ok_or(format!("block {block} does not exist"))? += 1;
        }
        match seen.iter().position(|&n| n != 1) {
            Some(block) => Err(format!("block {block} is held {} times", seen[block])),
            None => Ok(()),
        }
    }
}

impl BlockTable {
    /// The physical block of each logical block.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Blocks to be taken from the pool to hold `n_blocks` logical ones.
    pub(super) fn missing(&self, n_blocks: usize) -> usize {
        n_blocks.saturating_sub(self.blocks.len())
    }

    /// Takes blocks until there are `n_blocks` logical ones; the caller has checked that the pool has them.
    pub(super) fn extend(&mut self, n_blocks: usize, pool: &mut BlockPool) {
        let n = self.missing(n_blocks);
        let taken = pool.free.split_off(pool.free.len().saturating_sub(n));
        self.blocks.extend(taken.into_iter().rev());
    }

    /// Gives back the logical blocks before `first_kept`.
    pub(super) fn forget(&mut self, first_kept: usize, pool: &mut BlockPool) {
        let end = first_kept.min(self.blocks.len());
        for block in &mut self.blocks[self.n_forgotten.min(end)..end] {
            pool.free.push(std::mem::take(block));
        }
        self.n_forgotten = self.n_forgotten.max(end);
    }

    /// Gives back everything.
    pub(super) fn release(self, pool: &mut BlockPool) {
        pool.free.extend(&self.blocks[self.n_forgotten..]);
    }
}
