// The k largest elements of each row with their indices, by falling value, the lower index first of equals; NaN comes last of all.
// One workgroup a row; k is at most 1,024 and at most dim.
//
// An element and its index make one number of 64 bits that no other element has: the value's bits in an order that is that of
// the values, then the index from the end. The k-th largest is found digit by digit, eight bits each: how many elements that
// agree in the digits before have each digit. Then those that are not below it are collected, and sorted.

const WG: u32 = 256u;
const K_MAX: u32 = 1024u;

struct Params {
    n_rows: u32,
    // Elements of a row.
    dim: u32,
    k: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
// [rows, k]
@group(0) @binding(1) var<storage, read_write> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;

// How many elements have each digit.
var<workgroup> counts: array<atomic<u32>, 256>;
// The digits that were found, value and index; and how many elements are still wanted of those that have them.
var<workgroup> found: vec2<u32>;
var<workgroup> n_wanted: u32;
var<workgroup> n_collected: atomic<u32>;
var<workgroup> keys: array<vec2<u32>, K_MAX>;

// Greater numbers have greater keys; NaN has the least.
fn key_of(v: f32) -> u32 {
    let bits = select(bitcast<u32>(v), 0u, v == 0.0);
    let key = bits ^ select(0x80000000u, 0xffffffffu, (bits >> 31u) != 0u);
    return select(key, 0u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn is_above(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y > b.y);
}

// An element and its index.
fn pair_of(first: u32, i: u32) -> vec2<u32> {
    return vec2<u32>(key_of(x[first + i]), ~i);
}

// Finds digit `digit`, 0 to 3 of the value, 4 to 7 of the index, the highest first.
fn find_digit(first: u32, digit: u32, local: u32) {
    let shift = 24u - 8u * (digit & 3u);
    atomicStore(&counts[local], 0u);
    workgroupBarrier();
    let before = found;
    // The digits before this one.
    let high = select(0xffffff00u << shift, 0u, (digit & 3u) == 0u);
    for (var i = local; i < p.dim; i += WG) {
        let pair = pair_of(first, i);
        var word = pair.x;
        var agrees = ((pair.x ^ before.x) & high) == 0u;
        if (digit >= 4u) {
            word = pair.y;
            agrees = pair.x == before.x && ((pair.y ^ before.y) & high) == 0u;
        }
        if (agrees) {
            atomicAdd(&counts[(word >> shift) & 255u], 1u);
        }
    }
    workgroupBarrier();
    if (local == 0u) {
        var wanted = n_wanted;
        var d = 255u;
        for (; d > 0u; d--) {
            let n = atomicLoad(&counts[d]);
            if (n >= wanted) {
                break;
            }
            wanted -= n;
        }
        n_wanted = wanted;
        if (digit < 4u) {
            found.x |= d << shift;
        } else {
            found.y |= d << shift;
        }
    }
    workgroupBarrier();
}

// Sorts the collected pairs, the largest first, by Batcher's bitonic network over a power of two.
fn sort(size: u32, local: u32) {
    for (var block = 2u; block <= size; block <<= 1u) {
        for (var step = block >> 1u; step > 0u; step >>= 1u) {
            for (var i = local; i < size; i += WG) {
                let other = i ^ step;
                if (other > i) {
                    let a = keys[i];
                    let b = keys[other];
                    let falls = (i & block) == 0u;
                    if (is_above(b, a) == falls) {
                        keys[i] = b;
                        keys[other] = a;
                    }
                }
            }
            workgroupBarrier();
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    var size = 1u;
    for (; size < p.k;) {
        size <<= 1u;
    }
    for (var row = workgroup.x; row < p.n_rows; row += n_workgroups.x) {
        let first = row * p.dim;
        if (local == 0u) {
            found = vec2<u32>(0u);
            n_wanted = p.k;
            atomicStore(&n_collected, 0u);
        }
        for (var i = local; i < size; i += WG) {
            keys[i] = vec2<u32>(0u);
        }
        for (var digit = 0u; digit < 8u; digit++) {
            find_digit(first, digit, local);
        }
        let least = found;
        for (var i = local; i < p.dim; i += WG) {
            let pair = pair_of(first, i);
            if (!is_above(least, pair)) {
                keys[atomicAdd(&n_collected, 1u)] = pair;
            }
        }
        workgroupBarrier();
        sort(size, local);
        for (var i = local; i < p.k; i += WG) {
            let id = ~keys[i].y;
            ids[row * p.k + i] = id;
            values[row * p.k + i] = x[first + id];
        }
        // The next row writes all of it again.
        workgroupBarrier();
    }
}
