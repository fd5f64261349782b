// A tensor of up to four axes with strides, to one without gaps, between f32 and the number type: transposes and slices that
// change the type on the way. CAST narrow rounds f32 to nearest, ties to even; widen is exact; keep stays in the number type. A
// thread makes four elements; past the last are zeros, since buffers are padded.
//@import grid
//@import strided
//@import <number>

//@if CAST == narrow
@group(0) @binding(0) var<storage, read> src: array<f32>;
//@else
@group(0) @binding(0) var<storage, read> src: array<Num4>;
//@end
//@if CAST == widen
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
//@else
@group(0) @binding(1) var<storage, read_write> out: array<Num4>;
//@end

fn element(i: u32) -> f32 {
    let at = strided_place(i);
//@if CAST == narrow
    return src[at];
//@else
    return from_num4(src[at >> 2u])[at & 3u];
//@end
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var four = thread.idx; four < (p.n + 3u) / 4u; four += thread.n) {
        var v = vec4<f32>(0.0);
        for (var e = 0u; e < 4u; e++) {
            if (4u * four + e < p.n) {
                v[e] = element(4u * four + e);
            }
        }
//@if CAST == widen
        out[four] = v;
//@else
        out[four] = to_num4(v);
//@end
    }
}
