//! Identity of a peer, as the host established it.

use alloc::sync::Arc;
use core::fmt;

/// Identity of a peer, as far as the host could establish it (TSK-39, TSK-40).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Identity {
    /// A user of this machine.
    User(u32),
    /// The bearer of a named token.
    Token(Arc<str>),
    /// A peer without credentials; its tasks are guarded by their ids alone.
    Anonymous,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}
