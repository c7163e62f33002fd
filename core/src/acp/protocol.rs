//! ACP: what a host offers on such connections, and what the two sides said they can do.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::{ConnId, JobId};
use crate::protocol::revision::{ACP, ACP_RFD, CancelSupport, Dialect};
use crate::reason::StopReason;
use crate::tool::Catalog;

/// The request that opens an ACP session.
pub(crate) const INITIALIZE: &str = "initialize";

/// Which form of request cancellation a connection speaks (ACP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcpForm {
    /// As published: `$/cancel_request`, and no capability.
    Published,
    /// As first proposed: `$/cancelRequest`, for peers that declared it.
    Proposed,
}

impl AcpForm {
    /// Its rules.
    #[must_use]
    pub const fn dialect(self) -> &'static Dialect {
        match self {
            Self::Published => &ACP,
            Self::Proposed => &ACP_RFD,
        }
    }
}

/// Which of the two parties we are on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcpRole {
    /// We answer `initialize`.
    Agent,
    /// We send `initialize`.
    Client,
}

/// Offers of a host to ACP peers, by our side.
#[derive(Debug, Default)]
pub struct AcpServices {
    /// To clients, where we are the agent.
    pub agent: Offer,
    /// To agents, where we are the client.
    pub client: Offer,
}

impl AcpServices {
    /// Offers on a connection where we are `side`.
    #[must_use]
    pub const fn on(&self, side: AcpRole) -> &Offer {
        match side {
            AcpRole::Agent => &self.agent,
            AcpRole::Client => &self.client,
        }
    }
}

/// Offers of a host to one kind of peer.
#[derive(Debug, Default)]
pub struct Offer {
    /// The requests it answers: a tool's name is the method, its arguments are the params, its
    /// result is the answer. `initialize` is one of them.
    pub services: Catalog,
    /// The notifications it wants to hear of; others are dropped.
    pub notifications: BTreeSet<Box<str>>,
}

/// Sender of a notification of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// A job, to whoever made its request, as long as that waits for an answer.
    Job(JobId),
    /// The host itself, on this connection.
    Host(ConnId),
}

/// Why a host cancels a job of its own accord.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostStopReason {
    /// The peer asked for it by a method that has an answer of its own, as `session/cancel` has
    /// `stopReason: "cancelled"`. The job gives that answer, however long it takes to (ACP-12).
    Feature,
    /// A limit of the host's (ACP-07).
    Limit,
    /// Anything else (ACP-07).
    Host,
}

impl From<HostStopReason> for StopReason {
    fn from(cause: HostStopReason) -> Self {
        match cause {
            HostStopReason::Feature => Self::Feature,
            HostStopReason::Limit => Self::Limit,
            HostStopReason::Host => Self::Host,
        }
    }
}

/// Declarations of both sides about cancellation (ACP-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcpPeer {
    pub(crate) side: AcpRole,
    /// Declaration of our side.
    ours: bool,
    /// Declaration of the peer.
    theirs: bool,
    /// `initialize` was answered with a result.
    exchanged: bool,
}

impl AcpPeer {
    pub(crate) const fn new(side: AcpRole) -> Self {
        Self { side, ours: false, theirs: false, exchanged: false }
    }

    /// `initialize` was answered, with this result; its sender had declared that it cancels, or had
    /// not. An earlier declaration counts until then, and forever if the request was refused.
    pub(crate) fn complete(&mut self, declared: bool, result: &str) {
        let agent = Declaration::read(result).agent;
        (self.ours, self.theirs) = match self.side {
            AcpRole::Agent => (agent, declared),
            AcpRole::Client => (declared, agent),
        };
        self.exchanged = true;
    }

    /// Whether a cancel may be sent (ACP-03). What our side declared does not matter to it.
    pub(crate) const fn may_cancel(self, dialect: &Dialect) -> bool {
        match dialect.cancel_support {
            CancelSupport::Assumed => true,
            CancelSupport::Declared => self.exchanged && self.theirs,
        }
    }

    /// Whether a cancel is heeded (ACP-10). What the peer declared does not matter to it.
    pub(crate) const fn heeds_cancels(self, dialect: &Dialect) -> bool {
        match dialect.cancel_support {
            CancelSupport::Assumed => true,
            CancelSupport::Declared => self.exchanged && self.ours,
        }
    }
}

/// Whether a request is an `initialize` whose sender declares that it cancels.
pub(crate) fn begins(method: &str, params: Option<&str>) -> bool {
    method == INITIALIZE && params.is_some_and(|params| Declaration::read(params).client)
}

/// Declaration about cancellation in an `initialize` or its result.
struct Declaration {
    client: bool,
    agent: bool,
}

impl Declaration {
    /// An unreadable declaration counts as none.
    fn read(text: &str) -> Self {
        #[derive(Deserialize, Default)]
        struct Said<'a> {
            #[serde(borrow, default, rename = "clientCapabilities")]
            client: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "agentCapabilities")]
            agent: Option<&'a RawValue>,
        }
        let said: Said<'_> = serde_json::from_str(text).unwrap_or_default();
        Self { client: declares(said.client), agent: declares(said.agent) }
    }
}

/// Whether capabilities have `cancellation: {request: true}`.
fn declares(capabilities: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Capabilities<'a> {
        #[serde(borrow)]
        cancellation: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Cancellation {
        request: bool,
    }
    let read = |raw: &RawValue| {
        let capabilities: Capabilities<'_> = serde_json::from_str(raw.get()).ok()?;
        // A derived struct would take an array as well, member by member.
        let object = capabilities.cancellation.get();
        serde_json::from_str::<Cancellation>(object).ok().filter(|_| object.starts_with('{'))
    };
    capabilities.and_then(read).is_some_and(|cancellation| cancellation.request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACP-02: exactly `cancellation: {request: true}` declares it; everything else does not.
    #[test]
    fn declarations() {
        let client = |capabilities: &str| {
            let text = alloc::format!(r#"{{"clientCapabilities":{capabilities}}}"#);
            Declaration::read(&text).client
        };
        assert!(client(r#"{"cancellation":{"request":true}}"#));
        assert!(client(r#"{"fs":7,"cancellation":{"other":1,"request":true}}"#));
        for not in [
            "null",
            "{}",
            "[]",
            r#"{"cancellation":null}"#,
            r#"{"cancellation":true}"#,
            r#"{"cancellation":{}}"#,
            r#"{"cancellation":[true]}"#,
            r#"{"cancellation":{"request":false}}"#,
            r#"{"cancellation":{"request":{}}}"#,
            r#"{"cancellation":{"request":"true"}}"#,
            r#"{"cancellation":{"requests":true}}"#,
        ] {
            assert!(!client(not), "{not}");
        }
        let other = r#"{"agentCapabilities":{"cancellation":{"request":true}}}"#;
        let declared = Declaration::read(other);
        assert!(declared.agent && !declared.client);
        let odd = Declaration::read("[1]");
        assert!(!odd.agent && !odd.client);
    }
}
