//! What a device makes of activations before it multiplies: rounding to f16 and bf16 is exact, to nearest with ties to even;
//! signed bytes are within half a step of the number, with exact sums.

use half::{bf16, f16};
use hanzo_quant::{FORMATS, Format, GROUP, Unpack};

use super::{bench::Bench, random::Random, report::Verdict};
use crate::{
    DType, Result,
    gpu::{Products, Seen},
};

/// How far a quantised number may be from the nearest step: half a step, and what the rounding of the inverse and of the
/// product with it adds, at 127 steps.
const HALF_STEP: f32 = 0.5 + 127.0 * 4.0 * f32::EPSILON;

pub(super) fn check(bench: &mut Bench<'_>) -> Result<()> {
    let integers = |format: &&Format| matches!(format.unpack, Unpack::Int(_)) && bench.subject.reads(format);
    let Some(integer) = FORMATS.iter().find(integers) else { return Ok(()) };
    let all = bench.subject.arithmetics();
    for &arithmetic in all.iter().filter(|a| a.products != Products::Matrix) {
        bench.subject.choose(arithmetic)?;
        for (i, rows) in [1usize, 3, 67].into_iter().enumerate() {
            let mut random = Random::new(i as u64);
            // Groups of very different sizes, one of zeros.
            let mut x = random.floats(rows * 96);
            for group in x.chunks_mut(GROUP) {
                let size = 2f32.powi(random.below(20) as i32 - 10);
                group.iter_mut().for_each(|v| *v *= size);
            }
            x[..GROUP].fill(0.0);
            let Some(seen) = see(bench, integer, &x).transpose() else { continue };
            let verdict = seen.map(|seen| match seen {
                Seen::Floats(values) => rounded(&values, &x, arithmetic.activations),
                Seen::Bytes { quants, scales, sums } => {
                    let exact: Vec<f32> = x.iter().map(|&v| round(v, arithmetic.activations)).collect();
                    quantised(&exact, &quants, &scales, &sums)
                }
            });
            bench.add("activations", Some(arithmetic), &format!("{rows} rows"), verdict);
        }
    }
    all.first().map_or(Ok(()), |first| bench.subject.choose(*first))
}

fn see(bench: &mut Bench<'_>, format: &Format, values: &[f32]) -> Result<Option<Seen>> {
    let x = bench.subject.backend().alloc(DType::F32, values.len())?;
    let uploaded = bench.subject.backend().upload_f32(&x, values);
    let seen = uploaded.and_then(|()| bench.subject.seen(format, &x));
    bench.subject.backend().free(x);
    seen
}

/// The nearest number of a type.
fn round(v: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(v).to_f32(),
        DType::BF16 => bf16::from_f32(v).to_f32(),
        DType::F32 | DType::Q8_0 | DType::U32 => v,
    }
}

fn rounded(got: &[f32], x: &[f32], dtype: DType) -> Verdict {
    let mut verdict = Verdict::default();
    let want: Vec<_> = x.iter().map(|&v| (round(v, dtype), 0.0)).collect();
    verdict.compare("rounding", got, &want);
    verdict
}

fn quantised(x: &[f32], quants: &[i8], scales: &[f32], sums: &[[i16; 2]]) -> Verdict {
    let mut verdict = Verdict::default();
    for (i, group) in x.chunks(GROUP).enumerate() {
        let q = &quants[i * GROUP..][..GROUP];
        let largest = group.iter().fold(0f32, |m, v| m.max(v.abs()));
        if (scales[i] - largest / 127.0).abs() > 2.0 * f32::EPSILON * largest / 127.0 {
            verdict
                .fail(format!("group {i} has a scale of {:e} at a largest value of {largest:e}", scales[i]));
        }
        for (v, &q) in group.iter().zip(q) {
            let off = (f64::from(*v) - f64::from(scales[i]) * f64::from(q)).abs();
            if off > f64::from(HALF_STEP) * f64::from(scales[i]) {
                verdict.fail(format!("{v:e} became {q} of {:e}", scales[i]));
            }
        }
        let halves = [0, 16].map(|first| q[first..first + 16].iter().map(|&q| i16::from(q)).sum::<i16>());
        if halves != sums[i] {
            verdict.fail(format!("group {i} has sums of {:?} instead of {halves:?}", sums[i]));
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quant_next_to_the_nearest_is_wrong() {
        let x: Vec<f32> = (0..32).map(|i| i as f32 - 15.5).collect();
        let scale = 15.5f32 / 127.0;
        let mut q: Vec<i8> = x.iter().map(|v| (v / scale).round() as i8).collect();
        let sums =
            |q: &[i8]| [0, 16].map(|first| q[first..first + 16].iter().map(|&q| i16::from(q)).sum::<i16>());
        assert_eq!(quantised(&x, &q, &[scale], &[sums(&q)]).failure, None);
        assert!(quantised(&x, &q, &[scale * 1.001], &[sums(&q)]).failure.is_some());
        assert!(quantised(&x, &q, &[scale], &[[0, 1]]).failure.is_some());
        q[3] += 1;
        assert!(quantised(&x, &q, &[scale], &[sums(&q)]).failure.is_some());
    }
}
