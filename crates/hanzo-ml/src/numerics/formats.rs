//! Decoding: by a device's own decoder of whole tensors, where it has one, and by lookups in a table of embeddings.
//!
//! Any bytes are a block: all of them decode to the bits of the format's scalar decoder, NaN to some NaN.

use hanzo_quant::{Format, GROUP, Group, Unpack};

use super::{
    bench::{Bench, Desk},
    random::Random,
    report::Verdict,
};
use crate::{Bytes, QTensor, Result, backend::Embed};

/// Rows of the table.
const ROWS: usize = 37;

pub(super) fn check(bench: &mut Bench<'_>, format: &'static Format, seed: u64) {
    let k = if format.block_elems == 1 { 77 } else { 1024 };
    let n_bytes = ROWS * k / format.block_elems * format.block_bytes;
    let bytes = Random::new(seed).bytes(n_bytes);
    let tensor = match QTensor::new("table", format, vec![ROWS, k], Bytes::owned(bytes)) {
        Ok(tensor) => tensor,
        Err(e) => return bench.add("embed", None, format.name, Err(e)),
    };
    let want = Wanted::new(&tensor);
    let looked_up = look_up(&mut Desk::new(bench.subject.backend()), &tensor);
    bench.add("embed", None, format.name, looked_up.map(|got| want.compare(&got)));
    let table = bench.subject.backend().load(&tensor);
    match table.and_then(|table| bench.subject.decode(&table)) {
        Ok(None) => {}
        Ok(Some(got)) => bench.add("decode", None, format.name, Ok(want.compare(&got))),
        Err(e) => bench.add("decode", None, format.name, Err(e)),
    }
}

fn look_up(desk: &mut Desk<'_>, tensor: &QTensor) -> Result<Vec<f32>> {
    let table = desk.backend.load_table(tensor)?;
    let ids: Vec<u32> = (0..ROWS as u32).collect();
    let (ids, out) = (desk.ids(&ids)?, desk.empty(tensor.elems())?);
    desk.backend.embed(&out, &Embed { table: &table, ids: &ids, scale: 1.0 })?;
    desk.read(&out)
}

/// A tensor's values, and how they may come out where subnormal numbers are zero.
struct Wanted {
    values: Vec<f32>,
    /// Values with subnormal factors, terms or results taken for zero, in every combination of the three; one list
    /// for plain numbers.
    flushed: Vec<Vec<f32>>,
}

fn flush(v: f32, is_on: bool) -> f32 {
    if is_on && v.is_subnormal() { 0.0 } else { v }
}

impl Wanted {
    fn new(tensor: &QTensor) -> Self {
        let values = tensor.to_f32();
        let format = tensor.format();
        let flushed = match format.unpack {
            Unpack::Scalar(_) => vec![values.iter().map(|&v| flush(v, true)).collect()],
            Unpack::Int(unpack) => {
                let of_block = |block| (0..format.block_elems / GROUP).map(move |g| unpack(block, g));
                let groups: Vec<Group> =
                    tensor.bytes().chunks(format.block_bytes).flat_map(of_block).collect();
                (1..8).map(|how| groups.iter().flat_map(|group| flushed(group, how)).collect()).collect()
            }
        };
        Self { values, flushed }
    }

    fn compare(&self, got: &[f32]) -> Verdict {
        let mut verdict = Verdict::default();
        if got.len() != self.values.len() {
            verdict.fail(format!("{} values of {}", got.len(), self.values.len()));
            return verdict;
        }
        let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        let (mut n_bad, mut first) = (0usize, None);
        for (i, (&got, &want)) in got.iter().zip(&self.values).enumerate() {
            if same(got, want) {
                continue;
            }
            // A zero of either sign.
            if self.flushed.iter().any(|flushed| flushed[i] == got)
                && self.flushed.iter().any(|f| f[i] != want)
            {
                verdict.n_flushed += 1;
                continue;
            }
            n_bad += 1;
            first.get_or_insert((i, got, want));
        }
        if let Some((i, got, want)) = first {
            verdict.fail(format!("{n_bad} values of other bits, [{i}] is {got:e} instead of {want:e}"));
        }
        verdict
    }
}

/// A group's values without subnormal numbers, of its scales and minima (bit 0 of `how`), of products (bit 1), of results
/// (bit 2).
fn flushed(group: &Group, how: u32) -> [f32; GROUP] {
    std::array::from_fn(|i| {
        let (scale, minimum) =
            (flush(group.scales[i / 16], how & 1 > 0), flush(group.minima[i / 16], how & 1 > 0));
        let product = flush(scale * f32::from(group.quants[i]), how & 2 > 0);
        flush(product - minimum, how & 4 > 0)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    fn mxfp4(exponent: u8) -> QTensor {
        let format = Format::from_name("MXFP4").unwrap();
        let mut block = vec![0x11; format.block_bytes];
        block[0] = exponent;
        QTensor::new("t", format, vec![1, 32], Bytes::owned(block)).unwrap()
    }

    /// 2^-127 times a half is subnormal as a scale and as a value; a normal value that is zero is wrong.
    #[test]
    fn flushed_values_are_counted_and_others_are_wrong() {
        let small = Wanted::new(&mxfp4(0));
        assert!(small.values.iter().all(|v| v.is_subnormal()), "{:?}", small.values);
        assert_eq!(small.compare(&small.values.clone()).n_flushed, 0);
        let verdict = small.compare(&[0.0; 32]);
        assert_eq!((verdict.n_flushed, verdict.failure), (32, None));
        assert!(small.compare(&[1e-40; 32]).failure.is_some());
        assert!(small.compare(&[0.0; 31]).failure.is_some());
        let normal = Wanted::new(&mxfp4(100));
        let verdict = normal.compare(&[0.0; 32]);
        assert!(verdict.n_flushed == 0 && verdict.failure.is_some());
    }
}
