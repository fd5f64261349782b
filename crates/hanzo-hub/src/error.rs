//! The error type of this crate: each error names the file, address or model, and what to do next.

use std::{fmt, path::PathBuf};

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the model, file or address it went wrong on.
#[derive(Debug)]
pub struct Error(Box<Kind>);

/// One source that was tried for a model, and why it gave nothing.
#[derive(Debug)]
pub struct Attempt {
    /// The source in words, with its address.
    pub source: String,
    /// Why it failed.
    pub error: Error,
}

#[derive(Debug)]
enum Kind {
    Io { path: PathBuf, source: std::io::Error },
    File { path: PathBuf, what: String },
    Name { name: String, what: String },
    Http { url: String, what: String },
    Package { package: String, what: String },
    Space { dir: PathBuf, need: u64, have: u64 },
    Sources { name: String, attempts: Vec<Attempt>, advice: String },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self(Box::new(Kind::Io { path: path.into(), source }))
    }

    pub(crate) fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::File { path: path.into(), what: what.into() }))
    }

    pub(crate) fn name(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Name { name: name.into(), what: what.into() }))
    }

    pub(crate) fn http(url: impl Into<String>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Http { url: url.into(), what: what.into() }))
    }

    pub(crate) fn package(package: impl Into<String>, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Package { package: package.into(), what: what.into() }))
    }

    pub(crate) fn space(dir: impl Into<PathBuf>, need: u64, have: u64) -> Self {
        Self(Box::new(Kind::Space { dir: dir.into(), need, have }))
    }

    pub(crate) fn sources(
        name: impl Into<String>,
        attempts: Vec<Attempt>,
        advice: impl Into<String>,
    ) -> Self {
        Self(Box::new(Kind::Sources { name: name.into(), attempts, advice: advice.into() }))
    }

    /// The sources tried in order, where the error is that none of them gave the model; else empty.
    pub fn attempts(&self) -> &[Attempt] {
        match &*self.0 {
            Kind::Sources { attempts, .. } => attempts,
            _ => &[],
        }
    }

    /// True where the disk is too full: no other source can help.
    pub(crate) fn is_space(&self) -> bool {
        matches!(&*self.0, Kind::Space { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Kind::File { path, what } => write!(f, "{}: {what}", path.display()),
            Kind::Name { name, what } => write!(f, "model {name:?}: {what}"),
            Kind::Http { url, what } => write!(f, "{url}: {what}"),
            Kind::Package { package, what } => write!(f, "python package {package}: {what}"),
            Kind::Space { dir, need, have } => write!(
                f,
                "not enough disk space in {}: {need} bytes needed, {have} bytes free; free some or choose another \
                 cache directory",
                dir.display()
            ),
            Kind::Sources { name, attempts, advice } => {
                write!(f, "model {name:?}: no source gave it")?;
                for (idx, attempt) in attempts.iter().enumerate() {
                    write!(f, "\n  {}. {}: {}", idx + 1, attempt.source, attempt.error)?;
                }
                write!(f, "\n  next: {advice}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Io { source, .. } => Some(source),
            Kind::Sources { attempts, .. } => attempts.last().map(|a| &a.error as _),
            _ => None,
        }
    }
}
