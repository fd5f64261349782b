// acc = acc OP x in place, element by element. x repeats: element i of acc meets element (i / inner) % period of x, so that x may
// have one value a column (inner 1, period the columns), a row (inner the columns) or a channel.
//@import grid

struct Params {
    // Elements of acc.
    n: u32,
    inner: u32,
    // Elements of x.
    period: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read_write> acc: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let v = x[(i / p.inner) % p.period];
//@if OP == add
        acc[i] += v;
//@elif OP == sub
        acc[i] -= v;
//@elif OP == mul
        acc[i] *= v;
//@elif OP == div
        acc[i] /= v;
//@elif OP == min
        acc[i] = min(acc[i], v);
//@else
        acc[i] = max(acc[i], v);
//@end
    }
}
