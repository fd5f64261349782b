// Rows to their cache slots: x [rows, K, head_dim] into a cache [block, K, 32, head_dim] of the number type; head_dim is a
// multiple of 4. A thread moves four elements.
//@import grid
//@import <number>

struct Params {
    // Elements of x over 4.
    n: u32,
    n_kv_heads: u32,
    // Elements of a head over 4.
    head_fours: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
// Physical block · 32 + offset in the block, of each row.
@group(0) @binding(1) var<storage, read> slots: array<u32>;
@group(0) @binding(2) var<storage, read_write> cache: array<Num4>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let row_head = i / p.head_fours;
        let row = row_head / p.n_kv_heads;
        let head = row_head - row * p.n_kv_heads;
        let slot = slots[row];
        let to = (((slot >> 5u) * p.n_kv_heads + head) * 32u + (slot & 31u)) * p.head_fours;
        cache[to + (i - row_head * p.head_fours)] = to_num4(x[i]);
    }
}
