// Rows of an embedding table: out[t] = scale · table[ids[t]]; an id past the table gives zeros. One thread decodes a group.
// A table may be in parts: the first part writes all rows, the others those that they have.
//@import grid
//@import <format>

struct Params {
    // Blocks of the table.
    w_blocks: u32,
    // Groups of a row.
    row_groups: u32,
    // Elements of a row.
    k: u32,
    // Rows of the table, or of this part.
    n_vocab: u32,
    // Rows to look up.
    n_rows: u32,
    scale: f32,
    // The id of the first row of this part.
    first: u32,
}
var<immediate> p: Params;

@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

fn put(t: u32, i: u32, v: vec4<f32>) {
    for (var e = 0u; e < 4u; e++) {
        // Only rows of plain numbers end within a group.
        if (i + e < p.k) {
            out[t * p.k + i + e] = v[e] * p.scale;
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
    for (var i = thread.idx; i < p.n_rows * p.row_groups; i += thread.n) {
        let t = i / p.row_groups;
        let group = i - t * p.row_groups;
        // Ids before the part wrap around to after it.
        let id = ids[t] - p.first;
        let known = id < p.n_vocab;
        if (known || p.first == 0u) {
            let g = select(0u, id * p.row_groups + group, known);
//@if PLAIN
            for (var q = 0u; q < 8u; q++) {
                put(t, group * 32u + q * 4u, select(vec4<f32>(0.0), unpack4(g, q), known));
            }
//@else
            let u = unpack(g);
            for (var q = 0u; q < 4u; q++) {
                let lo = four_of(u.lo[q], u.scales.x, u.minima.x);
                let hi = four_of(u.hi[q], u.scales.y, u.minima.y);
                put(t, group * 32u + q * 4u, select(vec4<f32>(0.0), lo, known));
                put(t, group * 32u + 16u + q * 4u, select(vec4<f32>(0.0), hi, known));
            }
//@end
        }
    }
}
