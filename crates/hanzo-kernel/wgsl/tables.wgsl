// The lattices of the i-quants, one storage buffer for all of them. `GRID_*` are generated: where each begins, in words.
//@import <tables>

@group(0) @binding(1) var<storage, read> tables: array<u32>;
