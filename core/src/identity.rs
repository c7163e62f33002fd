//! Identity and rights of a peer, as the host established them.

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
    /// The subject of a signed token: its issuer, `#` and its subject (AUTH-03).
    Subject(Arc<str>),
    /// A peer without credentials; its tasks are guarded by their ids alone.
    Anonymous,
}

/// Rights of a connection, which its identity alone does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Rights {
    /// All that its identity has.
    #[default]
    Full,
    /// Those of its identity without an [operator](crate::settings::Settings::operators)'s: the
    /// peer is a process inside a job (SEC-05).
    InsideJob,
}

impl Identity {
    /// The identity that [`Display`](fmt::Display) has written.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("uid", uid)) => uid.parse().ok().map(Self::User),
            Some(("token", name)) => Some(Self::Token(name.into())),
            Some(("sub", name)) => Some(Self::Subject(name.into())),
            Some(_) => None,
            None => (text == "anonymous").then_some(Self::Anonymous),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Token(name) => write!(f, "token:{name}"),
            Self::Subject(name) => write!(f, "sub:{name}"),
            Self::Anonymous => f.write_str("anonymous"),
        }
    }
}
