// Rows to their places: out[rows[i]] = src[i], each of `dim` elements; the places are distinct.
//@import grid

struct Params {
    // Elements of all rows of `src`.
    n: u32,
    dim: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let row = i / p.dim;
        out[rows[row] * p.dim + (i - row * p.dim)] = src[i];
    }
}
