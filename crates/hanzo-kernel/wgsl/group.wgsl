// The common form that every integer format decodes to, and arithmetic on four bytes of a word at once.

// 32 elements: value = scale · quant − minimum.
struct Group {
    // Packed signed quants of elements 0 to 15 and 16 to 31.
    lo: vec4<u32>,
    hi: vec4<u32>,
    // One scale and one minimum per 16 elements.
    scales: vec2<f32>,
    minima: vec2<f32>,
}

fn symmetric(lo: vec4<u32>, hi: vec4<u32>, scales: vec2<f32>) -> Group {
    return Group(lo, hi, scales, vec2<f32>(0.0));
}

// Four elements of a word of quants. `scaled` comes with the format.
fn four_of(word: u32, scale: f32, minimum: f32) -> vec4<f32> {
    return scaled(vec4<f32>(unpack4xI8(word)), scale) - minimum;
}

// The number whose bits are an IEEE half float.
fn half_float(bits: u32) -> f32 {
    return unpack2x16float(bits).x;
}

fn splat(x: u32) -> vec4<u32> {
    return vec4<u32>(x);
}

// Each byte less the same byte of `y`; bytes of x below 128, bytes of y up to 128.
fn sub_bytes(x: vec4<u32>, y: u32) -> vec4<u32> {
    return ((x | splat(0x80808080u)) - splat(y)) ^ splat(0x80808080u);
}

// Each byte plus the same byte of `y`, modulo 256.
fn add_bytes(x: vec4<u32>, y: u32) -> vec4<u32> {
    let low = splat(0x7f7f7f7fu);
    return ((x & low) + splat(y & 0x7f7f7f7fu)) ^ ((x ^ splat(y)) & splat(0x80808080u));
}

// Bits 0 to 3 as the lowest bits of four bytes: bit i times 2^(7i), then only those that land on a byte are kept.
fn bits_to_bytes(bits: u32) -> u32 {
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
}

// Bits 0 to 15 as the lowest bits of sixteen bytes.
fn bits_to_16_bytes(bits: u32) -> vec4<u32> {
    return vec4<u32>(
        bits_to_bytes(bits),
        bits_to_bytes(bits >> 4u),
        bits_to_bytes(bits >> 8u),
        bits_to_bytes(bits >> 12u),
    );
}

// Bytes (none of them zero) negated where the sign bit is set, bit i for byte i: −x is ~x + 1, and no carry leaves a byte
// since ~x is 255 for zero alone.
fn negate_bytes(x: vec4<u32>, signs: u32) -> vec4<u32> {
    let ones = bits_to_16_bytes(signs);
    return (x ^ (ones * splat(255u))) + ones;
}

// A signed byte in the low bits as a float.
fn signed_byte(bits: u32) -> f32 {
    return f32(extractBits(bitcast<i32>(bits), 0u, 8u));
}
