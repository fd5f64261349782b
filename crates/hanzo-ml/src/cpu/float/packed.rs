//! Rows of activations side by side, so that a tile reads one stream: three rows a group, vector by vector.
//!
//! Stretches of K come one after the other, and in each the groups, so that what meets one panel is one piece of memory. Rows
//! that do not make threes are pairs; no group has one row.

use std::ops::Range;

use super::super::{
    dot::STRETCH,
    int8::Meeting,
    simd::{LANES, Lanes},
};
use crate::{
    Error, Result,
    parallel::{Grid, Parallel},
};

/// Most rows of a group.
pub(super) const ROWS: usize = 3;

/// One stretch of a group, of which the first `rows` vectors of each place count: `[k][row]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Piece([Lanes; ROWS * STRETCH]);

impl Piece {
    /// From one piece to the next.
    pub const VECTORS: usize = ROWS * STRETCH;
    const ZERO: Self = Self([[0.0; LANES]; Self::VECTORS]);

    /// The vectors of a group of `M` rows.
    #[inline(always)]
    pub fn rows<const M: usize>(&self) -> &[[Lanes; M]] {
        self.0.as_chunks().0
    }
}

/// Rows that a tile takes together.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// The place of the first among the rows of its meeting.
    pub first: usize,
    /// 2 or 3.
    pub n: usize,
    /// Rows of the activations.
    rows: [usize; ROWS],
}

/// How the rows of a meeting are multiplied.
pub(super) enum Meet {
    /// They are few and stay where they are.
    AsTheyAre,
    /// Side by side, in these groups.
    Packed(Range<usize>),
}

/// The rows of all meetings that have more than a few.
#[derive(Default)]
pub(super) struct Packed {
    groups: Vec<Group>,
    meets: Vec<Meet>,
    /// `[stretch][group]`, and what is left of more before.
    pieces: Vec<Piece>,
}

impl Packed {
    /// Lays rows of `wide` vectors side by side, in place of what was there, where a meeting has more than `few`, which is at
    /// least 1.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn set(
        &mut self,
        parallel: &Parallel,
        x: &[Lanes],
        wide: usize,
        meetings: &[Meeting<'_>],
        few: usize,
    ) -> Result<()> {
        self.groups.clear();
        self.meets.clear();
        for meeting in meetings {
            let begin = self.groups.len();
            if meeting.rows.len() > few {
                self.group(meeting.rows);
                self.meets.push(Meet::Packed(begin..self.groups.len()));
            } else {
                self.meets.push(Meet::AsTheyAre);
            }
        }
        let n_stretches = wide.div_ceil(STRETCH);
        let len = self.groups.len().checked_mul(n_stretches);
        let more = len.map(|len| len.saturating_sub(self.pieces.len()));
        let Some(len) = len.filter(|_| more.is_some_and(|n| self.pieces.try_reserve_exact(n).is_ok())) else {
            return Err(Error::op("matmul", format!("no memory for rows of {wide} vectors side by side")));
        };
        if len > self.pieces.len() {
            self.pieces.resize(len, Piece::ZERO);
        }
        let groups = &self.groups;
        let grid =
            Grid { rows: n_stretches, cols: groups.len(), tile_rows: n_stretches.max(1), tile_cols: SHARE };
        parallel.for_each_tile(
            &mut self.pieces[..len],
            grid,
            || (),
            |mut tile, ()| {
                for stretch in tile.rows() {
                    let groups = &groups[tile.cols()];
                    for (piece, group) in tile.row(stretch).iter_mut().zip(groups) {
                        group.pack(x, wide, stretch, piece);
                    }
                }
            },
        );
        Ok(())
    }

    /// Makes groups of at least two rows: four of them are two pairs.
    fn group(&mut self, rows: &[(usize, usize)]) {
        let n_threes = rows.len() / ROWS - usize::from(rows.len() % ROWS == 1);
        let (threes, pairs) = rows.split_at(n_threes * ROWS);
        let mut first = 0;
        for rows in threes.chunks(ROWS).chain(pairs.chunks(2)) {
            let mut group = Group { first, n: rows.len(), rows: [0; ROWS] };
            group.rows.iter_mut().zip(rows).for_each(|(to, row)| *to = row.1);
            self.groups.push(group);
            first += rows.len();
        }
    }

    pub fn meets(&self) -> &[Meet] {
        &self.meets
    }

    /// Groups with their pieces of a stretch.
    pub fn stretch(&self, stretch: usize, groups: Range<usize>) -> impl Iterator<Item = (&Group, &Piece)> {
        let pieces = &self.pieces[stretch * self.groups.len()..][..self.groups.len()];
        self.groups[groups.clone()].iter().zip(&pieces[groups])
    }
}

/// Groups that one thread packs at a time.
const SHARE: usize = 8;

impl Group {
    fn pack(&self, x: &[Lanes], wide: usize, stretch: usize, piece: &mut Piece) {
        let start = stretch * STRETCH;
        let len = STRETCH.min(wide - start);
        for (i, &row) in self.rows[..self.n].iter().enumerate() {
            let from = &x[row * wide + start..][..len];
            for (to, from) in piece.0.chunks_exact_mut(self.n).zip(from) {
                to[i] = *from;
            }
        }
    }
}
