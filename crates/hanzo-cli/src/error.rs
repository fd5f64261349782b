//! The error type of the program: what its libraries report, and failures of its own streams.

use std::{fmt, io};

/// Result of a command.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Error(Box<Kind>);

#[derive(Debug)]
enum Kind {
    Ml(hanzo_ml::Error),
    Output(io::Error),
}

impl Error {
    /// Whether standard output was closed by its reader.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(&*self.0, Kind::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Standard output cannot be written.
    pub(crate) fn output(source: io::Error) -> Self {
        Self(Box::new(Kind::Output(source)))
    }
}

impl From<hanzo_ml::Error> for Error {
    fn from(source: hanzo_ml::Error) -> Self {
        Self(Box::new(Kind::Ml(source)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Ml(source) => source.fmt(f),
            Kind::Output(source) => write!(f, "standard output: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Ml(source) => std::error::Error::source(source),
            Kind::Output(source) => Some(source),
        }
    }
}
