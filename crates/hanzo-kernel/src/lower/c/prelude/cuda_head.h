// CUDA C++ for NVRTC, which has no header at hand.

#define DEV static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define KERNEL(n_threads) extern "C" __global__ void __launch_bounds__(n_threads)
#define SHARED __shared__
#define TABLE static __device__ const
#define RESTRICT __restrict__
#define BY_VALUE const __grid_constant__
#define UNROLL _Pragma("unroll")
// What the compiler's own offsetof stands for.
#define OFFSET(type, member) __INTADDR__(&((type*)0)->member)
#define __builtin_memcpy memcpy
// Functions of the prelude that a kernel does without.
#pragma nv_diag_suppress 177
