
// What follows from the scalars: integers, vectors, packing, reductions over a subgroup.

DEV f16 w_abs(f16 a) { return f16(w_abs(f32(a))); }
DEV f16 w_min(f16 a, f16 b) { return f16(w_min(f32(a), f32(b))); }
DEV f16 w_max(f16 a, f16 b) { return f16(w_max(f32(a), f32(b))); }
DEV f16 w_fma(f16 a, f16 b, f16 c) { return f16(w_fma(f32(a), f32(b), f32(c))); }
DEV f16 w_sqrt(f16 a) { return f16(w_sqrt(f32(a))); }
DEV f16 w_exp(f16 a) { return f16(w_exp(f32(a))); }
DEV f16 w_tanh(f16 a) { return f16(w_tanh(f32(a))); }
DEV f16 w_floor(f16 a) { return f16(w_floor(f32(a))); }
DEV f16 w_round(f16 a) { return f16(w_round(f32(a))); }
DEV i32 w_abs(i32 a) { return a < 0 ? i32(0u - u32(a)) : a; }
DEV u32 w_abs(u32 a) { return a; }
DEV i32 w_min(i32 a, i32 b) { return a < b ? a : b; }
DEV i32 w_max(i32 a, i32 b) { return a > b ? a : b; }
DEV u32 w_min(u32 a, u32 b) { return a < b ? a : b; }
DEV u32 w_max(u32 a, u32 b) { return a > b ? a : b; }
DEV u64 w_min(u64 a, u64 b) { return a < b ? a : b; }
DEV u64 w_max(u64 a, u64 b) { return a > b ? a : b; }
DEV i32 w_sign(i32 a) { return i32(a > 0) - i32(a < 0); }
DEV f32 w_sign(f32 a) { return f32(a > 0.0f) - f32(a < 0.0f); }
DEV f32 w_fract(f32 a) { return a - w_floor(a); }
DEV f32 w_saturate(f32 a) { return w_min(w_max(a, 0.0f), 1.0f); }
DEV f32 w_quantize_f16(f32 a) { return f32(f16(a)); }
DEV bool w_isnan(f32 a) { return a != a; }
DEV bool w_isinf(f32 a) { return (bits<u32>(a) & 0x7fffffffu) == 0x7f800000u; }
DEV f32 w_step(f32 edge, f32 a) { return edge <= a ? 1.0f : 0.0f; }
DEV f32 w_mix(f32 a, f32 b, f32 t) { return a * (1.0f - t) + b * t; }
template <class T> DEV T w_clamp(T a, T low, T high) { return w_min(w_max(a, low), high); }

DEV u32 w_ctz(u32 a) { return a == 0u ? 32u : 31u - w_clz(a & (0u - a)); }
DEV u32 w_first_trailing_bit(u32 a) { return a == 0u ? ~0u : w_ctz(a); }
DEV u32 w_first_leading_bit(u32 a) { return 31u - w_clz(a); }
DEV i32 w_popcount(i32 a) { return i32(w_popcount(u32(a))); }
DEV i32 w_clz(i32 a) { return i32(w_clz(u32(a))); }
DEV i32 w_ctz(i32 a) { return i32(w_ctz(u32(a))); }
DEV i32 w_reverse_bits(i32 a) { return i32(w_reverse_bits(u32(a))); }
// Offset and count lie within the word.
DEV u32 w_extract_bits(u32 a, u32 offset, u32 count) {
    return count == 0u ? 0u : (a >> offset) & (~0u >> (32u - count));
}
DEV i32 w_extract_bits(i32 a, u32 offset, u32 count) {
    return count == 0u ? 0 : i32(u32(a) << (32u - offset - count)) >> (32u - count);
}
DEV u32 w_insert_bits(u32 a, u32 b, u32 offset, u32 count) {
    u32 mask = count == 0u ? 0u : (~0u >> (32u - count)) << offset;
    return (a & ~mask) | ((b << offset) & mask);
}
DEV i32 w_insert_bits(i32 a, i32 b, u32 offset, u32 count) {
    return i32(w_insert_bits(u32(a), u32(b), offset, count));
}

// Vectors. MAP builds the functions of one, two and three vectors from that of scalars.
#define MAP1(name)                                                                                    \
    template <class T> DEV auto name(vec2<T> a) -> vec2<decltype(name(a.x))> { return {name(a.x), name(a.y)}; } \
    template <class T> DEV auto name(vec3<T> a) -> vec3<decltype(name(a.x))> {                        \
        return {name(a.x), name(a.y), name(a.z)};                                                     \
    }                                                                                                 \
    template <class T> DEV auto name(vec4<T> a) -> vec4<decltype(name(a.x))> {                        \
        return {name(a.x), name(a.y), name(a.z), name(a.w)};                                          \
    }
#define MAP2(name)                                                                                    \
    template <class T> DEV vec2<T> name(vec2<T> a, vec2<T> b) { return {name(a.x, b.x), name(a.y, b.y)}; } \
    template <class T> DEV vec3<T> name(vec3<T> a, vec3<T> b) {                                       \
        return {name(a.x, b.x), name(a.y, b.y), name(a.z, b.z)};                                      \
    }                                                                                                 \
    template <class T> DEV vec4<T> name(vec4<T> a, vec4<T> b) {                                       \
        return {name(a.x, b.x), name(a.y, b.y), name(a.z, b.z), name(a.w, b.w)};                      \
    }
#define MAP3(name)                                                                                    \
    template <class T> DEV vec2<T> name(vec2<T> a, vec2<T> b, vec2<T> c) {                            \
        return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};                                            \
    }                                                                                                 \
    template <class T> DEV vec3<T> name(vec3<T> a, vec3<T> b, vec3<T> c) {                            \
        return {name(a.x, b.x, c.x), name(a.y, b.y, c.y), name(a.z, b.z, c.z)};                       \
    }                                                                                                 \
    template <class T> DEV vec4<T> name(vec4<T> a, vec4<T> b, vec4<T> c) {                            \
        return {name(a.x, b.x, c.x), name(a.y, b.y, c.y), name(a.z, b.z, c.z), name(a.w, b.w, c.w)};  \
    }
MAP1(w_abs) MAP1(w_floor) MAP1(w_ceil) MAP1(w_round) MAP1(w_trunc) MAP1(w_sqrt) MAP1(w_rsqrt) MAP1(w_exp)
MAP1(w_exp2) MAP1(w_log) MAP1(w_log2) MAP1(w_sin) MAP1(w_cos) MAP1(w_tanh) MAP1(w_sign) MAP1(w_fract)
MAP1(w_saturate) MAP1(w_quantize_f16) MAP1(w_isnan) MAP1(w_isinf) MAP1(w_popcount) MAP1(w_clz) MAP1(w_ctz)
MAP1(w_reverse_bits)
MAP2(w_min) MAP2(w_max) MAP2(w_pow) MAP2(w_mod) MAP2(w_step)
MAP3(w_fma) MAP3(w_mix)

#define OPERATOR(op)                                                                                  \
    template <class T> DEV auto operator op(vec2<T> a, vec2<T> b) -> vec2<decltype(a.x op b.x)> {     \
        return {a.x op b.x, a.y op b.y};                                                              \
    }                                                                                                 \
    template <class T> DEV auto operator op(vec3<T> a, vec3<T> b) -> vec3<decltype(a.x op b.x)> {     \
        return {a.x op b.x, a.y op b.y, a.z op b.z};                                                  \
    }                                                                                                 \
    template <class T> DEV auto operator op(vec4<T> a, vec4<T> b) -> vec4<decltype(a.x op b.x)> {     \
        return {a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w};                                      \
    }
OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(/) OPERATOR(%) OPERATOR(&) OPERATOR(|) OPERATOR(^)
OPERATOR(==) OPERATOR(!=) OPERATOR(<) OPERATOR(<=) OPERATOR(>) OPERATOR(>=)
// The amounts of a shift are unsigned whatever is shifted.
#define SHIFT(op)                                                                                     \
    template <class T> DEV vec2<T> operator op(vec2<T> a, vec2<u32> n) { return {a.x op n.x, a.y op n.y}; } \
    template <class T> DEV vec3<T> operator op(vec3<T> a, vec3<u32> n) {                              \
        return {a.x op n.x, a.y op n.y, a.z op n.z};                                                  \
    }                                                                                                 \
    template <class T> DEV vec4<T> operator op(vec4<T> a, vec4<u32> n) {                              \
        return {a.x op n.x, a.y op n.y, a.z op n.z, a.w op n.w};                                      \
    }
SHIFT(<<) SHIFT(>>)
#define UNARY(op)                                                                                     \
    template <class T> DEV vec2<T> operator op(vec2<T> a) { return {op a.x, op a.y}; }                \
    template <class T> DEV vec3<T> operator op(vec3<T> a) { return {op a.x, op a.y, op a.z}; }        \
    template <class T> DEV vec4<T> operator op(vec4<T> a) { return {op a.x, op a.y, op a.z, op a.w}; }
UNARY(-) UNARY(~) UNARY(!)

template <class T> DEV vec2<T> splat2(T a) { return {a, a}; }
template <class T> DEV vec3<T> splat3(T a) { return {a, a, a}; }
template <class T> DEV vec4<T> splat4(T a) { return {a, a, a, a}; }
// A vector and a scalar.
#define SCALAR(op)                                                                                    \
    template <class T> DEV vec2<T> operator op(vec2<T> a, T b) { return a op splat2(b); }             \
    template <class T> DEV vec3<T> operator op(vec3<T> a, T b) { return a op splat3(b); }             \
    template <class T> DEV vec4<T> operator op(vec4<T> a, T b) { return a op splat4(b); }             \
    template <class T> DEV vec2<T> operator op(T a, vec2<T> b) { return splat2(a) op b; }             \
    template <class T> DEV vec3<T> operator op(T a, vec3<T> b) { return splat3(a) op b; }             \
    template <class T> DEV vec4<T> operator op(T a, vec4<T> b) { return splat4(a) op b; }
SCALAR(+) SCALAR(-) SCALAR(*) SCALAR(/)

template <class T> DEV vec3<T> join3(vec2<T> a, T b) { return {a.x, a.y, b}; }
template <class T> DEV vec3<T> join3(T a, vec2<T> b) { return {a, b.x, b.y}; }
template <class T> DEV vec4<T> join4(vec2<T> a, vec2<T> b) { return {a.x, a.y, b.x, b.y}; }
template <class T> DEV vec4<T> join4(vec3<T> a, T b) { return {a.x, a.y, a.z, b}; }
template <class T> DEV vec4<T> join4(T a, vec3<T> b) { return {a, b.x, b.y, b.z}; }
template <class T> DEV vec4<T> join4(vec2<T> a, T b, T c) { return {a.x, a.y, b, c}; }
template <class T> DEV vec4<T> join4(T a, vec2<T> b, T c) { return {a, b.x, b.y, c}; }
template <class T> DEV vec4<T> join4(T a, T b, vec2<T> c) { return {a, b, c.x, c.y}; }

template <class D, class S> DEV vec2<D> convert2(vec2<S> a) { return {D(a.x), D(a.y)}; }
template <class D, class S> DEV vec3<D> convert3(vec3<S> a) { return {D(a.x), D(a.y), D(a.z)}; }
template <class D, class S> DEV vec4<D> convert4(vec4<S> a) { return {D(a.x), D(a.y), D(a.z), D(a.w)}; }

template <class T> DEV vec2<T> select(vec2<bool> c, vec2<T> a, vec2<T> b) {
    return {c.x ? a.x : b.x, c.y ? a.y : b.y};
}
template <class T> DEV vec3<T> select(vec3<bool> c, vec3<T> a, vec3<T> b) {
    return {c.x ? a.x : b.x, c.y ? a.y : b.y, c.z ? a.z : b.z};
}
template <class T> DEV vec4<T> select(vec4<bool> c, vec4<T> a, vec4<T> b) {
    return {c.x ? a.x : b.x, c.y ? a.y : b.y, c.z ? a.z : b.z, c.w ? a.w : b.w};
}
DEV bool w_all(bool a) { return a; }
DEV bool w_all(vec2<bool> a) { return a.x && a.y; }
DEV bool w_all(vec3<bool> a) { return a.x && a.y && a.z; }
DEV bool w_all(vec4<bool> a) { return a.x && a.y && a.z && a.w; }
DEV bool w_any(bool a) { return a; }
DEV bool w_any(vec2<bool> a) { return a.x || a.y; }
DEV bool w_any(vec3<bool> a) { return a.x || a.y || a.z; }
DEV bool w_any(vec4<bool> a) { return a.x || a.y || a.z || a.w; }

template <class T> DEV T w_dot(vec2<T> a, vec2<T> b) { return a.x * b.x + a.y * b.y; }
template <class T> DEV T w_dot(vec3<T> a, vec3<T> b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class T> DEV T w_dot(vec4<T> a, vec4<T> b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
template <class V> DEV f32 w_length(V a) { return w_sqrt(w_dot(a, a)); }

DEV i32 w_dot4_i8(u32 a, u32 b) { return w_dp4(a, b, 0); }
DEV u32 w_dot4_u8(u32 a, u32 b) { return w_dp4_unsigned(a, b, 0u); }
DEV vec2<f32> w_unpack_2x16_float(u32 a) { return {f32(bits<f16>(u16(a))), f32(bits<f16>(u16(a >> 16)))}; }
DEV u32 w_pack_2x16_float(vec2<f32> a) { return u32(bits<u16>(f16(a.x))) | u32(bits<u16>(f16(a.y))) << 16; }
DEV vec4<u32> w_unpack_4x_u8(u32 a) { return {a & 255u, (a >> 8) & 255u, (a >> 16) & 255u, a >> 24}; }
DEV vec4<i32> w_unpack_4x_i8(u32 a) {
    return {i32(a << 24) >> 24, i32(a << 16) >> 24, i32(a << 8) >> 24, i32(a) >> 24};
}
DEV u32 w_pack_4x_u8(vec4<u32> a) {
    return (a.x & 255u) | (a.y & 255u) << 8 | (a.z & 255u) << 16 | a.w << 24;
}
DEV u32 w_pack_4x_i8(vec4<i32> a) { return w_pack_4x_u8(convert4<u32>(a)); }
DEV u32 w_pack_4x_u8_clamp(vec4<u32> a) { return w_pack_4x_u8(w_min(a, splat4(255u))); }
DEV u32 w_pack_4x_i8_clamp(vec4<i32> a) { return w_pack_4x_i8(w_min(w_max(a, splat4(-128)), splat4(127))); }

// Lanes: values of any width through words of 32 bits.
#define SHUFFLE(name)                                                                                 \
    DEV u32 sg_##name(u32 v, u32 n) { check_wave(); return lane_##name(v, n); }                       \
    DEV i32 sg_##name(i32 v, u32 n) { return i32(sg_##name(u32(v), n)); }                             \
    DEV f32 sg_##name(f32 v, u32 n) { return bits<f32>(sg_##name(bits<u32>(v), n)); }                 \
    DEV f16 sg_##name(f16 v, u32 n) { return bits<f16>(u16(sg_##name(u32(bits<u16>(v)), n))); }       \
    DEV u64 sg_##name(u64 v, u32 n) {                                                                 \
        return u64(sg_##name(u32(v), n)) | u64(sg_##name(u32(v >> 32), n)) << 32;                     \
    }                                                                                                 \
    template <class T> DEV vec2<T> sg_##name(vec2<T> v, u32 n) {                                      \
        return {sg_##name(v.x, n), sg_##name(v.y, n)};                                                \
    }                                                                                                 \
    template <class T> DEV vec4<T> sg_##name(vec4<T> v, u32 n) {                                      \
        return {sg_##name(v.x, n), sg_##name(v.y, n), sg_##name(v.z, n), sg_##name(v.w, n)};          \
    }
SHUFFLE(shuffle) SHUFFLE(shuffle_xor) SHUFFLE(shuffle_up) SHUFFLE(shuffle_down)

// Reductions as a butterfly, so that every lane has the same bits; scans by doubling steps.
#define REDUCE(name, expression)                                                                      \
    template <class T> DEV T sg_##name(T a) {                                                         \
        UNROLL                                                                                        \
        for (u32 m = WAVE / 2u; m > 0u; m >>= 1) {                                                    \
            const T b = sg_shuffle_xor(a, m);                                                         \
            a = expression;                                                                           \
        }                                                                                             \
        return a;                                                                                     \
    }
REDUCE(add, a + b) REDUCE(mul, a * b) REDUCE(min, w_min(a, b)) REDUCE(max, w_max(a, b))
REDUCE(and, a & b) REDUCE(or, a | b) REDUCE(xor, a ^ b)
#define SCAN(name, expression, identity)                                                              \
    template <class T> DEV T sg_inclusive_##name(T a) {                                               \
        UNROLL                                                                                        \
        for (u32 m = 1u; m < WAVE; m <<= 1) {                                                         \
            const T b = sg_shuffle_up(a, m);                                                          \
            a = lane_id() >= m ? expression : a;                                                      \
        }                                                                                             \
        return a;                                                                                     \
    }                                                                                                 \
    template <class T> DEV T sg_exclusive_##name(T a) {                                               \
        const T before = sg_shuffle_up(sg_inclusive_##name(a), 1u);                                   \
        return lane_id() == 0u ? T(identity) : before;                                                \
    }
SCAN(add, b + a, 0) SCAN(mul, b * a, 1)
