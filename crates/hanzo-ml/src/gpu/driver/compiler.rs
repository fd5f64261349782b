//! Run-time compilation: NVRTC, hipRTC.

use std::{
    ffi::{CString, c_char, c_int},
    ptr::{null, null_mut},
};

use libloading::Library;

use super::{
    DriverOptions, Kind,
    api::{Compiler as Api, Opaque, Portable, Status},
    library, unavailable,
};
use crate::{Error, Result};

/// The compiler of an API.
pub(super) struct Compiler {
    api: Api,
    /// What it can do for devices that it does not know.
    portable: Option<Portable>,
    kind: Kind,
    /// Its version, for the log.
    pub version: String,
    _library: Library,
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arch {
    /// The device, as the compiler finds it.
    Found,
    /// A compute capability of CUDA, `90` for 9.0: machine code.
    Exactly(c_int),
    /// The same as PTX, which the driver translates for any later device.
    Portably(c_int),
}

impl Arch {
    /// For a device of capability `wanted`, what a compiler that knows `known` can make: the device's own code, or PTX of
    /// the last capability before it. `None` if it knows none so old.
    fn of(wanted: c_int, known: &[c_int]) -> Option<Self> {
        if known.contains(&wanted) {
            return Some(Self::Exactly(wanted));
        }
        known.iter().copied().filter(|&arch| arch < wanted).max().map(Self::Portably)
    }

    fn option(self) -> Option<String> {
        match self {
            Self::Found => None,
            Self::Exactly(arch) => Some(format!("--gpu-architecture=sm_{arch}")),
            Self::Portably(arch) => Some(format!("--gpu-architecture=compute_{arch}")),
        }
    }
}

impl Compiler {
    pub(super) fn open(kind: Kind, options: &DriverOptions) -> Result<Self> {
        let advice = match kind {
            Kind::Cuda => "install it with `pip install nvidia-cuda-nvrtc` or with the CUDA toolkit",
            Kind::Rocm => "it is part of ROCm (package hiprtc or libhiprtc)",
        };
        let error = |what: String| unavailable(kind, format!("the run-time compiler: {what}; {advice}"));
        let files = kind.compiler_files();
        let library = library::open(kind, &files, &options.library_folders).map_err(error)?;
        let api = Api::load(&library, kind).map_err(error)?;
        // Versions before 11.2 cannot list what they know; they are asked for the device's own code.
        let portable = (kind == Kind::Cuda).then(|| Portable::load(&library, kind).ok()).flatten();
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to integers of ours.
        let status = unsafe { (api.version)(&raw mut major, &raw mut minor) };
        if status != 0 {
            return Err(error(format!("its version cannot be read (error {status})")));
        }
        Ok(Self { api, portable, kind, version: format!("{major}.{minor}"), _library: library })
    }

    /// What to make for a device of a capability.
    fn arch(&self, wanted: Option<c_int>) -> std::result::Result<Arch, String> {
        let Some(wanted) = wanted else { return Ok(Arch::Found) };
        let Some(portable) = &self.portable else { return Ok(Arch::Exactly(wanted)) };
        let mut n = 0;
        // SAFETY: the pointer is to an integer of ours.
        let status = unsafe { (portable.n_archs)(&raw mut n) };
        let mut known = vec![0; usize::try_from(n).unwrap_or(0)];
        // SAFETY: there is room for as many as it said.
        if status != 0 || unsafe { (portable.archs)(known.as_mut_ptr()) } != 0 {
            return Ok(Arch::Exactly(wanted));
        }
        Arch::of(wanted, &known).ok_or_else(|| {
            format!("version {} knows the capabilities {known:?}, all later than {wanted}", self.version)
        })
    }

    /// Code of a translation unit for a device of a compute capability (`90` for 9.0), where the compiler does not find the
    /// device by itself.
    pub(super) fn compile(
        &self,
        name: &str,
        text: &str,
        capability: Option<c_int>,
        options: &[&str],
    ) -> Result<Vec<u8>> {
        let error =
            |what: String| Error::op("compile", format!("kernel {name} for {}: {what}", self.kind.name()));
        let arch = self.arch(capability).map_err(error)?;
        tracing::debug!("compiling {name} with version {} for {arch:?}", self.version);
        let own = arch.option();
        let options = own.iter().map(String::as_str).chain(options.iter().copied());
        let options = options.map(|o| CString::new(o).map_err(|_| error("a zero byte in an option".into())));
        let options = options.collect::<Result<Vec<_>>>()?;
        let c_string = |s: &str| CString::new(s).map_err(|_| error("a zero byte in its text".into()));
        let (text, file) = (c_string(text)?, c_string(name)?);
        let mut program = null_mut();
        // SAFETY: the strings live until the call returns, and it copies them; there are no headers.
        let status =
            unsafe { (self.api.create)(&raw mut program, text.as_ptr(), file.as_ptr(), 0, null(), null()) };
        let check = |status: Status, what: &str| match status {
            0 => Ok(()),
            _ => Err(error(format!("{what} failed with error {status}"))),
        };
        check(status, "creating the program")?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: `program` was created above; the options live until the call returns.
        let status = unsafe { (self.api.compile)(program, pointers.len() as c_int, pointers.as_ptr()) };
        let result = if status == 0 {
            let (size, code) = match (arch, &self.portable) {
                (Arch::Portably(_), Some(portable)) => (portable.code_size, portable.code),
                _ => (self.api.code_size, self.api.code),
            };
            // SAFETY: `program` is compiled.
            unsafe { self.bytes(program, size, code) }
                .map_err(|status| error(format!("reading the code failed with error {status}")))
        } else {
            // SAFETY: `program` was created above.
            let log = unsafe { self.bytes(program, self.api.log_size, self.api.log) }.unwrap_or_default();
            Err(error(String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()))
        };
        // SAFETY: `program` was created above and is not used again.
        unsafe { (self.api.destroy)(&raw mut program) };
        result
    }

    /// What a pair of functions gives: the size, then the bytes.
    ///
    /// # Safety
    /// `program` is one of this compiler's; the functions are such a pair.
    unsafe fn bytes(
        &self,
        program: Opaque,
        size: unsafe extern "C" fn(Opaque, *mut usize) -> Status,
        read: unsafe extern "C" fn(Opaque, *mut c_char) -> Status,
    ) -> std::result::Result<Vec<u8>, Status> {
        let mut n_bytes = 0usize;
        // SAFETY: by this function's contract.
        match unsafe { size(program, &raw mut n_bytes) } {
            0 => {}
            status => return Err(status),
        }
        let mut bytes = vec![0u8; n_bytes];
        // SAFETY: by this function's contract; there is room for the bytes that it said.
        match unsafe { read(program, bytes.as_mut_ptr().cast()) } {
            0 => Ok(bytes),
            status => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arch;

    #[test]
    fn unknown_devices_get_the_last_portable_code_before_them() {
        let known = [75, 80, 90, 100];
        assert_eq!(Arch::of(90, &known), Some(Arch::Exactly(90)));
        assert_eq!(Arch::of(89, &known), Some(Arch::Portably(80)));
        assert_eq!(Arch::of(121, &known), Some(Arch::Portably(100)));
        assert_eq!(Arch::of(70, &known), None);
        assert_eq!(Arch::Portably(100).option().as_deref(), Some("--gpu-architecture=compute_100"));
    }
}
