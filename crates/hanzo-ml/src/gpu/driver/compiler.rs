//! Run-time compilation: NVRTC, hipRTC.

use std::{
    ffi::{CString, c_char, c_int},
    ptr::{null, null_mut},
};

use libloading::Library;

use super::{
    DriverOptions, Kind,
    api::{Compiler as Api, Status},
    library, unavailable,
};
use crate::{Error, Result};

/// The compiler of an API.
pub(super) struct Compiler {
    api: Api,
    kind: Kind,
    /// Its version, for the log.
    pub version: String,
    _library: Library,
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
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to integers of ours.
        let status = unsafe { (api.version)(&raw mut major, &raw mut minor) };
        if status != 0 {
            return Err(error(format!("its version cannot be read (error {status})")));
        }
        Ok(Self { api, kind, version: format!("{major}.{minor}"), _library: library })
    }

    /// Machine code of a translation unit.
    pub(super) fn compile(&self, name: &str, text: &str, options: &[String]) -> Result<Vec<u8>> {
        let error =
            |what: String| Error::op("compile", format!("kernel {name} for {}: {what}", self.kind.name()));
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
        let options = options.iter().map(|o| c_string(o)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: `program` was created above; the options live until the call returns.
        let status = unsafe { (self.api.compile)(program, pointers.len() as c_int, pointers.as_ptr()) };
        let result = if status == 0 {
            // SAFETY: `program` is compiled.
            unsafe { self.bytes(program, self.api.code_size, self.api.code) }
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
        program: super::api::Opaque,
        size: unsafe extern "C" fn(super::api::Opaque, *mut usize) -> Status,
        read: unsafe extern "C" fn(super::api::Opaque, *mut c_char) -> Status,
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
