// One number of each row: its sum, mean, sum of squares, largest or smallest element (OP). One workgroup a row.
//@import reduce

const WG: u32 = 256u;

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

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
//@if OP == max || OP == min
        // A thread past the end of a short row has an element that is there.
        var part = x[first + min(at.idx, p.dim - 1u)];
//@else
        var part = 0.0;
//@end
        for (var i = at.idx; i < p.dim; i += WG) {
            let v = x[first + i];
//@if OP == max
            part = max(part, v);
//@elif OP == min
            part = min(part, v);
//@elif OP == squares
            part += v * v;
//@else
            part += v;
//@end
        }
//@if OP == max
        let whole = workgroup_max(part, at);
//@elif OP == min
        let whole = -workgroup_max(-part, at);
//@elif OP == mean
        let whole = workgroup_sum(part, at) / f32(p.dim);
//@else
        let whole = workgroup_sum(part, at);
//@end
        if (at.idx == 0u) {
            out[row] = whole;
        }
    }
}
