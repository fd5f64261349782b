//! Every instruction set that this processor has, against plain loops on the same panels.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use hanzo_quant::{FORMATS, Format, LANES, Panel, Unpack};

use super::{
    COLUMNS, Interleaved, Meeting, Rows,
    activations::Quantised,
    kernel::Columns,
    level::{Int8, Int8Kernel, Int8Level},
};
use crate::{Bytes, QTensor, cpu::simd::Level, parallel::Parallel};

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Compares each function of a set with plain arithmetic.
struct Functions<'a> {
    panels: &'a [Panel; 2],
    word: usize,
    a: u32,
    max: u8,
    name: &'static str,
}

impl Functions<'_> {
    fn row(&self, row: usize) -> [u8; 4] {
        self.panels[row / LANES].quants[self.word][row % LANES].to_le_bytes()
    }

    /// Row `row`'s product with the activations, of quants less `shift`.
    fn product(&self, row: usize, shift: i32) -> i32 {
        let pairs = self.row(row).into_iter().zip(self.a.to_le_bytes());
        pairs.map(|(q, a)| (i32::from(q) - shift) * i32::from(a as i8)).sum()
    }
}

impl Int8Kernel for Functions<'_> {
    #[inline(always)]
    fn run<L: Int8, const V: usize, const C: usize>(self, l: L) {
        assert_eq!(V * L::GROUPS, 2, "sixteen rows");
        for v in 0..V {
            let panels = &self.panels[v * L::GROUPS..];
            let read = |i: L::I| {
                let mut out = [0.0; COLUMNS];
                l.store(l.to_f32(i), &mut out);
                out
            };
            let (q, a) = (l.quants(panels, self.word), l.activations(self.a));
            let wide = read(l.add_wide_product(l.splat_i32(-5), q, a));
            let n = if L::WIDE_SUMS {
                64
            } else {
                (32_767 / (2 * 127 * i32::from(self.max.max(1)))).clamp(1, 16)
            };
            let short = (0..n).fold(l.zero(), |s, _| l.add_product(s, q, a));
            let short = read(l.add_i32(l.widen(short), l.splat_i32(7)));
            let floats = l.floats(panels, |p| &p.scales[3][1]);
            let mut fused = [0.0; COLUMNS];
            l.store(
                l.fnma(l.splat(3.0), floats, l.fma(floats, l.mul(l.splat(0.5), floats), l.splat(1.0))),
                &mut fused,
            );
            for i in 0..L::GROUPS * LANES {
                let row = v * L::GROUPS * LANES + i;
                let shift = if L::SIGNED { 128 } else { 0 };
                assert_eq!(wide[i], (self.product(row, shift) - 5) as f32, "{}: row {row}", self.name);
                if self.max <= 127 {
                    assert_eq!(short[i], (n * self.product(row, 0) + 7) as f32, "{}: row {row}", self.name);
                }
                let x = self.panels[row / LANES].scales[3][1][row % LANES];
                assert_eq!(fused[i], 1.0 + 0.5 * x * x - 3.0 * x, "{}: row {row}", self.name);
            }
        }
    }
}

#[test]
fn every_function_of_every_set_agrees_with_plain_arithmetic() {
    let mut random = Random(1);
    for level in Int8Level::all() {
        for round in 0..300 {
            let max = [15, 31, 63, 127, 255][round % 5];
            let mut panels = [Panel::ZERO, Panel::ZERO];
            for word in panels.iter_mut().flat_map(|p| p.quants.as_flattened_mut()) {
                // Every third round has the largest quants alone.
                let quants =
                    (random.next() as u32).to_le_bytes().map(|q| if round % 3 == 0 { max } else { q & max });
                *word = u32::from_le_bytes(quants);
            }
            for scale in panels.iter_mut().flat_map(|p| p.scales.as_flattened_mut().as_flattened_mut()) {
                *scale = (random.next() % 1000) as f32;
            }
            let a = (random.next() as u32).to_le_bytes().map(|a| match round % 6 {
                0 => 127,
                3 => 0x81,
                _ => (a as i8).max(-127) as u8,
            });
            let (word, a) = (random.next() as usize % 64, u32::from_le_bytes(a));
            level.run(Functions { panels: &panels, word, a, max, name: level.name() });
        }
    }
}

/// Sixteen rows of a format with `n_rows` rows of activations, by one set.
fn columns(level: Int8Level, weight: &Rows<'_>, x: &mut Quantised, n_rows: usize) -> Vec<[f32; COLUMNS]> {
    let parallel = Parallel::new(Some(2)).unwrap();
    x.correct(&parallel, level.correction(weight.range()));
    let rows: Vec<_> = (0..n_rows).map(|row| (row, row)).collect();
    let mut totals = vec![[f32::NAN; COLUMNS]; n_rows];
    let meeting = Meeting { matrix: 0, rows: &rows };
    let (mut panels, mut blocks) = ([[Panel::ZERO, Panel::ZERO]], Vec::new());
    let (panels, blocks) = (&mut panels, &mut blocks);
    let (totals_mut, rests) = (&mut totals[..], &mut vec![[f32::NAN; COLUMNS]; n_rows][..]);
    let mut gathered = Vec::new();
    let company = x.company(&rows, &mut gathered);
    Columns { weight, first: 0, x, company, meeting: &meeting, panels, blocks, totals: totals_mut, rests }
        .run(level);
    totals
}

/// The sums are exact in every set and the order of the rest is the same, so sets that fuse agree to the bit and the
/// others within their roundings.
#[test]
fn every_set_computes_the_same() {
    let parallel = Parallel::new(Some(1)).unwrap();
    let mut random = Random(2);
    for format in FORMATS.iter().filter(|f| matches!(f.unpack, Unpack::Int(_))) {
        let (n, n_rows, k) = (COLUMNS, 11, 768);
        let weight = weight(&mut random, format, n, k);
        let x: Vec<f32> = (0..n_rows * k).map(|_| (random.next() as i32) as f32 / 2e9).collect();
        let mut quantised = Quantised::default();
        quantised.set((&parallel, Level::detect()), &x, k, 0).unwrap();
        let mut all = Vec::new();
        for level in Int8Level::all() {
            for widest in [true, false] {
                let rows = Rows::new(&weight, None, widest).unwrap();
                all.push((level.name(), columns(level, &rows, &mut quantised, n_rows)));
            }
        }
        for (name, values) in &all {
            for (ours, first) in values.as_flattened().iter().zip(all[0].1.as_flattened()) {
                let bound = if *name == "portable" { 1e-3 * first.abs() + 1e-3 } else { 0.0 };
                assert!((ours - first).abs() <= bound, "{format:?}: {name} gives {ours} for {first}");
            }
        }
    }
}

/// One row of activations alone, without panels, and in company give the same bits. Some of its blocks are refined.
#[test]
fn a_row_is_the_same_alone_and_in_company() {
    let parallel = Parallel::new(Some(1)).unwrap();
    let mut random = Random(3);
    for format in FORMATS.iter().filter(|f| matches!(f.unpack, Unpack::Int(_))) {
        let (n, n_rows, k) = (COLUMNS, 7, 1280);
        let weight = weight(&mut random, format, n, k);
        let mut x: Vec<f32> = (0..n_rows * k).map(|_| (random.next() as i32) as f32 / 2e9).collect();
        x.iter_mut().step_by(701).for_each(|v| *v *= 300.0);
        let mut quantised = Quantised::default();
        quantised.set((&parallel, Level::detect()), &x, k, 0).unwrap();
        let interleaved = Interleaved::new(&parallel, &weight).unwrap();
        for level in Int8Level::all().into_iter().filter(|level| level.multiplies_rows()) {
            for interleaved in [None, Some(&interleaved)] {
                let rows = Rows::new(&weight, interleaved, true).unwrap();
                let all = columns(level, &rows, &mut quantised, n_rows);
                for (row, in_company) in all.iter().enumerate() {
                    let mut alone = [[f32::NAN; COLUMNS]];
                    rows.multiply_row(0, 0, quantised.row(row), &mut Vec::new(), &mut alone);
                    assert_eq!(
                        alone[0].map(f32::to_bits),
                        in_company.map(f32::to_bits),
                        "{format:?}, row {row}"
                    );
                }
            }
        }
    }
}

/// Random blocks whose values are finite and not extreme.
fn weight(random: &mut Random, format: &'static Format, n: usize, k: usize) -> QTensor {
    let mut bytes = Vec::new();
    let mut values = vec![0.0; format.block_elems];
    for _ in 0..n * k / format.block_elems {
        let start = bytes.len();
        loop {
            bytes.truncate(start);
            bytes.extend((0..format.block_bytes).map(|_| random.next() as u8));
            (format.decode)(&bytes[start..], &mut values);
            if values.iter().all(|v| v.abs() < 1e3) {
                break;
            }
        }
    }
    QTensor::new("weight", format, vec![n, k], Bytes::owned(bytes)).unwrap()
}

/// Threads share rows, and what is left of more rows before changes nothing.
#[test]
fn rows_are_quantised_the_same_by_any_threads_after_any_rows() {
    let mut random = Random(4);
    let weight = weight(&mut random, FORMATS.iter().find(|f| f.name == "Q6_K").unwrap(), COLUMNS, 1024);
    let weight = Rows::new(&weight, None, true).unwrap();
    let mut rows = |n: usize, k: usize| {
        let mut x: Vec<f32> = (0..n * k).map(|_| (random.next() as i32) as f32 / 2e9).collect();
        x.iter_mut().step_by(701).for_each(|v| *v *= 300.0);
        x
    };
    let (many, few) = (rows(150, 1024), rows(37, 1024));
    let level = Int8Level::detect();
    let correction = level.correction(weight.range());
    let mut alone = Quantised::default();
    alone.set((&Parallel::new(Some(1)).unwrap(), Level::detect()), &few, 1024, correction).unwrap();
    let want = columns(level, &weight, &mut alone, 37);
    let parallel = Parallel::new(Some(3)).unwrap();
    let mut after = Quantised::default();
    after.set((&parallel, Level::detect()), &many, 1024, correction + 1).unwrap();
    after.set((&parallel, Level::detect()), &few, 1024, correction - 1).unwrap();
    assert!(columns(level, &weight, &mut after, 37) == want);
}
