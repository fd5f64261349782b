// Products with few columns: out[t, n] = x[t] · w[n] (+ bias[n]), any weight format.
//
// A team of 32 threads takes ROWS rows of the weight and COLS columns, a group of 32 elements a thread and turn; so a weight
// is decoded once for all columns, and an activation is loaded once for ROWS rows.
// INT8: activations are signed bytes and products are integers. MOE: column y of the grid is a pair (token, expert).
//@import team
//@import <format>
//@if INT8
//@import int8
//@import dot
//@else
//@import activations
//@end

const WG: u32 = 128u;
const ROWS: u32 = 2u;

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

//@if INT8
@group(0) @binding(2) var<storage, read> x_q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> x_meta: array<vec2<u32>>;
//@end
//@if MOE
@group(0) @binding(4) var<storage, read> ids: array<u32>;
//@end
//@if BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
//@end
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

//@if INT8
fn product(u: Group, lo: vec4<u32>, hi: vec4<u32>, info: vec2<u32>) -> f32 {
//@if TWO_SCALES
    var sum = u.scales.x * f32(dot_16(u.lo, lo)) + u.scales.y * f32(dot_16(u.hi, hi));
//@else
    var sum = u.scales.x * f32(dot_16(u.lo, lo) + dot_16(u.hi, hi));
//@end
//@if !SYMMETRIC
    sum -= dot(u.minima, meta_sums(info));
//@end
    return sum * meta_scale(info);
}
//@elif !PLAIN
fn dot_floats(q: vec4<u32>, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> f32 {
    return dot(vec4<f32>(unpack4xI8(q.x)), a) + dot(vec4<f32>(unpack4xI8(q.y)), b)
        + dot(vec4<f32>(unpack4xI8(q.z)), c) + dot(vec4<f32>(unpack4xI8(q.w)), d);
}
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
    let first_row = (workgroup.x * (WG / TEAM) + at.idx / TEAM) * ROWS;
    let first_col = workgroup.y * COLS;
//@if MOE
    // All threads of the workgroup see the same.
    let expert = ids[first_col] - p.first_expert;
    if (expert >= p.n_experts) {
        return;
    }
    let w_base = expert * p.n;
//@else
    let w_base = 0u;
//@end
    var sums = array<f32, ROWS * COLS>();
    for (var g = at.idx & (TEAM - 1u); g < p.row_groups; g += TEAM) {
//@if !PLAIN
        var groups = array<Group, ROWS>();
        for (var r = 0u; r < ROWS; r++) {
            // Rows past the last are read as the last and not written.
            groups[r] = unpack((w_base + min(first_row + r, p.n - 1u)) * p.row_groups + g);
        }
//@end
        for (var c = 0u; c < COLS; c++) {
            let col = min(first_col + c, p.n_cols - 1u);
//@if MOE
            let x_row = col / p.x_share;
//@else
            let x_row = col;
//@end
//@if INT8
            let x_group = x_row * p.row_groups + g;
            let lo = x_q[2u * x_group];
            let hi = x_q[2u * x_group + 1u];
            let info = x_meta[x_group];
            for (var r = 0u; r < ROWS; r++) {
                sums[r * COLS + c] += product(groups[r], lo, hi, info);
            }
//@else
            let x0 = x_four(x_row, g * 32u);
            let x1 = x_four(x_row, g * 32u + 4u);
            let x2 = x_four(x_row, g * 32u + 8u);
            let x3 = x_four(x_row, g * 32u + 12u);
            let x4 = x_four(x_row, g * 32u + 16u);
            let x5 = x_four(x_row, g * 32u + 20u);
            let x6 = x_four(x_row, g * 32u + 24u);
            let x7 = x_four(x_row, g * 32u + 28u);
//@if PLAIN
            for (var r = 0u; r < ROWS; r++) {
                let w_group = (w_base + min(first_row + r, p.n - 1u)) * p.row_groups + g;
                sums[r * COLS + c] += dot(unpack4(w_group, 0u), x0) + dot(unpack4(w_group, 1u), x1)
                    + dot(unpack4(w_group, 2u), x2) + dot(unpack4(w_group, 3u), x3)
                    + dot(unpack4(w_group, 4u), x4) + dot(unpack4(w_group, 5u), x5)
                    + dot(unpack4(w_group, 6u), x6) + dot(unpack4(w_group, 7u), x7);
            }
//@else
//@if !SYMMETRIC
            let ones = vec4<f32>(1.0);
            let x_sums = vec2<f32>(dot(x0 + x1 + x2 + x3, ones), dot(x4 + x5 + x6 + x7, ones));
//@end
            for (var r = 0u; r < ROWS; r++) {
                let u = groups[r];
                var sum = u.scales.x * dot_floats(u.lo, x0, x1, x2, x3) + u.scales.y * dot_floats(u.hi, x4, x5, x6, x7);
//@if !SYMMETRIC
                sum -= dot(u.minima, x_sums);
//@end
                sums[r * COLS + c] += sum;
            }
//@end
//@end
        }
    }
    for (var r = 0u; r < ROWS; r++) {
        for (var c = 0u; c < COLS; c++) {
            var sum = team_sum(sums[r * COLS + c], at);
            let row = first_row + r;
            let col = first_col + c;
            if ((at.idx & (TEAM - 1u)) == 0u && row < p.n && col < p.n_cols) {
//@if BIAS
                sum += bias[row];
//@end
                out[col * p.n + row] = sum;
            }
        }
    }
}
