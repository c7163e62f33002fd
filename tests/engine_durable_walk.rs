//! Walks.
#[test]
fn w() {}
