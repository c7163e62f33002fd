//! Settings: the decisions of an operator, as one value that a reload replaces whole.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::acp::protocol::AcpServices;
use crate::identity::Identity;
use crate::limits::{Limits, TaskPolicy};
use crate::policy::access::Profile;
use crate::provider::Provider;
use crate::tool::{Catalog, Tool};
use crate::upstream::server::UpstreamServer;

/// Offers and permissions of an engine.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// How the server names itself in `initialize`.
    pub server: ServerInfo,
    /// The bounds.
    pub limits: Limits,
    /// Lifetime and durability of tasks.
    pub tasks: TaskPolicy,
    /// The tools on offer.
    pub catalog: Catalog,
    /// Prompts and resources of the host itself.
    pub provider: Provider,
    /// Services for servers, on connections on which we are the client (TSK-44): a tool named
    /// `sampling/createMessage`, `elicitation/create` or `roots/list`, whose arguments are the
    /// params of the request. With task support it is declared as a task as well.
    pub services: Catalog,
    /// The tool behind `ceased/run`, with which a user of this machine runs a command of its own;
    /// `None` if the host runs none. Its arguments are the params of the request.
    pub run: Option<Arc<Tool>>,
    /// Existing MCP servers whose methods are offered as well.
    pub servers: Vec<Arc<UpstreamServer>>,
    /// Existing ACP agents, each of which runs behind a client of its own.
    pub agents: Vec<Arc<UpstreamServer>>,
    /// Whether every connection belongs to a client of the first agent.
    pub agent_only: bool,
    /// Servers that may be starting at once (UPS-09); 0 counts as 1.
    pub start_at_once: usize,
    /// Offers to ACP peers.
    pub acp: AcpServices,
    /// Whether the host keeps the output of jobs and carries out
    /// [`Action::ReadOutput`](crate::action::Action::ReadOutput): peers may read it as resources.
    pub outputs: bool,
    /// Whether each job is a span of its own, which the host records: servers and commands get it as
    /// their parent in place of the span of the client (OBS-01).
    #[cfg_attr(feature = "trace", serde(default))]
    pub own_spans: bool,
    /// Identities that see all connections, jobs and tasks in `ceased/status` and may stop any job
    /// with `ceased/cancel`: the administrator and the daemon's own user. The methods of the
    /// protocols show them their own tasks only, as to every identity (TSK-39).
    pub operators: Vec<Identity>,
    /// Views for some callers; without any, a caller sees all that `allow` of tools and servers
    /// permits (AUTH-03).
    #[cfg_attr(feature = "trace", serde(default))]
    pub profiles: Vec<Profile>,
}

impl Settings {
    /// Whether every peer is offered the same tools of the host.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.profiles.is_empty() && self.catalog.is_public()
    }
}

/// How the server names itself.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ServerInfo {
    /// A name for programs.
    pub name: Box<str>,
    /// Its version.
    pub version: Box<str>,
    /// A name for people.
    pub title: Option<Box<str>>,
    /// A page about it.
    pub website: Option<Box<str>>,
    /// Its use, for models.
    pub instructions: Option<Box<str>>,
}

impl ServerInfo {
    /// A server with a name and a version, and nothing else to say.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        let (name, version) = (name.into(), version.into());
        Self { name, version, title: None, website: None, instructions: None }
    }
}

impl Default for ServerInfo {
    fn default() -> Self {
        Self::new("ceased", env!("CARGO_PKG_VERSION"))
    }
}
