// Between f32 and the number type: FROM_F32 rounds to nearest, ties to even; else exact. A thread converts four.
//@import grid
//@import <number>

struct Params {
    // Elements over 4, rounded up: buffers are padded.
    n_fours: u32,
}
var<immediate> p: Params;

//@if FROM_F32
@group(0) @binding(0) var<storage, read> src: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<Num4>;
//@else
@group(0) @binding(0) var<storage, read> src: array<Num4>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
//@end

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n_fours; i += thread.n) {
//@if FROM_F32
        out[i] = to_num4(src[i]);
//@else
        out[i] = from_num4(src[i]);
//@end
    }
}
