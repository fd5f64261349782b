//! The `hanzo` program.

fn main() {}
