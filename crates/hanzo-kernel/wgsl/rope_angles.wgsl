// The rotations of a step: out[t, pair] = (cos, sin) · magnitude of positions[t, axis[pair]] · inv_freq[pair].
//
// The product is formed exactly, in integers, as a fraction of a turn: an f32 product would be off by 0.008 radians at
// position 131,072, and a device's sine is only promised to 2⁻¹¹. An f32 is m · 2^(e − 23) with 24 bits of m; m times a
// 96-bit 1/2π, shifted by e, leaves 64 bits of fraction, which are multiplied by the position.
//@import grid

struct Params {
    // Rows times pairs.
    n: u32,
    n_pairs: u32,
    n_axes: u32,
    magnitude: f32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> positions: array<u32>;
@group(0) @binding(1) var<storage, read> inv_freq: array<f32>;
@group(0) @binding(2) var<storage, read> axis: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<vec2<f32>>;

// The 64-bit product as (low, high).
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let cross = (middle & 0xffffu) + a0 * b1;
    return vec2<u32>(a * b, a1 * b1 + (middle >> 16u) + (cross >> 16u));
}

// Whether a + b overflowed to `sum`.
fn carry(sum: u32, a: u32) -> u32 {
    return select(0u, 1u, sum < a);
}

// `freq / 2π` modulo 1 in units of 2⁻⁶⁴, as (low, high).
fn turns(freq: f32) -> vec2<u32> {
    let bits = bitcast<u32>(freq);
    let m = (bits & 0x7fffffu) | 0x800000u;
    // 1/2π = 0.28be60db 9391054a 7f09d5f4 (hexadecimal), most significant word first.
    let lowest = multiply(m, 0x7f09d5f4u);
    let middle = multiply(m, 0x9391054au);
    let highest = multiply(m, 0x28be60dbu);
    // Words of m · 2⁹⁶ / 2π, lowest first.
    let w0 = lowest.x;
    let w1 = lowest.y + middle.x;
    let c1 = carry(w1, middle.x);
    let w2_part = middle.y + highest.x;
    let c2 = carry(w2_part, highest.x);
    let w2 = w2_part + c1;
    let w3 = highest.y + c2 + carry(w2, c1);
    // In units of 2⁻⁶⁴ that is divided by 2^(32 + 23 + 127 − exponent).
    let exponent = (bits >> 23u) & 255u;
    let shift = 182u - min(exponent, 182u);
    var words = vec4<u32>(w0, w1, w2, w3);
    var rest = shift;
    for (; rest >= 32u; rest -= 32u) {
        words = vec4<u32>(words.yzw, 0u);
    }
    let low = select((words.x >> rest) | (words.y << (32u - rest)), words.x, rest == 0u);
    let high = select((words.y >> rest) | (words.z << (32u - rest)), words.y, rest == 0u);
    // Subnormal frequencies turn nothing; shifts past 128 bits were cut to those of all the words.
    return select(vec2<u32>(low, high), vec2<u32>(0u), exponent == 0u);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let row = i / p.n_pairs;
        let pair = i - row * p.n_pairs;
        let position = positions[row * p.n_axes + axis[pair]];
        let turn = turns(inv_freq[pair]);
        // The high word of position · turn modulo 1, negated for a negative frequency.
        var fraction = multiply(turn.x, position).y + turn.y * position;
        if (inv_freq[pair] < 0.0) {
            fraction = 0u - fraction;
        }
        // The nearest quarter turn and what is left, −π/4 to π/4.
        let quarter = (fraction + 0x20000000u) >> 30u;
        let left = f32(bitcast<i32>(fraction - (quarter << 30u))) * 1.4629180792671596e-9;
        let x2 = left * left;
        // Minimax polynomials of the Cephes library (sinf, cosf): an ulp over this range.
        let s = left + left * x2 * (-1.6666654611e-1 + x2 * (8.3321608736e-3 - x2 * 1.9515295891e-4));
        let c = 1.0 - 0.5 * x2
            + x2 * x2 * (4.166664568298827e-2 + x2 * (-1.388731625493765e-3 + x2 * 2.443315711809948e-5));
        let odd = (quarter & 1u) != 0u;
        let cosine = select(c, s, odd) * select(1.0, -1.0, ((quarter + 1u) & 2u) != 0u);
        let sine = select(s, c, odd) * select(1.0, -1.0, (quarter & 2u) != 0u);
        out[i] = vec2<f32>(cosine, sine) * p.magnitude;
    }
}
