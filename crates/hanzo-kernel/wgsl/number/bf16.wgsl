// The number type of this specialisation, of activations or of a cache: bf16. Four of them are read and written at once.

alias Num4 = vec2<u32>;

fn from_num4(raw: Num4) -> vec4<f32> {
    let low = bitcast<vec2<f32>>(raw << vec2<u32>(16u));
    let high = bitcast<vec2<f32>>(raw & vec2<u32>(0xffff0000u));
    return vec4<f32>(low.x, high.x, low.y, high.y);
}

// Ties to even; a NaN keeps its high bits and becomes quiet.
fn to_num4(v: vec4<f32>) -> Num4 {
    let bits = bitcast<vec4<u32>>(v);
    let odd = (bits >> splat4(16u)) & splat4(1u);
    let rounded = (bits + splat4(0x7fffu) + odd) >> splat4(16u);
    let quiet = (bits >> splat4(16u)) | splat4(64u);
    let is_nan = (bits & splat4(0x7fffffffu)) > splat4(0x7f800000u);
    let half = select(rounded, quiet, is_nan);
    return vec2<u32>(half.x | (half.y << 16u), half.z | (half.w << 16u));
}

fn splat4(x: u32) -> vec4<u32> {
    return vec4<u32>(x);
}
