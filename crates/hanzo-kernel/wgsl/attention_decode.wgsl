// Attention of single rows over a long cache. A workgroup takes a batch row, HEADS query heads that share a key/value head,
// and one of n_splits parts of the row's range. Scores: eight threads a position. Values: a thread has four elements of the
// result and every WIDTH-th position. Softmax online, 64 positions a turn.
//
// SPLIT: results are parts for attention_combine, else they are final. head_dim is at most HEAD_MAX.
//@import lane
//@import eight
//@if SOFTCAP
//@import tanh
//@end
//@import paged

const WG: u32 = 128u;
// Positions of a turn.
const TURN: u32 = 64u;
// Threads side by side on the elements of a value, and the values that are looked at together.
const WIDTH: u32 = HEAD_MAX / 4u;
const DEPTH: u32 = WG / WIDTH;

struct Params {
    n_heads: u32,
    n_kv_heads: u32,
    // Elements of a head over 4.
    head_fours: u32,
    // Columns of block_tables.
    max_blocks: u32,
    n_splits: u32,
    scale: f32,
    softcap: f32,
//@if NUMBER == q8
    // The first word of quants in a cache (both are of one length).
    cache_quants: u32,
//@end
}
var<immediate> p: Params;

//@if SPLIT
// [rows, n_heads, n_splits, head_dim] sums, and the largest score and the sum of weights of each.
@group(0) @binding(8) var<storage, read_write> part: array<vec4<f32>>;
@group(0) @binding(9) var<storage, read_write> part_stats: array<vec2<f32>>;
//@else
@group(0) @binding(8) var<storage, read_write> out: array<vec4<f32>>;
//@end

var<workgroup> queries: array<vec4<f32>, HEADS * WIDTH>;
// Scores of a turn, then their weights.
var<workgroup> scores: array<f32, HEADS * TURN>;
var<workgroup> largest: array<f32, HEADS>;
var<workgroup> denominator: array<f32, HEADS>;
// What earlier turns are multiplied with.
var<workgroup> correction: array<f32, HEADS>;
var<workgroup> sums: array<vec4<f32>, WG>;

// Scores of positions base to base + TURN.
fn score(base: u32, end: u32, seq: u32, kv_head: u32, at: Lane) {
    let lane = at.idx & 7u;
    for (var i = at.idx >> 3u; i < TURN; i += WG / 8u) {
        let position = base + i;
        let inside = position < end;
        var products = array<f32, HEADS>();
        if (inside) {
            let key = cache_at(seq, kv_head, position);
            for (var d = lane; d < p.head_fours; d += 8u) {
                let k = from_num4(key_at(key + d));
                for (var h = 0u; h < HEADS; h++) {
                    products[h] += dot(queries[h * WIDTH + d], k);
                }
            }
        }
        for (var h = 0u; h < HEADS; h++) {
            let product = sum_of_8(products[h]);
            if (lane == 0u) {
                scores[h * TURN + i] = select(NOTHING, score_of(product), inside);
            }
        }
    }
}

// Scores to weights. Eight threads do a head; teams past the heads take part in the shuffles, which want all threads.
fn soften(at: Lane) {
    let team = at.idx >> 3u;
    let lane = at.idx & 7u;
    let h = team % HEADS;
    let before = largest[h];
    var top = before;
    if (team < HEADS) {
        for (var i = lane; i < TURN; i += 8u) {
            top = max(top, scores[h * TURN + i]);
        }
    }
    top = max_of_8(top);
    var sum = 0.0;
    if (team < HEADS) {
        for (var i = lane; i < TURN; i += 8u) {
            let weight = weight_of(scores[h * TURN + i], top);
            sum += weight;
            scores[h * TURN + i] = weight;
        }
    }
    sum = sum_of_8(sum);
    if (team < HEADS && lane == 0u) {
        correction[h] = exp(before - top);
        denominator[h] = denominator[h] * correction[h] + sum;
        largest[h] = top;
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
) {
    let at = lane_of(lane, size, subgroup, n_subgroups);
    let row = workgroup.x;
    let first_head = workgroup.y * HEADS;
    let kv_head = first_head / (p.n_heads / p.n_kv_heads);
    let seq = row_seq[row];
    // Parts are whole blocks, so that no block is read by two.
    let per_split = ((row_end[row] - row_begin[row] + p.n_splits - 1u) / p.n_splits + 31u) & ~31u;
    let begin = min(row_begin[row] + workgroup.z * per_split, row_end[row]);
    let end = min(begin + per_split, row_end[row]);
    for (var i = at.idx; i < HEADS * p.head_fours; i += WG) {
        let h = i / p.head_fours;
        queries[h * WIDTH + (i - h * p.head_fours)] = q[(row * p.n_heads + first_head) * p.head_fours + i];
    }
    if (at.idx < HEADS) {
        largest[at.idx] = NOTHING;
        denominator[at.idx] = 0.0;
    }
    workgroupBarrier();
    let d = at.idx % WIDTH;
    let depth = at.idx / WIDTH;
    var acc = array<vec4<f32>, HEADS>();
    for (var base = begin; base < end; base += TURN) {
        score(base, end, seq, kv_head, at);
        workgroupBarrier();
        soften(at);
        workgroupBarrier();
        for (var h = 0u; h < HEADS; h++) {
            acc[h] *= correction[h];
        }
        if (d < p.head_fours) {
            for (var i = depth; i < min(TURN, end - base); i += DEPTH) {
                let v = from_num4(value_at(cache_at(seq, kv_head, base + i) + d));
                for (var h = 0u; h < HEADS; h++) {
                    acc[h] += scores[h * TURN + i] * v;
                }
            }
        }
        workgroupBarrier();
    }
    for (var h = 0u; h < HEADS; h++) {
        sums[at.idx] = acc[h];
        workgroupBarrier();
        if (depth == 0u && d < p.head_fours) {
            var sum = vec4<f32>(0.0);
            for (var i = 0u; i < DEPTH; i++) {
                sum += sums[i * WIDTH + d];
            }
            let head = row * p.n_heads + first_head + h;
//@if SPLIT
            let place = head * p.n_splits + workgroup.z;
            part[place * p.head_fours + d] = sum;
            if (d == 0u) {
                part_stats[place] = vec2<f32>(largest[h], denominator[h]);
            }
//@elif SINKS
            let top = max(largest[h], sinks[first_head + h]);
            let factor = exp(largest[h] - top);
            let all = denominator[h] * factor + exp(sinks[first_head + h] - top);
            out[head * p.head_fours + d] = sum * (factor / all);
//@else
            out[head * p.head_fours + d] = sum / denominator[h];
//@end
        }
        workgroupBarrier();
    }
}
