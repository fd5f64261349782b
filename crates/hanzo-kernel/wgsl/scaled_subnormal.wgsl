// Quants times their scale, where scales may be subnormal numbers. Many devices take those for zero, though a quant times one
// may be a normal number: then the digits of the scale are multiplied as a whole number, which a float holds, and the product
// is brought to its place by its bits. (A power of two as a factor, or two, would not do: compilers join constants, and the
// product of these is subnormal again.)

fn scaled(quants: vec4<f32>, scale: f32) -> vec4<f32> {
    let bits = bitcast<u32>(scale);
    if ((bits & 0x7f800000u) != 0u) {
        return quants * scale;
    }
    // A subnormal number is its low 23 bits times 2⁻¹⁴⁹, with the sign of the highest.
    let products = quants * f32(bits & 0x7fffffu);
    let wide = bitcast<vec4<u32>>(abs(products));
    // From 2²³ on the result is normal, with an exponent that is less by 149; below, the product is a whole number and its bits.
    let normal = wide - vec4<u32>(149u << 23u);
    let places = select(normal, vec4<u32>(abs(products)), wide < vec4<u32>(0x4b000000u));
    let signs = (bitcast<vec4<u32>>(products) ^ vec4<u32>(bits)) & vec4<u32>(0x80000000u);
    return bitcast<vec4<f32>>(places | signs);
}
