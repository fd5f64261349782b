
// Scalars, ids, barriers, lanes and atomics of CUDA. A subgroup is a warp, and all its lanes take part.

constexpr u32 WAVE = 32u;

// Half precision by its bits: without cuda_fp16.h the compiler knows no such type.
struct f16 {
    u16 v;
    f16() = default;
    MEMBER explicit f16(f32 x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v) : "f"(x)); }
    MEMBER explicit f16(i32 x) : f16(f32(x)) {}
    MEMBER explicit f16(u32 x) : f16(f32(x)) {}
    MEMBER explicit operator f32() const {
        f32 x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(v));
        return x;
    }
    MEMBER explicit operator i32() const { return i32(f32(*this)); }
    MEMBER explicit operator u32() const { return u32(f32(*this)); }
};
#define F16_OPERATOR(op, name)                                                   \
    DEV f16 operator op(f16 a, f16 b) {                                          \
        f16 r;                                                                   \
        asm(name ".f16 %0, %1, %2;" : "=h"(r.v) : "h"(a.v), "h"(b.v));           \
        return r;                                                                \
    }
F16_OPERATOR(+, "add.rn")
F16_OPERATOR(-, "sub.rn")
F16_OPERATOR(*, "mul.rn")
// f32 has more than twice the digits of f16 and two more, so rounding twice is rounding once.
DEV f16 operator/(f16 a, f16 b) { return f16(f32(a) / f32(b)); }
DEV f16 operator-(f16 a) { return bits<f16>(u16(a.v ^ 0x8000u)); }
DEV bool operator==(f16 a, f16 b) { return f32(a) == f32(b); }
DEV bool operator!=(f16 a, f16 b) { return f32(a) != f32(b); }
DEV bool operator<(f16 a, f16 b) { return f32(a) < f32(b); }
DEV bool operator<=(f16 a, f16 b) { return f32(a) <= f32(b); }
DEV bool operator>(f16 a, f16 b) { return f32(a) > f32(b); }
DEV bool operator>=(f16 a, f16 b) { return f32(a) >= f32(b); }

DEV u32 thread_x() { return threadIdx.x; }
DEV u32 thread_y() { return threadIdx.y; }
DEV u32 thread_z() { return threadIdx.z; }
DEV u32 group_x() { return blockIdx.x; }
DEV u32 group_y() { return blockIdx.y; }
DEV u32 group_z() { return blockIdx.z; }
DEV u32 groups_x() { return gridDim.x; }
DEV u32 groups_y() { return gridDim.y; }
DEV u32 groups_z() { return gridDim.z; }
DEV u32 lane_id() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

DEV void barrier() { __syncthreads(); }
DEV void wave_barrier() { __syncwarp(); }
DEV void fence() { __threadfence(); }

// A subgroup operation in divergent flow reads lanes that are elsewhere.
DEV void check_wave() {
#if CHECKS
    if (__activemask() != 0xffffffffu) __trap();
#endif
}
DEV u32 lane_shuffle(u32 v, u32 lane) { return __shfl_sync(0xffffffffu, v, i32(lane)); }
DEV u32 lane_shuffle_xor(u32 v, u32 mask) { return __shfl_xor_sync(0xffffffffu, v, i32(mask)); }
DEV u32 lane_shuffle_up(u32 v, u32 n) { return __shfl_up_sync(0xffffffffu, v, n); }
DEV u32 lane_shuffle_down(u32 v, u32 n) { return __shfl_down_sync(0xffffffffu, v, n); }
DEV vec4<u32> sg_ballot(bool p) { return vec4<u32>{__ballot_sync(0xffffffffu, p), 0u, 0u, 0u}; }
DEV bool sg_all(bool p) { return __all_sync(0xffffffffu, p); }
DEV bool sg_any(bool p) { return __any_sync(0xffffffffu, p); }

DEV f32 w_abs(f32 a) { return fabsf(a); }
DEV f32 w_min(f32 a, f32 b) { return fminf(a, b); }
DEV f32 w_max(f32 a, f32 b) { return fmaxf(a, b); }
DEV f32 w_floor(f32 a) { return floorf(a); }
DEV f32 w_ceil(f32 a) { return ceilf(a); }
DEV f32 w_round(f32 a) { return rintf(a); }
DEV f32 w_trunc(f32 a) { return truncf(a); }
DEV f32 w_sqrt(f32 a) { return sqrtf(a); }
DEV f32 w_rsqrt(f32 a) { return rsqrtf(a); }
DEV f32 w_exp(f32 a) { return expf(a); }
DEV f32 w_exp2(f32 a) { return exp2f(a); }
DEV f32 w_log(f32 a) { return logf(a); }
DEV f32 w_log2(f32 a) { return log2f(a); }
DEV f32 w_pow(f32 a, f32 b) { return powf(a, b); }
DEV f32 w_sin(f32 a) { return sinf(a); }
DEV f32 w_cos(f32 a) { return cosf(a); }
DEV f32 w_tanh(f32 a) { return tanhf(a); }
DEV f32 w_fma(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEV f32 w_mod(f32 a, f32 b) { return fmodf(a, b); }
DEV f32 w_ldexp(f32 a, i32 e) { return ldexpf(a, e); }

DEV i32 w_dp4(u32 a, u32 b, i32 sum) { return __dp4a(i32(a), i32(b), sum); }
DEV u32 w_dp4_unsigned(u32 a, u32 b, u32 sum) { return __dp4a(a, b, sum); }
DEV u32 w_prmt(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }
DEV u32 w_popcount(u32 a) { return u32(__popc(a)); }
DEV u32 w_clz(u32 a) { return u32(__clz(a)); }
DEV u32 w_reverse_bits(u32 a) { return __brev(a); }

template <class T> DEV T atomic_load(const T* p) { return *(const volatile T*)p; }
template <class T> DEV void atomic_store(T* p, T v) { *(volatile T*)p = v; }
template <class T> DEV T atomic_add(T* p, T v) { return atomicAdd(p, v); }
template <class T> DEV T atomic_sub(T* p, T v) { return atomicAdd(p, T(-v)); }
template <class T> DEV T atomic_min(T* p, T v) { return atomicMin(p, v); }
template <class T> DEV T atomic_max(T* p, T v) { return atomicMax(p, v); }
template <class T> DEV T atomic_and(T* p, T v) { return atomicAnd(p, v); }
template <class T> DEV T atomic_or(T* p, T v) { return atomicOr(p, v); }
template <class T> DEV T atomic_xor(T* p, T v) { return atomicXor(p, v); }
template <class T> DEV T atomic_exchange(T* p, T v) { return atomicExch(p, v); }
template <class R, class T> DEV R atomic_compare_exchange(T* p, T compare, T v) {
    T old = atomicCAS(p, compare, v);
    return R{old, old == compare};
}
