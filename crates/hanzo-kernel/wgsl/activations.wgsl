// Activations of a product as floats: rows of `p.k` elements of the number type of the specialisation; of any length
// where the weight has plain numbers.
//@import <number>

@group(0) @binding(2) var<storage, read> x: array<Num4>;

//@if PLAIN
fn x_element(i: u32) -> f32 {
    return from_num4(x[i >> 2u])[i & 3u];
}

// Elements i to i + 3 of a row, zeros past its end; i is a multiple of 4.
fn x_four(row: u32, i: u32) -> vec4<f32> {
    let at = row * p.k + i;
    if ((p.k & 3u) == 0u) {
        if (i < p.k) {
            return from_num4(x[at >> 2u]);
        }
        return vec4<f32>(0.0);
    }
    var v = vec4<f32>(0.0);
    for (var e = 0u; e < 4u; e++) {
        if (i + e < p.k) {
            v[e] = x_element(at + e);
        }
    }
    return v;
}
//@else
// Elements i to i + 3 of a row, which is whole groups; i is a multiple of 4.
fn x_four(row: u32, i: u32) -> vec4<f32> {
    return from_num4(x[(row * p.k + i) >> 2u]);
}
//@end
