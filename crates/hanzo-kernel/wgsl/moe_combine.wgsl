// out[t] = Σ_s weights[t, s] · y[t, s], in the order of s; y [rows, n_used, dim].
//@import grid

struct Params {
    // Elements of `out`.
    n: u32,
    dim: u32,
    n_used: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32>;
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
        let d = i - row * p.dim;
        var sum = 0.0;
        for (var s = 0u; s < p.n_used; s++) {
            let pair = row * p.n_used + s;
            sum += weights[pair] * y[pair * p.dim + d];
        }
        out[i] = sum;
    }
}
