//! Convolutions against their formula in f64, on a device: one and two axes, strides, padding, dilation, groups, every type of
//! weight.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

mod common;

use common::{Gpu, Random, bytes_f32, cache_bytes, find, flag, floats, round_to};
use hanzo_kernel::{Number, Value};

/// One axis of a convolution.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Axis {
    /// An axis that is not there.
    const NONE: Self = Self { size: 1, kernel: 1, stride: 1, padding: 0, dilation: 1 };

    fn out(&self) -> usize {
        (self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) / self.stride + 1
    }

    /// The place of the input, unless it is in the padding.
    fn input(&self, out: usize, k: usize) -> Option<usize> {
        (out * self.stride + k * self.dilation).checked_sub(self.padding).filter(|&i| i < self.size)
    }
}

struct Conv {
    n_images: usize,
    groups: usize,
    group_in: usize,
    group_out: usize,
    y: Option<Axis>,
    x: Axis,
}

impl Conv {
    fn axes(&self) -> (Axis, Axis) {
        (self.y.unwrap_or(Axis::NONE), self.x)
    }

    /// Sums, and the sums of magnitudes that their rounding is relative to.
    fn reference(&self, image: &[f32], w: &[f32], bias: Option<&[f32]>) -> Vec<(f64, f64)> {
        let (y, x) = self.axes();
        let (c_in, c_out) = (self.groups * self.group_in, self.groups * self.group_out);
        let mut out = Vec::new();
        for b in 0..self.n_images {
            for o in 0..c_out {
                for place in 0..y.out() * x.out() {
                    let mut sum = bias.map_or(0.0, |bias| f64::from(bias[o]));
                    let mut magnitude = sum.abs();
                    for c in 0..self.group_in {
                        let channel = b * c_in + o / self.group_out * self.group_in + c;
                        for k in 0..y.kernel * x.kernel {
                            let Some(row) = y.input(place / x.out(), k / x.kernel) else { continue };
                            let Some(column) = x.input(place % x.out(), k % x.kernel) else { continue };
                            let w = w[(o * self.group_in + c) * y.kernel * x.kernel + k];
                            let v = image[(channel * y.size + row) * x.size + column];
                            sum += f64::from(w) * f64::from(v);
                            magnitude += f64::from((w * v).abs());
                        }
                    }
                    out.push((sum, magnitude));
                }
            }
        }
        out
    }

    fn params(&self) -> Vec<u32> {
        let (y, x) = self.axes();
        let blocks = self.n_images * self.groups * self.group_out.div_ceil(4);
        let mut params = vec![blocks * y.out() * x.out(), self.groups, self.group_in, self.group_out];
        params.extend([x.size, x.out(), x.kernel, x.stride, x.padding, x.dilation]);
        params
            .extend(self.y.iter().flat_map(|y| [y.size, y.out(), y.kernel, y.stride, y.padding, y.dilation]));
        params.into_iter().map(|v| v as u32).collect()
    }

    fn check(&self, gpu: &Gpu, number: Number, with_bias: bool, random: &mut Random) {
        let (y, x) = self.axes();
        let (c_in, c_out) = (self.groups * self.group_in, self.groups * self.group_out);
        let image = random.units(self.n_images * c_in * y.size * x.size);
        let mut w = random.units(c_out * self.group_in * y.kernel * x.kernel);
        round_to(number, &mut w);
        let bias = random.units(c_out);
        let want = self.reference(&image, &w, with_bias.then_some(&bias));
        let buffers =
            [bytes_f32(&image), cache_bytes(number, &w), bytes_f32(&bias), vec![0xff; 4 * want.len()]];
        let dims = ("DIMS", Value::U32(1 + u32::from(self.y.is_some())));
        let result = gpu.run(
            &find("conv", Some(number), &[dims, flag("BIAS", with_bias)]),
            &[("x", &buffers[0]), ("w", &buffers[1]), ("bias", &buffers[2]), ("out", &buffers[3])],
            &self.params(),
            [2, 1, 1],
        );
        for (i, (got, (want, magnitude))) in floats(&result["out"]).iter().zip(&want).enumerate() {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 1e-6 * magnitude, "{number:?} {:?}: [{i}] is {got}, not {want}", self.params());
        }
    }
}

#[test]
fn convolutions_equal_f64() {
    let Some(gpu) = Gpu::open("convolutions_equal_f64") else { return };
    let mut random = Random(30);
    let x = Axis { size: 17, kernel: 3, stride: 1, padding: 1, dilation: 1 };
    let wide = Axis { size: 23, kernel: 5, stride: 2, padding: 3, dilation: 2 };
    let y = Axis { size: 11, kernel: 2, stride: 3, padding: 0, dilation: 1 };
    let cases = [
        // As speech models begin, and with more padding than the kernel is wide.
        Conv { n_images: 2, groups: 1, group_in: 5, group_out: 7, y: None, x },
        Conv { n_images: 1, groups: 3, group_in: 2, group_out: 5, y: None, x: wide },
        Conv { n_images: 1, groups: 1, group_in: 3, group_out: 6, y: None, x: Axis { padding: 4, ..x } },
        // As picture models begin: patches; each channel by itself; strides that differ.
        Conv { n_images: 2, groups: 1, group_in: 3, group_out: 9, y: Some(Axis { stride: 2, ..y }), x: wide },
        Conv { n_images: 1, groups: 6, group_in: 1, group_out: 1, y: Some(Axis { padding: 1, ..y }), x },
        Conv { n_images: 3, groups: 2, group_in: 4, group_out: 4, y: Some(Axis { dilation: 3, ..y }), x },
    ];
    for (i, conv) in cases.iter().enumerate() {
        for &number in Number::ALL {
            conv.check(&gpu, number, i % 2 == 0, &mut random);
            conv.check(&gpu, number, i % 2 == 1, &mut random);
        }
    }
}
