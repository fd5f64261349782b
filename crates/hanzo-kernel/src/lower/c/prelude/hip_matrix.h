
// Cooperative matrices of AMD's targets by the compiler's builtins, f16 factors and f32 sums, 16 by 16 by 16. Which lane
// holds which element is from AMD's matrix instruction calculator: factor a by rows, b by columns, n consecutive
// elements along k a lane; sums with the column in the lane.

typedef f16 f16x4 __attribute__((ext_vector_type(4)));
typedef f16 f16x8 __attribute__((ext_vector_type(8)));
typedef f16 f16x16 __attribute__((ext_vector_type(16)));
typedef f32 f32x4 __attribute__((ext_vector_type(4)));
typedef f32 f32x8 __attribute__((ext_vector_type(8)));

#if defined(__GFX11__)
// Lanes 16 to 31 repeat the factors of lanes 0 to 15; sums of even rows in the first, of odd rows in the second half.
typedef f16x16 coop_factor;
typedef f32x8 coop_sum;
DEV u32 coop_k(u32 i) { return i; }
DEV u32 coop_row(u32 i) { return 2u * i + lane_id() / 16u; }
#define COOP_MULTIPLY_ADD(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#elif defined(__GFX12__)
typedef f16x8 coop_factor;
typedef f32x8 coop_sum;
DEV u32 coop_k(u32 i) { return 8u * (lane_id() / 16u) + i; }
DEV u32 coop_row(u32 i) { return 8u * (lane_id() / 16u) + i; }
#define COOP_MULTIPLY_ADD(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
typedef f16x4 coop_factor;
typedef f32x4 coop_sum;
DEV u32 coop_k(u32 i) { return 4u * (lane_id() / 16u) + i; }
DEV u32 coop_row(u32 i) { return 4u * (lane_id() / 16u) + i; }
#define COOP_MULTIPLY_ADD(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#else
#error "this target has no matrix instructions"
#endif

struct coop_a { coop_factor r; };
struct coop_b { coop_factor r; };
struct coop_c { coop_sum r; };
constexpr u32 COOP_FACTORS = sizeof(coop_factor) / sizeof(f16);
constexpr u32 COOP_SUMS = sizeof(coop_sum) / sizeof(f32);

template <bool ROW_MAJOR> DEV u32 coop_at(u32 row, u32 column, u32 stride) {
    return ROW_MAJOR ? row * stride + column : column * stride + row;
}
template <bool ROW_MAJOR> DEV coop_a coop_load_a(const f16* p, u32 stride) {
    coop_a m;
    UNROLL
    for (u32 i = 0u; i < COOP_FACTORS; i++) m.r[i] = p[coop_at<ROW_MAJOR>(lane_id() % 16u, coop_k(i), stride)];
    return m;
}
template <bool ROW_MAJOR> DEV coop_b coop_load_b(const f16* p, u32 stride) {
    coop_b m;
    UNROLL
    for (u32 i = 0u; i < COOP_FACTORS; i++) m.r[i] = p[coop_at<ROW_MAJOR>(coop_k(i), lane_id() % 16u, stride)];
    return m;
}
template <bool ROW_MAJOR> DEV coop_c coop_load_c(const f32* p, u32 stride) {
    coop_c m;
    UNROLL
    for (u32 i = 0u; i < COOP_SUMS; i++) m.r[i] = p[coop_at<ROW_MAJOR>(coop_row(i), lane_id() % 16u, stride)];
    return m;
}
template <bool ROW_MAJOR> DEV void coop_store(const coop_c& m, f32* p, u32 stride) {
    UNROLL
    for (u32 i = 0u; i < COOP_SUMS; i++) p[coop_at<ROW_MAJOR>(coop_row(i), lane_id() % 16u, stride)] = m.r[i];
}
DEV coop_c coop_multiply_add(const coop_a& a, const coop_b& b, const coop_c& c) {
    return coop_c{COOP_MULTIPLY_ADD(a.r, b.r, c.r)};
}
