// Q2_K to Q6_K and Q8_K: super-blocks of 256 in which the scales of 8 or 16 groups are themselves quantised.
//@formats Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K
//@import weight
//@import group
//@if FORMAT == Q8_K
//@import scaled_subnormal
//@else
//@import scaled
//@end
//@import <fields>

//@if FORMAT == Q2_K || FORMAT == Q3_K
// The two bits of each element: 32 bytes serve four groups.
fn two_bits(block: u32, j: u32, half: u32) -> vec4<u32> {
    return (w_qs_u128(block, (j >> 2u) * 2u + half) >> splat(2u * (j & 3u))) & splat(0x03030303u);
}
//@end

//@if FORMAT == Q4_K || FORMAT == Q5_K
// The low four bits of each element: 32 bytes serve two groups.
fn four_bits(block: u32, j: u32, half: u32) -> vec4<u32> {
    return (w_qs_u128(block, (j >> 1u) * 2u + half) >> splat(4u * (j & 1u))) & splat(0x0f0f0f0fu);
}

// The 6-bit scale and minimum of group j. Those of groups 0 to 3 are the low six bits of bytes 0 to 3 and 4 to 7; of groups
// 4 to 7 the low nibbles are in bytes 8 to 11, the high pairs above the first four groups' bits.
fn scale_and_minimum(block: u32, j: u32) -> vec2<f32> {
    let shift = 8u * (j & 3u);
    let first = vec2<u32>(w_scales_u32(block, 0u), w_scales_u32(block, 1u)) >> vec2<u32>(shift);
    var codes = first & vec2<u32>(63u);
    if (j >= 4u) {
        let low = w_scales_u32(block, 2u) >> shift;
        codes = vec2<u32>(low & 15u, (low >> 4u) & 15u) | ((first >> vec2<u32>(2u)) & vec2<u32>(48u));
    }
    return vec2<f32>(half_float(w_d_u16(block, 0u)), half_float(w_dmin_u16(block, 0u))) * vec2<f32>(codes);
}
//@end

//@if FORMAT == Q3_K
// The scale of the 16 elements `idx`, six bits less 32: low nibbles in bytes 0 to 7, high pairs in bytes 8 to 11.
fn scale(block: u32, idx: u32) -> f32 {
    let low = (w_scales_u8(block, idx & 7u) >> (4u * (idx >> 3u))) & 15u;
    let high = (w_scales_u8(block, 8u + (idx & 3u)) >> (2u * (idx >> 2u))) & 3u;
    return f32(i32(low | (high << 4u)) - 32);
}

// Two bits and the third, which says when it is set that 4 is not subtracted.
fn three_bits(block: u32, j: u32, half: u32) -> vec4<u32> {
    let high = (w_hmask_u128(block, half) >> splat(j)) & splat(0x01010101u);
    return sub_bytes(two_bits(block, j, half) | (high << splat(2u)), 0x04040404u);
}
//@end

//@if FORMAT == Q5_K
fn five_bits(block: u32, j: u32, half: u32) -> vec4<u32> {
    let high = (w_qh_u128(block, half) >> splat(j)) & splat(0x01010101u);
    return four_bits(block, j, half) | (high << splat(4u));
}
//@end

//@if FORMAT == Q6_K
// Each half of 128 elements has 64 bytes of nibbles (groups 0 and 1 low, 2 and 3 high) and 32 bytes of pairs.
fn six_bits(block: u32, j: u32, half: u32) -> vec4<u32> {
    let low = w_ql_u128(block, (j >> 2u) * 4u + (j & 1u) * 2u + half) >> splat(2u * (j & 2u));
    let high = w_qh_u128(block, (j >> 2u) * 2u + half) >> splat(2u * (j & 3u));
    let quants = (low & splat(0x0f0f0f0fu)) | ((high & splat(0x03030303u)) << splat(4u));
    return sub_bytes(quants, 0x20202020u);
}
//@end

fn unpack(g: u32) -> Group {
    let block = g >> 3u;
    let j = g & 7u;
//@if FORMAT == Q2_K
    let codes = w_scales_u16(block, j);
    let scales = vec2<f32>(vec2<u32>(codes, codes >> 8u) & vec2<u32>(15u));
    let minima = vec2<f32>((vec2<u32>(codes, codes >> 8u) >> vec2<u32>(4u)) & vec2<u32>(15u));
    let d = half_float(w_d_u16(block, 0u));
    let dmin = half_float(w_dmin_u16(block, 0u));
    return Group(two_bits(block, j, 0u), two_bits(block, j, 1u), d * scales, dmin * minima);
//@elif FORMAT == Q3_K
    let scales = half_float(w_d_u16(block, 0u)) * vec2<f32>(scale(block, 2u * j), scale(block, 2u * j + 1u));
    return symmetric(three_bits(block, j, 0u), three_bits(block, j, 1u), scales);
//@elif FORMAT == Q4_K
    let s = scale_and_minimum(block, j);
    return Group(four_bits(block, j, 0u), four_bits(block, j, 1u), s.xx, s.yy);
//@elif FORMAT == Q5_K
    let s = scale_and_minimum(block, j);
    return Group(five_bits(block, j, 0u), five_bits(block, j, 1u), s.xx, s.yy);
//@elif FORMAT == Q6_K
    let codes = w_scales_u16(block, j);
    let scales = half_float(w_d_u16(block, 0u)) * vec2<f32>(signed_byte(codes), signed_byte(codes >> 8u));
    return symmetric(six_bits(block, j, 0u), six_bits(block, j, 1u), scales);
//@else
    let scale = bitcast<f32>(w_d_u32(block, 0u));
    return symmetric(w_qs_u128(block, 2u * j), w_qs_u128(block, 2u * j + 1u), vec2<f32>(scale));
//@end
}
