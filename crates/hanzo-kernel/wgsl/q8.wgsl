// Values to a block of q8_0, as ggml's reference code does it: the scale is 1/127 of the largest magnitude, quants are rounded,
// halves away from zero, with the scale before it becomes f16.
//@import eight
//@import quotient

struct Q8Four {
    // Four quants.
    word: u32,
    // The block's scale as f16 bits, the same in its eight threads.
    scale: u32,
}

// A block spread over eight consecutive threads, four values each. Called from uniform control flow.
fn q8_four(v: vec4<f32>) -> Q8Four {
    let a = abs(v);
    let scale = quotient(max_of_8(max(max(a.x, a.y), max(a.z, a.w))), 127.0);
    let inverse = select(0.0, quotient(1.0, scale), scale > 0.0);
    let steps = abs(v * inverse);
    let whole = trunc(steps);
    let rounded = whole + select(vec4<f32>(0.0), vec4<f32>(1.0), steps - whole >= vec4<f32>(0.5));
    let quants = vec4<i32>(select(-rounded, rounded, v >= vec4<f32>(0.0)));
    return Q8Four(pack4xI8(quants), pack2x16float(vec2<f32>(scale, 0.0)) & 0xffffu);
}
