// Attention of many rows: a workgroup takes ROWS consecutive batch rows and one query head, and goes through the cache KEYS
// positions a turn, keys and then values in the same workgroup memory. Softmax online. What a row sees is its own range, so
// causal and sliding windows need no other mask. A tile whose rows belong to several sequences does one after the other.
//
// head_dim is at most HEAD_MAX.
//@import lane
//@import eight
//@if SOFTCAP
//@import tanh
//@end
//@import paged

const WG: u32 = 128u;
const WIDTH: u32 = HEAD_MAX / 4u;
//@if HEAD_MAX == 256
const ROWS: u32 = 8u;
//@else
const ROWS: u32 = 16u;
//@end
//@if HEAD_MAX == 256 && NUMBER == f32
const KEYS: u32 = 16u;
//@else
const KEYS: u32 = 32u;
//@end
// One more than a key has, so that neighbouring keys lie in different banks.
const STRIDE: u32 = WIDTH + 1u;
const ROW_TURNS: u32 = ROWS * KEYS / WG;
const OUT_TURNS: u32 = ROWS * WIDTH / WG;

struct Params {
    n_rows: u32,
    n_heads: u32,
    n_kv_heads: u32,
    // Elements of a head over 4.
    head_fours: u32,
    // Columns of block_tables.
    max_blocks: u32,
    scale: f32,
    softcap: f32,
//@if NUMBER == q8
    // The first word of quants in a cache (both are of one length).
    cache_quants: u32,
//@end
}
var<immediate> p: Params;

@group(0) @binding(8) var<storage, read_write> out: array<vec4<f32>>;

var<workgroup> queries: array<vec4<f32>, ROWS * STRIDE>;
var<workgroup> cells: array<Num4, KEYS * STRIDE>;
// Scores of a turn, then their weights.
var<workgroup> scores: array<f32, ROWS * KEYS>;
var<workgroup> largest: array<f32, ROWS>;
var<workgroup> denominator: array<f32, ROWS>;
// What earlier turns are multiplied with.
var<workgroup> correction: array<f32, ROWS>;

// Consecutive rows of one sequence.
struct Run {
    first: u32,
    end: u32,
    seq: u32,
    // The cache indices that any of them sees.
    begin: u32,
    stop: u32,
}

fn run_from(first: u32, tile_end: u32) -> Run {
    var run = Run(first, first, row_seq[first], row_begin[first], row_end[first]);
    for (; run.end < tile_end; run.end++) {
        if (row_seq[run.end] != run.seq) {
            break;
        }
        run.begin = min(run.begin, row_begin[run.end]);
        run.stop = max(run.stop, row_end[run.end]);
    }
    return run;
}

// Keys or values base to base + KEYS, zeros outside of what the run sees: memory that nobody wrote may hold NaN.
fn load(values: bool, run: Run, base: u32, kv_head: u32, at: Lane) {
    for (var i = at.idx; i < KEYS * p.head_fours; i += WG) {
        let key = i / p.head_fours;
        let d = i - key * p.head_fours;
        let position = base + key;
        var cell = Num4();
        if (position >= run.begin && position < run.stop) {
            let place = cache_at(run.seq, kv_head, position) + d;
            if (values) {
                cell = value_at(place);
            } else {
                cell = key_at(place);
            }
        }
        cells[key * STRIDE + d] = cell;
    }
}

// Scores of the keys in `cells`.
fn score(run: Run, base: u32, tile_first: u32, at: Lane) {
    let key = at.idx % KEYS;
    let first = at.idx / KEYS;
    var products = array<f32, ROW_TURNS>();
    for (var d = 0u; d < p.head_fours; d++) {
        let k = from_num4(cells[key * STRIDE + d]);
        for (var i = 0u; i < ROW_TURNS; i++) {
            products[i] += dot(queries[(first + i * (WG / KEYS)) * STRIDE + d], k);
        }
    }
    for (var i = 0u; i < ROW_TURNS; i++) {
        let r = first + i * (WG / KEYS);
        let row = tile_first + r;
        let position = base + key;
        var seen = row >= run.first && row < run.end;
        if (seen) {
            seen = position >= row_begin[row] && position < row_end[row];
        }
        scores[r * KEYS + key] = select(NOTHING, score_of(products[i]), seen);
    }
}

// Scores to weights, eight threads a row; teams past the rows take part in the shuffles, which want all threads.
fn soften(at: Lane) {
    let team = at.idx >> 3u;
    let lane = at.idx & 7u;
    let r = team % ROWS;
    let before = largest[r];
    var top = before;
    if (team < ROWS) {
        for (var i = lane; i < KEYS; i += 8u) {
            top = max(top, scores[r * KEYS + i]);
        }
    }
    top = max_of_8(top);
    var sum = 0.0;
    if (team < ROWS) {
        for (var i = lane; i < KEYS; i += 8u) {
            let weight = weight_of(scores[r * KEYS + i], top);
            sum += weight;
            scores[r * KEYS + i] = weight;
        }
    }
    sum = sum_of_8(sum);
    if (team < ROWS && lane == 0u) {
        correction[r] = exp(before - top);
        denominator[r] = denominator[r] * correction[r] + sum;
        largest[r] = top;
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
    let tile_first = workgroup.x * ROWS;
    let tile_end = min(tile_first + ROWS, p.n_rows);
    let head = workgroup.y;
    let kv_head = head / (p.n_heads / p.n_kv_heads);
    for (var i = at.idx; i < ROWS * p.head_fours; i += WG) {
        let r = i / p.head_fours;
        let d = i - r * p.head_fours;
        let row = min(tile_first + r, p.n_rows - 1u);
        queries[r * STRIDE + d] = q[(row * p.n_heads + head) * p.head_fours + d];
    }
    let d = at.idx % WIDTH;
    let first = at.idx / WIDTH;
    for (var start = tile_first; start < tile_end;) {
        let run = run_from(start, tile_end);
        if (at.idx < ROWS) {
            largest[at.idx] = NOTHING;
            denominator[at.idx] = 0.0;
        }
        var acc = array<vec4<f32>, OUT_TURNS>();
        for (var base = run.begin & ~(KEYS - 1u); base < run.stop; base += KEYS) {
            load(false, run, base, kv_head, at);
            workgroupBarrier();
            score(run, base, tile_first, at);
            workgroupBarrier();
            load(true, run, base, kv_head, at);
            soften(at);
            workgroupBarrier();
            for (var i = 0u; i < OUT_TURNS; i++) {
                acc[i] *= correction[first + i * (WG / WIDTH)];
            }
            if (d < p.head_fours) {
                for (var key = 0u; key < KEYS; key++) {
                    let v = from_num4(cells[key * STRIDE + d]);
                    for (var i = 0u; i < OUT_TURNS; i++) {
                        acc[i] += scores[(first + i * (WG / WIDTH)) * KEYS + key] * v;
                    }
                }
            }
            workgroupBarrier();
        }
        for (var i = 0u; i < OUT_TURNS; i++) {
            let r = first + i * (WG / WIDTH);
            let row = tile_first + r;
            if (row >= run.first && row < run.end && d < p.head_fours) {
//@if SINKS
                let top = max(largest[r], sinks[head]);
                let factor = exp(largest[r] - top);
                let all = denominator[r] * factor + exp(sinks[head] - top);
                out[(row * p.n_heads + head) * p.head_fours + d] = acc[i] * (factor / all);
//@else
                out[(row * p.n_heads + head) * p.head_fours + d] = acc[i] / denominator[r];
//@end
            }
        }
        workgroupBarrier();
        start = run.end;
    }
}
