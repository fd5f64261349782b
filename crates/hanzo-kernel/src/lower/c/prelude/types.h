
// Types of WGSL. A vector in memory is aligned to its size, so that it is one load or store.

typedef unsigned char u8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;

template <class T>
struct alignas(2 * sizeof(T)) vec2 {
    T x, y;
    MEMBER T& operator[](u32 i) { return (&x)[i]; }
    MEMBER const T& operator[](u32 i) const { return (&x)[i]; }
};

template <class T>
struct vec3 {
    T x, y, z;
    MEMBER T& operator[](u32 i) { return (&x)[i]; }
    MEMBER const T& operator[](u32 i) const { return (&x)[i]; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec4 {
    T x, y, z, w;
    MEMBER T& operator[](u32 i) { return (&x)[i]; }
    MEMBER const T& operator[](u32 i) const { return (&x)[i]; }
};

template <class T, u32 N>
struct array {
    T v[N];
    MEMBER T& operator[](u32 i) { return v[i]; }
    MEMBER const T& operator[](u32 i) const { return v[i]; }
};

template <class D, class S>
DEV D bits(S s) {
    static_assert(sizeof(D) == sizeof(S), "bits of the same size");
    D d;
    __builtin_memcpy(&d, &s, sizeof(D));
    return d;
}
