// Where keys and values of a row lie: caches [block, K, 32, head_dim] of the number type, found through a table of blocks for
// each sequence. head_dim is a multiple of 4, of 32 for q8_0; counts in fours of elements.
//@import <number>

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
//@if NUMBER == q8
@group(0) @binding(1) var<storage, read> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read> v_cache: array<u32>;
//@else
@group(0) @binding(1) var<storage, read> k_cache: array<Num4>;
@group(0) @binding(2) var<storage, read> v_cache: array<Num4>;
//@end
// [sequences, max_blocks]: the physical block of each logical block.
@group(0) @binding(3) var<storage, read> block_tables: array<u32>;
// The sequence of each row, and the range of cache indices that it sees.
@group(0) @binding(4) var<storage, read> row_seq: array<u32>;
@group(0) @binding(5) var<storage, read> row_begin: array<u32>;
@group(0) @binding(6) var<storage, read> row_end: array<u32>;
//@if SINKS
// One more score in each head's denominator.
@group(0) @binding(7) var<storage, read> sinks: array<f32>;
//@end

// A score that counts for nothing; an infinity would make NaN of a difference.
const NOTHING: f32 = -3.0e38;

// The first four elements of a key or value.
fn cache_at(seq: u32, kv_head: u32, position: u32) -> u32 {
    let block = block_tables[seq * p.max_blocks + (position >> 5u)];
    return ((block * p.n_kv_heads + kv_head) * 32u + (position & 31u)) * p.head_fours;
}

//@if NUMBER == q8
fn key_at(four: u32) -> Num4 {
    return Num4(k_cache[p.cache_quants + four], scale_bits(k_cache[four >> 4u], four));
}

fn value_at(four: u32) -> Num4 {
    return Num4(v_cache[p.cache_quants + four], scale_bits(v_cache[four >> 4u], four));
}
//@else
fn key_at(four: u32) -> Num4 {
    return k_cache[four];
}

fn value_at(four: u32) -> Num4 {
    return v_cache[four];
}
//@end

// The score of a product of query and key.
fn score_of(product: f32) -> f32 {
    let score = product * p.scale;
//@if SOFTCAP
    return p.softcap * safe_tanh(score / p.softcap);
//@else
    return score;
//@end
}

// e^(score − largest), zero for NOTHING.
fn weight_of(score: f32, largest: f32) -> f32 {
    return select(0.0, exp(score - largest), score > NOTHING);
}
