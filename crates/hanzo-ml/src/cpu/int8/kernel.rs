//! The product of some rows of a weight with rows of activations, written once for every instruction set.

use std::hint::black_box;

use hanzo_quant::{GROUP, LANES, PANEL_ELEMS, PANEL_GROUPS, Panel, Stretch};

use super::{
    super::prefetch::prefetch,
    COLUMNS, Meeting, Rows,
    activations::{Company, Quantised},
    level::{Int8, Int8Kernel, Int8Level},
};

/// Words of a block of 32.
const WORDS: usize = GROUP / 4;

/// `totals[p][i][c] = x[rows[i]] · weight[first + 16p + c]`; columns past the matrix's end are meaningless.
pub(super) struct Columns<'a> {
    pub weight: &'a Rows<'a>,
    pub first: usize,
    /// All rows of activations, for what was refined of them.
    pub x: &'a Quantised,
    /// The meeting's.
    pub company: Company<'a>,
    pub meeting: &'a Meeting<'a>,
    /// Two for each sixteen rows of the weight. All of them and a few rows of activations stay in a thread's L1 cache.
    pub panels: &'a mut [[Panel; 2]],
    pub blocks: &'a mut Vec<u8>,
    pub totals: &'a mut [[f32; COLUMNS]],
    /// Scratch, as long.
    pub rests: &'a mut [[f32; COLUMNS]],
}

impl<'a> Columns<'a> {
    /// Chooses the variant for the weight's format. One that adds fewer products is right as well, so that a variant
    /// serves several formats.
    pub(super) fn run(self, level: Int8Level) {
        let format = self.weight.format();
        let (halves, minima) = (format.scale_group < GROUP, !format.symmetric);
        let adds = level.sum_len(self.weight.range().max);
        match (adds, halves, minima) {
            (8.., false, false) => level.run(Variant::<8, false, false>(self)),
            (8.., false, true) => level.run(Variant::<8, false, true>(self)),
            (4..8, false, false) => level.run(Variant::<4, false, false>(self)),
            (4..8, false, true) => level.run(Variant::<4, false, true>(self)),
            (1..4, false, false) => level.run(Variant::<1, false, false>(self)),
            (1..4, false, true) => level.run(Variant::<1, false, true>(self)),
            (0, false, false) => level.run(Variant::<0, false, false>(self)),
            (0, false, true) => level.run(Variant::<0, false, true>(self)),
            (4.., true, false) => level.run(Variant::<4, true, false>(self)),
            (4.., true, true) => level.run(Variant::<4, true, true>(self)),
            (2..4, true, false) => level.run(Variant::<2, true, false>(self)),
            (1..2, true, false) => level.run(Variant::<1, true, false>(self)),
            (1..4, true, true) => level.run(Variant::<1, true, true>(self)),
            (0, true, false) => level.run(Variant::<0, true, false>(self)),
            (0, true, true) => level.run(Variant::<0, true, true>(self)),
        }
    }
}

/// The product for some formats: `ADDS` products are added before they widen (0: quants of eight bits); `HALVES`: there is
/// a scale per 16; `MINIMA`: there are minima.
struct Variant<'a, const ADDS: usize, const HALVES: bool, const MINIMA: bool>(Columns<'a>);

impl<const ADDS: usize, const HALVES: bool, const MINIMA: bool> Int8Kernel
    for Variant<'_, ADDS, HALVES, MINIMA>
{
    #[inline(always)]
    fn run<L: Int8, const V: usize, const C: usize>(self, l: L) {
        // A set whose sums are wide uses two variants alone; the others need no code.
        if L::WIDE_SUMS && ADDS != 0 && ADDS != if HALVES { WORDS / 2 } else { WORDS } {
            return;
        }
        self.0.product::<L, ADDS, HALVES, MINIMA, V, C>(l);
    }
}

impl Columns<'_> {
    /// `V` vectors hold the sixteen rows of the weight; `C` rows of activations at a time.
    #[inline(always)]
    fn product<
        L: Int8,
        const ADDS: usize,
        const HALVES: bool,
        const MINIMA: bool,
        const V: usize,
        const C: usize,
    >(
        mut self,
        l: L,
    ) {
        self.totals.fill([0.0; COLUMNS]);
        self.rests.fill([0.0; COLUMNS]);
        for stretch in 0..self.weight.k().div_ceil(PANEL_ELEMS) {
            let n_groups = (0..self.panels.len()).fold(0, |n, pair| self.fill(pair, stretch).max(n));
            let rows = (self.company.stretch(stretch), 0);
            let rows = self.tiles::<L, ADDS, HALVES, MINIMA, V, C>(l, n_groups, rows);
            let rows = self.tiles::<L, ADDS, HALVES, MINIMA, V, 2>(l, n_groups, rows);
            self.tiles::<L, ADDS, HALVES, MINIMA, V, 1>(l, n_groups, rows);
            self.refine::<L, ADDS, HALVES, MINIMA, V>(l, stretch);
        }
        let rests = self.rests.as_flattened();
        self.totals.as_flattened_mut().iter_mut().zip(rests).for_each(|(total, rest)| *total += rest);
    }

    /// Adds the products of rows of activations, of which the first has this index, `C` at a time; gives the rest.
    #[inline(always)]
    fn tiles<
        'x,
        L: Int8,
        const ADDS: usize,
        const HALVES: bool,
        const MINIMA: bool,
        const V: usize,
        const C: usize,
    >(
        &mut self,
        l: L,
        n_groups: usize,
        (mut x, mut row): (&'x [Stretch], usize),
    ) -> (&'x [Stretch], usize) {
        let n_rows = self.meeting.rows.len();
        while let Some((now, later)) = x.split_first_chunk::<C>() {
            later.iter().take(C).for_each(prefetch);
            for (panels, totals) in self.panels.iter().zip(self.totals.chunks_exact_mut(n_rows)) {
                tile::<L, ADDS, HALVES, MINIMA, V, C>(l, panels, n_groups, now, &mut totals[row..row + C]);
            }
            (x, row) = (later, row + C);
        }
        (x, row)
    }

    /// Adds up what the refined blocks of a stretch left over.
    #[inline(always)]
    fn refine<L: Int8, const ADDS: usize, const HALVES: bool, const MINIMA: bool, const V: usize>(
        &mut self,
        l: L,
        stretch: usize,
    ) {
        let n_rows = self.meeting.rows.len();
        let mut refinements = self.x.refinements(stretch).iter().peekable();
        for (i, row) in self.meeting.rows.iter().enumerate() {
            // Both are by rising row of the activations.
            while refinements.next_if(|r| r.row < row.1).is_some() {}
            let Some(refinement) = refinements.peek().filter(|r| r.row == row.1) else { continue };
            for (panels, rests) in self.panels.iter().zip(self.rests.chunks_exact_mut(n_rows)) {
                let rest = std::slice::from_mut(&mut rests[i]);
                let mut acc = read::<L, V, 1>(l, rest);
                for group in (0..PANEL_GROUPS).filter(|group| refinement.blocks & (1 << group) != 0) {
                    let x = std::array::from_ref(&refinement.rest);
                    add_group::<L, ADDS, HALVES, MINIMA, V, 1>(l, panels, group, x, &mut acc);
                }
                write::<L, V, 1>(l, acc, rest);
            }
        }
    }

    /// Fills both panels of a pair (the second stays as it is past the matrix's end) and gives their number of groups.
    fn fill(&mut self, pair: usize, stretch: usize) -> usize {
        let (matrix, group) = (self.meeting.matrix, (self.first + pair * COLUMNS) / LANES);
        let mut n_groups = 0;
        for (i, panel) in self.panels[pair].iter_mut().enumerate() {
            if (group + i) * LANES < self.weight.n() {
                n_groups = self.weight.fill(matrix, group + i, stretch, self.blocks, panel);
            }
        }
        n_groups
    }
}

/// The totals of `C` rows of activations.
#[inline(always)]
fn read<L: Int8, const V: usize, const C: usize>(l: L, totals: &[[f32; COLUMNS]]) -> [[L::F; C]; V] {
    let mut acc = [[l.splat(0.0); C]; V];
    for v in 0..V {
        for c in 0..C {
            acc[v][c] = l.load(&totals[c][v * L::GROUPS * LANES..]);
        }
    }
    acc
}

/// Writes the totals of `C` rows of activations.
#[inline(always)]
fn write<L: Int8, const V: usize, const C: usize>(l: L, acc: [[L::F; C]; V], totals: &mut [[f32; COLUMNS]]) {
    for v in 0..V {
        for c in 0..C {
            l.store(acc[v][c], &mut totals[c][v * L::GROUPS * LANES..]);
        }
    }
}

/// Adds to the totals of `C` rows of activations what the panels' groups give.
#[inline(always)]
fn tile<
    L: Int8,
    const ADDS: usize,
    const HALVES: bool,
    const MINIMA: bool,
    const V: usize,
    const C: usize,
>(
    l: L,
    panels: &[Panel; 2],
    n_groups: usize,
    x: &[Stretch; C],
    totals: &mut [[f32; COLUMNS]],
) {
    if l.tile::<ADDS, HALVES, MINIMA, C>(panels, n_groups, x, totals) {
        return;
    }
    let mut acc = read::<L, V, C>(l, totals);
    for group in 0..n_groups.min(PANEL_GROUPS) {
        add_group::<L, ADDS, HALVES, MINIMA, V, C>(l, panels, group, x, &mut acc);
    }
    write::<L, V, C>(l, acc, totals);
}

/// Adds what one group gives.
#[inline(always)]
fn add_group<
    L: Int8,
    const ADDS: usize,
    const HALVES: bool,
    const MINIMA: bool,
    const V: usize,
    const C: usize,
>(
    l: L,
    panels: &[Panel; 2],
    group: usize,
    x: &[Stretch; C],
    acc: &mut [[L::F; C]; V],
) {
    if HALVES {
        let sums = dots::<L, ADDS, 4, V, C>(l, panels, WORDS * group, x);
        finish::<L, ADDS, MINIMA, V, C>(l, panels, (group, 0), 0, x, sums, acc);
        let sums = dots::<L, ADDS, 4, V, C>(l, panels, WORDS * group + WORDS / 2, x);
        finish::<L, ADDS, MINIMA, V, C>(l, panels, (group, 1), 1, x, sums, acc);
    } else {
        let sums = dots::<L, ADDS, WORDS, V, C>(l, panels, WORDS * group, x);
        finish::<L, ADDS, MINIMA, V, C>(l, panels, (group, 0), Stretch::WHOLE, x, sums, acc);
    }
}

/// Exact sums of the products of `N` words from `first` on.
#[inline(always)]
fn dots<L: Int8, const ADDS: usize, const N: usize, const V: usize, const C: usize>(
    l: L,
    panels: &[Panel; 2],
    first: usize,
    x: &[Stretch; C],
) -> [[L::I; C]; V] {
    let mut sums = [[l.splat_i32(0); C]; V];
    // A set that takes quants of eight bits less 128 has its own product for them, however wide its sums are.
    if L::WIDE_SUMS && !(L::SIGNED && ADDS == 0) || ADDS >= 4 {
        let run = if L::WIDE_SUMS || ADDS > N { N } else { ADDS };
        for start in (first..first + N).step_by(run) {
            let mut short = [[l.zero(); C]; V];
            for word in 0..keep_loop::<L>(run) {
                let word = (start + word) % (WORDS * PANEL_GROUPS);
                for v in 0..V {
                    let q = l.quants(&panels[v * L::GROUPS..], word);
                    for c in 0..C {
                        short[v][c] = l.add_product(short[v][c], q, l.activations(x[c].quants[word]));
                    }
                }
            }
            for v in 0..V {
                for c in 0..C {
                    sums[v][c] = l.add_i32(sums[v][c], l.widen(short[v][c]));
                }
            }
        }
    } else if let Some(n_runs) = N.checked_div(ADDS) {
        for run in 0..keep_loop::<L>(n_runs) {
            let start = (first + run * ADDS) % (WORDS * PANEL_GROUPS);
            for v in 0..V {
                for c in 0..C {
                    let mut short = l.zero();
                    for word in start..(start + ADDS).min(WORDS * PANEL_GROUPS) {
                        let q = l.quants(&panels[v * L::GROUPS..], word);
                        short = l.add_product(short, q, l.activations(x[c].quants[word]));
                    }
                    sums[v][c] = l.add_i32(sums[v][c], l.widen(short));
                }
            }
        }
    } else {
        for word in first..first + N {
            for v in 0..V {
                let q = l.quants(&panels[v * L::GROUPS..], word);
                for c in 0..C {
                    sums[v][c] = l.add_wide_product(sums[v][c], q, l.activations(x[c].quants[word]));
                }
            }
        }
    }
    sums
}

/// The length of a loop that is not to be unrolled where registers are few: the compiler would then load the quants of all
/// words first and keep them on the stack, at four fifths of the speed.
#[inline(always)]
fn keep_loop<L: Int8>(n: usize) -> usize {
    if L::FEW_REGISTERS { black_box(n) } else { n }
}

/// Scales the sums of a group or of a half of it, which `part` names among the sums of the activations.
#[inline(always)]
fn finish<L: Int8, const ADDS: usize, const MINIMA: bool, const V: usize, const C: usize>(
    l: L,
    panels: &[Panel; 2],
    (group, half): (usize, usize),
    part: usize,
    x: &[Stretch; C],
    sums: [[L::I; C]; V],
    acc: &mut [[L::F; C]; V],
) {
    for c in 0..C {
        let scale_a = l.splat(x[c].scales[group]);
        // Quants of formats with minima are unsigned as they are, unless the scalar decoder gave them.
        let correction = l.splat_i32(x[c].corrections[group][part]);
        let sum_a = l.splat(x[c].sums[group][part]);
        for v in 0..V {
            let panels = &panels[v * L::GROUPS..];
            let sum = if MINIMA && ADDS > 0 { sums[v][c] } else { l.add_i32(sums[v][c], correction) };
            let scale = l.mul(l.floats(panels, |p| &p.scales[group][half]), scale_a);
            acc[v][c] = l.fma(l.to_f32(sum), scale, acc[v][c]);
            if MINIMA {
                acc[v][c] = l.fnma(l.floats(panels, |p| &p.minima[group][half]), sum_a, acc[v][c]);
            }
        }
    }
}
