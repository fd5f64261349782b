// The tile of qmatmul as floats: 8 columns × 4 weight rows a thread. Workgroup memory has elements in the order of k, so that
// a thread loads four rows or columns at once.

var<workgroup> w_tile: array<vec4<f32>, 512>;
var<workgroup> x_tile: array<vec4<f32>, 512>;

// Sums of four weight rows, for 8 columns.
struct Acc {
    sums: array<vec4<f32>, 8>,
}

fn put_weight(m: u32, g: u32) {
//@if PLAIN
    let u = g;
//@else
    let u = unpack(g);
//@end
    for (var q = 0u; q < 8u; q++) {
        let v = weight_four(u, q);
        for (var e = 0u; e < 4u; e++) {
            w_tile[(q * 4u + e) * 16u + (m >> 2u)][m & 3u] = v[e];
        }
    }
}

fn put_x(m: u32, row: u32, g: u32) {
    for (var q = 0u; q < 8u; q++) {
        let v = x_four(row, g * 32u + q * 4u);
        for (var e = 0u; e < 4u; e++) {
            x_tile[(q * 4u + e) * 16u + (m >> 2u)][m & 3u] = v[e];
        }
    }
}

fn multiplied(before: Acc, at: Lane) -> Acc {
    var acc = before;
    let rows = at.idx & 15u;
    let cols = (at.idx >> 4u) * 2u;
    for (var k = 0u; k < 32u; k++) {
        let b = w_tile[k * 16u + rows];
        let a0 = x_tile[k * 16u + cols];
        let a1 = x_tile[k * 16u + cols + 1u];
        acc.sums[0] += a0.x * b;
        acc.sums[1] += a0.y * b;
        acc.sums[2] += a0.z * b;
        acc.sums[3] += a0.w * b;
        acc.sums[4] += a1.x * b;
        acc.sums[5] += a1.y * b;
        acc.sums[6] += a1.z * b;
        acc.sums[7] += a1.w * b;
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
