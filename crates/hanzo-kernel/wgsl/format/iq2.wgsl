// IQ2_XXS, IQ2_XS, IQ2_S: eight magnitudes from a lattice of 256, 512 or 1024 points, and eight signs.
//
// The scale is d · (1/2 + s) / 4 with four bits of s.
//@formats IQ2_XXS IQ2_XS IQ2_S
//@import weight
//@import group
//@import scaled
//@import tables
//@import signs
//@import <fields>

//@if FORMAT == IQ2_XXS
const GRID: u32 = GRID_IQ2_XXS;
//@elif FORMAT == IQ2_XS
const GRID: u32 = GRID_IQ2_XS;
//@else
const GRID: u32 = GRID_IQ2_S;
//@end

// Two points of eight elements.
fn two_points(first: u32, second: u32) -> vec4<u32> {
    let a = GRID + 2u * first;
    let b = GRID + 2u * second;
    return vec4<u32>(tables[a], tables[a + 1u], tables[b], tables[b + 1u]);
}

fn two_scales(block: u32, codes: u32) -> vec2<f32> {
    let s = vec2<f32>(vec2<u32>(codes, codes >> 4u) & vec2<u32>(15u));
    return half_float(w_d_u16(block, 0u)) * (vec2<f32>(0.5) + s) * 0.25;
}

fn unpack(g: u32) -> Group {
    let block = g >> 3u;
    let j = g & 7u;
//@if FORMAT == IQ2_XXS
    // Four points, then four sign indices of seven bits and the scale in the top four.
    let points = w_qs_u32(block, 2u * j);
    let bits = w_qs_u32(block, 2u * j + 1u);
    let lo = two_points(points & 255u, (points >> 8u) & 255u);
    let hi = two_points((points >> 16u) & 255u, points >> 24u);
    return symmetric(
        negate_bytes(lo, two_even_signs(bits, bits >> 7u)),
        negate_bytes(hi, two_even_signs(bits >> 14u, bits >> 21u)),
        two_scales(block, bits >> 28u).xx,
    );
//@elif FORMAT == IQ2_XS
    // A half word a point: nine bits of index, seven of sign index.
    let first = w_qs_u32(block, 2u * j);
    let second = w_qs_u32(block, 2u * j + 1u);
    let lo = two_points(first & 511u, (first >> 16u) & 511u);
    let hi = two_points(second & 511u, (second >> 16u) & 511u);
    return symmetric(
        negate_bytes(lo, two_even_signs(first >> 9u, first >> 25u)),
        negate_bytes(hi, two_even_signs(second >> 9u, second >> 25u)),
        two_scales(block, w_scales_u8(block, j)),
    );
//@else
    // Two high bits for each of four points. The signs are free.
    let low = w_qs_u32(block, j);
    let high = w_qh_u8(block, j);
    let lo = two_points((low & 255u) | ((high & 3u) << 8u), ((low >> 8u) & 255u) | ((high & 12u) << 6u));
    let hi = two_points(((low >> 16u) & 255u) | ((high & 48u) << 4u), (low >> 24u) | ((high & 192u) << 2u));
    let signs = w_signs_u32(block, j);
    return symmetric(
        negate_bytes(lo, signs),
        negate_bytes(hi, signs >> 16u),
        two_scales(block, w_scales_u8(block, j)),
    );
//@end
}
