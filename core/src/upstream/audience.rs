//! Audiences: the clients that one description of a server, and one row of its failures, is for.
//!
//! The instances of two identities may be two programs: they run as two users, or ask for the name
//! of their client. So one identity is neither shown the tools and last lines of an instance of
//! another, nor kept waiting by its failures (TSK-39). A server also describes itself differently in
//! the two eras.

use core::fmt;

use crate::identity::Identity;
use crate::upstream::server::{Share, UpstreamServer};
use crate::upstream::spoken::SpokenEra;

/// Clients of one identity and era.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListAudience {
    pub(crate) identity: Identity,
    pub(crate) era: SpokenEra,
}

impl ListAudience {
    /// The audience of a client; `None` where an instance serves one call of anyone.
    pub(crate) fn of(server: &UpstreamServer, identity: &Identity, era: SpokenEra) -> Option<Self> {
        let era = match server.share {
            Share::Call => return None,
            Share::Identity => SpokenEra::Modern,
            Share::Connection => era,
        };
        Some(Self { identity: identity.clone(), era })
    }

    /// The audience that [`Display`](fmt::Display) has written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (era, identity) = text.split_once(' ')?;
        let era = match era {
            "session" => SpokenEra::Session,
            "stateless" => SpokenEra::Modern,
            _ => return None,
        };
        Some(Self { identity: Identity::parse(identity)?, era })
    }
}

impl fmt::Display for ListAudience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let era = match self.era {
            SpokenEra::Session => "session",
            SpokenEra::Modern => "stateless",
        };
        write!(f, "{era} {}", self.identity)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn text_of_an_audience_is_read_back() {
        for identity in [
            Identity::User(7),
            Identity::Token("a b:c".into()),
            Identity::Subject("https://a#b c".into()),
            Identity::Anonymous,
        ] {
            for era in [SpokenEra::Session, SpokenEra::Modern] {
                let audience = ListAudience { identity: identity.clone(), era };
                assert_eq!(ListAudience::parse(&format!("{audience}")), Some(audience));
            }
        }
        for text in ["", "session", "session x:1", "modern uid:1", "session uid:-1"] {
            assert_eq!(ListAudience::parse(text), None, "{text}");
        }
    }
}
