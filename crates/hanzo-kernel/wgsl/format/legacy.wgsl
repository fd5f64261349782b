// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1: blocks of 32 with a half-float scale and, in Q4_1 and Q5_1, an offset.
//
// The low nibbles hold elements 0 to 15, the high ones 16 to 31; bit i of `qh` is the fifth bit of element i.
//@formats Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1
//@import weight
//@import group
//@import scaled
//@import <fields>

fn unpack(g: u32) -> Group {
    let scales = vec2<f32>(half_float(w_d_u16(g, 0u)));
//@if FORMAT == Q8_0 || FORMAT == Q8_1
    return symmetric(w_qs_u128(g, 0u), w_qs_u128(g, 1u), scales);
//@else
    let nibbles = w_qs_u128(g, 0u);
    var lo = nibbles & splat(0x0f0f0f0fu);
    var hi = (nibbles >> splat(4u)) & splat(0x0f0f0f0fu);
//@if FORMAT == Q5_0 || FORMAT == Q5_1
    let high = w_qh_u32(g, 0u);
    lo |= bits_to_16_bytes(high) << splat(4u);
    hi |= bits_to_16_bytes(high >> 16u) << splat(4u);
//@end
//@if FORMAT == Q4_0
    return symmetric(sub_bytes(lo, 0x08080808u), sub_bytes(hi, 0x08080808u), scales);
//@elif FORMAT == Q5_0
    return symmetric(sub_bytes(lo, 0x10101010u), sub_bytes(hi, 0x10101010u), scales);
//@else
    return Group(lo, hi, scales, vec2<f32>(-half_float(w_m_u16(g, 0u))));
//@end
//@end
}
