// Rotates the first 2 · n_pairs elements of each head in place: x [rows, heads, head_dim]. A thread takes a pair.
//@import grid
//@import rotate

struct Params {
    // Rows times heads times pairs.
    n: u32,
    n_pairs: u32,
    n_heads: u32,
    head_dim: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> angles: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let head = i / p.n_pairs;
        let pair = i - head * p.n_pairs;
        let first = head * p.head_dim;
        let at = vec2<u32>(first) + pair_of(pair, p.n_pairs);
        let angle = angles[head / p.n_heads * p.n_pairs + pair];
        let turned = rotated(vec2<f32>(x[at.x], x[at.y]), angle);
        x[at.x] = turned.x;
        x[at.y] = turned.y;
    }
}
