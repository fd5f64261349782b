// The weights of a tensor, field by field: each field of the format's blocks is a plane, contiguous over all blocks and
// padded to 16 bytes. `w_FIELD_*` read a plane; they are generated from the format's list of fields.

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;

// Word `i` of the tensor. An access to one component, so that one word is loaded.
fn w_word(i: u32) -> u32 {
    return w[i >> 2u][i & 3u];
}

fn w_half_word(i: u32) -> u32 {
    return (w_word(i >> 1u) >> (16u * (i & 1u))) & 0xffffu;
}

fn w_byte(i: u32) -> u32 {
    return (w_word(i >> 2u) >> (8u * (i & 3u))) & 0xffu;
}
