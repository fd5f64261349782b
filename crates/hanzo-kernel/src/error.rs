//! The error type of this crate.

use std::fmt;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the place in the original source where there is one.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug)]
#[non_exhaustive]
enum Kind {
    Source { file: String, line: usize, what: String },
    Kernel { kernel: String, what: String },
    Invalid { kernel: String, file: String, line: usize, what: String },
    Unsupported { kernel: String, target: &'static str, kind: &'static str, value: String },
    Lower { kernel: String, target: &'static str, what: String },
}

impl Error {
    /// A directive or import of a WGSL file that makes no sense; lines count from 1.
    pub fn source(file: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Source { file: file.into(), line, what: what.into() }))
    }

    /// A kernel that cannot be composed, at no particular line.
    pub fn kernel(kernel: impl Into<String>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Kernel { kernel: kernel.into(), what: what.into() }))
    }

    /// Composed text that the parser or the validator refuses, at the line of the file it came from.
    pub fn invalid(
        kernel: impl Into<String>,
        file: impl Into<String>,
        line: usize,
        what: impl Into<String>,
    ) -> Self {
        Self(Box::new(Kind::Invalid { kernel: kernel.into(), file: file.into(), line, what: what.into() }))
    }

    /// A construct that a writer does not know: its kind (`expression`, `type` …) and which one it is.
    pub fn unsupported(
        kernel: impl Into<String>,
        target: &'static str,
        kind: &'static str,
        value: impl Into<String>,
    ) -> Self {
        Self(Box::new(Kind::Unsupported { kernel: kernel.into(), target, kind, value: value.into() }))
    }

    /// A writer that failed or panicked.
    pub fn lower(kernel: impl Into<String>, target: &'static str, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Lower { kernel: kernel.into(), target, what: what.into() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Source { file, line, what } => write!(f, "{file}:{line}: {what}"),
            Kind::Kernel { kernel, what } => write!(f, "kernel {kernel}: {what}"),
            Kind::Invalid { kernel, file, line, what } => write!(f, "{file}:{line}: kernel {kernel}: {what}"),
            Kind::Unsupported { kernel, target, kind, value } => {
                write!(f, "kernel {kernel} to {target}: {kind} {value} is not supported")
            }
            Kind::Lower { kernel, target, what } => write!(f, "kernel {kernel} to {target}: {what}"),
        }
    }
}

impl std::error::Error for Error {}
