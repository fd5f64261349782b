//! The lanes in plain Rust: the definition of every operation.

use super::{
    points::{FAR, Places, Points},
    vector::{LANES, Lanes, PAIR_ROWS},
};
use crate::format::bits::f16_to_f32;

/// Plain Rust for any processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

type U = [u32; LANES];

#[inline(always)]
fn each<T>(f: impl Fn(usize) -> T) -> [T; LANES] {
    std::array::from_fn(f)
}

/// `f` of each pair of bytes.
#[inline(always)]
fn bytewise(a: U, b: U, f: impl Fn(u8, u8) -> u8) -> U {
    each(|i| {
        let (a, b) = (a[i].to_le_bytes(), b[i].to_le_bytes());
        u32::from_le_bytes(std::array::from_fn(|k| f(a[k], b[k])))
    })
}

/// The bytes of a row's word in memory as indices.
#[inline(always)]
fn near(indices: &[u8; 32]) -> impl Fn(usize, usize) -> usize {
    move |row, k| usize::from(indices[4 * row + k])
}

/// Points of four elements, as words.
#[inline(always)]
fn words_at(points: &[[i8; 4]], at: impl Fn(usize, usize) -> usize) -> [U; 4] {
    std::array::from_fn(|k| each(|row| u32::from_le_bytes(points[at(row, k)].map(|byte| byte as u8))))
}

/// Points of eight elements, as pairs.
#[inline(always)]
fn pairs_at(points: &[[i8; 8]], at: impl Fn(usize, usize) -> usize) -> [[U; 2]; 4] {
    let word = |row: usize, k: usize, second: usize| {
        let point = points[at(row, k)];
        u32::from_le_bytes(std::array::from_fn(|i| point[4 * second + i] as u8))
    };
    std::array::from_fn(|k| pair(each(|row| word(row, k, 0)), each(|row| word(row, k, 1))))
}

/// The pair with these first and second words of eight rows.
#[inline(always)]
fn pair(first: U, second: U) -> [U; 2] {
    PAIR_ROWS.map(|rows| each(|i| if i % 2 == 0 { first[rows[i / 2]] } else { second[rows[i / 2]] }))
}

impl Lanes for Portable {
    type U = U;
    type F = [f32; LANES];

    const UNROLLS: bool = false;
    const SIGNED: bool = false;

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> U {
        let words = bytes.as_chunks::<4>().0;
        each(|i| u32::from_le_bytes(words[i]))
    }

    #[inline(always)]
    fn load_u16(self, bytes: &[u8; 16]) -> U {
        let halves = bytes.as_chunks::<2>().0;
        each(|i| u32::from(u16::from_le_bytes(halves[i])))
    }

    #[inline(always)]
    fn load_u8(self, bytes: &[u8; 8]) -> U {
        each(|i| u32::from(bytes[i]))
    }

    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 16]) -> [f32; LANES] {
        let halves = bytes.as_chunks::<2>().0;
        each(|i| f16_to_f32(u16::from_le_bytes(halves[i])))
    }

    #[inline(always)]
    fn splat(self, word: u32) -> U {
        [word; LANES]
    }

    #[inline(always)]
    fn splat_pair(self, words: [u32; 2]) -> U {
        each(|i| words[i % 2])
    }

    #[inline(always)]
    fn store(self, v: U, out: &mut [u32; LANES]) {
        *out = v;
    }

    #[inline(always)]
    fn store_f32(self, v: [f32; LANES], out: &mut [f32; LANES]) {
        *out = v;
    }

    #[inline(always)]
    fn and(self, a: U, b: U) -> U {
        each(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: U, b: U) -> U {
        each(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn xor(self, a: U, b: U) -> U {
        each(|i| a[i] ^ b[i])
    }

    #[inline(always)]
    fn shl(self, a: U, n: u32) -> U {
        each(|i| a[i] << n)
    }

    #[inline(always)]
    fn shr(self, a: U, n: u32) -> U {
        each(|i| a[i] >> n)
    }

    #[inline(always)]
    fn add(self, a: U, b: U) -> U {
        each(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub(self, a: U, b: U) -> U {
        each(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn mul(self, a: U, b: U) -> U {
        each(|i| a[i].wrapping_mul(b[i]))
    }

    #[inline(always)]
    fn add_u8(self, a: U, b: U) -> U {
        bytewise(a, b, u8::wrapping_add)
    }

    #[inline(always)]
    fn sub_u8(self, a: U, b: U) -> U {
        bytewise(a, b, u8::wrapping_sub)
    }

    #[inline(always)]
    fn sign_u8(self, a: U, b: U) -> U {
        bytewise(a, b, |a, b| (a as i8).wrapping_mul((b as i8).signum()) as u8)
    }

    #[inline(always)]
    fn eq_u8(self, a: U, b: U) -> U {
        bytewise(a, b, |a, b| if a == b { 0xff } else { 0 })
    }

    #[inline(always)]
    fn mul_u16(self, a: U, b: U) -> U {
        let low = |a: u32, b: u32| (a & 0xffff).wrapping_mul(b & 0xffff) & 0xffff;
        each(|i| low(a[i], b[i]) | low(a[i] >> 16, b[i] >> 16) << 16)
    }

    #[inline(always)]
    fn mul_high_u16(self, a: U, b: U) -> U {
        let high = |a: u32, b: u32| ((a & 0xffff) * (b & 0xffff)) >> 16;
        each(|i| high(a[i], b[i]) | high(a[i] >> 16, b[i] >> 16) << 16)
    }

    #[inline(always)]
    fn spread_byte(self, a: U, byte: usize) -> U {
        each(|i| (a[i] >> (8 * byte) & 0xff) * 0x0101_0101)
    }

    #[inline(always)]
    fn spread_byte_pair(self, a: U, byte: usize) -> [U; 2] {
        let spread = self.spread_byte(a, byte);
        pair(spread, spread)
    }

    #[inline(always)]
    fn bytes_of_halves(self, a: U, b: U, byte: usize) -> U {
        let bytes = |word: u32| word >> (8 * byte) & 0xff | (word >> (16 + 8 * byte) & 0xff) << 8;
        each(|i| bytes(a[i]) | bytes(b[i]) << 16)
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: U) -> U {
        each(|i| u32::from_le_bytes(codes[i].to_le_bytes().map(|code| table[usize::from(code & 15)])))
    }

    #[inline(always)]
    fn gather(self, points: &Points<256>, indices: &[u8; 32]) -> [U; 4] {
        words_at(&points.points, near(indices))
    }

    #[inline(always)]
    fn put_places(self, low: U, high: U, four: &mut Places) {
        for (rows, indices) in PAIR_ROWS.iter().zip(&mut four.0) {
            for (row, indices) in rows.iter().zip(indices) {
                let (low, high) = (low[*row].to_le_bytes(), high[*row].to_le_bytes());
                *indices = std::array::from_fn(|k| u16::from_le_bytes([low[k], high[k]]) % FAR as u16);
            }
        }
    }

    #[inline(always)]
    fn gather_far(self, points: &Points<FAR>, four: &Places) -> [U; 4] {
        words_at(&points.points, |row, k| four.at(row, k))
    }

    #[inline(always)]
    fn gather_pairs(self, points: &[[i8; 8]; 256], indices: &[u8; 32]) -> [[U; 2]; 4] {
        pairs_at(points, near(indices))
    }

    #[inline(always)]
    fn gather_pairs_far(self, points: &[[i8; 8]; FAR], four: &Places) -> [[U; 2]; 4] {
        pairs_at(points, |row, k| four.at(row, k))
    }

    #[inline(always)]
    fn gather_pairs_nine_bits(self, points: &[[i8; 8]; 512], words: &[u8; 64]) -> [[U; 2]; 4] {
        let words = words.as_chunks::<4>().0;
        pairs_at(points, |row, k| {
            let word = u32::from_le_bytes(words[LANES * (k / 2) + row]);
            (word >> (16 * (k % 2))) as usize % 512
        })
    }

    #[inline(always)]
    fn join_pair(self, words: [U; 2]) -> [U; 2] {
        pair(words[0], words[1])
    }

    #[inline(always)]
    fn split_pair(self, pair: [U; 2]) -> [U; 2] {
        let mut words = [[0; LANES]; 2];
        for (rows, vector) in PAIR_ROWS.iter().zip(pair) {
            for (place, row) in rows.iter().enumerate() {
                (words[0][*row], words[1][*row]) = (vector[2 * place], vector[2 * place + 1]);
            }
        }
        words
    }

    #[inline(always)]
    fn f16_to_f32(self, a: U) -> [f32; LANES] {
        each(|i| f16_to_f32(a[i] as u16))
    }

    #[inline(always)]
    fn i32_to_f32(self, a: U) -> [f32; LANES] {
        each(|i| a[i] as i32 as f32)
    }

    #[inline(always)]
    fn bits_to_f32(self, a: U) -> [f32; LANES] {
        each(|i| f32::from_bits(a[i]))
    }

    #[inline(always)]
    fn mul_f32(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn neg_f32(self, a: [f32; LANES]) -> [f32; LANES] {
        each(|i| -a[i])
    }

    #[inline(always)]
    fn splat_f32(self, x: f32) -> [f32; LANES] {
        [x; LANES]
    }

    #[inline(always)]
    fn add_f32(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn fma_f32(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn fnma_f32(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        each(|i| (-a[i]).mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn add_products(self, sum: U, q: U, a: U) -> U {
        self.add_wide_products(sum, q, a)
    }

    #[inline(always)]
    fn widen(self, sum: U) -> U {
        sum
    }

    #[inline(always)]
    fn add_wide_products(self, sum: U, q: U, a: U) -> U {
        let product = |q: u8, a: u8| i32::from(q) * i32::from(a as i8);
        each(|i| {
            let (q, a) = (q[i].to_le_bytes(), a[i].to_le_bytes());
            let products =
                product(q[0], a[0]) + product(q[1], a[1]) + product(q[2], a[2]) + product(q[3], a[3]);
            sum[i].wrapping_add_signed(products)
        })
    }
}
