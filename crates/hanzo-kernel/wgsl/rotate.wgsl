// A rotated pair. ADJACENT: elements 2i and 2i + 1 (GPT-J), else i and i + n_pairs (NeoX).

fn pair_of(pair: u32, n_pairs: u32) -> vec2<u32> {
//@if ADJACENT
    return vec2<u32>(2u * pair, 2u * pair + 1u);
//@else
    return vec2<u32>(pair, pair + n_pairs);
//@end
}

// By an angle's (cos, sin).
fn rotated(v: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(v.x * angle.x - v.y * angle.y, v.x * angle.y + v.y * angle.x);
}
