// The correctly rounded quotient of two floats: that of IEEE 754, on every device. A device's own division may be off by two and
// a half units in the last place (WGSL, "Accuracy of operators"; Vulkan says the same), which moves a value that lies near the
// middle of two steps to the other step. Here the device's quotient is a first guess at 24 bits, and the remainder, an integer
// below 2³², corrects it; no compiler may rearrange that.
//
// Of numbers that are not negative. A result below the normal numbers is zero, since devices differ there.
fn quotient(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a);
    let b_bits = bitcast<u32>(b);
    let a_exponent = a_bits >> 23u;
    let b_exponent = b_bits >> 23u;
    let numerator = (a_bits & 0x7fffffu) | 0x800000u;
    let denominator = (b_bits & 0x7fffffu) | 0x800000u;
    // The numerator times 2^shift over the denominator has 24 bits.
    let shift = select(24u, 23u, numerator >= denominator);
    let guess = f32(numerator) / f32(denominator) * f32(1u << shift);
    var digits = u32(guess);
    // Modulo 2³²; the guess is off by a few units, so what is left is a few denominators of 24 bits.
    var rest = bitcast<i32>((numerator << shift) - digits * denominator);
    let step = i32(denominator);
    for (var i = 0u; i < 5u; i++) {
        let is_high = rest < 0;
        let is_low = rest >= step;
        digits = digits + select(0u, 1u, is_low) - select(0u, 1u, is_high);
        rest = rest + select(0, step, is_high) - select(0, step, is_low);
    }
    // A quotient of two numbers of 24 bits never lies in the middle of two others.
    digits += select(0u, 1u, 2 * rest > step);
    let exponent = i32(150u + a_exponent) - i32(shift + b_exponent);
    // Digits that were rounded up to 2²⁴ carry into the exponent.
    let normal = (bitcast<u32>(exponent) << 23u) + (digits - 0x800000u);
    var bits = select(normal, 0x7f800000u, exponent >= 255 || b_exponent == 0u);
    bits = select(bits, 0u, exponent < 1 || a_exponent == 0u || b_exponent == 255u);
    // Infinities and NaN stay what they are.
    return bitcast<f32>(select(bits, a_bits, a_exponent == 255u));
}
