//! Random weights of moderate size, and exact sums with them.

use hanzo_quant::{Format, GROUP, Group, Unpack};

use super::{bench::EPS, random::Random};
use crate::{Bytes, QTensor, Result, gpu::Products};

/// Distinct blocks of a weight, repeated in random order.
const BLOCKS_MAX: usize = 64;

/// Trials for a block.
const TRIALS_MAX: usize = 1 << 20;

/// Roundings of a product beside those of the sum over its terms: decoding, scales, minima, a bias.
const ROUNDINGS: usize = 48;

/// A weight `[n, k]` or `[E, n, k]` on the host.
pub(super) struct Matrix {
    pub tensor: QTensor,
    pub k: usize,
    /// Every element.
    values: Vec<f32>,
    /// What each is made of: |scale · quant| + |minimum|, which sums add up where values cancel.
    sizes: Vec<f32>,
    /// The groups of integer formats.
    groups: Vec<Group>,
}

impl Matrix {
    /// Blocks whose values are zero or within 2^-10 to 2^10, so that they fit f16 and products neither over- nor underflow.
    /// Tables of whole numbers and f64, which no encoder makes, may be larger.
    pub(super) fn random(random: &mut Random, format: &'static Format, shape: Vec<usize>) -> Result<Self> {
        let (least, most) =
            if format.encode.is_some() { (2f32.powi(-10), 2f32.powi(10)) } else { (1e-30, 1e30) };
        let n_blocks = shape.iter().product::<usize>() / format.block_elems;
        let mut values = vec![0.0f32; format.block_elems];
        let mut found: Vec<Vec<u8>> = Vec::new();
        for _ in 0..TRIALS_MAX {
            let block = random.bytes(format.block_bytes);
            (format.decode)(&block, &mut values);
            if values.iter().all(|v| *v == 0.0 || (least..most).contains(&v.abs())) {
                found.push(block);
            }
            if found.len() == BLOCKS_MAX.min(n_blocks) {
                break;
            }
        }
        let mut bytes = Vec::with_capacity(n_blocks * format.block_bytes);
        for _ in 0..n_blocks {
            bytes.extend(&found[random.below(found.len().max(1))]);
        }
        let k = shape.last().copied().unwrap_or(1);
        let tensor = QTensor::new("weight", format, shape, Bytes::owned(bytes))?;
        let values = tensor.to_f32();
        let groups = groups(&tensor);
        let mut sizes: Vec<f32> = values.iter().map(|v| v.abs()).collect();
        for (i, size) in sizes.iter_mut().enumerate().filter(|_| !groups.is_empty()) {
            let (group, place) = (&groups[i / GROUP], i % GROUP);
            *size = (group.scales[place / 16] * f32::from(group.quants[place])).abs()
                + group.minima[place / 16].abs();
        }
        Ok(Self { tensor, k, values, sizes, groups })
    }

    /// Sums of floats with a row of the weight, and what they may be off by. Any order of additions is off by at most one
    /// rounding for each; matrix units read weights and activations in f16.
    pub(super) fn dot(&self, row: usize, x: &[f32], products: Products) -> (f32, f32) {
        let (w, sizes) = (&self.values[row * self.k..][..self.k], &self.sizes[row * self.k..][..self.k]);
        let (mut sum, mut size, mut value) = (0f64, 0f64, 0f64);
        for ((x, w), s) in x.iter().zip(w).zip(sizes) {
            let product = f64::from(*x) * f64::from(*w);
            sum += product;
            value += product.abs();
            size += f64::from(x.abs()) * f64::from(*s);
        }
        let roundings = (self.k + ROUNDINGS) as f32 * EPS;
        let halves = if products == Products::Matrix { 2.2 * 2f32.powi(-11) } else { 0.0 };
        (sum as f32, roundings * size as f32 + halves * value as f32 + 1e-12)
    }

    /// Sums of a row of signed bytes with a row of the weight: partial sums over a group, or over its halves, are
    /// integers; what is rounded are their products with scales, and the sum of these.
    pub(super) fn dot_bytes(&self, row: usize, quants: &[i8], scales: &[f32]) -> (f32, f32) {
        let n_groups = self.k / GROUP;
        let (mut sum, mut size) = (0f64, 0f64);
        for (i, group) in self.groups[row * n_groups..][..n_groups].iter().enumerate() {
            let (x, scale) = (&quants[i * GROUP..][..GROUP], f64::from(scales[i]));
            for half in 0..2 {
                let of_half = half * 16..half * 16 + 16;
                let pairs = x[of_half.clone()].iter().zip(&group.quants[of_half]);
                let (dot, total) = pairs.fold((0i32, 0i32), |(dot, total), (&x, &w)| {
                    (dot + i32::from(x) * i32::from(w), total + i32::from(x))
                });
                let term = f64::from(group.scales[half]) * f64::from(dot) * scale;
                let minimum = f64::from(group.minima[half]) * f64::from(total) * scale;
                sum += term - minimum;
                size += term.abs() + minimum.abs();
            }
        }
        // A term is rounded when it is made, joined with its group's others, scaled, and added.
        let roundings = (n_groups + 12) as f32 * EPS;
        (sum as f32, roundings * size as f32 + 1e-12)
    }

    /// Sums with activations that were made signed bytes in a way that cannot be seen: within half a step of each.
    pub(super) fn dot_near(&self, row: usize, x: &[f32]) -> (f32, f32) {
        let (sum, rounding) = self.dot(row, x, Products::Int8);
        let w = &self.values[row * self.k..][..self.k];
        let steps: f32 = (x.chunks(GROUP).zip(w.chunks(GROUP)))
            .map(|(x, w)| {
                let largest = x.iter().fold(0f32, |m, v| m.max(v.abs()));
                w.iter().map(|w| w.abs()).sum::<f32>() * largest / 127.0 * 0.501
            })
            .sum();
        (sum, rounding + steps)
    }
}

/// The groups of each block in order; none of plain numbers.
fn groups(tensor: &QTensor) -> Vec<Group> {
    let format = tensor.format();
    let Unpack::Int(unpack) = format.unpack else { return Vec::new() };
    let of_block = |block| (0..format.block_elems / GROUP).map(move |g| unpack(block, g));
    tensor.bytes().chunks(format.block_bytes).flat_map(of_block).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    /// A partial sum that is off by one is out of bounds, for weights of four bits.
    #[test]
    fn integer_sums_have_no_room_for_one() {
        let format = Format::from_name("Q4_0").unwrap();
        let mut random = Random::new(3);
        let matrix = Matrix::random(&mut random, format, vec![1, 512]).unwrap();
        let quants: Vec<i8> = (0..512).map(|_| (random.below(255) as i32 - 127) as i8).collect();
        let scales = vec![0.01; 16];
        let (want, bound) = matrix.dot_bytes(0, &quants, &scales);
        let step = matrix.groups.iter().map(|g| g.scales[0].abs() * 0.01).fold(0f32, f32::max);
        assert!(bound < step, "a bound of {bound} at {want} with a step of {step}");
        // The plain sum of the values is the same number.
        let x: Vec<f32> = quants.iter().map(|&q| f32::from(q) * 0.01).collect();
        let (plain, error) = matrix.dot(0, &x, Products::Float);
        assert!((plain - want).abs() <= error + bound);
        assert!((matrix.dot_near(0, &x).0 - want).abs() <= error);
    }
}
