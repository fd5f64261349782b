//! A lattice's points, and the indices of those of a group of eight rows, in memory.

use super::LANES;

/// Room before and after the points of [`Points`], in points.
pub(super) const ROOM: usize = 3;

/// A lattice's points of four elements, with room around them: a load of four words can have any point in any of its places.
#[repr(C)]
pub(crate) struct Points<const N: usize> {
    before: [[i8; 4]; ROOM],
    pub(super) points: [[i8; 4]; N],
    after: [[i8; 4]; ROOM],
}

impl<const N: usize> Points<N> {
    /// A copy of the points, and points of zeros after them.
    pub(crate) const fn new<const GIVEN: usize>(points: &[[i8; 4]; GIVEN]) -> Self {
        Self { before: [[0; 4]; ROOM], points: with_zeros(points), after: [[0; 4]; ROOM] }
    }
}

/// The points, and as many of zeros after them as make up `N`.
pub(crate) const fn with_zeros<const LEN: usize, const GIVEN: usize, const N: usize>(
    points: &[[i8; LEN]; GIVEN],
) -> [[i8; LEN]; N] {
    let mut all = [[0; LEN]; N];
    let (given, _) = all.split_at_mut(GIVEN);
    given.copy_from_slice(points);
    all
}

/// Points of a lattice that [`Places`] tell apart. A smaller one has points of zeros behind it, which nothing reads.
pub(crate) const FAR: usize = 2048;

/// Indices of two bytes, below [`FAR`], of four points of each of eight rows.
///
/// Rows are in the order in which a pair has them: vectors of low and of high bytes then give the indices without a shuffle
/// more.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Places(pub(super) [[[u16; 4]; LANES / 2]; 2]);

impl Places {
    /// Indices of the first point.
    pub(crate) const ZERO: Self = Self([[[0; 4]; LANES / 2]; 2]);

    /// The index of point `k` of a row.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, k: usize) -> usize {
        usize::from(self.0[row % 4 / 2][row / 4 * 2 + row % 2][k])
    }
}

/// Indices of up to eight points of each row: those of a group.
pub(crate) type GroupPlaces = [Places; 2];
