//! Every field of the spec matters: a changed one moves the logits of the tiny models by more than 100 times the
//! tolerance, or does not fit the file's tensors.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use common::{TOLERANCE, cases, cpu, max_difference, options, whole};
use hanzo_engine::{
    decoder::Decoder,
    rope::RopeScaling,
    spec::{DecoderSpec, Ffn},
};
use hanzo_ml::backend::{Activation, RopePairing, RouteKind};

/// A change of one field, and whether it applies to this spec.
struct Flip {
    field: &'static str,
    change: fn(&mut DecoderSpec) -> bool,
}

const FLIPS: &[Flip] = &[
    Flip { field: "embedding_scale", change: |s| set(&mut s.embedding_scale, 1.0) },
    Flip { field: "embedding_scale", change: |s| set(&mut s.embedding_scale, 2.0) },
    Flip { field: "norm_eps", change: |s| set(&mut s.norm_eps, 1e-6) },
    Flip { field: "final_softcap", change: |s| toggle(&mut s.final_softcap, 1.0) },
    Flip { field: "ropes.pairing", change: |s| ropes(s, |r| alter(&mut r.pairing, other_pairing)) },
    Flip { field: "ropes.dims", change: |s| ropes(s, |r| alter(&mut r.dims, |dims| dims / 4 * 2)) },
    Flip { field: "ropes.theta", change: |s| ropes(s, |r| alter(&mut r.theta, |theta| theta * 7.0)) },
    Flip { field: "ropes.scaling", change: |s| ropes(s, |r| set(&mut r.scaling, RopeScaling::None)) },
    Flip {
        field: "ropes.scaling",
        change: |s| ropes(s, |r| set(&mut r.scaling, RopeScaling::Linear { factor: 3.0 })),
    },
    Flip { field: "layers.rope", change: |s| attentions(s, |a| set(&mut a.rope, None)) },
    Flip { field: "layers.rope", change: swap_ropes },
    Flip { field: "layers.scale", change: |s| attentions(s, |a| alter(&mut a.scale, |scale| scale * 1.3)) },
    Flip { field: "layers.softcap", change: |s| attentions(s, |a| toggle(&mut a.softcap, 0.5)) },
    Flip { field: "layers.qk_norm", change: |s| attentions(s, |a| alter(&mut a.qk_norm, |on| !on)) },
    Flip { field: "layers.head_dim", change: wider_heads },
    Flip { field: "layers.post_mixer_norm", change: |s| alter(&mut s.layers[0].post_mixer_norm, |on| !on) },
    Flip { field: "layers.post_ffn_norm", change: |s| alter(&mut s.layers[0].post_ffn_norm, |on| !on) },
    Flip { field: "layers.activation", change: |s| ffns(s, other_activation) },
    Flip { field: "layers.n_used", change: |s| ffns(s, one_expert) },
    Flip { field: "layers.route", change: |s| ffns(s, other_route) },
];

fn set<T: PartialEq>(field: &mut T, value: T) -> bool {
    let changed = *field != value;
    *field = value;
    changed
}

fn alter<T: PartialEq + Copy>(field: &mut T, change: fn(T) -> T) -> bool {
    let value = change(*field);
    set(field, value)
}

fn one_expert(ffn: &mut Ffn) -> bool {
    if let Ffn::Moe { n_used, .. } = ffn { set(n_used, 1) } else { false }
}

fn toggle<T: PartialEq>(field: &mut Option<T>, value: T) -> bool {
    *field = if field.is_some() { None } else { Some(value) };
    true
}

fn ropes(spec: &mut DecoderSpec, mut change: impl FnMut(&mut hanzo_engine::rope::RopeSpec) -> bool) -> bool {
    spec.ropes.iter_mut().fold(false, |any, rope| change(rope) | any)
}

fn attentions(spec: &mut DecoderSpec, change: fn(&mut hanzo_engine::spec::AttentionSpec) -> bool) -> bool {
    spec.layers.iter_mut().fold(false, |any, layer| change(layer.attention_mut()) | any)
}

fn ffns(spec: &mut DecoderSpec, change: fn(&mut Ffn) -> bool) -> bool {
    spec.layers.iter_mut().fold(false, |any, layer| change(&mut layer.ffn) | any)
}

fn other_pairing(pairing: RopePairing) -> RopePairing {
    match pairing {
        RopePairing::Half => RopePairing::Adjacent,
        RopePairing::Adjacent => RopePairing::Half,
    }
}

fn other_activation(ffn: &mut Ffn) -> bool {
    let (Ffn::Dense { activation, .. } | Ffn::Moe { activation, .. }) = ffn;
    *activation = if *activation == Activation::Silu { Activation::GeluTanh } else { Activation::Silu };
    true
}

fn other_route(ffn: &mut Ffn) -> bool {
    let Ffn::Moe { route: RouteKind::SoftmaxTopK { renormalize }, .. } = ffn else { return false };
    *renormalize = !*renormalize;
    true
}

fn swap_ropes(spec: &mut DecoderSpec) -> bool {
    let n = spec.ropes.len();
    spec.ropes.rotate_left(n / 2);
    n > 1
}

/// Half as many heads of twice the width: the matrices' shapes stay.
fn wider_heads(spec: &mut DecoderSpec) -> bool {
    attentions(spec, |a| {
        let even = a.n_heads % 2 == 0 && a.n_kv_heads % 2 == 0;
        if even {
            (a.n_heads, a.n_kv_heads, a.head_dim) = (a.n_heads / 2, a.n_kv_heads / 2, a.head_dim * 2);
        }
        even
    })
}

#[test]
fn every_field_of_the_spec_matters() {
    let (mut n_moved, mut n_unfit) = (0, 0);
    let mut failures = Vec::new();
    for case in cases() {
        let file = case.file();
        let prompt = case.prompts.iter().max_by_key(|p| p.tokens.len()).unwrap();
        let oracle = case.logits(prompt);
        let spec = file.spec().unwrap();
        let changed = |flip: &Flip| {
            let mut spec = spec.clone();
            (flip.change)(&mut spec).then_some((flip.field.to_owned(), spec))
        };
        let windows = (0..spec.layers.len()).map(|l| {
            let mut spec = spec.clone();
            toggle(&mut spec.layers[l].attention_mut().window, 16);
            (format!("layers[{l}].window"), spec)
        });
        for (field, spec) in FLIPS.iter().filter_map(changed).chain(windows) {
            let Ok(mut decoder) = Decoder::load_with(&file, spec, cpu(1), options(prompt.tokens.len()))
            else {
                n_unfit += 1;
                continue;
            };
            let moved = max_difference(&whole(&mut decoder, &prompt.tokens), &oracle) / case.max_abs_logit;
            n_moved += 1;
            if moved < 100.0 * TOLERANCE {
                failures.push(format!("{}: {field} moves the logits by {moved:.1e} only", case.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(n_moved > 500, "only {n_moved} changes were tried");
    println!("{n_moved} changed fields moved the logits, {n_unfit} did not fit the tensors");
}
