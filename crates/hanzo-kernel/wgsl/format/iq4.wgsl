// IQ4_NL, IQ4_XS: four bits that choose one of 16 unevenly spaced levels.
//@formats IQ4_NL IQ4_XS
//@import weight
//@import group
//@import scaled
//@import levels
//@import <tables>
//@import <fields>

fn unpack(g: u32) -> Group {
//@if FORMAT == IQ4_NL
    let nibbles = w_qs_u128(g, 0u);
    let scale = half_float(w_d_u16(g, 0u));
//@else
    let block = g >> 3u;
    let j = g & 7u;
    let nibbles = w_qs_u128(block, j);
    // Six bits less 32.
    let low = (w_scales_l_u8(block, j >> 1u) >> (4u * (j & 1u))) & 15u;
    let high = (w_scales_h_u16(block, 0u) >> (2u * j)) & 3u;
    let scale = half_float(w_d_u16(block, 0u)) * f32(i32(low | (high << 4u)) - 32);
//@end
    let lo = lookup_16(nibbles & splat(0x0f0f0f0fu), IQ4_LEVELS);
    let hi = lookup_16((nibbles >> splat(4u)) & splat(0x0f0f0f0fu), IQ4_LEVELS);
    return symmetric(lo, hi, vec2<f32>(scale));
}
