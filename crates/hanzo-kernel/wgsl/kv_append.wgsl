// Rows to their cache slots: x [rows, K, head_dim] into a cache [block, K, 32, head_dim] of the number type; head_dim is a
// multiple of 4, of 32 for q8_0. A thread moves four elements.
//@import grid
//@import <number>
//@if NUMBER == q8
//@import lane
//@import q8
//@end

struct Params {
    // Elements of x over 4.
    n: u32,
    n_kv_heads: u32,
    // Elements of a head over 4.
    head_fours: u32,
//@if NUMBER == q8
    // The first word of quants in the cache.
    cache_quants: u32,
//@end
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
// Physical block · 32 + offset in the block, of each row.
@group(0) @binding(1) var<storage, read> slots: array<u32>;
//@if NUMBER == q8
@group(0) @binding(2) var<storage, read_write> cache: array<atomic<u32>>;
//@else
@group(0) @binding(2) var<storage, read_write> cache: array<Num4>;
//@end

// Where four elements go, in fours.
fn place(i: u32) -> u32 {
    let row_head = i / p.head_fours;
    let row = row_head / p.n_kv_heads;
    let head = row_head - row * p.n_kv_heads;
    let slot = slots[row];
    let to = (((slot >> 5u) * p.n_kv_heads + head) * 32u + (slot & 31u)) * p.head_fours;
    return to + (i - row_head * p.head_fours);
}

//@if NUMBER == q8
// Two scales share a word, and others may write theirs now.
fn put_scale(to: u32, scale: u32) {
    let shift = 16u * ((to >> 3u) & 1u);
    atomicAnd(&cache[to >> 4u], ~(0xffffu << shift));
    atomicOr(&cache[to >> 4u], scale << shift);
}

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
    // Padded, so that shuffles see all threads.
    for (var base = workgroup.x * WG; base < p.n; base += n_workgroups.x * WG) {
        let i = base + at.idx;
        var v = vec4<f32>(0.0);
        if (i < p.n) {
            v = x[i];
        }
        let four = q8_four(v);
        if (i < p.n) {
            let to = place(i);
            atomicStore(&cache[p.cache_quants + to], four.word);
            if ((to & 7u) == 0u) {
                put_scale(to, four.scale);
            }
        }
    }
}
//@else
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        cache[place(i)] = to_num4(x[i]);
    }
}
//@end
