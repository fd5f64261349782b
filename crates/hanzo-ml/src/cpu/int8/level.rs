//! What an instruction set does for integer products: a few functions on vectors of rows.
//!
//! Everything is `#[inline(always)]`, so that it lands in the one function that enables the instructions. Each set's
//! functions are compared with plain loops by the tests of this module, on processors that have it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vnni;

use hanzo_quant::{LANES, Panel, Stretch};

use super::{COLUMNS, weights::QuantRange};

/// The functions of one instruction set; a value is the proof that the processor has it.
///
/// A vector holds eight rows of the weight, or sixteen: those of [`Int8::GROUPS`] panels.
pub(super) trait Int8: Copy {
    /// Four unsigned quants of each row.
    type Q: Copy;
    /// Four signed activations, the same for each row.
    type A: Copy;
    /// A short sum, of as many products as the largest quant allows.
    type S: Copy;
    /// An i32 of each row.
    type I: Copy;
    /// An f32 of each row.
    type F: Copy;

    /// Panels of a vector.
    const GROUPS: usize;
    /// Whether a short sum holds any number of products.
    const WIDE_SUMS: bool;
    /// Whether [`Int8::add_wide_product`] takes quants less 128.
    const SIGNED: bool;
    /// Whether there are sixteen vector registers, not more.
    const FEW_REGISTERS: bool;
    /// Pairs of panels that are filled together: rows of activations come from the L2 cache once for all of them. They
    /// should leave half of the L1 cache free.
    const PAIRS: usize;

    /// A tile by hand, if the set has one for the variant (see [`super::kernel`]) and `C` rows of activations: adds the products
    /// of the first `n_groups` groups to the rows' totals. Says whether it has.
    #[inline(always)]
    fn tile<const ADDS: usize, const HALVES: bool, const MINIMA: bool, const C: usize>(
        self,
        _panels: &[Panel; 2],
        _n_groups: usize,
        _x: &[Stretch; C],
        _totals: &mut [[f32; COLUMNS]],
    ) -> bool {
        false
    }
    /// Word `word` of the panels' quants.
    fn quants(self, panels: &[Panel], word: usize) -> Self::Q;
    /// Four signed bytes, the first one lowest.
    fn activations(self, word: u32) -> Self::A;
    /// An empty short sum.
    fn zero(self) -> Self::S;
    /// `s + Σ q · a`, for quants up to 127.
    fn add_product(self, s: Self::S, q: Self::Q, a: Self::A) -> Self::S;
    /// A short sum as an i32.
    fn widen(self, s: Self::S) -> Self::I;
    /// `i + Σ q · a`, for any quants; less 128 each where [`Int8::SIGNED`].
    fn add_wide_product(self, i: Self::I, q: Self::Q, a: Self::A) -> Self::I;
    /// The same number for each row.
    fn splat_i32(self, x: i32) -> Self::I;
    /// Sum.
    fn add_i32(self, a: Self::I, b: Self::I) -> Self::I;
    /// The number as an f32.
    fn to_f32(self, i: Self::I) -> Self::F;
    /// The same number for each row.
    fn splat(self, x: f32) -> Self::F;
    /// Numbers of each panel's rows.
    fn floats(self, panels: &[Panel], of: impl Fn(&Panel) -> &[f32; LANES]) -> Self::F;
    /// The first numbers of a slice.
    fn load(self, x: &[f32]) -> Self::F;
    /// Writes the first numbers of a slice.
    fn store(self, v: Self::F, out: &mut [f32]);
    /// Product.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
}

/// A computation for any instruction set.
pub(super) trait Int8Kernel {
    /// `V` vectors hold sixteen rows of the weight; `C` rows of activations fill the registers. Must be
    /// `#[inline(always)]`.
    fn run<L: Int8, const V: usize, const C: usize>(self, l: L);
}

/// The instruction set that integer products use.
#[derive(Clone, Copy)]
pub(in super::super) enum Int8Level {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(vnni::Avx512Vnni),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(vnni::AvxVnni),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    Portable,
}

impl Int8Level {
    /// Every set that this processor has, the best one first.
    pub(super) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(vnni::Avx512Vnni::detect().map(Self::Avx512Vnni));
            all.extend(vnni::AvxVnni::detect().map(Self::AvxVnni));
            all.extend(avx2::Avx2::detect().map(Self::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(neon::Neon::detect().map(Self::Neon));
        all.push(Self::Portable);
        all
    }

    /// The best set of this processor.
    pub(in super::super) fn detect() -> Self {
        Self::all()[0]
    }

    /// The set's name.
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => "avx512-vnni",
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon-dotprod",
            Self::Portable => "portable",
        }
    }

    /// Whether it is more than what every processor of the target has.
    pub(in super::super) fn is_wide(self) -> bool {
        !matches!(self, Self::Portable)
    }

    /// Whether the formats' own products with one row have these instructions too.
    pub(super) fn multiplies_rows(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) | Self::AvxVnni(_) | Self::Avx2(_) => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => false,
            Self::Portable => false,
        }
    }

    /// `(Int8::WIDE_SUMS, Int8::SIGNED, Int8::PAIRS)`.
    fn facts(self) -> (bool, bool, usize) {
        fn of<L: Int8>(_: &L) -> (bool, bool, usize) {
            (L::WIDE_SUMS, L::SIGNED, L::PAIRS)
        }
        match &self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(level) => of(level),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(level) => of(level),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => of(level),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(level) => of(level),
            Self::Portable => of(&portable::Portable),
        }
    }

    /// [`Int8::PAIRS`].
    pub(super) fn pairs(self) -> usize {
        self.facts().2
    }

    /// How many products of quants up to `max` a short sum holds; 0 for quants of 8 bits, which have a way of their own.
    pub(super) fn sum_len(self, max: u8) -> usize {
        /// The largest magnitude of an activation, and products in a lane of 16 bits.
        const ACTIVATION_MAX: usize = 127;
        const LANE_PRODUCTS: usize = 2;
        match (max, self.facts().0) {
            (128.., _) => 0,
            (_, true) => usize::MAX,
            (max, false) => i16::MAX as usize / (LANE_PRODUCTS * ACTIVATION_MAX * usize::from(max.max(1))),
        }
    }

    /// What an activation must be multiplied with to undo the shift of the quants.
    pub(super) fn correction(self, range: QuantRange) -> i32 {
        let subtracted = if self.facts().1 && range.max > 127 { 128 } else { 0 };
        subtracted - i32::from(range.offset)
    }

    pub(super) fn run(self, kernel: impl Int8Kernel) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(level) => level.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(level) => level.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(level) => level.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(level) => level.run(kernel),
            Self::Portable => kernel.run::<portable::Portable, 2, 4>(portable::Portable),
        }
    }
}
