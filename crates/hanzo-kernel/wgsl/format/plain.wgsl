// F32, F16, BF16: plain numbers, rows padded with zeros to whole groups of 32.
//@formats F32 F16 BF16
//@import weight

// Elements 4q to 4q + 3 of group g.
fn unpack4(g: u32, q: u32) -> vec4<f32> {
//@if FORMAT == F32
    return bitcast<vec4<f32>>(w[g * 8u + q]);
//@else
    let words = w[g * 4u + (q >> 1u)];
    let pair = select(words.xy, words.zw, (q & 1u) != 0u);
//@if FORMAT == F16
    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));
//@else
    let low = bitcast<vec2<f32>>(pair << vec2<u32>(16u));
    let high = bitcast<vec2<f32>>(pair & vec2<u32>(0xffff0000u));
    return vec4<f32>(low.x, high.x, low.y, high.y);
//@end
//@end
}
