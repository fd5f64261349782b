
// Scalars, ids, barriers, lanes and atomics of AMD's targets, by the compiler's builtins alone. A subgroup is a wave:
// 64 lanes on gfx9, 32 on the later ones, as the compiler's defaults are. All lanes take part.

#if defined(__GFX9__)
constexpr u32 WAVE = 64u;
#else
constexpr u32 WAVE = 32u;
#endif

typedef _Float16 f16;

DEV u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEV u32 thread_y() { return __builtin_amdgcn_workitem_id_y(); }
DEV u32 thread_z() { return __builtin_amdgcn_workitem_id_z(); }
DEV u32 group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEV u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEV u32 group_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEV u32 groups_x() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
DEV u32 groups_y() { return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(); }
DEV u32 groups_z() { return __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z(); }
DEV u32 lane_id() {
    u32 low = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
    return WAVE == 64u ? __builtin_amdgcn_mbcnt_hi(~0u, low) : low;
}

DEV void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEV void wave_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
DEV void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

#if defined(__GFX9__)
DEV u64 wave_ballot(bool p) { return __builtin_amdgcn_ballot_w64(p); }
#else
DEV u64 wave_ballot(bool p) { return __builtin_amdgcn_ballot_w32(p); }
#endif
constexpr u64 WHOLE_WAVE = WAVE == 64u ? ~0ull : 0xffffffffull;
// A subgroup operation in divergent flow reads lanes that are elsewhere.
DEV void check_wave() {
#if CHECKS
    if (wave_ballot(true) != WHOLE_WAVE) __builtin_trap();
#endif
}
DEV u32 lane_shuffle(u32 v, u32 lane) { return u32(__builtin_amdgcn_ds_bpermute(i32(lane * 4u), i32(v))); }
DEV u32 lane_shuffle_xor(u32 v, u32 mask) { return lane_shuffle(v, lane_id() ^ mask); }
DEV u32 lane_shuffle_up(u32 v, u32 n) { return lane_id() < n ? v : lane_shuffle(v, lane_id() - n); }
DEV u32 lane_shuffle_down(u32 v, u32 n) {
    u32 lane = lane_id() + n;
    return lane_shuffle(v, lane < WAVE ? lane : lane_id());
}
DEV vec4<u32> sg_ballot(bool p) {
    u64 b = wave_ballot(p);
    return vec4<u32>{u32(b), u32(b >> 32), 0u, 0u};
}
DEV bool sg_all(bool p) { return wave_ballot(p) == WHOLE_WAVE; }
DEV bool sg_any(bool p) { return wave_ballot(p) != 0ull; }

DEV f32 w_abs(f32 a) { return __builtin_fabsf(a); }
DEV f32 w_min(f32 a, f32 b) { return __builtin_fminf(a, b); }
DEV f32 w_max(f32 a, f32 b) { return __builtin_fmaxf(a, b); }
DEV f32 w_floor(f32 a) { return __builtin_floorf(a); }
DEV f32 w_ceil(f32 a) { return __builtin_ceilf(a); }
DEV f32 w_round(f32 a) { return __builtin_rintf(a); }
DEV f32 w_trunc(f32 a) { return __builtin_truncf(a); }
DEV f32 w_sqrt(f32 a) { return __builtin_sqrtf(a); }
DEV f32 w_rsqrt(f32 a) { return 1.0f / __builtin_sqrtf(a); }
DEV f32 w_exp(f32 a) { return __builtin_expf(a); }
DEV f32 w_exp2(f32 a) { return __builtin_exp2f(a); }
DEV f32 w_log(f32 a) { return __builtin_logf(a); }
DEV f32 w_log2(f32 a) { return __builtin_log2f(a); }
DEV f32 w_fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEV f32 w_mod(f32 a, f32 b) { return a - b * __builtin_truncf(a / b); }
DEV f32 w_ldexp(f32 a, i32 e) { return __builtin_amdgcn_ldexpf(a, e); }
DEV f32 w_pow(f32 a, f32 b) { return __builtin_exp2f(b * __builtin_log2f(a)); }

// tanh by the exponential; near 0, where that cancels, by the first terms of its series (the next is 62/2835 x^9).
DEV f32 w_tanh(f32 a) {
    f32 m = __builtin_fabsf(a), s = a * a;
    f32 series = a * (1.0f + s * (-0.33333334f + s * (0.13333334f + s * -0.053968254f)));
    f32 large = 1.0f - 2.0f / (__builtin_expf(2.0f * m) + 1.0f);
    return m < 0.15f ? series : __builtin_copysignf(large, a);
}

// Sine and cosine without the device library: the argument less multiples of pi/2 in f64, then the minimax
// polynomials of Cephes (sinf.c, cosf.c) on [-pi/4, pi/4].
DEV f32 sine_part(f32 a, i32 shift) {
    f64 n = __builtin_rint(f64(a) * 0.63661977236758134308);
    f32 r = f32(__builtin_fma(-n, 6.123233995736766036e-17, __builtin_fma(-n, 1.57079632679489655800, f64(a))));
    f32 z = r * r;
    f32 s = r + r * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
    f32 c = 1.0f - 0.5f * z + z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
    i32 quadrant = (i32(n) + shift) & 3;
    f32 v = (quadrant & 1) ? c : s;
    return (quadrant & 2) ? -v : v;
}
DEV f32 w_sin(f32 a) { return sine_part(a, 0); }
DEV f32 w_cos(f32 a) { return sine_part(a, 1); }

DEV i32 w_dp4(u32 a, u32 b, i32 sum) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, i32(a), true, i32(b), sum, false);
#elif defined(__GFX9__) || defined(__GFX10__)
    return __builtin_amdgcn_sdot4(i32(a), i32(b), sum, false);
#else
#error "this target's dot product is unknown"
#endif
}
DEV u32 w_dp4_unsigned(u32 a, u32 b, u32 sum) { return __builtin_amdgcn_udot4(a, b, sum, false); }
// The selector of CUDA's byte permutation counts the bytes of `a` from 0 and those of `b` from 4; AMD's the other way
// round, one selector a byte.
DEV u32 w_prmt(u32 a, u32 b, u32 selector) {
    u32 s = (selector & 7u) | (selector & 0x70u) << 4 | (selector & 0x700u) << 8 | (selector & 0x7000u) << 12;
    return __builtin_amdgcn_perm(b, a, s);
}
DEV u32 w_popcount(u32 a) { return u32(__builtin_popcount(a)); }
DEV u32 w_clz(u32 a) { return a == 0u ? 32u : u32(__builtin_clz(a)); }
DEV u32 w_reverse_bits(u32 a) { return __builtin_bitreverse32(a); }

#define AGENT __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT
template <class T> DEV T atomic_load(const T* p) { return __hip_atomic_load(p, AGENT); }
template <class T> DEV void atomic_store(T* p, T v) { __hip_atomic_store(p, v, AGENT); }
template <class T> DEV T atomic_add(T* p, T v) { return __hip_atomic_fetch_add(p, v, AGENT); }
template <class T> DEV T atomic_sub(T* p, T v) { return __hip_atomic_fetch_add(p, T(-v), AGENT); }
template <class T> DEV T atomic_min(T* p, T v) { return __hip_atomic_fetch_min(p, v, AGENT); }
template <class T> DEV T atomic_max(T* p, T v) { return __hip_atomic_fetch_max(p, v, AGENT); }
template <class T> DEV T atomic_and(T* p, T v) { return __hip_atomic_fetch_and(p, v, AGENT); }
template <class T> DEV T atomic_or(T* p, T v) { return __hip_atomic_fetch_or(p, v, AGENT); }
template <class T> DEV T atomic_xor(T* p, T v) { return __hip_atomic_fetch_xor(p, v, AGENT); }
template <class T> DEV T atomic_exchange(T* p, T v) { return __hip_atomic_exchange(p, v, AGENT); }
template <class R, class T> DEV R atomic_compare_exchange(T* p, T compare, T v) {
    T old = compare;
    bool done = __hip_atomic_compare_exchange_strong(p, &old, v, __ATOMIC_RELAXED, AGENT);
    return R{old, done};
}
