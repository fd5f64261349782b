// A tensor of up to four axes with strides, to one without gaps: transposes, slices, repeats (a stride of 0). Words of 32 bits
// of any type.
//@import grid

struct Params {
    // Elements of `out`.
    n: u32,
    // Its inner three sizes, outermost first; the outermost size of all follows from n.
    size_1: u32,
    size_2: u32,
    size_3: u32,
    // Where the first element of `src` is, and the steps of the axes, outermost first.
    offset: u32,
    stride_0: u32,
    stride_1: u32,
    stride_2: u32,
    stride_3: u32,
}
var<immediate> p: Params;

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
        let row_2 = i / p.size_3;
        let row_1 = row_2 / p.size_2;
        let i_0 = row_1 / p.size_1;
        let i_1 = row_1 - i_0 * p.size_1;
        let i_2 = row_2 - row_1 * p.size_2;
        let i_3 = i - row_2 * p.size_3;
        out[i] = src[p.offset + i_0 * p.stride_0 + i_1 * p.stride_1 + i_2 * p.stride_2 + i_3 * p.stride_3];
    }
}
