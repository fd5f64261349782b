// The tile of qmatmul as cooperative matrices: the 64 × 64 results are cut into matrices of TILE × TILE, dealt to the
// subgroups in turn. They reach memory through workgroup memory, where columns and rows past the last are left out.

const SIDE: u32 = BLOCK / TILE;
const PER_SUBGROUP: u32 = SIDE * SIDE * SUBGROUP / WG;

//@if TILE == 8
alias MatrixX = coop_mat8x8<f16, A>;
alias MatrixW = coop_mat8x8<f16, B>;
alias MatrixSum = coop_mat8x8<f32, C>;
//@else
alias MatrixX = coop_mat16x16<f16, A>;
alias MatrixW = coop_mat16x16<f16, B>;
alias MatrixSum = coop_mat16x16<f32, C>;
//@end

// Rows of 32 elements.
var<workgroup> w_tile: array<f16, 2048>;
var<workgroup> x_tile: array<f16, 2048>;
var<workgroup> results: array<f32, 4096>;

struct Acc {
    sums: array<MatrixSum, PER_SUBGROUP>,
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
            w_tile[m * 32u + q * 4u + e] = f16(v[e]);
        }
    }
}

fn put_x(m: u32, row: u32, g: u32) {
    for (var q = 0u; q < 8u; q++) {
        let v = x_four(row, g * 32u + q * 4u);
        for (var e = 0u; e < 4u; e++) {
            x_tile[m * 32u + q * 4u + e] = f16(v[e]);
        }
    }
}

fn multiplied(before: Acc, at: Lane) -> Acc {
    var acc = before;
    for (var i = 0u; i < PER_SUBGROUP; i++) {
        let matrix = at.subgroup * PER_SUBGROUP + i;
        let x_at = (matrix / SIDE) * TILE * 32u;
        let w_at = (matrix % SIDE) * TILE * 32u;
        for (var k = 0u; k < 32u; k += TILE) {
            let x_place = x_at + k;
            let w_place = w_at + k;
            let mx = coopLoadT<MatrixX>(&x_tile[x_place], 32u);
            let mw = coopLoad<MatrixW>(&w_tile[w_place], 32u);
            acc.sums[i] = coopMultiplyAdd(mx, mw, acc.sums[i]);
        }
    }
    return acc;
}

fn store(acc: Acc, at: Lane, tile: u32, first_row: u32) {
    var sums = acc.sums;
    for (var i = 0u; i < PER_SUBGROUP; i++) {
        let matrix = at.subgroup * PER_SUBGROUP + i;
        let place = (matrix / SIDE) * TILE * BLOCK + (matrix % SIDE) * TILE;
        let sum = sums[i];
        coopStoreT(sum, &results[place], BLOCK);
    }
    workgroupBarrier();
    for (var i = at.idx; i < BLOCK * BLOCK; i += WG) {
        put(column(tile, i / BLOCK), first_row + (i & (BLOCK - 1u)), results[i]);
    }
}
