// A tensor of up to four axes with strides, to one without gaps: transposes, slices, repeats (a stride of 0). Words of 32 bits
// of any type.
//@import grid
//@import strided

@group(0) @binding(0) var<storage, read> src: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        out[i] = src[strided_place(i)];
    }
}
