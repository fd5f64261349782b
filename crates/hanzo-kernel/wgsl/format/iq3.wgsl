// IQ3_XXS, IQ3_S: four magnitudes from a lattice of 256 or 512 points, and a sign each.
//@formats IQ3_XXS IQ3_S
//@import weight
//@import group
//@import scaled
//@import tables
//@import signs
//@import <fields>

//@if FORMAT == IQ3_XXS
// Four points of four elements, by the bytes of a word.
fn four_points(points: u32) -> vec4<u32> {
    return vec4<u32>(
        tables[GRID_IQ3_XXS + (points & 255u)],
        tables[GRID_IQ3_XXS + ((points >> 8u) & 255u)],
        tables[GRID_IQ3_XXS + ((points >> 16u) & 255u)],
        tables[GRID_IQ3_XXS + (points >> 24u)],
    );
}
//@else
// The same with a ninth bit each.
fn four_points(points: u32, high: u32) -> vec4<u32> {
    return vec4<u32>(
        tables[GRID_IQ3_S + ((points & 255u) | ((high & 1u) << 8u))],
        tables[GRID_IQ3_S + (((points >> 8u) & 255u) | ((high & 2u) << 7u))],
        tables[GRID_IQ3_S + (((points >> 16u) & 255u) | ((high & 4u) << 6u))],
        tables[GRID_IQ3_S + ((points >> 24u) | ((high & 8u) << 5u))],
    );
}
//@end

fn unpack(g: u32) -> Group {
    let block = g >> 3u;
    let j = g & 7u;
    let d = half_float(w_d_u16(block, 0u));
//@if FORMAT == IQ3_XXS
    // A word a group: four sign indices of seven bits, the scale in the top four.
    let bits = w_scales_and_signs_u32(block, j);
    let scale = d * (0.5 + f32(bits >> 28u)) * 0.5;
    return symmetric(
        negate_bytes(four_points(w_qs_u32(block, 2u * j)), two_even_signs(bits, bits >> 7u)),
        negate_bytes(four_points(w_qs_u32(block, 2u * j + 1u)), two_even_signs(bits >> 14u, bits >> 21u)),
        vec2<f32>(scale),
    );
//@else
    let high = w_qh_u8(block, j);
    let signs = w_signs_u32(block, j);
    let code = (w_scales_u8(block, j >> 1u) >> (4u * (j & 1u))) & 15u;
    return symmetric(
        negate_bytes(four_points(w_qs_u32(block, 2u * j), high), signs),
        negate_bytes(four_points(w_qs_u32(block, 2u * j + 1u), high >> 4u), signs >> 16u),
        vec2<f32>(d * f32(1u + 2u * code)),
    );
//@end
}
