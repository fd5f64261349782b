//! IQ4_NL, IQ4_XS: four bits that choose one of 16 unevenly spaced levels ([`crate::grids::IQ4_LEVELS`]).

use super::{
    Encode, Field, GROUP, Group,
    bits::{as_half, bytes, f16_at, map, put_f16, u16_at},
    layout::{EncodeBlock, Quant, encode, fields},
    legacy::nibble_words,
    search::{Effort, Levels, Line, Run, fit},
    super_block::{Codes, SuperBlock},
};
use crate::{
    grids::{IQ4_LEVELS, IQ4_PAIRS},
    lanes::{Blocks, EightRows, LaneGroup, Lanes, PanelFill, words},
};

const GRID: Levels<16> = Levels::new(&IQ4_LEVELS);

const EFFORT: Effort = Effort { reach: (-24.0, 24.0), n_trials: 7, n_rounds: 2 };

/// The codes of 32 levels as the low nibbles of 16 bytes, then the high ones.
#[inline(always)]
fn put_levels(levels: &[f32; GROUP], packed: &mut [u8]) {
    let codes = map(levels, |level| {
        let mut code = 0;
        for low in &IQ4_LEVELS[..15] {
            code += u8::from(level > f32::from(*low));
        }
        code
    });
    for i in 0..16 {
        packed[i] = codes[i] | codes[i + 16] << 4;
    }
}

/// The levels of 16 low nibbles, then of the 16 high ones.
#[inline(always)]
fn levels(packed: &[u8; 16]) -> [i8; GROUP] {
    let pairs =
        map(packed, |byte| u16::from_le_bytes(map(&IQ4_PAIRS[usize::from(byte)], |level| level as u8)));
    let mut quants = [0; GROUP];
    for i in 0..16 {
        quants[i] = pairs[i] as i8;
        quants[i + 16] = (pairs[i] >> 8) as i8;
    }
    quants
}

/// The levels, 128 more.
const UNSIGNED: [u8; 16] = {
    let (mut levels, mut code) = ([0; 16], 0);
    while code < 16 {
        levels[code] = IQ4_LEVELS[code] as u8 ^ 0x80;
        code += 1;
    }
    levels
};

/// [`levels`] of eight rows, 128 more.
#[inline(always)]
fn level_words<L: Lanes>(l: L, block: Blocks<'_, L>, at: usize) -> [L::U; 8] {
    let codes = nibble_words(l, block, at);
    words!(|i| l.lookup(&UNSIGNED, codes[i]))
}

pub(crate) struct Iq4Nl;

impl Quant for Iq4Nl {
    const NAME: &'static str = "IQ4_NL";
    const GGML_TYPE: u32 = 20;
    const ELEMS: usize = 32;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("qs", 16)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    #[inline(always)]
    fn unpack(block: &[u8], _group: usize) -> Group {
        Group::symmetric(levels(bytes(block, 2)), [f16_at(block, 0); 2])
    }
}

impl EightRows for Iq4Nl {
    const OFFSET: u8 = 128;
    const MAX: u8 = UNSIGNED[15];

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, _group: usize) -> LaneGroup<L> {
        LaneGroup { quants: level_words(l, block, 2), signs: None, scales: [block.f16(0); 2], minima: None }
    }
}

impl EncodeBlock for Iq4Nl {
    const ELEMS: usize = 32;
    const BYTES: usize = 18;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        let run = Run::<GROUP>::new(values, weights);
        let scale = as_half(fit(run, GRID, EFFORT).scale);
        put_f16(block, 0, scale);
        put_levels(&Line { scale, offset: 0.0 }.quants(run.values, GRID), &mut block[2..]);
    }
}

pub(crate) struct Iq4Xs;

impl Quant for Iq4Xs {
    const NAME: &'static str = "IQ4_XS";
    const GGML_TYPE: u32 = 23;
    const ELEMS: usize = 256;
    const FIELDS: &'static [Field] = &fields([("d", 2), ("scales_h", 2), ("scales_l", 4), ("qs", 128)]);
    const SCALE_GROUP: usize = 32;
    const ENCODE: Option<Encode> = Some(encode::<Self>);
    const PANEL: Option<PanelFill> = Some(PanelFill::of::<Self>());

    /// A scale of six bits, less 32: the low nibble from `scales_l`, the high pair from `scales_h`.
    #[inline(always)]
    fn unpack(block: &[u8], group: usize) -> Group {
        let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
        let high = (u16_at(block, 2) >> (2 * group) & 3) as u8;
        let scale = f16_at(block, 0) * f32::from((low | high << 4) as i8 - 32);
        Group::symmetric(levels(bytes(block, 8 + 16 * group)), [scale; 2])
    }
}

impl EightRows for Iq4Xs {
    const OFFSET: u8 = 128;
    const MAX: u8 = UNSIGNED[15];

    #[inline(always)]
    fn group<L: Lanes>(l: L, block: Blocks<'_, L>, group: usize) -> LaneGroup<L> {
        let low = l.and(l.shr(block.word(4), 4 * group as u32), l.splat(15));
        let high = l.and(l.shr(block.half(2), 2 * group as u32), l.splat(3));
        let code = l.sub(l.or(low, l.shl(high, 4)), l.splat(32));
        let quants = level_words(l, block, 8 + 16 * group);
        LaneGroup { quants, signs: None, scales: [block.f16_times(0, code); 2], minima: None }
    }
}

impl EncodeBlock for Iq4Xs {
    const ELEMS: usize = 256;
    const BYTES: usize = 136;
    const WEIGHED: bool = true;

    #[inline(always)]
    fn encode_block(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
        const CODES: Codes = Codes { scales: (-32.0, 31.0), minimum_max: 0.0 };
        let fitted = SuperBlock::<8>::fit::<32>(Run::new(values, weights), GRID, CODES, EFFORT);
        block.fill(0);
        put_f16(block, 0, fitted.d);
        for (group, scale) in map(&fitted.scales, |s| (s + 32.0) as u8).iter().enumerate() {
            block[2 + group / 4] |= (scale >> 4) << (2 * (group % 4));
            block[4 + group / 2] |= (scale & 15) << (4 * (group % 2));
        }
        let levels = fitted.quants.as_chunks::<GROUP>().0;
        for (levels, packed) in levels.iter().zip(block[8..].chunks_exact_mut(16)) {
            put_levels(levels, packed);
        }
    }
}
