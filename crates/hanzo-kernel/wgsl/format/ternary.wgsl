// TQ1_0, TQ2_0: elements of −1, 0, 1 (and 2 in malformed TQ2_0) with one half-float scale per 256.
//@formats TQ1_0 TQ2_0
//@import weight
//@import group
//@import scaled
//@import <fields>

//@if FORMAT == TQ1_0
// Trit `idx` of each byte, less 1. A byte holds ceil(t · 256 / 243) of a five-digit ternary number t, first digit highest:
// multiplying by 3^idx modulo 256 brings the digit to the top, times 3 over 256 reads it. Every other byte at a time, so
// that products have 16 bits of room.
fn trits(bytes: vec4<u32>, idx: u32) -> vec4<u32> {
    // 3^idx for idx up to 4, a byte each; 81 for idx 4 is past the word.
    let power = splat(select((0x1b090301u >> (8u * (idx & 3u))) & 255u, 81u, idx == 4u));
    let lanes = splat(0x00ff00ffu);
    let even = ((((bytes & lanes) * power) & lanes) * splat(3u)) >> splat(8u);
    let odd = (((((bytes >> splat(8u)) & lanes) * power) & lanes) * splat(3u)) >> splat(8u);
    return sub_bytes((even & splat(0x00030003u)) | ((odd & splat(0x00030003u)) << splat(8u)), 0x01010101u);
}
//@end

fn unpack(g: u32) -> Group {
    let block = g >> 3u;
    let j = g & 7u;
    let scales = vec2<f32>(half_float(w_d_u16(block, 0u)));
//@if FORMAT == TQ1_0
    // Five trits of bytes 0 to 31 make groups 0 to 4; five of bytes 32 to 47 and four of `qh` make the rest.
    if (j < 5u) {
        return symmetric(trits(w_qs_u128(block, 0u), j), trits(w_qs_u128(block, 1u), j), scales);
    }
    let rest = w_qs_u128(block, 2u);
    let first = 2u * (j - 5u);
    if (j < 7u) {
        return symmetric(trits(rest, first), trits(rest, first + 1u), scales);
    }
    let last = splat(w_qh_u32(block, 0u));
    let hi = vec4<u32>(trits(last, 0u).x, trits(last, 1u).x, trits(last, 2u).x, trits(last, 3u).x);
    return symmetric(trits(rest, first), hi, scales);
//@else
    let shift = splat(2u * (j & 3u));
    let at = (j >> 2u) * 2u;
    let lo = (w_qs_u128(block, at) >> shift) & splat(0x03030303u);
    let hi = (w_qs_u128(block, at + 1u) >> shift) & splat(0x03030303u);
    return symmetric(sub_bytes(lo, 0x01010101u), sub_bytes(hi, 0x01010101u), scales);
//@end
}
