//! Where panels come from: a weight re-laid for vectors, or its file's own bytes.

use std::ops::Range;

use hanzo_quant::{ActivationRow, Format, GROUP, LANES, PANEL_ELEMS, Panel, PanelFill, Unpack};
use memmap2::MmapMut;

use super::super::prefetch::prefetch;
use crate::{
    Error, QTensor, Result,
    backend::WeightShape,
    parallel::{Grid, Parallel},
};

/// Row groups that are multiplied side by side.
const GROUPS: usize = super::COLUMNS / LANES;

/// Bytes of a weight that one thread re-lays at a time, and then gives back to the system.
const SHARE_BYTES: usize = 1 << 20;

/// A weight with its rows interleaved by eight: `[matrix][row group][block]`, the last group of each matrix filled up with
/// zeros.
pub(in super::super) struct Interleaved(MmapMut);

/// The rows of each matrix of a tensor.
#[derive(Clone, Copy)]
struct Shape {
    n_matrices: usize,
    n: usize,
    row_bytes: usize,
}

impl Shape {
    fn of(tensor: &QTensor) -> Self {
        let (n_matrices, n) = match *tensor.shape() {
            [e, n, _] => (e, n),
            [n, _] => (1, n),
            _ => (1, 1),
        };
        let format = tensor.format();
        Self { n_matrices, n, row_bytes: tensor.row_elems() / format.block_elems * format.block_bytes }
    }

    /// Row groups of a matrix.
    fn groups(self) -> usize {
        self.n.div_ceil(LANES)
    }
}

/// The bytes `range` of each row of a row group; fewer than eight at a matrix's end.
fn group_rows<'a>(
    tensor: &'a QTensor,
    shape: Shape,
    matrix: usize,
    group: usize,
    range: &Range<usize>,
) -> ([&'a [u8]; LANES], usize) {
    let first = group * LANES;
    let n_rows = LANES.min(shape.n - first);
    let mut rows = [&[][..]; LANES];
    for (lane, row) in rows[..n_rows].iter_mut().enumerate() {
        let start = (matrix * shape.n + first + lane) * shape.row_bytes;
        *row = &tensor.bytes()[start + range.start..start + range.end];
    }
    (rows, n_rows)
}

impl Interleaved {
    /// Whether integer products serve tensors of a format, and a layout helps them.
    pub(in super::super) fn helps(format: &Format) -> bool {
        format.panel.is_some()
    }

    /// Bytes of a weight in this layout, at most `usize::MAX`.
    pub(in super::super) fn bytes(shape: &WeightShape) -> usize {
        let rows = shape.n.next_multiple_of(LANES).saturating_mul(shape.n_experts);
        rows.saturating_mul(shape.row_bytes())
    }

    /// Re-lays a tensor on all threads, giving its pages back on the way.
    ///
    /// # Errors
    /// If there is no memory.
    pub(in super::super) fn new(parallel: &Parallel, tensor: &QTensor) -> Result<Self> {
        let shape = Shape::of(tensor);
        let group_bytes = LANES * shape.row_bytes;
        let n_groups = shape.groups() * shape.n_matrices;
        let no_memory = || Error::tensor(tensor.name(), "no memory to re-lay it".to_owned());
        let len = n_groups.checked_mul(group_bytes).ok_or_else(no_memory)?;
        let mut bytes = MmapMut::map_anon(len).map_err(|_| no_memory())?;
        #[cfg(target_os = "linux")]
        // Fewer, larger pages where the system has them; without them it works as well.
        let _ = bytes.advise(memmap2::Advice::HugePage);
        let share = (SHARE_BYTES / group_bytes).max(1);
        parallel.for_each_tile(
            &mut bytes[..],
            Grid::line(len, share * group_bytes),
            || (),
            |mut tile, ()| {
                let first = tile.cols().start / group_bytes;
                for (i, out) in tile.row(0).chunks_exact_mut(group_bytes).enumerate() {
                    let (matrix, group) = ((first + i) / shape.groups(), (first + i) % shape.groups());
                    let (rows, n_rows) = group_rows(tensor, shape, matrix, group, &(0..shape.row_bytes));
                    tensor.format().interleave(&rows[..n_rows], out);
                }
                let row = |group: usize| group / shape.groups() * shape.n + group % shape.groups() * LANES;
                let last = row(first + tile.cols().len() / group_bytes).min(shape.n * shape.n_matrices);
                tensor.release(row(first) * shape.row_bytes..last * shape.row_bytes);
            },
        );
        Ok(Self(bytes))
    }
}

/// A weight as the integer products see it.
pub(in super::super) struct Rows<'a> {
    tensor: &'a QTensor,
    interleaved: Option<&'a Interleaved>,
    shape: Shape,
    /// The format's function; one that has none yet is served by the scalar decoder.
    fill: Option<PanelFill>,
    widest: bool,
}

/// The unsigned quants of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuantRange {
    /// What they are more than the format's quants.
    pub offset: u8,
    /// The largest.
    pub max: u8,
}

impl<'a> Rows<'a> {
    /// `None` for plain numbers, which have no quants. `widest` permits the widest instructions.
    pub(in super::super) fn new(
        tensor: &'a QTensor,
        interleaved: Option<&'a Interleaved>,
        widest: bool,
    ) -> Option<Self> {
        let format = tensor.format();
        let quants =
            matches!(format.unpack, Unpack::Int(_)) && PANEL_ELEMS.is_multiple_of(format.block_elems);
        let shape = Shape::of(tensor);
        quants.then_some(Self { tensor, interleaved, shape, fill: format.panel, widest })
    }

    /// The weight's format.
    pub(super) fn format(&self) -> &'static Format {
        self.tensor.format()
    }

    /// Rows of a matrix.
    pub(super) fn n(&self) -> usize {
        self.shape.n
    }

    /// Elements of a row.
    pub(super) fn k(&self) -> usize {
        self.tensor.row_elems()
    }

    /// The unsigned quants of its panels.
    pub(super) fn range(&self) -> QuantRange {
        match self.fill {
            Some(fill) => QuantRange { offset: fill.offset, max: fill.max },
            None => QuantRange { offset: 128, max: 255 },
        }
    }

    /// Fills a panel with stretch `stretch` of eight rows of a matrix and gives its number of groups. `blocks` is
    /// scratch.
    pub(super) fn fill(
        &self,
        matrix: usize,
        group: usize,
        stretch: usize,
        blocks: &mut Vec<u8>,
        panel: &mut Panel,
    ) -> usize {
        let format = self.format();
        let elems = PANEL_ELEMS.min(self.k() - stretch * PANEL_ELEMS);
        let bytes = |elems: usize| elems / format.block_elems * format.block_bytes;
        let (start, len) = (bytes(stretch * PANEL_ELEMS), bytes(elems));
        if let (Some(fill), Some(interleaved)) = (self.fill, self.interleaved) {
            let at = |group: usize, start: usize| {
                ((matrix * self.shape.groups() + group) * self.shape.row_bytes + start) * LANES
            };
            // What this panel holds two stretches later, of these rows or of the next ones.
            let (later, row) = (start + bytes(2 * PANEL_ELEMS), self.shape.row_bytes);
            let ahead =
                if later < row { at(group, later) } else { at(group + GROUPS, (later - row).min(row)) };
            prefetch(interleaved.0.get(ahead..ahead + LANES * len).unwrap_or_default());
            self.fill_interleaved(fill, &interleaved.0[at(group, start)..][..LANES * len], panel);
            return elems / GROUP;
        }
        let (rows, n_rows) = group_rows(self.tensor, self.shape, matrix, group, &(start..start + len));
        let rows = &rows[..n_rows];
        match self.fill {
            Some(fill) => {
                blocks.resize(LANES * len, 0);
                format.interleave(rows, blocks);
                self.fill_interleaved(fill, blocks, panel);
            }
            None => format.fill_scalar(rows, panel),
        }
        elems / GROUP
    }

    /// Whether the format has a function for [`Rows::multiply_row`].
    pub(super) fn multiplies_rows(&self) -> bool {
        self.fill.is_some()
    }

    /// The product of one row of activations with rows of a matrix from `first` on, without panels. What is past the matrix's
    /// end is left alone. `blocks` is scratch.
    pub(super) fn multiply_row(
        &self,
        matrix: usize,
        first: usize,
        x: ActivationRow<'_>,
        blocks: &mut Vec<u8>,
        out: &mut [[f32; super::COLUMNS]],
    ) {
        let Some(fill) = self.fill else { return };
        let group_bytes = self.shape.row_bytes * LANES;
        for (i, out) in out.as_flattened_mut().as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let group = first / LANES + i;
            if group >= self.shape.groups() {
                break;
            }
            *out = match self.interleaved {
                Some(interleaved) => {
                    let start = (matrix * self.shape.groups() + group) * group_bytes;
                    (fill.product)(&interleaved.0[start..start + group_bytes], x)
                }
                None => {
                    let all = 0..self.shape.row_bytes;
                    let (rows, n_rows) = group_rows(self.tensor, self.shape, matrix, group, &all);
                    blocks.resize(group_bytes, 0);
                    self.format().interleave(&rows[..n_rows], blocks);
                    (fill.product)(blocks, x)
                }
            };
        }
    }

    fn fill_interleaved(&self, fill: PanelFill, blocks: &[u8], panel: &mut Panel) {
        if self.widest {
            (fill.fill)(blocks, panel);
        } else {
            (fill.fill_baseline)(blocks, panel);
        }
    }
}
