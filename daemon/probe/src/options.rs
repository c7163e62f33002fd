//! Options of a probe.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

use ceased_transports::tls::TlsConfig;
use serde_json::Value;

use super::target::Target;

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
}

/// Options of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The server and its arguments; empty if it runs already.
    pub command: Vec<OsString>,
    /// The transport, and the address of the server.
    pub target: Target,
    /// Headers of every HTTP request, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The authorities that vouch for a server over TLS; it needs them.
    pub tls: Option<TlsConfig>,
    /// A call that takes long; chosen by the schema of the tools if `None`.
    pub long: Option<ToolCall>,
    /// Arguments with which the same tool ends by itself within two seconds.
    pub brief: Option<Value>,
    /// A call of a tool whose work ignores a cancel.
    pub stubborn: Option<ToolCall>,
    /// The revision to ask for; the newest with sessions if `None`.
    pub revision: Option<String>,
    /// Ids of the checks to do.
    pub checks: BTreeSet<&'static str>,
    /// Time limit of everything that has to happen.
    pub timeout: Duration,
    /// Time for which a thing that must not happen is watched for.
    pub window: Duration,
    /// Number of checks at once.
    pub at_once: usize,
    /// Whether the command finds its tasks again when it is started anew.
    pub restart: bool,
    /// Bytes of memory of the processes of one check.
    pub memory_max: u64,
    /// Processes and threads of one check.
    pub pids_max: u32,
    /// Bytes that may be received on one connection.
    pub output_max: u64,
}
