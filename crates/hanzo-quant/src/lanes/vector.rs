//! Vectors of eight lanes, one lane a row, with just the operations that the formats' bits need.
//!
//! [`super::Portable`] is the definition; every other implementation gives the same bits for every operation (a test compares
//! them). Everything is `#[inline(always)]`, so that it lands in the function that enables the instructions.

use super::points::{FAR, GroupPlaces, Places, Points};

/// Lanes of a vector: rows that are worked on side by side.
pub const LANES: usize = 8;

/// Rows whose words lie in the first vector of a pair and in the second.
///
/// Eight bytes of a row are two words, and a *pair* of vectors has both of each row: a vector has first and second word of
/// four rows. These are the rows that lie side by side in the halves of a vector of eight.
pub(super) const PAIR_ROWS: [[usize; 4]; 2] = [[0, 1, 4, 5], [2, 3, 6, 7]];

/// The operations of one instruction set; a value is the proof that the processor has it.
///
/// `U` is a vector of eight u32 words (of four bytes each, the first one lowest), `F` of eight f32.
#[allow(dead_code, reason = "an operation may wait for the format that needs it")]
pub(crate) trait Lanes: Copy {
    /// Eight u32.
    type U: Copy;
    /// Eight f32.
    type F: Copy;

    /// Whether each group of a block gets code of its own, in which shifts by its index are constants.
    const UNROLLS: bool;
    /// Whether [`Lanes::add_wide_products`] takes quants less 128.
    const SIGNED: bool;

    /// Eight words in memory.
    fn load(self, bytes: &[u8; 32]) -> Self::U;
    /// Eight 16-bit numbers, widened with zeros.
    fn load_u16(self, bytes: &[u8; 16]) -> Self::U;
    /// Eight bytes, widened with zeros.
    fn load_u8(self, bytes: &[u8; 8]) -> Self::U;
    /// Eight half floats.
    fn load_f16(self, bytes: &[u8; 16]) -> Self::F;
    /// The same word in each lane.
    fn splat(self, word: u32) -> Self::U;
    /// The same two words for each row of a pair.
    fn splat_pair(self, words: [u32; 2]) -> Self::U;
    /// The words in memory order.
    fn store(self, v: Self::U, out: &mut [u32; LANES]);
    /// The numbers in memory order.
    fn store_f32(self, v: Self::F, out: &mut [f32; LANES]);

    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    /// Each word shifted up by `n` below 32.
    fn shl(self, a: Self::U, n: u32) -> Self::U;
    /// Each word shifted down by `n` below 32, zeros coming in.
    fn shr(self, a: Self::U, n: u32) -> Self::U;
    /// Wrapping sum of words.
    fn add(self, a: Self::U, b: Self::U) -> Self::U;
    /// Wrapping difference of words.
    fn sub(self, a: Self::U, b: Self::U) -> Self::U;
    /// Low word of the product of words.
    fn mul(self, a: Self::U, b: Self::U) -> Self::U;
    /// Wrapping sum of bytes.
    fn add_u8(self, a: Self::U, b: Self::U) -> Self::U;
    /// Wrapping difference of bytes.
    fn sub_u8(self, a: Self::U, b: Self::U) -> Self::U;
    /// Bytes of `a` where those of `b` are positive as signed ones, their negatives where negative, zero where zero.
    fn sign_u8(self, a: Self::U, b: Self::U) -> Self::U;
    /// 0xff in each byte where `a` and `b` are the same, else 0.
    fn eq_u8(self, a: Self::U, b: Self::U) -> Self::U;
    /// Low 16 bits of the product of 16-bit halves.
    fn mul_u16(self, a: Self::U, b: Self::U) -> Self::U;
    /// High 16 bits of the product of 16-bit halves.
    fn mul_high_u16(self, a: Self::U, b: Self::U) -> Self::U;
    /// Byte `byte` (0 to 3) of each word in all four of its bytes.
    fn spread_byte(self, a: Self::U, byte: usize) -> Self::U;
    /// The same for both words of each row of a pair.
    fn spread_byte_pair(self, a: Self::U, byte: usize) -> [Self::U; 2];
    /// Byte `byte` (0 or 1) of the two halves of each word of `a`, then of `b`.
    fn bytes_of_halves(self, a: Self::U, b: Self::U, byte: usize) -> Self::U;
    /// Each byte of `codes`, which must be below 16, replaced by its entry of the table.
    fn lookup(self, table: &[u8; 16], codes: Self::U) -> Self::U;
    /// Points as words: those whose indices are the first bytes of eight rows' words in memory, those of the second bytes and so on.
    fn gather(self, points: &Points<256>, indices: &[u8; 32]) -> [Self::U; 4];
    /// Stores four indices of each row, given as their low and their high bytes, modulo [`FAR`].
    fn put_places(self, low: Self::U, high: Self::U, four: &mut Places);
    /// [`Lanes::gather`] with indices that were stored.
    fn gather_far(self, points: &Points<FAR>, four: &Places) -> [Self::U; 4];
    /// [`Lanes::gather`] of points of eight elements, as pairs.
    fn gather_pairs(self, points: &[[i8; 8]; 256], indices: &[u8; 32]) -> [[Self::U; 2]; 4];
    /// [`Lanes::gather_far`] of points of eight elements, as pairs.
    fn gather_pairs_far(self, points: &[[i8; 8]; FAR], four: &Places) -> [[Self::U; 2]; 4];
    /// [`Lanes::gather_pairs`] with indices that are the lowest nine bits of the halves of two words of eight rows in memory.
    fn gather_pairs_nine_bits(self, points: &[[i8; 8]; 512], words: &[u8; 64]) -> [[Self::U; 2]; 4];
    /// The pair with these first and second words of eight rows.
    fn join_pair(self, words: [Self::U; 2]) -> [Self::U; 2];
    /// The first words of a pair's rows, and the second ones.
    fn split_pair(self, pair: [Self::U; 2]) -> [Self::U; 2];

    /// The half float in the low 16 bits of each word; the high ones must be zero.
    fn f16_to_f32(self, a: Self::U) -> Self::F;
    /// Each word as a signed number.
    fn i32_to_f32(self, a: Self::U) -> Self::F;
    /// Each word as the bits of a number.
    fn bits_to_f32(self, a: Self::U) -> Self::F;
    /// Product, rounded once.
    fn mul_f32(self, a: Self::F, b: Self::F) -> Self::F;
    /// The other sign.
    fn neg_f32(self, a: Self::F) -> Self::F;
    /// The same number in each lane.
    fn splat_f32(self, x: f32) -> Self::F;
    /// Sum, rounded once.
    fn add_f32(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    fn fma_f32(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`, rounded once.
    fn fnma_f32(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// `sum + Σ q · a` over the four unsigned bytes of `q` up to 127 and the signed ones of `a`. A sum may be two of 16 bits
    /// until it is widened.
    fn add_products(self, sum: Self::U, q: Self::U, a: Self::U) -> Self::U;
    /// Such a sum as a word.
    fn widen(self, sum: Self::U) -> Self::U;
    /// The same for any unsigned bytes, less 128 each where [`Lanes::SIGNED`], and with a sum that is a word.
    fn add_wide_products(self, sum: Self::U, q: Self::U, a: Self::U) -> Self::U;

    /// The same places, but a compiler takes them to depend on `sums`, so that it does not load the points of more than one group
    /// at a time, for which there are not enough registers.
    #[inline(always)]
    fn after(self, places: &GroupPlaces, _sums: Self::F) -> &GroupPlaces {
        places
    }

    /// Asks for the cache line at an address that is read soon; any address will do.
    fn prefetch(self, _at: *const u8) {}

    /// The word at `byte` (0 to 3) of each lane's word, as a number from 0 to 255.
    #[inline(always)]
    fn byte(self, a: Self::U, byte: usize) -> Self::U {
        self.and(self.shr(a, 8 * byte as u32), self.splat(0xff))
    }

    /// Bits of each word: `(word >> n) & mask`.
    #[inline(always)]
    fn bits_at(self, a: Self::U, n: u32, mask: u32) -> Self::U {
        self.and(self.shr(a, n), self.splat(mask))
    }

    /// Bits of each byte: `(byte >> n) & mask`, for an `n` and a mask of at most `8 − n` bits.
    #[inline(always)]
    fn bits(self, a: Self::U, n: u32, mask: u8) -> Self::U {
        self.and(self.shr(a, n), self.splat(u32::from(mask) * 0x0101_0101))
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::{
        super::{Job, Portable, run_widest},
        *,
    };

    /// Every operation on two vectors, as bits.
    struct All {
        a: [u32; LANES],
        b: [u32; LANES],
    }

    /// A lattice whose points' bytes tell their index.
    const fn points<const LEN: usize, const N: usize>() -> [[i8; LEN]; N] {
        let mut points = [[0; LEN]; N];
        let mut i = 0;
        while i < N * LEN {
            let (point, byte) = (i / LEN, i % LEN);
            points[point][byte] = (point >> (4 * (byte % 3)) ^ (byte << 5)) as i8;
            i += 1;
        }
        points
    }

    static FOUR: Points<256> = Points::new(&points::<4, 256>());
    static FOUR_FAR: Points<FAR> = Points::new(&points::<4, FAR>());
    static EIGHT: [[i8; 8]; 256] = points();
    static EIGHT_NINE_BITS: [[i8; 8]; 512] = points();
    static EIGHT_FAR: [[i8; 8]; FAR] = points();

    fn first_chunk<const N: usize>(bytes: &[u8]) -> &[u8; N] {
        bytes.first_chunk().unwrap()
    }

    /// Operations that give several vectors.
    #[inline(always)]
    fn of_several_vectors<L: Lanes>(l: L, a: [u32; LANES], b: [u32; LANES]) -> Vec<(&'static str, L::U)> {
        let bytes = [a, b].map(|v| v.map(u32::to_le_bytes)).concat().concat();
        let indices = first_chunk(&bytes);
        let (a, b) = (l.load(indices), l.load(first_chunk(&bytes[32..])));
        let mut four = Places::ZERO;
        l.put_places(a, b, &mut four);
        let words = [("gather", l.gather(&FOUR, indices)), ("gather_far", l.gather_far(&FOUR_FAR, &four))];
        let nine_bits = l.gather_pairs_nine_bits(&EIGHT_NINE_BITS, first_chunk(&bytes));
        let pairs = [
            ("gather_pairs", l.gather_pairs(&EIGHT, indices)),
            ("gather_pairs_far", l.gather_pairs_far(&EIGHT_FAR, &four)),
            ("gather_pairs_nine_bits", nine_bits),
            ("join", [l.join_pair([a, b]); 4]),
            ("spread and split", [l.spread_byte_pair(a, 1), l.split_pair([a, b]), [a; 2], [b; 2]]),
        ];
        let words = words.into_iter().flat_map(|(name, of)| of.map(|v| (name, v)));
        words
            .chain(pairs.into_iter().flat_map(|(name, of)| of.into_iter().flatten().map(move |v| (name, v))))
            .collect()
    }

    impl Job for All {
        type Output = Vec<(&'static str, [u32; LANES])>;

        #[inline(always)]
        fn run<L: Lanes>(self, l: L) -> Self::Output {
            let bytes: Vec<u8> = self.a.iter().flat_map(|word| word.to_le_bytes()).collect();
            let a = l.load(first_chunk(&bytes));
            let b = l.load(&self.b.map(u32::to_le_bytes).concat().try_into().unwrap());
            let codes = l.bits(a, 2, 15);
            let low = l.and(a, l.splat(0xffff));
            let words = [
                ("load", a),
                ("load_u16", l.load_u16(first_chunk(&bytes))),
                ("load_u8", l.load_u8(first_chunk(&bytes))),
                ("and", l.and(a, b)),
                ("or", l.or(a, b)),
                ("xor", l.xor(a, b)),
                ("shl", l.shl(a, 5)),
                ("shr", l.shr(a, 7)),
                ("add", l.add(a, b)),
                ("sub", l.sub(a, b)),
                ("mul", l.mul(a, b)),
                ("add_u8", l.add_u8(a, b)),
                ("sub_u8", l.sub_u8(a, b)),
                ("eq_u8", l.eq_u8(codes, l.bits(b, 1, 15))),
                ("mul_u16", l.mul_u16(a, b)),
                ("lookup", l.lookup(&std::array::from_fn(|i| (i * i) as u8), codes)),
                ("mul_high_u16", l.mul_high_u16(a, b)),
                ("spread_byte", l.spread_byte(a, 2)),
                ("bytes_of_halves", l.bytes_of_halves(a, b, 1)),
                ("sign_u8", l.sign_u8(a, b)),
                ("sign_u8 of zeros", l.sign_u8(a, l.bits(b, 3, 1))),
                ("splat_pair", l.splat_pair([self.a[0], self.b[0]])),
                ("byte", l.byte(a, 3)),
                ("products", {
                    let (q, a) = (l.bits(a, 2, 15), l.sub_u8(b, l.bits(b, 7, 1)));
                    l.widen(l.add_products(l.add_products(l.splat(0), q, a), q, a))
                }),
                ("wide products", {
                    // A signed byte is -127 at least.
                    let signed = l.sub_u8(b, l.and(l.eq_u8(b, l.splat(0x8080_8080)), l.splat(0xffff_ffff)));
                    let less = l.add_wide_products(l.splat(5), l.splat(0x8080_8080), signed);
                    let sum = l.add_wide_products(l.splat(5), a, signed);
                    if L::SIGNED { sum } else { l.add(l.sub(sum, less), l.splat(5)) }
                }),
            ];
            let floats = [
                ("load_f16", l.load_f16(first_chunk(&bytes))),
                ("f16_to_f32", l.f16_to_f32(low)),
                ("i32_to_f32", l.i32_to_f32(a)),
                ("bits_to_f32", l.bits_to_f32(a)),
                ("mul_f32", l.mul_f32(l.i32_to_f32(a), l.f16_to_f32(low))),
                ("neg_f32", l.neg_f32(l.bits_to_f32(b))),
                ("add_f32", l.add_f32(l.i32_to_f32(a), l.splat_f32(0.3))),
                ("fma_f32", l.fma_f32(l.i32_to_f32(a), l.splat_f32(0.3), l.i32_to_f32(b))),
                ("fnma_f32", l.fnma_f32(l.i32_to_f32(a), l.splat_f32(0.3), l.i32_to_f32(b))),
            ];
            let mut out = Vec::new();
            for (name, v) in words.into_iter().chain(of_several_vectors(l, self.a, self.b)) {
                let mut words = [0; LANES];
                l.store(v, &mut words);
                out.push((name, words));
            }
            for (name, v) in floats {
                let mut values = [0.0; LANES];
                l.store_f32(v, &mut values);
                out.push((name, values.map(|v| if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() })));
            }
            out
        }
    }

    #[test]
    fn the_widest_instructions_agree_with_plain_rust() {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut word = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        for _ in 0..2000 {
            let [a, b] = [[0; LANES]; 2].map(|lanes| lanes.map(|_: u32| word()));
            let plain = All { a, b }.run(Portable);
            assert_eq!(run_widest(All { a, b }), plain, "{a:x?} {b:x?}");
        }
    }
}
