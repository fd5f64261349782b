// Sorts the pairs (token, expert) by expert into tiles of TILE_ROWS, so that a matrix product takes one expert a tile:
// `order` lists pairs in their own order within each expert, padded with NONE to whole tiles; `tile_expert` says whose tile
// each is, NONE for tiles that are not needed. `order` has room for n_tiles tiles, at least pairs / TILE_ROWS + experts.
// One workgroup; an expert belongs to one thread, so the result does not depend on timing. At most 1,024 experts.

const WG: u32 = 256u;
const EXPERTS_MAX: u32 = 1024u;
const NONE: u32 = 0xffffffffu;

struct Params {
    n_pairs: u32,
    n_experts: u32,
    n_tiles: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> tile_expert: array<u32>;

// Tiles of each expert, then the first tile of each.
var<workgroup> tiles: array<u32, EXPERTS_MAX>;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) local: u32) {
    for (var e = local; e < p.n_experts; e += WG) {
        var count = 0u;
        for (var i = 0u; i < p.n_pairs; i++) {
            count += select(0u, 1u, ids[i] == e);
        }
        tiles[e] = (count + TILE_ROWS - 1u) / TILE_ROWS;
    }
    workgroupBarrier();
    if (local == 0u) {
        var first = 0u;
        for (var e = 0u; e < p.n_experts; e++) {
            let n = tiles[e];
            tiles[e] = first;
            for (var tile = first; tile < min(first + n, p.n_tiles); tile++) {
                tile_expert[tile] = e;
            }
            first += n;
        }
        for (var tile = first; tile < p.n_tiles; tile++) {
            tile_expert[tile] = NONE;
        }
    }
    workgroupBarrier();
    for (var e = local; e < p.n_experts; e += WG) {
        var at = tiles[e] * TILE_ROWS;
        let end = p.n_tiles * TILE_ROWS;
        for (var i = 0u; i < p.n_pairs; i++) {
            if (ids[i] == e && at < end) {
                order[at] = i;
                at += 1u;
            }
        }
        for (; at % TILE_ROWS != 0u && at < end; at++) {
            order[at] = NONE;
        }
    }
}
