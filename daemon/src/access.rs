//! Access to listeners: which peers are accepted, and under which identity (TSK-39, TSK-40).

use std::sync::Arc;

use ceased_core::identity::Identity;
use ceased_transports::Peer as Origin;

use crate::accounts::{self, OVERFLOW_UID};
use crate::config::{Listen, Users};
use crate::token_file::{Token, TokenFileError, Tokens};

/// Access rule of a listener.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Users verified by the kernel: the listed ones, or all that can open the socket.
    Users(Option<Arc<Users>>),
    /// All peers, as one anonymous identity.
    Anonymous,
    /// Peers with a token.
    Tokens(TokenAccess),
}

/// The tokens of a TCP listener.
#[derive(Debug, Clone)]
pub(crate) struct TokenAccess {
    pub(crate) tokens: Arc<Tokens>,
    /// Whether peers without a token are accepted as anonymous.
    pub(crate) anonymous: bool,
}

/// Decision about a new peer.
#[derive(Debug)]
pub(crate) enum Entry {
    /// The peer is accepted.
    As(Identity),
    /// The peer must authenticate with a token.
    Authenticate(TokenAccess),
    /// The peer is rejected, with this text.
    Refuse(String),
}

impl Access {
    /// The access rule of a listener of the configuration.
    ///
    /// # Errors
    /// If its token file cannot be used.
    pub(crate) fn of(listen: &Listen) -> Result<Self, TokenFileError> {
        Ok(match listen.socket() {
            Listen::Unix { allow: Some(allow), .. } => {
                let members = allow.groups.iter().flat_map(|gid| accounts::members(*gid));
                let users = allow.users.iter().copied().chain(members).collect();
                Self::Users(Some(Arc::new(Users { users, groups: allow.groups.clone() })))
            }
            Listen::Unix { allow: None, .. } | Listen::Stdio | Listen::Http(_) => Self::Users(None),
            Listen::Tcp { token_file: None, anonymous: true, .. } => Self::Anonymous,
            // Signed tokens alone.
            Listen::Tcp { token_file: None, anonymous: false, .. } => {
                Self::Tokens(TokenAccess { tokens: Arc::default(), anonymous: false })
            }
            Listen::Tcp { token_file: Some(path), anonymous, .. } => Self::Tokens(TokenAccess {
                tokens: Arc::new(Tokens::load(path)?),
                anonymous: *anonymous,
            }),
        })
    }

    /// Decides about a peer.
    pub(crate) fn decide(&self, peer: &Origin) -> Entry {
        match (self, peer) {
            (Self::Users(_), Origin::Unix { uid: OVERFLOW_UID, .. }) => Entry::Refuse(format!(
                "uid {OVERFLOW_UID} is not served: users that a namespace does not map all read as \
                 this one"
            )),
            (Self::Users(allow), Origin::Unix { uid, gid, .. }) => {
                let is_in =
                    |allow: &Arc<Users>| allow.users.contains(uid) || allow.groups.contains(gid);
                if allow.as_ref().is_none_or(is_in) {
                    Entry::As(Identity::User(*uid))
                } else {
                    Entry::Refuse(format!(
                        "uid {uid} may not use this socket: it is not in allow_users or \
                         allow_groups"
                    ))
                }
            }
            (Self::Users(_), Origin::Stdio { uid }) => Entry::As(Identity::User(*uid)),
            (Self::Tokens(access), _) => Entry::Authenticate(access.clone()),
            (Self::Anonymous, _) | (Self::Users(_), Origin::Tcp { .. } | Origin::Child { .. }) => {
                Entry::As(Identity::Anonymous)
            }
        }
    }

    /// Whether a peer that authenticated with this token would still be accepted.
    pub(crate) fn still_accepts(&self, token: &Token) -> bool {
        match self {
            Self::Tokens(access) => access.tokens.still_has(token),
            Self::Users(_) | Self::Anonymous => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(allow: Option<(&[u32], &[u32])>, uid: u32, gid: u32) -> Result<u32, String> {
        let users = |(users, groups): (&[u32], &[u32])| {
            Arc::new(Users {
                users: users.iter().copied().collect(),
                groups: groups.iter().copied().collect(),
            })
        };
        match Access::Users(allow.map(users)).decide(&Origin::Unix { uid, gid, pid: None }) {
            Entry::As(Identity::User(uid)) => Ok(uid),
            Entry::Refuse(why) => Err(why),
            other @ (Entry::As(_) | Entry::Authenticate(_)) => panic!("{other:?}"),
        }
    }

    /// TSK-39: a Unix socket accepts the allowed users and groups.
    #[test]
    fn socket_accepts_allowed_users_only() {
        assert_eq!(entry(None, 7, 7), Ok(7));
        assert_eq!(entry(Some((&[7], &[])), 7, 1), Ok(7));
        assert_eq!(entry(Some((&[], &[9])), 7, 9), Ok(7));
        let refused = entry(Some((&[1], &[9])), 7, 7).unwrap_err();
        assert!(refused.contains("uid 7") && refused.contains("allow_users"), "{refused}");
        // The overflow uid can stand for any user and is always rejected.
        assert!(entry(None, OVERFLOW_UID, 7).unwrap_err().contains("65534"));
        assert!(entry(Some((&[OVERFLOW_UID], &[])), OVERFLOW_UID, 7).is_err());
    }
}
