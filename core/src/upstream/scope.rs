//! Scopes: servers that a connection sees, and nothing else (`ceased connect --server`).

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Servers that a connection sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope(pub(crate) Vec<Box<str>>);

impl Scope {
    /// Whether it has a server.
    pub(crate) fn has(&self, server: &str) -> bool {
        self.0.iter().any(|name| **name == *server)
    }

    /// The only server: then it shows through, without its prefix.
    pub(crate) fn only(&self) -> Option<&str> {
        match self.0.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}
