// x = cap · tanh(x / cap), in place.
//@import grid
//@import tanh

struct Params {
    // Elements.
    n: u32,
    cap: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        x[i] = p.cap * safe_tanh(x[i] / p.cap);
    }
}
