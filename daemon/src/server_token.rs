//! Tokens for servers by URL, as their sources give them.

use std::fmt;
use std::time::Duration;

/// Why a server has no token, or none that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    /// The step that a person has to take, or the failure.
    pub(crate) why: String,
    /// Whether a person has to log in.
    pub(crate) needs_login: bool,
}

/// A token that a source has given.
pub(crate) struct Token {
    pub(crate) text: String,
    /// From now on; `None` if it is not known.
    pub(crate) expires_in: Option<Duration>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// Answer of the source of a token.
pub(crate) type TokenAnswer = Result<Token, Lack>;
