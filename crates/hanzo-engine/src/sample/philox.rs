//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//!
//! A draw is a function of the seed, the index of the token that it is for, and its purpose; there is no state. So it depends
//! neither on other requests nor on how many draws came before.

/// Rounds of the published test vectors, and the authors' recommendation.
const N_ROUNDS: usize = 10;
/// The paper's multipliers.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// The key's steps: golden ratio and the square root of three, less one.
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// What a draw is for; each has its own numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// To choose a token.
    Token = 0,
    /// To decide whether XTC acts.
    Xtc = 1,
}

/// The draws of one token of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws {
    pub seed: u64,
    /// Index of the token in the answer.
    pub token_idx: u64,
}

impl Draws {
    /// A number within 0 (included) and 1 (excluded), a multiple of 2^-53.
    pub fn uniform(self, purpose: Purpose) -> f64 {
        let [low, high] = words(self.token_idx);
        let [a, b, ..] = philox([low, high, purpose as u32, 0], words(self.seed));
        let bits = (u64::from(b) << 32 | u64::from(a)) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

/// Low and high half.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..N_ROUNDS {
        let [low0, high0] = words(u64::from(MULTIPLIERS[0]) * u64::from(counter[0]));
        let [low1, high1] = words(u64::from(MULTIPLIERS[1]) * u64::from(counter[2]));
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `philox4x32 10` of `tests/kat_vectors` in the authors' library Random123.
    #[test]
    fn published_vectors() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn seeds_tokens_and_purposes_differ() {
        let draw = |seed, token_idx, purpose| Draws { seed, token_idx }.uniform(purpose);
        let all = [
            draw(0, 0, Purpose::Token),
            draw(1, 0, Purpose::Token),
            draw(1 << 32, 0, Purpose::Token),
            draw(0, 1, Purpose::Token),
            draw(0, 1 << 32, Purpose::Token),
            draw(0, 0, Purpose::Xtc),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!((0.0..1.0).contains(a));
            assert!(all[..i].iter().all(|b| a != b), "{all:?}");
        }
    }
}
