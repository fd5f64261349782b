//! Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32 with a half-float scale and, in the `_1` forms, a half-float offset.
//!
//! The low nibbles hold elements 0 to 15, the high ones 16 to 31; bit `i` of `qh` is the fifth bit of element `i`.

use super::{
    Encode, Field, GROUP, Group,
    bits::{as_half, bytes, f16_at, farthest_from_zero, map, nibbles, put_f16, u32_at},
    layout::{EncodeBlock, Quant, encode, fields},
    search::{Effort, Integers, Line, Run, fit, fit_with_offset, in_halves},
};
use crate::lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words};

/// [`nibbles`] of eight rows.
#[inline(always)]
pub(super) fn nibble_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize) -> [L::U; 8] {
    words!(|i| l.bits(block.word(at + 4 * (i % 4)), 4 * (i as u32 / 4), 15))
}

/// [`five_bits`] of eight rows.
#[inline(always)]
fn five_bit_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize, high: L::U) -> [L::U; 8] {
    let low = nibble_words(l, block, at);
    words!(|i| {
        // Four bits, each copied to bit 4 of its own byte.
        let bits = l.and(l.shr(high, 4 * i as u32), l.splat(15));
        l.or(low[i], l.and(l.mul(bits, l.splat(0x0204_0810)), l.splat(0x1010_1010)))
    })
}

pub(crate) struct Q4_0;

impl Quant for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const GGML_TYPE: u32 = 2;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        let quants = map(&nibbles(bytes(block, 2)), |q| q as i8 - 8);
        Group::symmetric(quants, [f16_at(block, 0); 2])
    }
}

impl EightRows for Q4_0 {
    const OFFSET: u8 = 8;
    const MAX: u8 = 15;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup { quants: nibble_words(l, block, 2), signs: None, scales: [block.f16(0); 2], minima: None }
    }
}

impl EncodeBlock for Q4_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 18;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let codes = centred(values, weights, 8, block);
        put_nibbles(&codes, &mut block[2..]);
    }
}

pub(crate) struct Q4_1;

impl Quant for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const GGML_TYPE: u32 = 3;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("m", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group {
            quants: map(&nibbles(bytes(block, 4)), |q| q as i8),
            scales: [f16_at(block, 0); 2],
            minima: [-f16_at(block, 2); 2],
        }
    }
}

impl EightRows for Q4_1 {
    const OFFSET: u8 = 0;
    const MAX: u8 = 15;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup {
            quants: nibble_words(l, block, 4),
            signs: None,
            scales: [block.f16(0); 2],
            minima: Some([l.neg_f32(block.f16(2)); 2]),
        }
    }
}

impl EncodeBlock for Q4_1 {
    const ELEMS: usize = 32;
    const BYTES: usize = 20;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let codes = spread(values, weights, 15, block);
        put_nibbles(&codes, &mut block[4..]);
    }
}

/// How far the search goes that an importance asks for; without one these formats follow ggml's rule, which has none.
const EFFORT: Effort = Effort { reach: (-1.0, 1.0), n_trials: 8, n_rounds: 2 };

/// Codes around `centre`, which is zero, and the scale, which is written. Without weights the value farthest from zero
/// becomes code zero and the others round half up.
#[inline(always)]
fn centred(values: &[f32], weights: Option<&[f32]>, centre: u8, block: &mut [u8]) -> [u8; GROUP] {
    let middle = f32::from(centre);
    if weights.is_some() {
        let (run, grid) = (Run::<GROUP>::new(values, weights), Integers(-middle, middle - 1.0));
        let scale = as_half(fit(run, grid, EFFORT).scale);
        put_f16(block, 0, scale);
        let quants = Line { scale, offset: 0.0 }.quants(run.values, grid);
        return map(&quants, |q| (q + middle) as u8);
    }
    let scale = farthest_from_zero(values) / -middle;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    put_f16(block, 0, scale);
    map(block_of(values), |v: f32| ((v * inverse + (middle + 0.5)) as u8).min(2 * centre - 1))
}

/// Codes from zero, and scale and offset, which are written. Without weights the least value becomes code zero and the
/// greatest `code_max`, the others round half up and do not wait for scale and offset to become half floats.
#[inline(always)]
fn spread(values: &[f32], weights: Option<&[f32]>, code_max: u8, block: &mut [u8]) -> [u8; GROUP] {
    if weights.is_some() {
        let (run, grid) = (Run::<GROUP>::new(values, weights), Integers(0.0, f32::from(code_max)));
        let line = in_halves(fit_with_offset(run, grid, f32::INFINITY, EFFORT), run, grid);
        put_f16(block, 0, line.scale);
        put_f16(block, 2, line.offset);
        return map(&line.quants(run.values, grid), |q| q as u8);
    }
    let lowest = values.iter().fold(f32::MAX, |a, &b| if b < a { b } else { a });
    let highest = values.iter().fold(f32::MIN, |a, &b| if b > a { b } else { a });
    let scale = (highest - lowest) / f32::from(code_max);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    put_f16(block, 0, scale);
    put_f16(block, 2, lowest);
    map(block_of(values), |v: f32| (((v - lowest) * inverse + 0.5) as u8).min(code_max))
}

/// The values of a block of 32.
#[inline(always)]
fn block_of(values: &[f32]) -> &[f32; GROUP] {
    values.first_chunk().expect("a block has 32 values")
}

/// The inverse of [`nibbles`]; takes the low four bits of each code.
#[inline(always)]
fn put_nibbles(codes: &[u8; GROUP], packed: &mut [u8]) {
    for i in 0..16 {
        packed[i] = codes[i] & 15 | codes[i + 16] << 4;
    }
}

/// Bit 4 of each code.
#[inline(always)]
fn fifth_bits(codes: &[u8; GROUP]) -> [u8; 4] {
    let mut high = [0; 4];
    for (high, codes) in high.iter_mut().zip(codes.as_chunks::<8>().0) {
        for (i, code) in codes.iter().enumerate() {
            *high |= (code >> 4) << i;
        }
    }
    high
}

/// Nibbles with the bits of `qh` above them.
#[inline(always)]
fn five_bits(packed: &[u8; 16], high: u32) -> [u8; GROUP] {
    let mut quants = nibbles(packed);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= ((high >> i & 1) as u8) << 4;
    }
    quants
}

pub(crate) struct Q5_0;

impl Quant for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const GGML_TYPE: u32 = 6;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qh", 4), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        let quants = map(&five_bits(bytes(block, 6), u32_at(block, 2)), |q| q as i8 - 16);
        Group::symmetric(quants, [f16_at(block, 0); 2])
    }
}

impl EightRows for Q5_0 {
    const OFFSET: u8 = 16;
    const MAX: u8 = 31;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        let quants = five_bit_words(l, block, 6, block.word(2));
        LaneGroup { quants, signs: None, scales: [block.f16(0); 2], minima: None }
    }
}

impl EncodeBlock for Q5_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 22;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let codes = centred(values, weights, 16, block);
        block[2..6].copy_from_slice(&fifth_bits(&codes));
        put_nibbles(&codes, &mut block[6..]);
    }
}

pub(crate) struct Q5_1;

impl Quant for Q5_1 {
    const NAME: &'static str = "Q5_1";
    const GGML_TYPE: u32 = 7;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("m", 2), ("qh", 4), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const SYMMETRIC: bool = false;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group {
            quants: map(&five_bits(bytes(block, 8), u32_at(block, 4)), |q| q as i8),
            scales: [f16_at(block, 0); 2],
            minima: [-f16_at(block, 2); 2],
        }
    }
}

impl EightRows for Q5_1 {
    const OFFSET: u8 = 0;
    const MAX: u8 = 31;

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup {
            quants: five_bit_words(l, block, 8, block.word(4)),
            signs: None,
            scales: [block.f16(0); 2],
            minima: Some([l.neg_f32(block.f16(2)); 2]),
        }
    }
}

impl EncodeBlock for Q5_1 {
    const ELEMS: usize = 32;
    const BYTES: usize = 24;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let codes = spread(values, weights, 31, block);
        block[4..8].copy_from_slice(&fifth_bits(&codes));
        put_nibbles(&codes, &mut block[8..]);
    }
}
