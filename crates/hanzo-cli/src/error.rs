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
    Engine(hanzo_engine::Error),
    Hub(hanzo_hub::Error),
    Output(io::Error),
    Usage(String),
    Failed(String),
    Interrupted,
}

impl Error {
    /// Whether standard output was closed by its reader.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(&*self.0, Kind::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether standard output cannot be written.
    pub(crate) fn is_output(&self) -> bool {
        matches!(&*self.0, Kind::Output(_))
    }

    /// Whether the person at the terminal ended the command.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(&*self.0, Kind::Interrupted)
    }

    /// Whether the command line asked for something that cannot be.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(&*self.0, Kind::Usage(_))
    }

    /// The command line asks for something that cannot be; says what to type instead.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Usage(what.into())))
    }

    /// A failure of the program's surroundings.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Failed(what.into())))
    }

    /// The person at the terminal ended the command.
    pub(crate) fn interrupted() -> Self {
        Self(Box::new(Kind::Interrupted))
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

impl From<hanzo_engine::Error> for Error {
    fn from(source: hanzo_engine::Error) -> Self {
        Self(Box::new(Kind::Engine(source)))
    }
}

impl From<hanzo_hub::Error> for Error {
    fn from(source: hanzo_hub::Error) -> Self {
        Self(Box::new(Kind::Hub(source)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Ml(source) => source.fmt(f),
            Kind::Engine(source) => source.fmt(f),
            Kind::Hub(source) => source.fmt(f),
            Kind::Output(source) => write!(f, "standard output: {source}"),
            Kind::Usage(what) | Kind::Failed(what) => f.write_str(what),
            Kind::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Ml(source) => std::error::Error::source(source),
            Kind::Engine(source) => std::error::Error::source(source),
            Kind::Hub(source) => std::error::Error::source(source),
            Kind::Output(source) => Some(source),
            Kind::Usage(_) | Kind::Failed(_) | Kind::Interrupted => None,
        }
    }
}
