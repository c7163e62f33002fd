//! `[[server]]`: an existing MCP server that the daemon relays, and the names of several.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use ceased_core::limits::ServerPlaces;
use ceased_core::policy::allow::Allow;
use ceased_core::tool::TaskSupport;
use ceased_core::upstream::server::{NameFilter, OnIgnoredCancel, Pin, Share, StartWhen};
use ceased_core::upstream::spoken::Revision;

use super::Tool;
use super::launch::Launch;
use super::remote_server::RemoteServer;

/// Longest name of a server: its tools get it as a prefix, and their names have 128 characters.
pub const SERVER_NAME_MAX: usize = 64;

/// `[[server]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Name: 1 to 64 of `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// Program and arguments; none for a server by URL.
    pub command: Vec<OsString>,
    /// Place and credentials of a server by URL.
    pub remote: Option<RemoteServer>,
    /// The start of its processes.
    pub launch: Launch,
    /// Text before the names of its tools and prompts; [`prefix_of`] if `None`.
    pub prefix: Option<String>,
    /// Revision in which it is spoken to.
    pub revision: Revision,
    /// Clients that share an instance.
    pub share: Share,
    /// Instances that wait, initialized, with [`Share::Call`].
    pub warm: usize,
    /// When it starts.
    pub start: StartWhen,
    /// From the start of an instance to the end of its handshake.
    pub start_timeout: Duration,
    /// How long an instance without requests is kept; without end if `None`.
    pub idle_exit: Option<Duration>,
    /// Instances at once.
    pub max_instances: usize,
    /// Of those, the ones of one identity.
    pub max_instances_per_identity: usize,
    /// Requests of clients under way at once, on all instances.
    pub places: ServerPlaces,
    /// Requests at once on one instance; as many as come if `None`.
    pub max_calls: Option<usize>,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Time between two heartbeats of a request whose server reports no progress; `None`: no
    /// heartbeat.
    pub heartbeat: Option<Duration>,
    /// From the protocol's cancel to enforcement.
    pub cancel_grace: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// How long a replaced instance works on the requests of others.
    pub drain: Duration,
    /// Treatment of a server that goes on with a cancelled request.
    pub on_ignored_cancel: OnIgnoredCancel,
    /// Whether its tools run as tasks; as it declares if `None`.
    pub task_support: Option<TaskSupport>,
    /// Consequence when one of its tools differs from the approved one.
    pub pin: Pin,
    /// Names of its tools that are offered.
    pub filter: NameFilter,
    /// Identities that may use it.
    pub allow: Allow,
    /// Questions before a tool runs, by its name without the prefix.
    pub confirm: BTreeMap<String, String>,
}

impl Server {
    /// Program and arguments, or its URL, for people.
    #[must_use]
    pub fn runs(&self) -> String {
        self.remote.as_ref().map_or_else(|| runs(&self.command), |remote| remote.text.clone())
    }
}

/// Program and arguments, for people.
pub(super) fn runs(command: &[OsString]) -> String {
    let argv = command.iter().map(|text| text.to_string_lossy().into_owned());
    format!("{:?}", argv.collect::<Vec<_>>())
}

/// The prefix of a server beside others. Names stay as they are where one server is the only
/// source of tools (UPS-11).
#[must_use]
pub fn prefix_of(server: &Server, servers: usize, tools: &[Tool]) -> String {
    let is_alone = servers == 1 && tools.is_empty();
    match &server.prefix {
        Some(prefix) => prefix.clone(),
        None if is_alone => String::new(),
        None => format!("{}_", server.name),
    }
}

/// Two servers that cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clash {
    /// Positions in the list; the second one is at fault.
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) what: String,
    pub(super) hint: &'static str,
}

/// Servers with equal names or prefixes: their tools would clash (UPS-11).
pub(super) fn clashes(servers: &[Server], tools: &[Tool]) -> Vec<Clash> {
    let prefix = |server: &Server| prefix_of(server, servers.len(), tools);
    let mut found = Vec::new();
    for (second, server) in servers.iter().enumerate() {
        let before = servers.iter().take(second).enumerate();
        for (first, other) in before {
            if other.name == server.name {
                let what = format!("there is a second server named {:?}", server.name);
                found.push(Clash { first, second, what, hint: "rename one" });
                break;
            }
            if prefix(other) == prefix(server) {
                let (name, other) = (&server.name, &other.name);
                let what = format!(
                    "the servers {other:?} and {name:?} have the same prefix {:?}, so that the names of \
                     their tools can clash",
                    prefix(server)
                );
                let hint = "give one another `prefix`; the default is the name and `_`";
                found.push(Clash { first, second, what, hint });
                break;
            }
        }
    }
    found
}
