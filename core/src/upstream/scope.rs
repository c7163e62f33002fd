//! Scopes: the part of the offers that a connection sees, and nothing else.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The part that a connection sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// These servers (`ceased connect --server`).
    Servers(Vec<Box<str>>),
    /// The profile of this name (`/mcp/NAME`, `ceased connect --profile`).
    Profile(Box<str>),
}

impl Scope {
    /// The only server: then it shows through, without its prefix.
    pub(crate) fn only(&self) -> Option<&str> {
        match self {
            Self::Servers(servers) => match servers.as_slice() {
                [only] => Some(only),
                _ => None,
            },
            Self::Profile(_) => None,
        }
    }
}
