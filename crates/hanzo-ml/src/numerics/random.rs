//! Operands: a counter-based generator, the same numbers everywhere.

/// SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// In −1 to 1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `n` of them.
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }

    /// `n` numbers below `limit`.
    pub fn ids(&mut self, n: usize, limit: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(limit) as u32).collect()
    }

    /// `n` distinct numbers below `limit`.
    pub fn distinct(&mut self, n: usize, limit: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..limit as u32).collect();
        for i in 0..n {
            let j = i + self.below(limit - i);
            all.swap(i, j);
        }
        all.truncate(n);
        all
    }
}
