// Activations as signed bytes, in groups of 32: what the int8-dot products read.
//
// A group has 8 words of quants, and in `x_meta` its scale and the sums of quants 0 to 15 and 16 to 31 as two 16-bit
// integers: value = scale · quant. The sums serve formats with minima.
//@import eight
//@import quotient

struct Quantized {
    // Four quants.
    word: u32,
    // The group's entry of `x_meta`, the same in its eight threads.
    info: vec2<u32>,
}

// Quantises a group spread over eight consecutive threads, four values each. Called from uniform control flow.
fn quantize_group(v: vec4<f32>) -> Quantized {
    let a = abs(v);
    let largest = max_of_8(max(max(a.x, a.y), max(a.z, a.w)));
    // Below, the scale would be no normal number.
    let is_zero = largest < 1e-35;
    let scale = select(quotient(largest, 127.0), 0.0, is_zero);
    let inverse = select(quotient(127.0, largest), 0.0, is_zero);
    let q = vec4<i32>(clamp(round(v * inverse), vec4<f32>(-127.0), vec4<f32>(127.0)));
    var sum = q.x + q.y + q.z + q.w;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    // The other half's sum is four threads away; the first of the eight threads has the low half's.
    let other = subgroupShuffleXor(sum, 4u);
    let sums = (bitcast<u32>(sum) & 0xffffu) | (bitcast<u32>(other) << 16u);
    return Quantized(pack4xI8(q), vec2<u32>(bitcast<u32>(scale), sums));
}

fn meta_scale(info: vec2<u32>) -> f32 {
    return bitcast<f32>(info.x);
}

fn meta_sums(info: vec2<u32>) -> vec2<f32> {
    let both = bitcast<i32>(info.y);
    return vec2<f32>(f32(extractBits(both, 0u, 16u)), f32(extractBits(both, 16u, 16u)));
}
