// MXFP4, NVFP4: E2M1 elements, doubled to integers, with an E8M0 scale per 32 or a UE4M3 scale per 16, halved.
//@formats MXFP4 NVFP4
//@import weight
//@import group
//@if FORMAT == MXFP4
//@import scaled_subnormal
//@else
//@import scaled
//@end
//@import levels
//@import <tables>
//@import <fields>

//@if FORMAT == MXFP4
// 2^(exponent − 128); the two smallest are subnormal. 255, NaN in the specification, is 2^127 as in ggml.
fn half_of_e8m0(exponent: u32) -> f32 {
    return bitcast<f32>(select((exponent - 1u) << 23u, 0x00200000u << (exponent & 1u), exponent < 2u));
}
//@else
// 0x7f, NaN in E4M3, is zero as in ggml; the sign bit is ignored otherwise.
fn half_of_ue4m3(byte: u32) -> f32 {
    let exponent = (byte >> 3u) & 15u;
    let mantissa = byte & 7u;
    let normal = bitcast<f32>(((exponent + 119u) << 23u) | (mantissa << 20u));
    let subnormal = f32(mantissa) * 0.0009765625;
    return select(select(normal, subnormal, exponent == 0u), 0.0, byte == 0x7fu);
}
//@end

fn unpack(g: u32) -> Group {
//@if FORMAT == MXFP4
    let nibbles = w_qs_u128(g, 0u);
    let lo = lookup_16(nibbles & splat(0x0f0f0f0fu), FP4_LEVELS);
    let hi = lookup_16((nibbles >> splat(4u)) & splat(0x0f0f0f0fu), FP4_LEVELS);
    return symmetric(lo, hi, vec2<f32>(half_of_e8m0(w_e_u8(g, 0u))));
//@else
    // Eight bytes per 16 elements: the low nibbles, then the high ones.
    let n = w_qs_u128(g >> 1u, g & 1u);
    let scales = w_d_u16(g >> 1u, g & 1u);
    let low = n & splat(0x0f0f0f0fu);
    let high = (n >> splat(4u)) & splat(0x0f0f0f0fu);
    return symmetric(
        lookup_16(vec4<u32>(low.xy, high.xy), FP4_LEVELS),
        lookup_16(vec4<u32>(low.zw, high.zw), FP4_LEVELS),
        vec2<f32>(half_of_ue4m3(scales & 255u), half_of_ue4m3(scales >> 8u)),
    );
//@end
}
