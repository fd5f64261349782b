//! The only place that starts threads for computing.
//!
//! Work is cut into tiles of the output, and each tile is claimed by one thread: which thread, and in which order,
//! is left to chance, so that a slow core does not hold up the others. A tile's results must depend on the tile's
//! place in the output alone; then they are the same for any number of threads.

#![expect(unsafe_code, reason = "hands disjoint tiles of a slice to several threads")]

mod pool;

use std::{
    collections::HashSet,
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use pool::{HELPERS_MAX, Pool};

use crate::{Error, Result};

/// More threads than this are refused.
const THREADS_MAX: usize = 1024;

const _: () = assert!(THREADS_MAX <= HELPERS_MAX);

/// A fixed set of threads: the caller's and a pool of the others.
pub struct Parallel {
    pool: Pool,
    n_threads: usize,
}

/// How a row-major matrix `[rows, cols]` is cut into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub cols: usize,
    /// Rows of a tile (the last may have fewer); at least 1.
    pub tile_rows: usize,
    /// Columns of a tile (the last may have fewer); at least 1.
    pub tile_cols: usize,
}

impl Grid {
    /// A vector of `len` elements in chunks of `chunk`.
    pub fn line(len: usize, chunk: usize) -> Self {
        Self { rows: 1, cols: len, tile_rows: 1, tile_cols: chunk }
    }
}

/// The exclusive right to one tile of a matrix.
pub struct Tile<'a, T> {
    base: *mut T,
    stride: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    matrix: PhantomData<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// Rows of the matrix that the tile covers.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the matrix that the tile covers.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// The tile's part of row `row` of the matrix.
    ///
    /// # Panics
    /// If the row does not belong to the tile.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row {row} is not in {:?}", self.rows);
        let start = row * self.stride + self.cols.start;
        // SAFETY: `for_each_tile` made `rows` and `cols` inside the matrix that `base` points to and gave each tile
        // away once, so no other reference to these elements exists while `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(start), self.cols.len()) }
    }
}

/// A pointer that may go to other threads.
struct Shared<T>(*mut T);

// SAFETY: the threads use the pointer only through tiles, which do not overlap; `T: Send` lets them write `T`s.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

impl Parallel {
    /// Threads of our own; by default one per physical core that the process may use.
    ///
    /// # Errors
    /// If `threads` is 0 or more than 1024, or the system starts no threads.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let n_threads = threads.unwrap_or_else(physical_cores);
        if !(1..=THREADS_MAX).contains(&n_threads) {
            return Err(Error::op("threads", format!("{n_threads} is not 1 to {THREADS_MAX}")));
        }
        Ok(Self { pool: Pool::new(n_threads - 1)?, n_threads })
    }

    /// Number of threads, the caller's included.
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Calls `work` once for each index below `n_items`, on all threads; each thread makes its own `scratch` once.
    /// Within `work` everything is serial, and so is a call while another thread makes one.
    ///
    /// # Panics
    /// If `scratch` or `work` does, with the payload of the first; some items may not have been called then.
    pub fn for_each<S>(
        &self,
        n_items: usize,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(usize, &mut S) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut item = next.fetch_add(1, Ordering::Relaxed);
            if item >= n_items {
                return;
            }
            let mut scratch = scratch();
            while item < n_items {
                work(item, &mut scratch);
                item = next.fetch_add(1, Ordering::Relaxed);
            }
        };
        self.pool.run(n_items.saturating_sub(1), &worker);
    }

    /// Calls `work` once for each tile of `matrix`, on all threads; each thread makes its own `scratch` once.
    ///
    /// # Panics
    /// If `matrix` does not have the grid's size or a tile would be empty: bugs of the caller.
    pub fn for_each_tile<T: Send, S>(
        &self,
        matrix: &mut [T],
        grid: Grid,
        scratch: impl Fn() -> S + Sync,
        work: impl Fn(Tile<'_, T>, &mut S) + Sync,
    ) {
        let Grid { rows, cols, tile_rows, tile_cols } = grid;
        assert_eq!(Some(matrix.len()), rows.checked_mul(cols), "{grid:?}");
        if matrix.is_empty() {
            return;
        }
        let across = cols.div_ceil(tile_cols);
        let n_tiles = rows.div_ceil(tile_rows) * across;
        let base = Shared(matrix.as_mut_ptr());
        self.for_each(n_tiles, scratch, |i, scratch| {
            let (row, col) = (i / across * tile_rows, i % across * tile_cols);
            let tile = Tile {
                base: base.get(),
                stride: cols,
                rows: row..rows.min(row + tile_rows),
                cols: col..cols.min(col + tile_cols),
                matrix: PhantomData,
            };
            work(tile, scratch);
        });
    }
}

/// Physical cores that the process may use, at least 1. Two threads of one core share its arithmetic units, so
/// more threads than cores only disturb each other.
fn physical_cores() -> usize {
    let logical = thread::available_parallelism().map_or(1, usize::from);
    // Linux names the logical processors of each core; elsewhere the files are absent.
    let mut cores = HashSet::new();
    for cpu in 0..THREADS_MAX {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        match std::fs::read_to_string(path) {
            Ok(siblings) => cores.insert(siblings),
            Err(_) => break,
        };
    }
    if cores.is_empty() { logical } else { logical.min(cores.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_belongs_to_exactly_one_tile() {
        for threads in [1, 2, 3] {
            let parallel = Parallel::new(Some(threads)).unwrap();
            for (rows, cols, tile_rows, tile_cols) in
                [(7, 13, 2, 5), (1, 1, 9, 9), (4, 8, 4, 8), (0, 3, 1, 1)]
            {
                let mut matrix = vec![0usize; rows * cols];
                parallel.for_each_tile(
                    &mut matrix,
                    Grid { rows, cols, tile_rows, tile_cols },
                    || (),
                    |mut tile, ()| {
                        for row in tile.rows() {
                            let start = row * cols + tile.cols().start;
                            for (i, v) in tile.row(row).iter_mut().enumerate() {
                                *v += start + i + 1;
                            }
                        }
                    },
                );
                assert!(matrix.iter().enumerate().all(|(i, &v)| v == i + 1), "{matrix:?}");
            }
        }
    }

    #[test]
    fn thread_counts_are_bounded() {
        assert!(Parallel::new(Some(0)).is_err());
        assert!(Parallel::new(Some(THREADS_MAX + 1)).is_err());
        assert!(Parallel::new(None).unwrap().n_threads() >= 1);
    }

    #[test]
    #[should_panic(expected = "is not in")]
    fn a_tile_does_not_reach_other_rows() {
        let parallel = Parallel::new(Some(1)).unwrap();
        let grid = Grid { rows: 2, cols: 2, tile_rows: 1, tile_cols: 2 };
        parallel.for_each_tile(
            &mut [0; 4],
            grid,
            || (),
            |mut tile, ()| {
                tile.row(1 - tile.rows().start);
            },
        );
    }
}
