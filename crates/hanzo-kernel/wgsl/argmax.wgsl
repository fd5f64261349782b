// The index of the largest element of each row, the lowest of equals; a row of NaN gives 0. One workgroup a row.

const WG: u32 = 256u;

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

var<workgroup> values: array<f32, WG>;
var<workgroup> indices: array<u32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    for (var row = workgroup.x; row < p.n_rows; row += n_workgroups.x) {
        var best = -3.4028234e38;
        var best_idx = 0u;
        var seen = false;
        for (var i = local; i < p.dim; i += WG) {
            let v = x[row * p.dim + i];
            // The first that is a number, then only larger ones.
            if (v > best || (!seen && v == v)) {
                best = v;
                best_idx = i;
                seen = true;
            }
        }
        values[local] = best;
        indices[local] = select(0xffffffffu, best_idx, seen);
        workgroupBarrier();
        for (var half = WG / 2u; half > 0u; half >>= 1u) {
            if (local < half) {
                let v = values[local + half];
                let i = indices[local + half];
                let known = indices[local] != 0xffffffffu;
                if (i != 0xffffffffu && (!known || v > values[local] || (v == values[local] && i < indices[local]))) {
                    values[local] = v;
                    indices[local] = i;
                }
            }
            workgroupBarrier();
        }
        if (local == 0u) {
            out[row] = select(0u, indices[0], indices[0] != 0xffffffffu);
        }
        workgroupBarrier();
    }
}
