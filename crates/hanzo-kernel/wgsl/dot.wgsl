// Products of packed signed bytes. `x_dp4` is replaced by name where a target has its own instruction; the function also
// keeps two products of one operand apart, which the MSL writer would otherwise declare twice.

fn x_dp4(a: u32, b: u32, sum: i32) -> i32 {
    return sum + dot4I8Packed(a, b);
}

fn dot_16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return x_dp4(a.w, b.w, x_dp4(a.z, b.z, x_dp4(a.y, b.y, x_dp4(a.x, b.x, 0))));
}
