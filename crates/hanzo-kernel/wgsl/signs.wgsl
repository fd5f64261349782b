// The signs behind a 7-bit sign index of the i-quants: an eighth sign makes the number of minus signs even.

fn even_signs(bits: u32) -> u32 {
    let index = bits & 127u;
    return index | ((countOneBits(index) & 1u) << 7u);
}

// Sixteen signs from two indices.
fn two_even_signs(first: u32, second: u32) -> u32 {
    return even_signs(first) | (even_signs(second) << 8u);
}
