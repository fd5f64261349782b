// Products with many columns: out[t, n] = x[t] · w[n] (+ bias[n]), any weight format, in tiles of 64 columns and 64 weight
// rows. In each turn half of the threads decode one group of 32 elements of a weight row each, the other half load the same
// group of an activation row each.
//
// CORE fma: floats. CORE int8: signed bytes with integer sums. CORE matrix: f16 cooperative matrices of TILE × TILE that add
// up in f32, for subgroups of SUBGROUP threads.
// MOE: a tile is of one expert, and `order` names the pairs (token, expert) of its columns (see moe_plan).
//@import lane
//@import <format>
//@if CORE == int8
//@import int8
//@import dot
//@else
//@import activations
//@end
//@if CORE == matrix
enable f16;
enable wgpu_cooperative_matrix;
//@end

const WG: u32 = 128u;
// Columns and weight rows of a tile.
const BLOCK: u32 = 64u;
const NONE: u32 = 0xffffffffu;

struct Params {
    // Blocks of the weight.
    w_blocks: u32,
    // Groups of a row.
    row_groups: u32,
    // Elements of a row.
    k: u32,
    // Rows of the weight, of one expert.
    n: u32,
    // Columns; MOE: pairs.
    n_cols: u32,
    // MOE: pairs that share a row of x.
    x_share: u32,
//@if MOE
    // The experts that this weight has: the first, and how many. Pairs of others are left to other launches.
    first_expert: u32,
    n_experts: u32,
//@end
}
var<immediate> p: Params;

//@if CORE == int8
@group(0) @binding(2) var<storage, read> x_q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> x_meta: array<vec2<u32>>;
//@end
//@if MOE
@group(0) @binding(4) var<storage, read> order: array<u32>;
@group(0) @binding(5) var<storage, read> tile_expert: array<u32>;
//@end
//@if BIAS
@group(0) @binding(6) var<storage, read> bias: array<f32>;
//@end
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

// The pair or column at place `m` of a tile, NONE past the last.
fn column(tile: u32, m: u32) -> u32 {
//@if MOE
    return order[tile * BLOCK + m];
//@else
    let col = tile * BLOCK + m;
    return select(NONE, col, col < p.n_cols);
//@end
}

fn put(col: u32, row: u32, value: f32) {
    if (col != NONE && row < p.n) {
//@if BIAS
        out[col * p.n + row] = value + bias[row];
//@else
        out[col * p.n + row] = value;
//@end
    }
}

//@if CORE != int8
// Elements 4q to 4q + 3 of a group of the weight.
//@if PLAIN
fn weight_four(g: u32, q: u32) -> vec4<f32> {
    return unpack4(g, q);
}
//@else
fn weight_four(u: Group, q: u32) -> vec4<f32> {
    if (q < 4u) {
        return four_of(u.lo[q], u.scales.x, u.minima.x);
    }
    return four_of(u.hi[q - 4u], u.scales.y, u.minima.y);
}
//@end
//@end

//@if CORE == fma
//@import tile/fma
//@elif CORE == int8
//@import tile/int8
//@else
//@import tile/matrix
//@end

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
) {
    let at = lane_of(lane, size, subgroup, n_subgroups);
    let first_row = workgroup.x * BLOCK;
    let tile = workgroup.y;
//@if MOE
    // All threads of the workgroup see the same; NONE is past every expert.
    let expert = tile_expert[tile] - p.first_expert;
    if (expert >= p.n_experts) {
        return;
    }
    let w_base = expert * p.n;
//@else
    let w_base = 0u;
//@end
    // What this thread loads: rows past the last are read as the last and not written.
    let m = at.idx & (BLOCK - 1u);
    let loads_weight = at.idx < BLOCK;
    let w_row = w_base + min(first_row + m, p.n - 1u);
    let col = column(tile, m);
//@if MOE
    let x_row = select(col / p.x_share, 0u, col == NONE);
//@else
    let x_row = select(col, p.n_cols - 1u, col == NONE);
//@end
    var acc = Acc();
    for (var g = 0u; g < p.row_groups; g++) {
        if (loads_weight) {
            put_weight(m, w_row * p.row_groups + g);
        } else {
            put_x(m, x_row, g);
        }
        workgroupBarrier();
        acc = multiplied(acc, at);
        workgroupBarrier();
    }
    store(acc, at, tile, first_row);
}
