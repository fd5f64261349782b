//! CUDA C++ and HIP C++: one writer over the validated module, two rows of differences.

use super::Checks;
use crate::{Error, Result, Valid};

/// What differs between the languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Cuda,
    Hip,
}

pub(super) fn write(valid: &Valid, dialect: Dialect, _checks: Checks) -> Result<String> {
    let target = if dialect == Dialect::Cuda { "cuda" } else { "hip" };
    Err(Error::unsupported(valid.name(), target, "target", target))
}
