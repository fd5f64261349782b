//! The two rows of differences: CUDA C++ and HIP C++.

/// What differs between the C++ dialects.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// The name in errors.
    pub(super) name: &'static str,
    /// Macros that the shared part of the prelude is written with.
    head: &'static str,
    /// Functions on scalars, ids, barriers, lanes and atomics.
    scalars: &'static str,
    /// Cooperative matrices.
    pub(super) matrices: &'static str,
    /// Functions of WGSL whose portable body gives way to one of the prelude: name in WGSL, name in the prelude.
    pub(super) intrinsics: &'static [(&'static str, &'static str)],
    /// Workgroup memory that may be declared statically, in bytes.
    pub(crate) static_shared_bytes_max: u32,
}

/// Intrinsics that both dialects have.
const INTRINSICS: &[(&str, &str)] = &[("x_dp4", "w_dp4"), ("x_prmt", "w_prmt")];

/// CUDA C++ for NVRTC, sm_70 and later. The static limit is that of every architecture (CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability").
pub(crate) static CUDA: Dialect = Dialect {
    name: "cuda",
    head: include_str!("prelude/cuda_head.h"),
    scalars: include_str!("prelude/cuda.h"),
    matrices: include_str!("prelude/cuda_matrix.h"),
    intrinsics: INTRINSICS,
    static_shared_bytes_max: 48 << 10,
};

/// HIP C++ for clang or hipRTC, gfx9 (64 lanes) and gfx10 to gfx12 (32 lanes). A workgroup has 64 KiB.
pub(crate) static HIP: Dialect = Dialect {
    name: "hip",
    head: include_str!("prelude/hip_head.h"),
    scalars: include_str!("prelude/hip.h"),
    matrices: include_str!("prelude/hip_matrix.h"),
    intrinsics: INTRINSICS,
    static_shared_bytes_max: 64 << 10,
};

impl Dialect {
    /// Everything that stands before the kernels, matrices excepted.
    pub(super) fn prelude(&self) -> String {
        [self.head, include_str!("prelude/types.h"), self.scalars, include_str!("prelude/ops.h")].concat()
    }
}
