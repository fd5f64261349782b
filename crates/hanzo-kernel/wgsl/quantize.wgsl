// Activations to signed bytes: x [rows, k] with k a multiple of 32. Eight threads do a group.
//@import grid
//@import lane
//@import int8
//@import <number>

struct Params {
    // Groups of 32 in all rows.
    n_groups: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<Num4>;
@group(0) @binding(1) var<storage, read_write> x_q: array<u32>;
@group(0) @binding(2) var<storage, read_write> x_meta: array<vec2<u32>>;

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
    let n = p.n_groups * 8u;
    // Padded, so that shuffles see all threads.
    for (var base = workgroup.x * WG; base < n; base += n_workgroups.x * WG) {
        let i = base + at.idx;
        var v = vec4<f32>(0.0);
        if (i < n) {
            v = from_num4(x[i]);
        }
        let quantized = quantize_group(v);
        if (i < n) {
            x_q[i] = quantized.word;
            if ((i & 7u) == 0u) {
                x_meta[i >> 3u] = quantized.info;
            }
        }
    }
}
