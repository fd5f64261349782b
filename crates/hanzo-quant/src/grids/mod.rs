//! The constant tables of the i-quants and of FP4, as data: the same constants feed the decoders here and are
//! uploaded to devices.
//!
//! The lattices come packed ([`packed`]) and expanded to signed bytes (the tables of this module, little-endian
//! words when viewed as bytes). Their points are ggml's; see [`packed`] for the source. Expansion happens at compile
//! time.

pub mod packed;

/// Levels of IQ2_XXS, IQ2_XS and IQ2_S.
pub const IQ2_LEVELS: [i8; 4] = [8, 25, 43, 0];

/// Levels of IQ3_XXS.
pub const IQ3_XXS_LEVELS: [i8; 16] = [4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0];

/// Levels of IQ3_S.
pub const IQ3_S_LEVELS: [i8; 16] = [1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0];

/// Levels of IQ1_S and IQ1_M times 8, so that their shift of ±1/8 is ±1.
pub const IQ1_LEVELS: [i8; 4] = [-8, 0, 8, 0];

/// The 16 levels of IQ4_NL and IQ4_XS.
pub const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The 16 values of FP4 E2M1 times 2 (OCP Microscaling Formats 1.0, section 5.3.3). Code 8, minus zero, is plain
/// zero as in ggml.
pub const FP4_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Grid of IQ2_XXS.
pub static IQ2_XXS: [[i8; 8]; 256] = expand(&packed::IQ2_XXS, &IQ2_LEVELS);

/// Grid of IQ2_XS.
pub static IQ2_XS: [[i8; 8]; 512] = expand(&packed::IQ2_XS, &IQ2_LEVELS);

/// Grid of IQ2_S.
pub static IQ2_S: [[i8; 8]; 1024] = expand(&packed::IQ2_S, &IQ2_LEVELS);

/// Grid of IQ3_XXS.
pub static IQ3_XXS: [[i8; 4]; 256] = expand(&packed::IQ3_XXS, &IQ3_XXS_LEVELS);

/// Grid of IQ3_S.
pub static IQ3_S: [[i8; 4]; 512] = expand(&packed::IQ3_S, &IQ3_S_LEVELS);

/// Grid of IQ1_S and IQ1_M, times 8.
pub static IQ1: [[i8; 8]; 2048] = expand(&packed::IQ1, &IQ1_LEVELS);

/// The eight signs behind the 7-bit sign index of IQ2_XXS, IQ2_XS and IQ3_XXS: the eighth makes the number of
/// minus signs even. Bit `j` set means that element `j` is negative.
pub static EVEN_SIGNS: [u8; 128] = even_signs();

/// A sign byte as eight bytes: −1 where the bit is set, else 0, so that `(x ^ m) − m` applies the sign.
pub static SIGN_MASKS: [[i8; 8]; 256] = sign_masks();

/// Two levels of IQ4_NL for each byte of two 4-bit codes, the low nibble's first.
pub static IQ4_PAIRS: [[i8; 2]; 256] = iq4_pairs();

/// Unpacks words of `16 / LEN`-bit indices into `levels`.
const fn expand<const LEN: usize, const N: usize>(packed: &[u16; N], levels: &[i8]) -> [[i8; LEN]; N] {
    let bits = 16 / LEN;
    let mut grid = [[0; LEN]; N];
    let mut point = 0;
    while point < N {
        let mut elem = 0;
        while elem < LEN {
            grid[point][elem] = levels[(packed[point] >> (bits * elem)) as usize & ((1 << bits) - 1)];
            elem += 1;
        }
        point += 1;
    }
    grid
}

const fn even_signs() -> [u8; 128] {
    let mut signs = [0; 128];
    let mut k = 0u8;
    while k < 128 {
        signs[k as usize] = k | ((k.count_ones() as u8 & 1) << 7);
        k += 1;
    }
    signs
}

const fn sign_masks() -> [[i8; 8]; 256] {
    let mut masks = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            masks[byte][bit] = -((byte >> bit & 1) as i8);
            bit += 1;
        }
        byte += 1;
    }
    masks
}

const fn iq4_pairs() -> [[i8; 2]; 256] {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [IQ4_LEVELS[byte & 15], IQ4_LEVELS[byte >> 4]];
        byte += 1;
    }
    pairs
}
