// Tables of 16 signed bytes, looked up for four codes at once. The body is the portable form; a target with an instruction
// that permutes bytes replaces the function by name.

// For each byte (0 to 15) of `codes`, the byte of the table.
fn x_lookup_bytes(codes: u32, table: vec4<u32>) -> u32 {
    let c = vec4<u32>(codes & 15u, (codes >> 8u) & 15u, (codes >> 16u) & 15u, (codes >> 24u) & 15u);
    let low = select(splat(table.x), splat(table.y), (c & splat(4u)) != splat(0u));
    let high = select(splat(table.z), splat(table.w), (c & splat(4u)) != splat(0u));
    let word = select(low, high, (c & splat(8u)) != splat(0u));
    let byte = (word >> (splat(8u) * (c & splat(3u)))) & splat(0xffu);
    return byte.x | (byte.y << 8u) | (byte.z << 16u) | (byte.w << 24u);
}

fn lookup_16(codes: vec4<u32>, table: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(
        x_lookup_bytes(codes.x, table),
        x_lookup_bytes(codes.y, table),
        x_lookup_bytes(codes.z, table),
        x_lookup_bytes(codes.w, table),
    );
}
