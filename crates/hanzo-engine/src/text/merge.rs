//! Pair merging, the inner loop of byte-pair encoding and of SentencePiece's BPE.
//!
//! Source: Sennrich et al. 2016, arXiv 1508.07909; Kudo and Richardson 2018, arXiv 1808.06226. The pair of lowest rank is
//! merged first, the leftmost of equals. A queue with lazy deletion: O(n log n) for n symbols, whatever the text.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A run of bytes that is one token so far.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    /// Token id, or [`NO_TOKEN`].
    pub id: u32,
    /// First byte.
    pub start: u32,
    /// Number of bytes; 0 once it was merged into its left neighbour.
    pub len: u32,
    prev: u32,
    next: u32,
}

/// The id of a symbol that is no token.
pub(crate) const NO_TOKEN: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

impl Symbol {
    pub fn new(id: u32, start: u32, len: u32) -> Self {
        Self { id, start, len, prev: NONE, next: NONE }
    }
}

/// Merges until no pair has a rank. `rank` gives a pair's rank and the merged token.
///
/// The merged symbols have length 0 and are to be skipped.
pub(crate) fn merge(symbols: &mut [Symbol], mut rank: impl FnMut(Symbol, Symbol) -> Option<(u32, u32)>) {
    let n = symbols.len();
    for (i, s) in symbols.iter_mut().enumerate() {
        s.prev = if i == 0 { NONE } else { i as u32 - 1 };
        s.next = if i + 1 == n { NONE } else { i as u32 + 1 };
    }
    let mut queue = BinaryHeap::with_capacity(n);
    let mut offer = |queue: &mut BinaryHeap<_>, symbols: &[Symbol], left: u32, right: u32| {
        if left != NONE
            && right != NONE
            && let Some((rank, id)) = rank(symbols[left as usize], symbols[right as usize])
        {
            let ids = (symbols[left as usize].id, symbols[right as usize].id);
            let len = symbols[left as usize].len + symbols[right as usize].len;
            queue.push(Reverse((rank, left, len, ids, id)));
        }
    };
    for i in 1..n as u32 {
        offer(&mut queue, symbols, i - 1, i);
    }
    while let Some(Reverse((_, left, len, ids, id))) = queue.pop() {
        let l = symbols[left as usize];
        if l.len == 0 || l.next == NONE {
            continue;
        }
        let r = symbols[l.next as usize];
        // An entry whose symbols changed since is stale.
        if l.len + r.len != len || (l.id, r.id) != ids {
            continue;
        }
        symbols[l.next as usize].len = 0;
        symbols[left as usize] = Symbol { id, len, next: r.next, ..l };
        if r.next != NONE {
            symbols[r.next as usize].prev = left;
        }
        offer(&mut queue, symbols, l.prev, left);
        offer(&mut queue, symbols, left, r.next);
    }
}
