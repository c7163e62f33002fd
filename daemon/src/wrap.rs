//! `ceased wrap`: one existing MCP server, or one ACP agent, behind this program, for one client on
//! standard input and output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::tool::TaskSupport;
use ceased_core::upstream::server::{OnIgnoredCancel, Share, UpstreamServer, Watchdogs};
use ceased_core::upstream::spoken::Revision;
use ceased_process::{Launch, TakeOutput};

use crate::config::RunAs;
use crate::tools::upstream_launch::UpstreamLaunch;

/// Options of `ceased wrap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrapOptions {
    /// Whether the command is an ACP agent instead of an MCP server.
    pub acp: bool,
    /// Time limits of the turns of an agent.
    pub watchdogs: Watchdogs,
    /// Program of the server and its arguments.
    pub command: Vec<OsString>,
    /// Name in records and errors; the program's name if `None`.
    pub name: Option<String>,
    /// Revision in which the server is spoken to.
    pub revision: Revision,
    /// Whether each call gets an instance of its own, instead of one for the connection.
    pub instance_per_call: bool,
    /// From the protocol's cancel to enforcement (UPS-05).
    pub cancel_grace: Duration,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// From the start of the server to the end of its handshake.
    pub start_timeout: Duration,
    /// The longest that one call may take; no bound if `None`.
    pub call_timeout: Option<Duration>,
    /// How long a client that wants progress is told nothing at most; no heartbeat if `None`.
    pub heartbeat: Option<Duration>,
    /// Longest message of the client or the server, in bytes.
    pub message_bytes: usize,
    /// How long calls are still answered after the end of the input and after each answer.
    pub eof_grace: Duration,
    /// Whether its tools run as tasks; as the server says if `None`.
    pub task_support: Option<TaskSupport>,
    /// Whether a server that goes on with a cancelled call is left running.
    pub leave_ignored_cancel: bool,
    /// Variables that are set for the server.
    pub env: BTreeMap<String, String>,
    /// Variables that the server inherits beside the usual ones, with `clean_env`.
    pub pass_env: Vec<String>,
    /// Whether the server inherits the usual variables alone, instead of all.
    pub clean_env: bool,
    /// The audit log, if one is written.
    pub audit: Option<PathBuf>,
    /// Level of the log; warnings if `None`.
    pub log_level: Option<crate::config::Level>,
}

impl WrapOptions {
    /// The server as the engine runs it: it shows through, and its process belongs to the client's
    /// connection. `stderr` gets a copy of its standard error.
    #[must_use]
    pub fn server(&self, stderr: Option<Arc<dyn TakeOutput>>) -> UpstreamServer {
        let mut launch = Launch::new(self.command.iter());
        launch.output.copy = stderr;
        launch.inherit.everything = !self.clean_env;
        launch.inherit.also.clone_from(&self.pass_env);
        launch.env = self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let program = self.command.first().map(PathBuf::from).unwrap_or_default();
        let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        let name = self.name.as_deref().unwrap_or(&program);
        UpstreamServer {
            transparent: !self.acp,
            watchdogs: self.watchdogs,
            revision: self.revision.clone(),
            share: if self.instance_per_call { Share::Call } else { Share::Connection },
            start_timeout: self.start_timeout,
            // The client decides how long the server lives.
            idle_exit: None,
            timeout: self.call_timeout,
            heartbeat: self.heartbeat,
            cancel_grace: self.cancel_grace,
            kill_grace: self.kill_grace,
            on_ignored_cancel: match self.leave_ignored_cancel {
                true => OnIgnoredCancel::Leave,
                false => OnIgnoredCancel::Replace,
            },
            task_support: self.task_support,
            // The only client is this user, and with `--share call` an instance has no owner.
            payload: UpstreamLaunch { launch, run_as: Some(RunAs::Daemon) }.into_payload(),
            ..UpstreamServer::new(name)
        }
    }
}
