// Root-mean-square norm of each row: out = x / sqrt(mean(x²) + eps) · weight. One workgroup a row.
//
// ADD: acc += x first, then the norm of acc. QUANTIZE: the results as signed bytes too, for the int8-dot products that
// follow (rows of whole groups of 32).
//@import reduce
//@if QUANTIZE
//@import int8
//@end

const WG: u32 = 256u;

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
    // Added to the mean of squares.
    eps: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
//@if WEIGHT
@group(0) @binding(1) var<storage, read> weight: array<f32>;
//@end
//@if ADD
@group(0) @binding(2) var<storage, read_write> acc: array<f32>;
//@end
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
//@if QUANTIZE
@group(0) @binding(4) var<storage, read_write> x_q: array<u32>;
@group(0) @binding(5) var<storage, read_write> x_meta: array<vec2<u32>>;
//@end

// An element of what is normed.
fn value(i: u32) -> f32 {
//@if ADD
    return acc[i];
//@else
    return x[i];
//@end
}

// The square of an element, after the addition. A thread reads below what it wrote itself.
fn square(i: u32) -> f32 {
//@if ADD
    acc[i] += x[i];
//@end
    let v = value(i);
    return v * v;
}

fn normed(first: u32, i: u32, factor: f32) -> f32 {
//@if WEIGHT
    return value(first + i) * factor * weight[i];
//@else
    return value(first + i) * factor;
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
        var squares = 0.0;
//@if QUANTIZE
        for (var i = 4u * at.idx; i < p.dim; i += 4u * WG) {
            squares += square(first + i) + square(first + i + 1u) + square(first + i + 2u) + square(first + i + 3u);
        }
//@else
        for (var i = at.idx; i < p.dim; i += WG) {
            squares += square(first + i);
        }
//@end
        let mean = workgroup_sum(squares, at) / f32(p.dim);
        let factor = 1.0 / sqrt(mean + p.eps);
//@if QUANTIZE
        for (var base = 0u; base < p.dim; base += 4u * WG) {
            let i = base + 4u * at.idx;
            var v = vec4<f32>(0.0);
            if (i < p.dim) {
                v = vec4<f32>(
                    normed(first, i, factor),
                    normed(first, i + 1u, factor),
                    normed(first, i + 2u, factor),
                    normed(first, i + 3u, factor),
                );
                out[first + i] = v.x;
                out[first + i + 1u] = v.y;
                out[first + i + 2u] = v.z;
                out[first + i + 3u] = v.w;
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
            out[first + i] = normed(first, i, factor);
        }
//@end
    }
}
