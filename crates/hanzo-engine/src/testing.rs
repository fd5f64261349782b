//! What unit tests share.

use hanzo_ml::backend::{Activation, RopePairing};

use crate::{
    rope::{RopeScaling, RopeSpec},
    spec::{AttentionSpec, DecoderSpec, Ffn, LayerSpec, Mixer},
};

/// A small counter-based generator (SplitMix64, Steele et al. 2014).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A decoder with one layer per window.
pub fn tiny_spec(windows: &[Option<usize>]) -> DecoderSpec {
    let layer = |&window: &Option<usize>| LayerSpec {
        mixer: Mixer::Attention(AttentionSpec {
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 8,
            scale: 1.0,
            rope: Some(0),
            window,
            softcap: None,
            qk_norm: false,
        }),
        post_mixer_norm: false,
        ffn: Ffn::Dense { width: 16, activation: Activation::Silu },
        post_ffn_norm: false,
    };
    DecoderSpec {
        vocab_size: 32,
        hidden_size: 32,
        context_length: 64,
        embedding_scale: 1.0,
        layers: windows.iter().map(layer).collect(),
        norm_eps: 1e-5,
        ropes: vec![RopeSpec {
            pairing: RopePairing::Half,
            dims: 8,
            theta: 10_000.0,
            scaling: RopeScaling::None,
            sections: Vec::new(),
        }],
        final_softcap: None,
    }
}
