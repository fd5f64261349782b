// A tensor's values: out[row, i] for rows of `k` elements. One thread decodes a group of 32.
//@import grid
//@import <format>

struct Params {
    // Blocks of the tensor.
    w_blocks: u32,
    // Groups of a row.
    row_groups: u32,
    // Elements of a row.
    k: u32,
    // Groups to decode.
    n_groups: u32,
}
var<immediate> p: Params;

@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn put(row: u32, i: u32, v: vec4<f32>) {
    for (var e = 0u; e < 4u; e++) {
        // Only rows of plain numbers end within a group.
        if (i + e < p.k) {
            out[row * p.k + i + e] = v[e];
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var g = thread.idx; g < p.n_groups; g += thread.n) {
        let row = g / p.row_groups;
        let first = (g - row * p.row_groups) * 32u;
//@if PLAIN
        for (var q = 0u; q < 8u; q++) {
            put(row, first + q * 4u, unpack4(g, q));
        }
//@else
        let u = unpack(g);
        for (var q = 0u; q < 4u; q++) {
            let lo = four_of(u.lo[q], u.scales.x, u.minima.x);
            put(row, first + q * 4u, lo);
        }
        for (var q = 0u; q < 4u; q++) {
            let hi = four_of(u.hi[q], u.scales.y, u.minima.y);
            put(row, first + 16u + q * 4u, hi);
        }
//@end
    }
}
