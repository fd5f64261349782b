// What lies between the products of a layer and its attention, fused: norm of each query and key head, rotation, and the
// keys and values into the cache. One workgroup a (row, head): query heads, then key heads, then value heads.
//
// NORM: heads of q and k are normed first (q and k norm). Queries are rotated in place; keys and values go to the caches
// [block, K, 32, head_dim] of the number type. head_dim is a multiple of 4, of 32 for q8_0, and at most 256. Equal to rms_norm,
// rope and kv_append one after the other, up to the order of the sum of squares.
//@import reduce
//@import rotate
//@import <number>
//@if NUMBER == q8
//@import q8
//@end

const WG: u32 = 64u;

struct Params {
    n_rows: u32,
    n_heads: u32,
    n_kv_heads: u32,
    head_dim: u32,
    n_pairs: u32,
    // Added to the mean of squares.
    eps: f32,
//@if NUMBER == q8
    // The first word of quants in a cache (both are of one length).
    cache_quants: u32,
//@end
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> k: array<f32>;
@group(0) @binding(1) var<storage, read> v: array<f32>;
@group(0) @binding(2) var<storage, read> angles: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> slots: array<u32>;
//@if NORM
@group(0) @binding(4) var<storage, read> q_weight: array<f32>;
@group(0) @binding(5) var<storage, read> k_weight: array<f32>;
//@end
@group(0) @binding(6) var<storage, read_write> q: array<f32>;
//@if NUMBER == q8
@group(0) @binding(7) var<storage, read_write> k_cache: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read_write> v_cache: array<atomic<u32>>;
//@else
@group(0) @binding(7) var<storage, read_write> k_cache: array<Num4>;
@group(0) @binding(8) var<storage, read_write> v_cache: array<Num4>;
//@end

var<workgroup> head: array<f32, 256>;

// Norm and rotation of the head in workgroup memory.
fn turn(row: u32, is_query: bool, at: Lane) {
//@if NORM
    var squares = 0.0;
    for (var i = at.idx; i < p.head_dim; i += WG) {
        squares += head[i] * head[i];
    }
    let factor = 1.0 / sqrt(workgroup_sum(squares, at) / f32(p.head_dim) + p.eps);
    for (var i = at.idx; i < p.head_dim; i += WG) {
        if (is_query) {
            head[i] *= factor * q_weight[i];
        } else {
            head[i] *= factor * k_weight[i];
        }
    }
    workgroupBarrier();
//@end
    for (var pair = at.idx; pair < p.n_pairs; pair += WG) {
        let place = pair_of(pair, p.n_pairs);
        let turned = rotated(vec2<f32>(head[place.x], head[place.y]), angles[row * p.n_pairs + pair]);
        head[place.x] = turned.x;
        head[place.y] = turned.y;
    }
    workgroupBarrier();
}

// Elements 4i to 4i + 3 of the head in workgroup memory.
fn four_of_head(i: u32) -> vec4<f32> {
    return vec4<f32>(head[4u * i], head[4u * i + 1u], head[4u * i + 2u], head[4u * i + 3u]);
}

// The head in workgroup memory to its place in a cache, in fours.
//@if NUMBER == q8
// A head has at most as many fours as the workgroup threads. Two scales share a word, and others may write theirs now.
fn append(is_key: bool, to: u32, at: Lane) {
    let inside = at.idx < p.head_dim / 4u;
    var v = vec4<f32>(0.0);
    if (inside) {
        v = four_of_head(at.idx);
    }
    let four = q8_four(v);
    let place = to + at.idx;
    let shift = 16u * ((place >> 3u) & 1u);
    if (inside && is_key) {
        atomicStore(&k_cache[p.cache_quants + place], four.word);
        if ((place & 7u) == 0u) {
            atomicAnd(&k_cache[place >> 4u], ~(0xffffu << shift));
            atomicOr(&k_cache[place >> 4u], four.scale << shift);
        }
    }
    if (inside && !is_key) {
        atomicStore(&v_cache[p.cache_quants + place], four.word);
        if ((place & 7u) == 0u) {
            atomicAnd(&v_cache[place >> 4u], ~(0xffffu << shift));
            atomicOr(&v_cache[place >> 4u], four.scale << shift);
        }
    }
}
//@else
fn append(is_key: bool, to: u32, at: Lane) {
    for (var i = at.idx; i < p.head_dim / 4u; i += WG) {
        let four = to_num4(four_of_head(i));
        if (is_key) {
            k_cache[to + i] = four;
        } else {
            v_cache[to + i] = four;
        }
    }
}
//@end

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
) {
    let at = lane_of(lane, size, subgroup, n_subgroups);
    let h = workgroup.y;
    for (var row = workgroup.x; row < p.n_rows; row += n_workgroups.x) {
        if (h < p.n_heads) {
            let first = (row * p.n_heads + h) * p.head_dim;
            for (var i = at.idx; i < p.head_dim; i += WG) {
                head[i] = q[first + i];
            }
            workgroupBarrier();
            turn(row, true, at);
            for (var i = at.idx; i < p.head_dim; i += WG) {
                q[first + i] = head[i];
            }
        } else {
            let is_key = h < p.n_heads + p.n_kv_heads;
            let kv_head = h - p.n_heads - select(p.n_kv_heads, 0u, is_key);
            let first = (row * p.n_kv_heads + kv_head) * p.head_dim;
            for (var i = at.idx; i < p.head_dim; i += WG) {
                if (is_key) {
                    head[i] = k[first + i];
                } else {
                    head[i] = v[first + i];
                }
            }
            workgroupBarrier();
            if (is_key) {
                turn(row, false, at);
            }
            let slot = slots[row];
            let to = (((slot >> 5u) * p.n_kv_heads + kv_head) * 32u + (slot & 31u)) * (p.head_dim / 4u);
            append(is_key, to, at);
        }
        // The next row writes the head again.
        workgroupBarrier();
    }
}
