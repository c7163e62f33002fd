//! Servers: the settings of one existing MCP server.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::time::Duration;

use crate::limits::ServerPlaces;
use crate::policy::allow::{Allow, RunsFor};
use crate::tool::TaskSupport;
use crate::upstream::manifest::Manifest;
use crate::upstream::spoken::Revision;

/// Clients that share one instance of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum Share {
    /// Each connection has an instance of its own.
    #[default]
    Connection,
    /// All connections of one identity share an instance.
    Identity,
    /// Each call has an instance of its own, taken from those kept warm.
    Call,
}

/// When a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum StartWhen {
    /// When a request first needs it.
    #[default]
    Lazy,
    /// With the engine, if each call has an instance of its own; else with the first client.
    Eager,
}

/// Consequence when a cancelled request goes on and its processes cannot be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum OnIgnoredCancel {
    /// The instance is replaced (UPS-06).
    #[default]
    Replace,
    /// The server was told, and the receipt says no more than that.
    Leave,
}

/// Consequence when a tool differs from the approved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum Pin {
    /// The tools are not compared.
    #[default]
    Off,
    /// The operator is told.
    Warn,
    /// The tool is neither listed nor called.
    Refuse,
}

impl Pin {
    /// Word of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Refuse => "refuse",
        }
    }
}

/// Time limits of the turns of an ACP agent; none when `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Watchdogs {
    /// The longest that one turn may take.
    pub turn: Option<Duration>,
    /// How long a turn may go on without an update, CPU time of the agent's processes, or a request
    /// of the agent that waits for its client.
    pub stall: Option<Duration>,
}

/// Names that are offered: glob patterns in which `*` stands for any text and `?` for one
/// character.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct NameFilter {
    /// Offered names; all if there is no pattern.
    pub only: Vec<Box<str>>,
    /// Hidden names, even if `only` has them.
    pub hide: Vec<Box<str>>,
}

impl NameFilter {
    /// Whether a name is offered.
    #[must_use]
    pub fn offers(&self, name: &str) -> bool {
        self.offers_any([name, name])
    }

    /// Whether something with these two names is offered: by a pattern for one of them, unless one
    /// of them is hidden.
    pub(crate) fn offers_any(&self, names: [&str; 2]) -> bool {
        let any = |patterns: &[Box<str>]| {
            patterns.iter().any(|pattern| names.iter().any(|name| matches(pattern, name)))
        };
        (self.only.is_empty() || any(&self.only)) && !any(&self.hide)
    }
}

/// Whether a glob pattern matches a whole name. Linear in space; the last `*` alone is retried.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    let mut retry: Option<(core::str::Chars<'_>, core::str::Chars<'_>)> = None;
    loop {
        let start = name.clone();
        match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                name = start.clone();
                retry = Some((pattern.clone(), start));
                continue;
            }
            (Some('?'), Some(_)) => continue,
            (Some(wanted), Some(found)) if wanted == found => continue,
            _ => {}
        }
        let Some((after, from)) = &mut retry else { return false };
        if from.next().is_none() {
            return false;
        }
        pattern = after.clone();
        name = from.clone();
    }
}

/// One existing MCP server. A reload makes a new value; instances of an equal one go on.
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct UpstreamServer {
    /// Name of the server in views, logs and errors: unique.
    pub name: Box<str>,
    /// Text before the names of its tools and prompts (UPS-11).
    pub prefix: Box<str>,
    /// Whether the server shows through: `initialize` and `server/discover` are answered with its
    /// name, version, instructions and capabilities, for which they wait until it has started. Has
    /// an effect on the only server alone.
    pub transparent: bool,
    /// Whether it is reached by a URL: no process of it is here, and a cancel is proved by its
    /// messages alone (REM-03).
    pub is_remote: bool,
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
    /// How long an instance without requests is kept; without end when `None`.
    pub idle_exit: Option<Duration>,
    /// Instances at once.
    pub max_instances: usize,
    /// Of those, the ones of one identity; for an agent, its clients of one identity.
    pub max_instances_per_identity: usize,
    /// Requests of clients under way at once, on all instances; further ones wait, and hold up no other
    /// server.
    pub places: ServerPlaces,
    /// Requests at once on one instance; as many as come when `None`.
    pub max_calls: Option<usize>,
    /// The longest that one request may take; no bound when `None`.
    pub timeout: Option<Duration>,
    /// How long a requestor that wants progress is told nothing at most; `None`: no heartbeat.
    pub heartbeat: Option<Duration>,
    /// From the protocol's cancel to enforcement (UPS-05).
    pub cancel_grace: Duration,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// How long a replaced instance may work on the requests of others (UPS-06).
    pub drain: Duration,
    /// Consequence when a cancel is ignored.
    pub on_ignored_cancel: OnIgnoredCancel,
    /// Whether its tools run as tasks, whatever the server says (UPS-15); `None`: as it says.
    pub task_support: Option<TaskSupport>,
    /// Names of its tools that are offered, without the prefix.
    pub filter: NameFilter,
    /// Callers that may use it.
    pub allow: Allow,
    /// Callers as which it can run.
    #[cfg_attr(feature = "trace", serde(default))]
    pub runs_for: RunsFor,
    /// Consequence when one of its tools differs from the approved one (UPS-19).
    #[cfg_attr(feature = "trace", serde(default))]
    pub pin: Pin,
    /// Questions to the requestor before a tool runs, by its name without the prefix.
    pub confirm: BTreeMap<Box<str>, Box<str>>,
    /// Time limits of the turns of an ACP agent.
    pub watchdogs: Watchdogs,
    /// Its description and lists of its last run.
    pub manifest: Option<Manifest>,
    /// Data for the host to start it.
    #[cfg_attr(feature = "trace", serde(skip))]
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl UpstreamServer {
    /// A server with the defaults of the configuration, offered to everyone without a prefix.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            prefix: "".into(),
            transparent: false,
            is_remote: false,
            revision: Revision::Auto,
            share: Share::Connection,
            warm: 1,
            start: StartWhen::Lazy,
            start_timeout: Duration::from_secs(60),
            idle_exit: Some(Duration::from_secs(600)),
            max_instances: 16,
            max_instances_per_identity: usize::MAX,
            places: ServerPlaces::default(),
            max_calls: None,
            timeout: Some(Duration::from_secs(600)),
            heartbeat: None,
            cancel_grace: Duration::from_secs(2),
            kill_grace: Duration::from_secs(2),
            drain: Duration::from_secs(30),
            on_ignored_cancel: OnIgnoredCancel::Replace,
            task_support: None,
            filter: NameFilter::default(),
            allow: Allow::Everyone,
            runs_for: RunsFor::Everyone,
            pin: Pin::Off,
            confirm: BTreeMap::new(),
            watchdogs: Watchdogs::default(),
            manifest: None,
            payload: None,
        }
    }
}

impl fmt::Debug for UpstreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamServer({})", self.name)
    }
}

/// Two servers are the same when they are the same object; a reload makes new ones.
impl PartialEq for UpstreamServer {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (pattern, name, expected) in [
            ("create_*", "create_issue", true),
            ("create_*", "recreate_issue", false),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("*a*b", "xaybzab", true),
            ("*a*b", "xaybza", false),
            ("?et", "get", true),
            ("?et", "et", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("**", "äöü", true),
            ("?", "ä", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn filter_hides_even_offered_names() {
        let filter = |only: &[&str], hide: &[&str]| {
            let of = |all: &[&str]| all.iter().map(|text| (*text).into()).collect();
            NameFilter { only: of(only), hide: of(hide) }
        };
        assert!(filter(&[], &[]).offers("a"));
        assert!(filter(&["a*"], &[]).offers("ab") && !filter(&["a*"], &[]).offers("b"));
        assert!(!filter(&["a*"], &["ab"]).offers("ab") && !filter(&[], &["b"]).offers("b"));
    }
}
