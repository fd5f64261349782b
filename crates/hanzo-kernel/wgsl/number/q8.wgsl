// The number type of this specialisation, of a cache alone: q8_0, blocks of 32 signed bytes with an f16 scale. Four elements are a
// word of bytes and the bits of their scale as f32.
//
// A cache lies in memory as a tensor of the format does (`planes.rs`): the scales of all blocks, then their bytes from word
// `p.cache_quants` on. Heads are whole blocks.

alias Num4 = vec2<u32>;

fn from_num4(raw: Num4) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(raw.x)) * bitcast<f32>(raw.y);
}

// The bits of the scale of four elements from the word of scales that has it.
fn scale_bits(scales: u32, four: u32) -> u32 {
    return bitcast<u32>(unpack2x16float(scales >> (16u * ((four >> 3u) & 1u))).x);
}
