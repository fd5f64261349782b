//! What is read from standard input and from small files: bounded, and UTF-8.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use indicatif::HumanBytes;
use serde_json::Value as Json;

use crate::{
    environment::Environment,
    error::{Error, Result},
};

/// The most that is read.
const BYTES_MAX: u64 = 64 << 20;

/// Standard input, where it is not a person who types.
///
/// # Errors
/// If it cannot be read, is too long or is no UTF-8.
pub(crate) fn piped(environment: &Environment) -> Result<Option<String>> {
    if environment.typed_input {
        return Ok(None);
    }
    text("standard input", io::stdin().lock()).map(Some)
}

/// A text file.
///
/// # Errors
/// If it cannot be read, is too long or is no UTF-8.
pub(crate) fn file(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| Error::failed(format!("{name}: {e}")))?;
    text(&name, file)
}

/// A JSON file; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is too long or is no JSON.
pub(crate) fn json(path: &Path) -> Result<Json> {
    let name = path.display().to_string();
    let text = if name == "-" { text("standard input", io::stdin().lock())? } else { file(path)? };
    serde_json::from_str(&text).map_err(|e| Error::failed(format!("{name}: {e}")))
}

fn text(name: &str, from: impl Read) -> Result<String> {
    let mut text = String::new();
    let read = from.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| Error::failed(format!("{name}: {e}")))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Error::failed(format!("{name} has more than {}", HumanBytes(BYTES_MAX))));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_utf8_or_too_long_is_refused() {
        let refused = |bytes: &[u8]| text("x", bytes).unwrap_err().to_string();
        assert!(refused(b"a\xff").starts_with("x: "));
        let long = text("x", io::repeat(b'a')).unwrap_err().to_string();
        assert_eq!(long, "x has more than 64.00 MiB");
        assert_eq!(text("x", &b"ab"[..]).unwrap(), "ab");
    }
}
