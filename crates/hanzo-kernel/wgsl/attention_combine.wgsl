// Joins the parts of attention_decode: out [rows, n_heads, head_dim]. A thread has four elements of a head.
//@import grid

struct Params {
    // Rows times heads times fours of a head.
    n: u32,
    n_heads: u32,
    // Elements of a head over 4.
    head_fours: u32,
    n_splits: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> part: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> part_stats: array<vec2<f32>>;
//@if SINKS
@group(0) @binding(2) var<storage, read> sinks: array<f32>;
//@end
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let head = i / p.head_fours;
        let d = i - head * p.head_fours;
        let first = head * p.n_splits;
        var top = part_stats[first].x;
        for (var s = 1u; s < p.n_splits; s++) {
            top = max(top, part_stats[first + s].x);
        }
        var all = 0.0;
//@if SINKS
        let sink = sinks[head % p.n_heads];
        top = max(top, sink);
        all = exp(sink - top);
//@end
        var sum = vec4<f32>(0.0);
        for (var s = 0u; s < p.n_splits; s++) {
            let stats = part_stats[first + s];
            let factor = exp(stats.x - top);
            all += stats.y * factor;
            sum += part[(first + s) * p.head_fours + d] * factor;
        }
        out[i] = sum / all;
    }
}
