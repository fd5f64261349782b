//! The functions of the driver and of its run-time compiler, under the names of CUDA and of ROCm.
//!
//! HIP was made in CUDA's image: the functions used here have the same parameters in both, so a table of names is the
//! whole difference. Sources: CUDA Driver API and NVRTC reference 13.0, HIP and hipRTC reference 6.4.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::Kind;

/// 0 is success everywhere.
pub(super) type Status = c_int;
/// An address on the device.
pub(super) type Address = u64;
/// An opaque pointer: context, stream, module, function, event, graph, program.
pub(super) type Opaque = *mut c_void;

/// Declares a struct of function pointers with the names of both rows.
macro_rules! api {
    ($(#[$doc:meta])* $api:ident { $($field:ident: $cuda:literal / $rocm:literal ($($arg:ty),*);)* }) => {
        $(#[$doc])*
        pub(super) struct $api {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl $api {
            /// Every function of a library; the error names the one that it lacks.
            pub(super) fn load(library: &Library, kind: Kind) -> Result<Self, String> {
                $(
                    let name = match kind {
                        Kind::Cuda => concat!($cuda, "\0"),
                        Kind::Rocm => concat!($rocm, "\0"),
                    };
                    // SAFETY: the type is that of the function's declaration in the API's reference.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($arg),*) -> Status>(name.as_bytes())
                    }
                    .map_err(|_| format!("it has no {}", name.trim_end_matches('\0')))?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

api! {
    /// The driver.
    Driver {
        init: "cuInit" / "hipInit" (c_uint);
        version: "cuDriverGetVersion" / "hipDriverGetVersion" (*mut c_int);
        device_count: "cuDeviceGetCount" / "hipGetDeviceCount" (*mut c_int);
        device: "cuDeviceGet" / "hipDeviceGet" (*mut c_int, c_int);
        device_name: "cuDeviceGetName" / "hipDeviceGetName" (*mut c_char, c_int, c_int);
        total_memory: "cuDeviceTotalMem_v2" / "hipDeviceTotalMem" (*mut usize, c_int);
        device_attribute: "cuDeviceGetAttribute" / "hipDeviceGetAttribute" (*mut c_int, c_int, c_int);
        retain_context: "cuDevicePrimaryCtxRetain" / "hipDevicePrimaryCtxRetain" (*mut Opaque, c_int);
        release_context: "cuDevicePrimaryCtxRelease_v2" / "hipDevicePrimaryCtxRelease" (c_int);
        set_context: "cuCtxSetCurrent" / "hipCtxSetCurrent" (Opaque);
        memory_info: "cuMemGetInfo_v2" / "hipMemGetInfo" (*mut usize, *mut usize);
        alloc: "cuMemAlloc_v2" / "hipMalloc" (*mut Address, usize);
        free: "cuMemFree_v2" / "hipFree" (Address);
        upload: "cuMemcpyHtoDAsync_v2" / "hipMemcpyHtoDAsync" (Address, *const c_void, usize, Opaque);
        download: "cuMemcpyDtoHAsync_v2" / "hipMemcpyDtoHAsync" (*mut c_void, Address, usize, Opaque);
        copy: "cuMemcpyDtoDAsync_v2" / "hipMemcpyDtoDAsync" (Address, Address, usize, Opaque);
        fill: "cuMemsetD8Async" / "hipMemsetD8Async" (Address, u8, usize, Opaque);
        create_stream: "cuStreamCreate" / "hipStreamCreateWithFlags" (*mut Opaque, c_uint);
        destroy_stream: "cuStreamDestroy_v2" / "hipStreamDestroy" (Opaque);
        synchronize: "cuStreamSynchronize" / "hipStreamSynchronize" (Opaque);
        load_module: "cuModuleLoadData" / "hipModuleLoadData" (*mut Opaque, *const c_void);
        unload_module: "cuModuleUnload" / "hipModuleUnload" (Opaque);
        function: "cuModuleGetFunction" / "hipModuleGetFunction" (*mut Opaque, Opaque, *const c_char);
        set_attribute: "cuFuncSetAttribute" / "hipFuncSetAttribute" (Opaque, c_int, c_int);
        launch: "cuLaunchKernel" / "hipModuleLaunchKernel" (
            Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut *mut c_void, *mut *mut c_void
        );
        create_event: "cuEventCreate" / "hipEventCreateWithFlags" (*mut Opaque, c_uint);
        record_event: "cuEventRecord" / "hipEventRecord" (Opaque, Opaque);
        wait_event: "cuEventSynchronize" / "hipEventSynchronize" (Opaque);
        elapsed: "cuEventElapsedTime" / "hipEventElapsedTime" (*mut f32, Opaque, Opaque);
        destroy_event: "cuEventDestroy_v2" / "hipEventDestroy" (Opaque);
        begin_capture: "cuStreamBeginCapture_v2" / "hipStreamBeginCapture" (Opaque, c_int);
        end_capture: "cuStreamEndCapture" / "hipStreamEndCapture" (Opaque, *mut Opaque);
        instantiate: "cuGraphInstantiateWithFlags" / "hipGraphInstantiateWithFlags" (*mut Opaque, Opaque, u64);
        launch_graph: "cuGraphLaunch" / "hipGraphLaunch" (Opaque, Opaque);
        destroy_graph: "cuGraphDestroy" / "hipGraphDestroy" (Opaque);
        destroy_graph_exec: "cuGraphExecDestroy" / "hipGraphExecDestroy" (Opaque);
        error_text: "cuGetErrorString" / "hipDrvGetErrorString" (Status, *mut *const c_char);
    }
}

api! {
    /// The run-time compiler.
    Compiler {
        version: "nvrtcVersion" / "hiprtcVersion" (*mut c_int, *mut c_int);
        create: "nvrtcCreateProgram" / "hiprtcCreateProgram" (
            *mut Opaque, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        compile: "nvrtcCompileProgram" / "hiprtcCompileProgram" (Opaque, c_int, *const *const c_char);
        log_size: "nvrtcGetProgramLogSize" / "hiprtcGetProgramLogSize" (Opaque, *mut usize);
        log: "nvrtcGetProgramLog" / "hiprtcGetProgramLog" (Opaque, *mut c_char);
        code_size: "nvrtcGetCUBINSize" / "hiprtcGetCodeSize" (Opaque, *mut usize);
        code: "nvrtcGetCUBIN" / "hiprtcGetCode" (Opaque, *mut c_char);
        destroy: "nvrtcDestroyProgram" / "hiprtcDestroyProgram" (*mut Opaque);
    }
}

api! {
    /// The run-time compiler's code for devices that it does not know, which the driver translates. Of CUDA alone: AMD has no
    /// such form, and these names are not in its library.
    Portable {
        n_archs: "nvrtcGetNumSupportedArchs" / "" (*mut c_int);
        archs: "nvrtcGetSupportedArchs" / "" (*mut c_int);
        code_size: "nvrtcGetPTXSize" / "" (Opaque, *mut usize);
        code: "nvrtcGetPTX" / "" (Opaque, *mut c_char);
    }
}

/// Numbers of `CUdevice_attribute` and of `hipDeviceAttribute_t` (hip_runtime_api.h of ROCm 6: CUDA-compatible part).
pub(super) struct Attributes {
    pub n_processors: c_int,
    pub workgroup_bytes: c_int,
    /// The most that a kernel may be given on request, where that is more.
    pub workgroup_bytes_max: Option<c_int>,
    pub warp_size: c_int,
    pub grid: [c_int; 3],
    pub capability: [c_int; 2],
}

impl Kind {
    pub(super) const fn attributes(self) -> Attributes {
        match self {
            Self::Cuda => Attributes {
                n_processors: 16,
                workgroup_bytes: 8,
                workgroup_bytes_max: Some(97),
                warp_size: 10,
                grid: [5, 6, 7],
                capability: [75, 76],
            },
            Self::Rocm => Attributes {
                n_processors: 63,
                workgroup_bytes: 74,
                workgroup_bytes_max: None,
                warp_size: 87,
                grid: [29, 30, 31],
                capability: [23, 61],
            },
        }
    }
}
