// Softmax of each row in place: x = e^(scale · x − largest) over their sum. One workgroup a row.
//@import reduce

const WG: u32 = 256u;

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
    scale: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;

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
        var largest = -3.4028234e38;
        for (var i = at.idx; i < p.dim; i += WG) {
            largest = max(largest, p.scale * x[first + i]);
        }
        largest = workgroup_max(largest, at);
        var sum = 0.0;
        for (var i = at.idx; i < p.dim; i += WG) {
            let weight = exp(p.scale * x[first + i] - largest);
            x[first + i] = weight;
            sum += weight;
        }
        let all = workgroup_sum(sum, at);
        for (var i = at.idx; i < p.dim; i += WG) {
            x[first + i] /= all;
        }
    }
}
