// x = activation(scale · x + shift) in place, element by element; ACTIVATION none is the line alone.
//@import grid
//@if ACTIVATION != none
//@import activate
//@end

struct Params {
    // Elements.
    n: u32,
    scale: f32,
    shift: f32,
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
//@if ACTIVATION == none
        x[i] = p.scale * x[i] + p.shift;
//@else
        x[i] = activate(p.scale * x[i] + p.shift);
//@end
    }
}
