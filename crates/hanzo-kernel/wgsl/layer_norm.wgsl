// Layer norm of each row: out = (x − mean) / sqrt(variance + eps) · weight + bias. One workgroup a row. The variance is that of
// the differences, so that a large mean cancels nothing.
//@import reduce

const WG: u32 = 256u;

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
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

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
        var sum = 0.0;
        for (var i = at.idx; i < p.dim; i += WG) {
            sum += x[first + i];
        }
        let mean = workgroup_sum(sum, at) / f32(p.dim);
        var squares = 0.0;
        for (var i = at.idx; i < p.dim; i += WG) {
            let difference = x[first + i] - mean;
            squares += difference * difference;
        }
        let factor = 1.0 / sqrt(workgroup_sum(squares, at) / f32(p.dim) + p.eps);
        for (var i = at.idx; i < p.dim; i += WG) {
            let normed = (x[first + i] - mean) * factor * weight[i];
//@if BIAS
            out[first + i] = normed + bias[i];
//@else
            out[first + i] = normed;
//@end
        }
    }
}
