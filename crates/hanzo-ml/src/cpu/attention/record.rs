//! The softmax of some positions of one query, so that positions may be taken in parts: the weighted sum of values, the
//! sum of weights, and the largest score, which both are relative to.
//!
//! A record is `wide` vectors of the weighted sum and one more with the rest.

use super::super::{
    math::exp_scalar,
    simd::{LANES, Lanes, Simd},
};

/// Where the last vector of a record keeps the largest score, and the sum of weights: zero where nothing was seen.
const MAX: usize = 0;
const SUM: usize = 1;

/// Vectors of a record for rows of `wide`.
pub(super) const fn len(wide: usize) -> usize {
    wide + 1
}

/// Joins what a query saw in one more part, in the order of parts; the first is taken as it is.
#[inline(always)]
pub(super) fn join<S: Simd>(s: S, total: &mut [Lanes], part: &[Lanes], (max, sum): (f32, f32)) {
    let Some((state, total)) = total.split_last_mut() else { return };
    if sum == 0.0 {
        return;
    }
    if state[SUM] == 0.0 {
        (state[MAX], state[SUM]) = (max, sum);
        total.copy_from_slice(part);
    } else if max > state[MAX] {
        let factor = exp_scalar(s, state[MAX] - max);
        (state[MAX], state[SUM]) = (max, state[SUM] * factor + sum);
        let factor = s.splat(factor);
        for (total, part) in total.iter_mut().zip(part) {
            s.store(s.fma(s.load(total), factor, s.load(part)), total);
        }
    } else {
        let factor = exp_scalar(s, max - state[MAX]);
        state[SUM] += sum * factor;
        let factor = s.splat(factor);
        for (total, part) in total.iter_mut().zip(part) {
            s.store(s.fma(s.load(part), factor, s.load(total)), total);
        }
    }
}

/// [`join`] with a part that is a record.
#[inline(always)]
pub(super) fn join_record<S: Simd>(s: S, total: &mut [Lanes], part: &[Lanes]) {
    if let Some((state, part)) = part.split_last() {
        join(s, total, part, (state[MAX], state[SUM]));
    }
}

/// Adds the sink's weight and divides; the result's last vector may be cut.
#[inline(always)]
pub(super) fn finish<S: Simd>(s: S, total: &[Lanes], sink: Option<f32>, out: &mut [f32]) {
    let Some((state, total)) = total.split_last() else { return };
    let (mut sum, mut factor) = (state[SUM], 1.0);
    if let Some(sink) = sink {
        if sink > state[MAX] {
            factor = exp_scalar(s, state[MAX] - sink);
            sum = sum * factor + 1.0;
        } else {
            sum += exp_scalar(s, sink - state[MAX]);
        }
    }
    let (sum, factor) = (s.splat(sum), s.splat(factor));
    let (whole, tail) = out.as_chunks_mut::<LANES>();
    for (out, x) in whole.iter_mut().zip(total) {
        s.store(s.div(s.mul(s.load(x), factor), sum), out);
    }
    if let Some(x) = total.get(whole.len()) {
        let mut last = [0.0; LANES];
        s.store(s.div(s.mul(s.load(x), factor), sum), &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
}
