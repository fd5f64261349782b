// The tile of qmatmul as signed bytes: 8 columns × 4 weight rows a thread. Sums over a group are integers; then the scales.

// Word `i` of four rows at i · 16 + row / 4.
var<workgroup> w_tile: array<vec4<u32>, 128>;
var<workgroup> x_tile: array<vec4<u32>, 128>;
// Scales of four weight rows, for elements 0 to 15 and 16 to 31 of the group.
var<workgroup> w_scales: array<vec4<f32>, 32>;
//@if !SYMMETRIC
var<workgroup> w_minima: array<vec4<f32>, 32>;
//@end
var<workgroup> x_metas: array<vec2<u32>, 64>;

// Sums of four weight rows, for 8 columns.
struct Acc {
    sums: array<vec4<f32>, 8>,
}

fn put_weight(m: u32, g: u32) {
    let u = unpack(g);
    for (var i = 0u; i < 4u; i++) {
        w_tile[i * 16u + (m >> 2u)][m & 3u] = u.lo[i];
        w_tile[(4u + i) * 16u + (m >> 2u)][m & 3u] = u.hi[i];
    }
    w_scales[m >> 2u][m & 3u] = u.scales.x;
    w_scales[16u + (m >> 2u)][m & 3u] = u.scales.y;
//@if !SYMMETRIC
    w_minima[m >> 2u][m & 3u] = u.minima.x;
    w_minima[16u + (m >> 2u)][m & 3u] = u.minima.y;
//@end
}

fn put_x(m: u32, row: u32, g: u32) {
    let group = row * p.row_groups + g;
    let lo = x_q[2u * group];
    let hi = x_q[2u * group + 1u];
    for (var i = 0u; i < 4u; i++) {
        x_tile[i * 16u + (m >> 2u)][m & 3u] = lo[i];
        x_tile[(4u + i) * 16u + (m >> 2u)][m & 3u] = hi[i];
    }
    x_metas[m] = x_meta[group];
}

fn dot_rows(a: u32, b: vec4<u32>, sum: vec4<i32>) -> vec4<i32> {
    return vec4<i32>(x_dp4(a, b.x, sum.x), x_dp4(a, b.y, sum.y), x_dp4(a, b.z, sum.z), x_dp4(a, b.w, sum.w));
}

struct Sums {
    per_col: array<vec4<i32>, 8>,
}

// Four words of the group from word `first`.
fn half_group(before: Sums, first: u32, rows: u32, cols: u32) -> Sums {
    var sums = before;
    for (var i = first; i < first + 4u; i++) {
        let b = w_tile[i * 16u + rows];
        let a0 = x_tile[i * 16u + cols];
        let a1 = x_tile[i * 16u + cols + 1u];
        sums.per_col[0] = dot_rows(a0.x, b, sums.per_col[0]);
        sums.per_col[1] = dot_rows(a0.y, b, sums.per_col[1]);
        sums.per_col[2] = dot_rows(a0.z, b, sums.per_col[2]);
        sums.per_col[3] = dot_rows(a0.w, b, sums.per_col[3]);
        sums.per_col[4] = dot_rows(a1.x, b, sums.per_col[4]);
        sums.per_col[5] = dot_rows(a1.y, b, sums.per_col[5]);
        sums.per_col[6] = dot_rows(a1.z, b, sums.per_col[6]);
        sums.per_col[7] = dot_rows(a1.w, b, sums.per_col[7]);
    }
    return sums;
}

fn multiplied(before: Acc, at: Lane) -> Acc {
    var acc = before;
    let rows = at.idx & 15u;
    let cols = (at.idx >> 4u) * 2u;
//@if TWO_SCALES
    var lo = half_group(Sums(), 0u, rows, cols);
    var hi = half_group(Sums(), 4u, rows, cols);
//@else
    var lo = half_group(half_group(Sums(), 0u, rows, cols), 4u, rows, cols);
//@end
    for (var i = 0u; i < 8u; i++) {
        let info = x_metas[cols * 4u + i];
        var sum = w_scales[rows] * vec4<f32>(lo.per_col[i]);
//@if TWO_SCALES
        sum += w_scales[16u + rows] * vec4<f32>(hi.per_col[i]);
//@end
//@if !SYMMETRIC
        let x_sums = meta_sums(info);
        sum -= w_minima[rows] * x_sums.x + w_minima[16u + rows] * x_sums.y;
//@end
        acc.sums[i] += meta_scale(info) * sum;
    }
    return acc;
}

fn store(acc: Acc, at: Lane, tile: u32, first_row: u32) {
    var sums = acc.sums;
    let row = first_row + (at.idx & 15u) * 4u;
    for (var i = 0u; i < 8u; i++) {
        let col = column(tile, (at.idx >> 4u) * 8u + i);
        put(col, row, sums[i].x);
        put(col, row + 1u, sums[i].y);
        put(col, row + 2u, sums[i].z);
        put(col, row + 3u, sums[i].w);
    }
}
