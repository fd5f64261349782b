//! The tile of AVX2 in assembly: sixteen rows of a weight by four of activations.
//!
//! It does what the general product does (`kernel`), with the same bits, but the order of its instructions and the use of the
//! sixteen registers are settled. A compiler adds integers in an order of its own, holds on the stack what it loaded early, and
//! loses up to a fifth (`docs/perf/negatives.md`). Words are a loop, not a list: unrolled code is no faster where it lies
//! well and a fourth slower where it does not.
//!
//! Registers 0 to 7 have the sums of the four rows with both panels, in turn; 8 and 9 a word of quants of each panel (10
//! and 11 the next word, or magnitudes), 12 four activations, 13 to 15 products. When a group is added up, 8 and 9
//! are the scales and 12 what belongs to the row of activations.

#![expect(unsafe_code, reason = "assembly")]

use std::{
    arch::asm,
    mem::{MaybeUninit, offset_of},
};

use hanzo_quant::{LANES, PANEL_GROUPS, Panel, Stretch};

use crate::cpu::int8::COLUMNS;

/// Rows of activations of a tile.
pub(super) const ROWS: usize = 4;

/// What instructions take from memory.
#[repr(C, align(32))]
struct Constants {
    /// Widens by multiplication.
    ones: [i16; 16],
    /// Makes quants signed.
    signs: [u8; 32],
}

static CONSTANTS: Constants = Constants { ones: [1; 16], signs: [0x80; 32] };

/// Sums that wait for others.
#[repr(C, align(32))]
struct Waiting([[i32; LANES]; 2 * ROWS]);

/// One instruction.
macro_rules! op {
    ($name:literal, $to:expr $(, $from:expr)+) => {
        concat!($name, " ", $to $(, ", ", $from)+, "\n")
    };
}

/// The address of a row's total or waiting sum; `$second` is that of panel 1.
macro_rules! of_row {
    ($base:literal, $row:literal) => {
        concat!("ymmword ptr [", $base, " + 64*", $row, "]")
    };
    ($base:literal, $row:literal, second) => {
        concat!("ymmword ptr [", $base, " + 64*", $row, " + 32]")
    };
}

/// Steps for one row of activations after the other: `$step!(row, sum of panel 0, sum of panel 1, …)`.
macro_rules! rows {
    ($step:ident $(, $arg:literal)*) => {
        concat!(
            $step!("0", "ymm0", "ymm1" $(, $arg)*),
            $step!("1", "ymm2", "ymm3" $(, $arg)*),
            $step!("2", "ymm4", "ymm5" $(, $arg)*),
            $step!("3", "ymm6", "ymm7" $(, $arg)*),
        )
    };
}

/// Loads word `$word` of both panels.
macro_rules! quants {
    ($a:literal, $b:literal, $word:literal) => {
        concat!(
            op!("vmovdqu", $a, concat!("ymmword ptr [{quants} + 32*", $word, "]")),
            op!("vmovdqu", $b, concat!("ymmword ptr [{quants} + {panel} + 32*", $word, "]")),
        )
    };
}

/// Loads word `$word` of a row of activations.
macro_rules! activations {
    ($row:literal, $word:literal) => {
        concat!("vpbroadcastd ymm12, dword ptr [{x_quants} + {stretch}*", $row, " + 4*", $word, "]\n")
    };
}

/// Goes on by `$words` words.
macro_rules! advance {
    ($words:literal) => {
        concat!("add {quants}, 32*", $words, "\nadd {x_quants}, 4*", $words, "\n")
    };
}

/// `$first` for a word, then `$next` for each of `$more` words.
macro_rules! words {
    ($load:ident, $first:ident, $next:ident, $more:literal) => {
        concat!(
            $load!("ymm8", "ymm9", "0"),
            rows!($first),
            "mov {n:e}, ",
            $more,
            "\n",
            ".p2align 5\n3:\n",
            advance!("1"),
            $load!("ymm8", "ymm9", "0"),
            rows!($next),
            "dec {n:e}\njnz 3b\n",
            advance!("1"),
        )
    };
}

/// Widens sums of 16 bits.
macro_rules! widen {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            op!("vpmaddwd", $a, $a, "ymmword ptr [{constants}]"),
            op!("vpmaddwd", $b, $b, "ymmword ptr [{constants}]"),
        )
    };
}

/// Products of a word that begin short sums.
macro_rules! begin_short {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            activations!($row, "0"),
            op!("vpmaddubsw", $a, "ymm8", "ymm12"),
            op!("vpmaddubsw", $b, "ymm9", "ymm12"),
        )
    };
}

/// Products of a word, added to short sums.
macro_rules! add_short {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            activations!($row, "0"),
            op!("vpmaddubsw", "ymm13", "ymm8", "ymm12"),
            op!("vpaddw", $a, $a, "ymm13"),
            op!("vpmaddubsw", "ymm14", "ymm9", "ymm12"),
            op!("vpaddw", $b, $b, "ymm14"),
        )
    };
}

/// Words that are added before they widen.
macro_rules! run {
    ($more:literal) => {
        concat!(words!(quants, begin_short, add_short, $more), rows!(widen))
    };
}

/// Puts sums aside.
macro_rules! wait {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            op!("vmovdqa", of_row!("{waiting}", $row), $a),
            op!("vmovdqa", of_row!("{waiting}", $row, second), $b),
        )
    };
}

/// Adds what was put aside.
macro_rules! join {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            op!("vpaddd", $a, $a, of_row!("{waiting}", $row)),
            op!("vpaddd", $b, $b, of_row!("{waiting}", $row, second)),
        )
    };
}

/// Adds widened sums of registers 13 and 14.
macro_rules! add_sums {
    ($a:literal, $b:literal) => {
        concat!(op!("vpaddd", $a, $a, "ymm13"), op!("vpaddd", $b, $b, "ymm14"))
    };
}

/// Products of two words, widened, that begin sums.
macro_rules! begin_pair {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            activations!($row, "0"),
            op!("vpmaddubsw", $a, "ymm8", "ymm12"),
            op!("vpmaddubsw", $b, "ymm9", "ymm12"),
            activations!($row, "1"),
            op!("vpmaddubsw", "ymm13", "ymm10", "ymm12"),
            op!("vpmaddubsw", "ymm14", "ymm11", "ymm12"),
            op!("vpaddw", $a, $a, "ymm13"),
            op!("vpaddw", $b, $b, "ymm14"),
            widen!($row, $a, $b),
        )
    };
}

/// Products of two words, widened and added.
macro_rules! add_pair {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            activations!($row, "0"),
            op!("vpmaddubsw", "ymm13", "ymm8", "ymm12"),
            op!("vpmaddubsw", "ymm14", "ymm9", "ymm12"),
            activations!($row, "1"),
            op!("vpmaddubsw", "ymm15", "ymm10", "ymm12"),
            op!("vpaddw", "ymm13", "ymm13", "ymm15"),
            op!("vpmaddubsw", "ymm15", "ymm11", "ymm12"),
            op!("vpaddw", "ymm14", "ymm14", "ymm15"),
            widen!($row, "ymm13", "ymm14"),
            add_sums!($a, $b),
        )
    };
}

/// Two words, with `$step`.
macro_rules! pair {
    ($step:ident) => {
        concat!(quants!("ymm8", "ymm9", "0"), quants!("ymm10", "ymm11", "1"), rows!($step), advance!("2"))
    };
}

/// Products of a word, widened, that begin sums.
macro_rules! begin_wide {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(begin_short!($row, $a, $b), widen!($row, $a, $b))
    };
}

/// Products of a word, widened and added.
macro_rules! add_wide {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(begin_wide!($row, "ymm13", "ymm14"), add_sums!($a, $b),)
    };
}

/// Loads a word of quants of eight bits less 128 and their magnitudes.
macro_rules! magnitudes {
    ($a:literal, $b:literal, $word:literal) => {
        concat!(
            quants!($a, $b, $word),
            op!("vpxor", $a, $a, "ymmword ptr [{constants} + {signs}]"),
            op!("vpxor", $b, $b, "ymmword ptr [{constants} + {signs}]"),
            op!("vpabsb", "ymm10", $a),
            op!("vpabsb", "ymm11", $b),
        )
    };
}

/// [`begin_wide`] for magnitudes; their signs go to the activations.
macro_rules! begin_signed {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            activations!($row, "0"),
            op!("vpsignb", $a, "ymm12", "ymm8"),
            op!("vpsignb", $b, "ymm12", "ymm9"),
            op!("vpmaddubsw", $a, "ymm10", $a),
            op!("vpmaddubsw", $b, "ymm11", $b),
            widen!($row, $a, $b),
        )
    };
}

/// [`add_wide`] for magnitudes.
macro_rules! add_signed {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(begin_signed!($row, "ymm13", "ymm14"), add_sums!($a, $b),)
    };
}

/// Undoes the shift of the quants.
macro_rules! correct {
    ($row:literal, $a:literal, $b:literal, $part:literal) => {
        concat!(
            op!(
                "vpbroadcastd",
                "ymm13",
                concat!("dword ptr [{x_sums} + {corrections} + {stretch}*", $row, " + 4*", $part, "]")
            ),
            op!("vpaddd", $a, $a, "ymm13"),
            op!("vpaddd", $b, $b, "ymm13"),
        )
    };
}

/// `i · (d_w · d_a) + total`.
macro_rules! scale {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            op!("vbroadcastss", "ymm12", concat!("dword ptr [{x_scales} + {stretch}*", $row, "]")),
            op!("vcvtdq2ps", $a, $a),
            op!("vcvtdq2ps", $b, $b),
            op!("vmulps", "ymm13", "ymm8", "ymm12"),
            op!("vmulps", "ymm14", "ymm9", "ymm12"),
            op!("vfmadd213ps", $a, "ymm13", of_row!("{totals}", $row)),
            op!("vfmadd213ps", $b, "ymm14", of_row!("{totals}", $row, second)),
        )
    };
}

/// Less `m · (d_a Σ a)`.
macro_rules! subtract {
    ($row:literal, $a:literal, $b:literal, $part:literal, $half:literal) => {
        concat!(
            op!(
                "vbroadcastss",
                "ymm12",
                concat!("dword ptr [{x_sums} + {stretch}*", $row, " + 4*", $part, "]")
            ),
            op!("vfnmadd231ps", $a, "ymm12", concat!("ymmword ptr [{scales} + {minima} + 32*", $half, "]")),
            op!(
                "vfnmadd231ps",
                $b,
                "ymm12",
                concat!("ymmword ptr [{scales} + {minima} + {panel} + 32*", $half, "]")
            ),
        )
    };
}

/// Puts totals back.
macro_rules! store {
    ($row:literal, $a:literal, $b:literal) => {
        concat!(
            op!("vmovups", of_row!("{totals}", $row), $a),
            op!("vmovups", of_row!("{totals}", $row, second), $b),
        )
    };
}

macro_rules! finish_row {
    ($row:literal, $a:literal, $b:literal, $part:literal, $half:literal) => {
        concat!(correct!($row, $a, $b, $part), scale!($row, $a, $b), store!($row, $a, $b))
    };
}

/// Unsigned quants of formats with minima need no correction.
macro_rules! finish_row_minima {
    ($row:literal, $a:literal, $b:literal, $part:literal, $half:literal) => {
        concat!(scale!($row, $a, $b), subtract!($row, $a, $b, $part, $half), store!($row, $a, $b))
    };
}

/// Adds the sums of a group to the totals, or of a half of it. `$part` is the place among the sums of the activations.
macro_rules! finish {
    ($finish:ident, $part:literal, $half:literal) => {
        concat!(
            op!("vmovups", "ymm8", concat!("ymmword ptr [{scales} + 32*", $half, "]")),
            op!("vmovups", "ymm9", concat!("ymmword ptr [{scales} + {panel} + 32*", $half, "]")),
            rows!($finish, $part, $half),
        )
    };
}

/// A whole group.
macro_rules! whole {
    ($finish:ident, $($sums:expr),+) => {
        concat!($($sums),+, finish!($finish, "2", "0"))
    };
}

/// Both halves of a group.
macro_rules! halves {
    ($finish:ident, $($sums:expr),+) => {
        concat!($($sums),+, finish!($finish, "0", "0"), $($sums),+, finish!($finish, "1", "1"))
    };
}

/// Where the operands of the first group lie.
#[derive(Clone, Copy)]
struct Operands {
    n_groups: usize,
    quants: *const u32,
    scales: *const f32,
    x_quants: *const u32,
    x_scales: *const f32,
    x_sums: *const f32,
    waiting: *mut Waiting,
    totals: *mut f32,
}

macro_rules! tile {
    ($name:ident, $group:expr) => {
        /// # Safety
        /// The operands are those of at least one group of two panels and of [`ROWS`] rows of activations, one behind the other.
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(operands: Operands) {
            // SAFETY: the caller's promise. Addresses go on by a group at a time, `n_groups` times.
            unsafe {
                asm!(
                    "/* {n} {x_sums} {waiting} {signs} {minima} {corrections} */",
                    ".p2align 6\n2:\n",
                    $group,
                    "add {scales}, 64\nadd {x_scales}, 4\nadd {x_sums}, 12\n",
                    "dec {n_groups}\njnz 2b\n",
                    n_groups = inout(reg) operands.n_groups => _,
                    quants = inout(reg) operands.quants => _,
                    scales = inout(reg) operands.scales => _,
                    x_quants = inout(reg) operands.x_quants => _,
                    x_scales = inout(reg) operands.x_scales => _,
                    x_sums = inout(reg) operands.x_sums => _,
                    n = out(reg) _,
                    constants = in(reg) &raw const CONSTANTS,
                    waiting = in(reg) operands.waiting,
                    totals = in(reg) operands.totals,
                    panel = const size_of::<Panel>(),
                    minima = const offset_of!(Panel, minima) - offset_of!(Panel, scales),
                    stretch = const size_of::<Stretch>(),
                    corrections = const offset_of!(Stretch, corrections) as isize - offset_of!(Stretch, sums) as isize,
                    signs = const offset_of!(Constants, signs),
                    out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                    out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                    out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                    out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                    options(nostack),
                );
            }
        }
    };
}

// All products of a group are added before they widen, four words' or one's; or quants have eight bits.
tile!(all, whole!(finish_row, run!("7")));
tile!(all_minima, whole!(finish_row_minima, run!("7")));
tile!(fours, whole!(finish_row, run!("3"), rows!(wait), run!("3"), rows!(join)));
tile!(fours_minima, whole!(finish_row_minima, run!("3"), rows!(wait), run!("3"), rows!(join)));
tile!(singles, whole!(finish_row, words!(quants, begin_wide, add_wide, "7")));
tile!(bytes, whole!(finish_row, words!(magnitudes, begin_signed, add_signed, "7")));
// The same for halves, whose products are four words.
tile!(half_all, halves!(finish_row, run!("3")));
tile!(half_all_minima, halves!(finish_row_minima, run!("3")));
tile!(half_pairs, halves!(finish_row, pair!(begin_pair), pair!(add_pair)));
tile!(half_singles, halves!(finish_row, words!(quants, begin_wide, add_wide, "3")));

/// Adds the products of the first `n_groups` groups of two panels with four rows of activations to their totals, where there
/// is a tile for the variant (see `kernel`), and says whether there is.
#[target_feature(enable = "avx2,fma")]
pub(super) fn tile<const ADDS: usize, const HALVES: bool, const MINIMA: bool>(
    panels: &[Panel; 2],
    n_groups: usize,
    x: &[Stretch; ROWS],
    totals: &mut [[f32; COLUMNS]; ROWS],
) -> bool {
    let tile = match (ADDS, HALVES, MINIMA) {
        (8, false, false) => all,
        (8, false, true) => all_minima,
        (4, false, false) => fours,
        (4, false, true) => fours_minima,
        (1, false, false) => singles,
        (0, false, false) => bytes,
        (4, true, false) => half_all,
        (4, true, true) => half_all_minima,
        (2, true, false) => half_pairs,
        (1, true, false) => half_singles,
        // No format needs the others.
        _ => return false,
    };
    let mut waiting = MaybeUninit::uninit();
    let n_groups = n_groups.min(PANEL_GROUPS);
    if n_groups > 0 {
        // SAFETY: `n_groups` groups are in the panels and stretches, which lie behind each other in their arrays.
        unsafe {
            tile(Operands {
                n_groups,
                quants: panels.as_ptr().cast(),
                scales: (&raw const panels[0].scales).cast(),
                x_quants: (&raw const x[0].quants).cast(),
                x_scales: (&raw const x[0].scales).cast(),
                x_sums: (&raw const x[0].sums).cast(),
                waiting: waiting.as_mut_ptr(),
                totals: totals.as_mut_ptr().cast(),
            });
        }
    }
    true
}
