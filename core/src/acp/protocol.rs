//! ACP: services of a host, and the declarations of both sides.

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

/// Form of request cancellation on a connection (ACP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum AcpForm {
    /// As published: `$/cancel_request`, without a capability.
    Published,
    /// As first proposed: `$/cancelRequest`, for peers that declare the capability.
    Proposed,
}

impl AcpForm {
    /// Rules of this form.
    #[must_use]
    pub const fn dialect(self) -> &'static Dialect {
        match self {
            Self::Published => &ACP,
            Self::Proposed => &ACP_RFD,
        }
    }
}

/// Our side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum AcpRole {
    /// We answer `initialize`.
    Agent,
    /// We send `initialize`.
    Client,
}

/// Offers of a host to ACP peers, for each of its roles.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct AcpServices {
    /// Offers to clients, as the agent.
    pub agent: Offer,
    /// Offers to agents, as the client.
    pub client: Offer,
}

impl AcpServices {
    /// Offers on a connection in this role.
    #[must_use]
    pub const fn on(&self, side: AcpRole) -> &Offer {
        match side {
            AcpRole::Agent => &self.agent,
            AcpRole::Client => &self.client,
        }
    }
}

/// Offers of a host to one kind of peer.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Offer {
    /// Requests that the host answers: the tool's name is the method, its arguments are the params,
    /// its result is the answer. `initialize` is one of them.
    pub services: Catalog,
    /// Notifications that the host receives; others are dropped.
    pub notifications: BTreeSet<Box<str>>,
}

/// Sender of an outgoing notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Speaker {
    /// A job, to the peer of its request, while that waits for an answer.
    Job(JobId),
    /// The host, on this connection.
    Host(ConnId),
}

/// Reason why a host cancels a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum HostStopReason {
    /// The peer used a method with an answer of its own, as `session/cancel` with `stopReason:
    /// "cancelled"`. The job gives that answer, without a deadline (ACP-12).
    Feature,
    /// A limit of the host (ACP-07).
    Limit,
    /// Another reason (ACP-07).
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

    /// Records the answer to `initialize` and the declaration of its sender. An earlier declaration
    /// counts until then, and permanently if the request was refused.
    pub(crate) fn complete(&mut self, declared: bool, result: &str) {
        let agent = Declaration::read(result).agent;
        (self.ours, self.theirs) = match self.side {
            AcpRole::Agent => (agent, declared),
            AcpRole::Client => (declared, agent),
        };
        self.exchanged = true;
    }

    /// Whether a cancel may be sent (ACP-03). Independent of our own declaration.
    pub(crate) const fn may_cancel(self, dialect: &Dialect) -> bool {
        match dialect.cancel_support {
            CancelSupport::Assumed => true,
            CancelSupport::Declared => self.exchanged && self.theirs,
        }
    }

    /// Whether a cancel is accepted (ACP-10). Independent of the peer's declaration.
    pub(crate) const fn accepts_cancels(self, dialect: &Dialect) -> bool {
        match dialect.cancel_support {
            CancelSupport::Assumed => true,
            CancelSupport::Declared => self.exchanged && self.ours,
        }
    }
}

/// Whether a request is an `initialize` that declares cancellation.
pub(crate) fn begins(method: &str, params: Option<&str>) -> bool {
    method == INITIALIZE && params.is_some_and(|params| Declaration::read(params).client)
}

/// Declaration about cancellation in an `initialize` or its result.
struct Declaration {
    client: bool,
    agent: bool,
}

impl Declaration {
    /// Reads a declaration; an unreadable one counts as none.
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

/// Whether capabilities contain `cancellation: {request: true}`.
fn declares(capabilities: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct DeclaredCapabilities<'a> {
        #[serde(borrow)]
        cancellation: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct CancelDeclaration {
        request: bool,
    }
    let read = |raw: &RawValue| {
        let capabilities: DeclaredCapabilities<'_> = serde_json::from_str(raw.get()).ok()?;
        // A derived struct would also accept an array of its members.
        let object = capabilities.cancellation.get();
        serde_json::from_str::<CancelDeclaration>(object).ok().filter(|_| object.starts_with('{'))
    };
    capabilities.and_then(read).is_some_and(|cancellation| cancellation.request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACP-02: only `cancellation: {request: true}` is a declaration.
    #[test]
    fn only_the_exact_capability_is_a_declaration() {
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
