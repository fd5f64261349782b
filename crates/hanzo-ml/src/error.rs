//! The error type of this crate.

use std::{fmt, path::PathBuf};

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the file, field and value where there is one.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug)]
enum Kind {
    Io { path: PathBuf, source: std::io::Error },
    File { path: PathBuf, what: String },
    Tensor { name: String, what: String },
    Op { op: &'static str, what: String },
}

impl Error {
    /// An operating-system error on `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self(Box::new(Kind::Io { path: path.into(), source }))
    }

    /// A malformed or unsupported file; `what` names the field and the value.
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::File { path: path.into(), what: what.into() }))
    }

    /// A tensor that does not fit its use.
    pub fn tensor(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Tensor { name: name.into(), what: what.into() }))
    }

    /// Operands that do not fit an operation.
    pub fn op(op: &'static str, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Op { op, what: what.into() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Kind::File { path, what } => write!(f, "{}: {what}", path.display()),
            Kind::Tensor { name, what } => write!(f, "tensor {name}: {what}"),
            Kind::Op { op, what } => write!(f, "{op}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Io { source, .. } => Some(source),
            Kind::File { .. } | Kind::Tensor { .. } | Kind::Op { .. } => None,
        }
    }
}
