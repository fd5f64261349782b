// Layer norm of each row: out = (x − mean) / sqrt(variance + eps) · weight + bias. One workgroup a row. The variance is that of
// the differences, so that a large mean cancels nothing.
//
// ADD: acc += x first, then the norm of acc. QUANTIZE: the results as signed bytes too, for the int8-dot products that
// follow (rows of whole groups of 32).
//@import reduce
//@if QUANTIZE
//@import int8
//@end

const WG: u32 = 256u;
// Consecutive elements of a thread.
//@if QUANTIZE
const RUN: u32 = 4u;
//@else
const RUN: u32 = 1u;
//@end

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
    // Added to the variance.
    eps: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
//@if BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
//@end
//@if ADD
@group(0) @binding(3) var<storage, read_write> acc: array<f32>;
//@end
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
//@if QUANTIZE
@group(0) @binding(5) var<storage, read_write> x_q: array<u32>;
@group(0) @binding(6) var<storage, read_write> x_meta: array<vec2<u32>>;
//@end

// An element of what is normed.
fn value(i: u32) -> f32 {
//@if ADD
    return acc[i];
//@else
    return x[i];
//@end
}

// The sum of a thread's elements of a row, after the addition. A thread reads below what it wrote itself.
fn sum_of(first: u32, at: Lane) -> f32 {
    var sum = 0.0;
    for (var base = RUN * at.idx; base < p.dim; base += RUN * WG) {
        for (var e = 0u; e < RUN; e++) {
//@if ADD
            acc[first + base + e] += x[first + base + e];
//@end
            sum += value(first + base + e);
        }
    }
    return sum;
}

fn squares_of(first: u32, mean: f32, at: Lane) -> f32 {
    var squares = 0.0;
    for (var base = RUN * at.idx; base < p.dim; base += RUN * WG) {
        for (var e = 0u; e < RUN; e++) {
            let difference = value(first + base + e) - mean;
            squares += difference * difference;
        }
    }
    return squares;
}

fn normed(first: u32, i: u32, mean: f32, factor: f32) -> f32 {
    let v = (value(first + i) - mean) * factor * weight[i];
//@if BIAS
    return v + bias[i];
//@else
    return v;
//@end
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
) {
    let at = lane_of(lane, size, subgroup, n_subgroups);
    for (var row = workgroup.x; row < p.n_rows; row += n_workgroups.x) {
        let first = row * p.dim;
        let mean = workgroup_sum(sum_of(first, at), at) / f32(p.dim);
        let variance = workgroup_sum(squares_of(first, mean, at), at) / f32(p.dim);
        let factor = 1.0 / sqrt(variance + p.eps);
//@if QUANTIZE
        // Padded, so that shuffles see all threads.
        for (var base = 0u; base < p.dim; base += 4u * WG) {
            let i = base + 4u * at.idx;
            var v = vec4<f32>(0.0);
            if (i < p.dim) {
                for (var e = 0u; e < 4u; e++) {
                    v[e] = normed(first, i + e, mean, factor);
                    out[first + i + e] = v[e];
                }
            }
            let quantized = quantize_group(v);
            if (i < p.dim) {
                x_q[(first + i) >> 2u] = quantized.word;
                if (((first + i) & 31u) == 0u) {
                    x_meta[(first + i) >> 5u] = quantized.info;
                }
            }
        }
//@else
        for (var i = at.idx; i < p.dim; i += WG) {
            out[first + i] = normed(first, i, mean, factor);
        }
//@end
    }
}
