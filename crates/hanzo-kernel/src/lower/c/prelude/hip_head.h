// HIP C++ for clang or hipRTC, without headers: the attributes are those that HIP's macros stand for.

#define DEV static __attribute__((device, always_inline)) inline
#define MEMBER __attribute__((device, always_inline)) inline
#define KERNEL(n_threads) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(n_threads, n_threads))) void
#define SHARED __attribute__((shared))
#define TABLE static __attribute__((device)) const
#define RESTRICT __restrict__
#define BY_VALUE const
#define UNROLL _Pragma("unroll")
#define OFFSET(type, member) __builtin_offsetof(type, member)
