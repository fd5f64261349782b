// Quants times their scale, where scales may be subnormal numbers. Many devices take those for zero, though a quant times one
// may be a normal number: then the digits of the scale are multiplied as an integer, which a float holds, and two powers of
// two, both normal numbers, bring the product to its place.

fn scaled(quants: vec4<f32>, scale: f32) -> vec4<f32> {
    let bits = bitcast<u32>(scale);
    if ((bits & 0x7f800000u) != 0u) {
        return quants * scale;
    }
    // A subnormal number is its low 23 bits times 2⁻¹⁴⁹, with the sign of the highest.
    let digits = f32(bits & 0x7fffffu) * select(1.0, -1.0, (bits >> 31u) != 0u);
    // 2⁻⁷⁴ and 2⁻⁷⁵.
    return quants * digits * 5.293955920339377e-23 * 2.6469779601696886e-23;
}
