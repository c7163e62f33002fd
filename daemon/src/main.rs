//! The `ceased` binary.
fn main() {}
