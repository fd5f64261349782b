// IQ1_S, IQ1_M: eight ternary elements from a lattice of 2048 points, shifted as a whole by ±1/8.
//
// The table holds the points times 8, so the shift is ±1 and the scale has a factor of 1/8: exact, a power of two in range.
//@formats IQ1_S IQ1_M
//@import weight
//@import group
//@import scaled
//@import tables
//@import <fields>

// Two points of eight elements, each shifted by its own sign.
fn two_points(first: u32, second: u32, first_negative: bool, second_negative: bool) -> vec4<u32> {
    let at = vec2<u32>(GRID_IQ1) + vec2<u32>(2u) * vec2<u32>(first, second);
    let a = vec4<u32>(tables[at.x], tables[at.x + 1u], 0u, 0u);
    let b = vec4<u32>(tables[at.y], tables[at.y + 1u], 0u, 0u);
    let shifted_a = add_bytes(a, select(0x01010101u, 0xffffffffu, first_negative));
    let shifted_b = add_bytes(b, select(0x01010101u, 0xffffffffu, second_negative));
    return vec4<u32>(shifted_a.xy, shifted_b.xy);
}

fn unpack(g: u32) -> Group {
    let block = g >> 3u;
    let j = g & 7u;
    let low = w_qs_u32(block, j);
    let high = w_qh_u16(block, j);
//@if FORMAT == IQ1_S
    // Three high bits for each of four points, three bits of scale, the sign of the shift.
    let negative = (high >> 15u) != 0u;
    let lo = two_points(
        (low & 255u) | ((high & 7u) << 8u),
        ((low >> 8u) & 255u) | (((high >> 3u) & 7u) << 8u),
        negative,
        negative,
    );
    let hi = two_points(
        ((low >> 16u) & 255u) | (((high >> 6u) & 7u) << 8u),
        (low >> 24u) | (((high >> 9u) & 7u) << 8u),
        negative,
        negative,
    );
    let scale = half_float(w_d_u16(block, 0u)) * f32(2u * ((high >> 12u) & 7u) + 1u) * 0.125;
    return symmetric(lo, hi, vec2<f32>(scale));
//@else
    // A nibble a point: three high bits and the sign of the shift.
    let lo = two_points(
        (low & 255u) | ((high & 7u) << 8u),
        ((low >> 8u) & 255u) | (((high >> 4u) & 7u) << 8u),
        (high & 8u) != 0u,
        ((high >> 4u) & 8u) != 0u,
    );
    let hi = two_points(
        ((low >> 16u) & 255u) | (((high >> 8u) & 7u) << 8u),
        (low >> 24u) | (((high >> 12u) & 7u) << 8u),
        ((high >> 8u) & 8u) != 0u,
        ((high >> 12u) & 8u) != 0u,
    );
    // The top nibbles of the four half words of `scales` make the half-float scale, the other bits sixteen scales of
    // three bits.
    let words = vec2<u32>(w_scales_u32(block, 0u), w_scales_u32(block, 1u));
    let nibbles = (words >> vec2<u32>(12u)) & vec2<u32>(15u);
    let top = nibbles | ((words >> vec2<u32>(28u)) << vec2<u32>(4u));
    let d = half_float(top.x | (top.y << 8u));
    let codes = w_scales_u16(block, j >> 1u) >> (6u * (j & 1u));
    let odd = vec2<u32>(2u) * (vec2<u32>(codes, codes >> 3u) & vec2<u32>(7u)) + vec2<u32>(1u);
    return symmetric(lo, hi, d * vec2<f32>(odd) * 0.125);
//@end
}
