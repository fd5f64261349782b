//! The error type of this crate.

use std::fmt;

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the file, field and value where there is one.
#[derive(Debug)]
pub struct Error(Box<Kind>);

#[derive(Debug)]
enum Kind {
    Ml(hanzo_ml::Error),
    Model { path: String, what: String },
    Text(String),
    Template(String),
    Request(String),
    Engine(String),
}

impl Error {
    /// A model whose metadata or tensors cannot be used; `what` names the key or tensor and the value.
    pub fn model(path: impl fmt::Display, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Model { path: path.to_string(), what: what.into() }))
    }

    /// A vocabulary or tokenizer fault.
    pub fn text(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Text(what.into())))
    }

    /// A chat template that cannot be compiled or rendered.
    pub fn template(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Template(what.into())))
    }

    /// A request that cannot be honoured; `what` names the field and the value.
    pub fn request(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Request(what.into())))
    }

    /// A fault of the running engine.
    pub fn engine(what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Engine(what.into())))
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
            Kind::Model { path, what } => write!(f, "{path}: {what}"),
            Kind::Text(what) => write!(f, "tokenizer: {what}"),
            Kind::Template(what) => write!(f, "chat template: {what}"),
            Kind::Request(what) | Kind::Engine(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Ml(source) => std::error::Error::source(source),
            _ => None,
        }
    }
}
