//! Where the libraries of the backends may lie, and how they are opened.

use std::path::{Path, PathBuf};

use libloading::Library;

use super::Kind;

/// File names of a library, the best first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    pub names: &'static [&'static str],
    /// A library that must be opened before, from the same folder.
    pub before: &'static [&'static str],
}

impl Kind {
    pub(super) const fn driver_files(self) -> Files {
        match self {
            Self::Cuda if cfg!(windows) => Files { names: &["nvcuda.dll"], before: &[] },
            Self::Cuda => Files { names: &["libcuda.so.1", "libcuda.so"], before: &[] },
            Self::Rocm if cfg!(windows) => {
                Files { names: &["amdhip64_7.dll", "amdhip64_6.dll"], before: &[] }
            }
            Self::Rocm => {
                Files { names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"], before: &[] }
            }
        }
    }

    pub(super) const fn compiler_files(self) -> Files {
        match self {
            Self::Cuda if cfg!(windows) => {
                Files { names: &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"], before: &[] }
            }
            // NVRTC opens its builtins by name alone, which fails where it lies off the linker's path.
            Self::Cuda => Files {
                names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
                before: &[
                    "libnvrtc-builtins.so.13.3",
                    "libnvrtc-builtins.so.13.2",
                    "libnvrtc-builtins.so.13.1",
                    "libnvrtc-builtins.so.13.0",
                    "libnvrtc-builtins.so.12.9",
                    "libnvrtc-builtins.so.12.8",
                    "libnvrtc-builtins.so.12.6",
                ],
            },
            Self::Rocm if cfg!(windows) => {
                Files { names: &["hiprtc0700.dll", "hiprtc0604.dll"], before: &[] }
            }
            Self::Rocm => Files { names: &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"], before: &[] },
        }
    }

    /// Folders of toolkits, Python packages and drivers, after the linker's own path and the caller's folders.
    fn folders(self) -> Vec<PathBuf> {
        let patterns: &[&str] = match self {
            Self::Cuda => &[
                "/usr/local/cuda/lib64",
                "/usr/local/cuda-*/lib64",
                "/opt/cuda/lib64",
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/wsl/lib",
                "/usr/local/nvidia/lib64",
                "/usr/lib/python3*/site-packages/nvidia/*/lib",
                "/usr/lib/python3/dist-packages/nvidia/*/lib",
                "/usr/local/lib/python3*/site-packages/nvidia/*/lib",
                "/usr/local/lib/python3*/dist-packages/nvidia/*/lib",
            ],
            Self::Rocm => &["/opt/rocm/lib", "/opt/rocm-*/lib", "/usr/lib/x86_64-linux-gnu"],
        };
        patterns.iter().flat_map(|p| matching(Path::new(p))).collect()
    }
}

/// The folders that a path means, whose components may have one `*` each.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str().to_string_lossy().into_owned();
        let Some((before, after)) = part.split_once('*') else {
            found.iter_mut().for_each(|p| p.push(&part));
            continue;
        };
        let fits = |name: &str| {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        };
        let inside = |folder: PathBuf| {
            let entries = folder.read_dir().into_iter().flatten().flatten();
            let mut names: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
            names.retain(|name| fits(name));
            names.sort_unstable_by(|a, b| b.cmp(a));
            names.into_iter().map(move |name| folder.join(name)).collect::<Vec<_>>()
        };
        found = found.into_iter().flat_map(inside).collect();
    }
    found.retain(|p| p.is_dir());
    found
}

/// Opens the first library found: in the caller's folders, on the linker's path, in the usual folders. The error says
/// where it was looked for.
pub(super) fn open(kind: Kind, files: &Files, folders: &[PathBuf]) -> Result<Library, String> {
    let mut last = String::new();
    let mut attempt = |library: Result<Library, String>| library.map_err(|e| last = e).ok();
    if let Some(library) = folders.iter().find_map(|folder| attempt(open_in(folder, files)?)) {
        return Ok(library);
    }
    if let Some(library) = files.names.iter().find_map(|name| attempt(load(Path::new(name)))) {
        return Ok(library);
    }
    let usual = kind.folders();
    if let Some(library) = usual.iter().find_map(|folder| attempt(open_in(folder, files)?)) {
        return Ok(library);
    }
    let folders: Vec<_> = folders.iter().chain(&usual).map(|f| f.display().to_string()).collect();
    Err(format!(
        "{} was not found on the linker's path nor in {} ({last})",
        files.names.join(" or "),
        if folders.is_empty() {
            "the usual folders, none of which exists".into()
        } else {
            folders.join(", ")
        }
    ))
}

/// The library of a folder, if it has one.
fn open_in(folder: &Path, files: &Files) -> Option<Result<Library, String>> {
    let path = files.names.iter().map(|name| folder.join(name)).find(|p| p.exists())?;
    for before in files.before.iter().map(|name| folder.join(name)).filter(|p| p.exists()) {
        if let Ok(library) = load_global(&before) {
            // It serves the other for as long as the program runs.
            std::mem::forget(library);
        }
    }
    Some(load(&path))
}

fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: a library of the system's vendor, whose initialisers are as trusted as the driver itself.
    unsafe { Library::new(path) }.map_err(|e| e.to_string())
}

#[cfg(unix)]
fn load_global(path: &Path) -> Result<Library, String> {
    use libloading::os::unix::{Library as Unix, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: as in `load`.
    unsafe { Unix::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(Library::from).map_err(|e| e.to_string())
}

#[cfg(not(unix))]
fn load_global(path: &Path) -> Result<Library, String> {
    load(path)
}
