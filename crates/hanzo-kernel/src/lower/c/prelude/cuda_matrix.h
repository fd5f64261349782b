
// Cooperative matrices of CUDA (sm_80 and later): two products mma.m16n8k16 side by side, f16 factors and f32 sums. Which
// lane holds which element is from the PTX ISA, "Matrix fragments for mma.m16n8k16". Pairs along k lie in one register,
// so factors whose k runs through memory must start at even elements, with even strides.

struct coop_a { u32 r[4]; };
struct coop_b { u32 r[4]; };
struct coop_c { f32 r[8]; };

DEV u32 coop_group() { return lane_id() / 4u; }
DEV u32 coop_pair() { return lane_id() % 4u * 2u; }
template <bool ROW_MAJOR> DEV u32 coop_at(u32 row, u32 column, u32 stride) {
    return ROW_MAJOR ? row * stride + column : column * stride + row;
}
DEV u32 coop_load_pair(const f16* p) { return *(const u32*)p; }
DEV u32 coop_load_pair(const f16* p, const f16* q) { return u32(p->v) | u32(q->v) << 16; }

// Register i: rows 8 (i % 2) on, columns 8 (i / 2) on.
template <bool ROW_MAJOR> DEV coop_a coop_load_a(const f16* p, u32 stride) {
    coop_a m;
    UNROLL
    for (u32 i = 0u; i < 4u; i++) {
        const u32 row = coop_group() + i % 2u * 8u, k = coop_pair() + i / 2u * 8u;
        const f16* at = p + coop_at<ROW_MAJOR>(row, k, stride);
        m.r[i] = ROW_MAJOR ? coop_load_pair(at) : coop_load_pair(at, at + stride);
    }
    return m;
}
// Register i: rows 8 (i % 2) on, columns 8 (i / 2) on.
template <bool ROW_MAJOR> DEV coop_b coop_load_b(const f16* p, u32 stride) {
    coop_b m;
    UNROLL
    for (u32 i = 0u; i < 4u; i++) {
        const u32 k = coop_pair() + i % 2u * 8u, column = coop_group() + i / 2u * 8u;
        const f16* at = p + coop_at<ROW_MAJOR>(k, column, stride);
        m.r[i] = ROW_MAJOR ? coop_load_pair(at, at + stride) : coop_load_pair(at);
    }
    return m;
}
// Register i: row 8 (i / 2 % 2) on, column i % 2, the second product from 4 on.
DEV u32 coop_row(u32 i) { return coop_group() + i / 2u % 2u * 8u; }
DEV u32 coop_column(u32 i) { return coop_pair() + i % 2u + i / 4u * 8u; }
template <bool ROW_MAJOR> DEV coop_c coop_load_c(const f32* p, u32 stride) {
    coop_c m;
    UNROLL
    for (u32 i = 0u; i < 8u; i++) m.r[i] = p[coop_at<ROW_MAJOR>(coop_row(i), coop_column(i), stride)];
    return m;
}
template <bool ROW_MAJOR> DEV void coop_store(const coop_c& m, f32* p, u32 stride) {
    UNROLL
    for (u32 i = 0u; i < 8u; i++) p[coop_at<ROW_MAJOR>(coop_row(i), coop_column(i), stride)] = m.r[i];
}
DEV coop_c coop_multiply_add(const coop_a& a, const coop_b& b, const coop_c& c) {
    coop_c d;
    UNROLL
    for (u32 h = 0u; h < 2u; h++) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d.r[4u * h]), "=f"(d.r[4u * h + 1u]), "=f"(d.r[4u * h + 2u]), "=f"(d.r[4u * h + 3u])
            : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[2u * h]), "r"(b.r[2u * h + 1u]),
              "f"(c.r[4u * h]), "f"(c.r[4u * h + 1u]), "f"(c.r[4u * h + 2u]), "f"(c.r[4u * h + 3u]));
    }
    return d;
}
