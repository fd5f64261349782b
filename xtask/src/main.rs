//! `cargo xtask`: checks of the repository's own rules.

fn main() {}
