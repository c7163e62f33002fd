//! The configuration: `config.toml`, parsed as written (`raw`) and then converted to typed,
//! validated values with defaults. Without the feature `config` the values are there, and the parser
//! is not.
//!
//! The keys are documented in `config.toml` at the top of the repository.

mod agent;
#[cfg(feature = "config")]
mod agent_table;
#[cfg(feature = "config")]
mod bounds;
#[cfg(feature = "config")]
mod check;
#[cfg(feature = "config")]
mod code;
pub(crate) mod command_defaults;
mod defaults;
#[cfg(feature = "config")]
mod describe;
#[cfg(feature = "config")]
mod describe_access;
#[cfg(feature = "config")]
mod describe_agent;
#[cfg(feature = "config")]
mod describe_server;
mod env_file;
mod error;
mod fleet;
#[cfg(feature = "config")]
mod identities;
#[cfg(feature = "config")]
mod input;
#[cfg(feature = "config")]
mod json;
#[cfg(feature = "config")]
mod listen;
#[cfg(feature = "config")]
mod listen_access;
#[cfg(feature = "config")]
mod monitoring;
mod oauth;
mod on_end;
#[cfg(feature = "config")]
mod profile_table;
mod progress;
#[cfg(feature = "config")]
mod raw;
mod remote_server;
#[cfg(feature = "config")]
mod sections;
mod server;
#[cfg(feature = "config")]
mod server_table;
#[cfg(feature = "config")]
mod server_url;
mod socket_paths;
#[cfg(feature = "config")]
mod tool;
pub(crate) mod units;
mod users;
#[cfg(feature = "config")]
mod values;
mod variables;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::limits::OnTtl;
use ceased_core::policy::access::Profile;
use ceased_core::policy::allow::Allow;
use ceased_core::tool::{OnDisconnect, TaskSupport, ToolHints};
use ceased_transports::Address;

use crate::owned_file::{self, Secrecy, Unfit};
use crate::store::Damaged;
use crate::tools::arguments::{Arguments, CommandTemplate, Template};
use crate::tools::builtin_name::Builtin;
use ceased_process::{Bounds, Isolation, OutputOptions, ReadProgress};

pub use agent::Agent;
pub use ceased_process::Inherit;
#[cfg(feature = "config")]
pub(crate) use code::option_warning;
pub(crate) use defaults::{
    CONNECTIONS_PER_ADDRESS, GONE, KEEP_ALIVE, REPLAY_BYTES, SESSION_IDLE, SESSIONS_PER_IDENTITY,
    most_of, start_at_once_default,
};
pub use discover::Environment;
pub use env_file::EnvFile;
pub use error::{ConfigError, Problem};
pub use fleet::{Durability, Fleet, OnEngineLoss};
pub use oauth::{Jwks, OAuth, TlsFiles};
pub use on_end::OnEnd;
pub use progress::ProgressPattern;
pub use remote_server::{Oauth, RemoteServer};
pub use server::{SERVER_NAME_MAX, Server, prefix_of};
pub use socket_paths::{PathFacts, SocketPaths, SocketVariables};
pub(crate) use units::show_size;
pub use users::Users;
pub use variables::Variables;

/// Size limit of a configuration file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A validated configuration: every value present and within its limits.
///
/// ```
/// use std::path::Path;
///
/// use ceased::Daemon;
/// use ceased::config::Config;
///
/// let text = "[daemon]\nstore = \"memory\"\n[[tool]]\nname = \"tests\"\ncommand = [\"cargo\", \"test\"]\n";
/// let config = Config::parse(text, Path::new("config.toml"))?;
/// let _daemon = Daemon::from_config(&config);
///
/// let mistake = Config::parse("[limits]\nrunnning = 4\n", Path::new("config.toml"));
/// assert!(mistake.unwrap_err().to_string().contains("config.toml:2"));
/// # Ok::<(), ceased::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[daemon]`
    pub daemon: Daemon,
    /// `[[listen]]`, in the order of the file; at least one.
    pub listen: Vec<Listen>,
    /// `[limits]`
    pub limits: Limits,
    /// `[tasks]`
    pub tasks: Tasks,
    /// `[log]`
    pub log: Log,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[alerts]`
    pub alerts: Alerts,
    /// `[otlp]`: the collector of spans; none is recorded if `None`.
    pub otlp: Option<Otlp>,
    /// `[fleet]`: the table of tasks that several daemons share; there is none if `None`.
    pub fleet: Option<Fleet>,
    /// `[[tool]]`, in the order of the file; no name twice.
    pub tools: Vec<Tool>,
    /// `servers.start_at_once`: servers that may be starting at once (UPS-09).
    pub start_at_once: usize,
    /// `[[server]]`, in the order of the file; no name twice.
    pub servers: Vec<Server>,
    /// `[[agent]]`, in the order of the file; no name twice, and none of a server.
    pub agents: Vec<Agent>,
    /// `[[profile]]`, in the order of the file; no name twice.
    pub profiles: Vec<Profile>,
}

/// `[daemon]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Directory of durable tasks; absolute.
    pub state_dir: PathBuf,
    /// Where tasks are kept.
    pub store: Keeping,
    /// Bytes reserved for finishing started tasks when the disk is full.
    pub store_reserve: usize,
    /// Pause after a failed write before the store is retried.
    pub store_retry: Duration,
    /// Treatment of a damaged store.
    pub damaged_store: Damaged,
    /// Maximum number of running jobs.
    pub workers: usize,
    /// Maximum number of queued jobs.
    pub queue: usize,
    /// Total time of a shutdown, from SIGTERM to the exit.
    pub shutdown_grace: Duration,
    /// Default effect of a disconnect on a plain call.
    pub on_disconnect: OnDisconnect,
    /// Default isolation of commands from other processes.
    pub isolation: Isolation,
    /// Directories below which clients choose where a tool runs; empty: the home of the caller.
    pub roots: Vec<PathBuf>,
    /// Whether users of this machine run commands of their own (`ceased run`).
    pub allow_run: bool,
    /// Operators beside root and the user of the daemon; none is anonymous.
    pub operators: BTreeSet<Identity>,
    /// Maximum interval of progress notifications to a requestor that wants progress; `None`: no
    /// heartbeat.
    pub heartbeat: Option<Duration>,
    /// Bytes of output that a result shows as text.
    pub text_limit: usize,
    /// A name of the server for people.
    pub title: Option<String>,
    /// A page about the server.
    pub website: Option<String>,
    /// The use of the server, for models.
    pub instructions: Option<String>,
    /// How long the running calls of a stdio peer may still finish after it closed its input.
    pub eof_grace: Duration,
    /// Command after the end of a task or a long call.
    pub on_end: OnEnd,
    /// Shortest duration of a call that is followed by it.
    pub on_end_after: Duration,
    /// Its time limit.
    pub on_end_timeout: Duration,
    /// Maximum number of such commands that run at once.
    pub on_end_running: usize,
}

/// Where tasks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// On disk by a shared daemon, in memory by one that ends with its peer.
    Auto,
    /// On disk.
    Disk,
    /// In memory.
    Memory,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix {
        /// Path of the socket; absolute, at most 107 bytes.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
        /// Group of the socket file; that of the daemon if `None`.
        group: Option<u32>,
        /// Users allowed to connect; all that can open the socket if `None`.
        allow: Option<Users>,
    },
    /// A TCP port: on a loopback address unless there are tokens and no anonymous peers.
    Tcp {
        /// The address; port 0 lets the system choose.
        address: SocketAddr,
        /// File of names and tokens; not read here.
        token_file: Option<PathBuf>,
        /// Whether peers without a token are accepted as anonymous.
        anonymous: bool,
    },
    /// Standard input and output of the daemon.
    Stdio,
    /// Streamable HTTP.
    Http(HttpListen),
}

/// A listener for Streamable HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpListen {
    /// Its socket: [`Listen::Unix`] or [`Listen::Tcp`].
    pub socket: Box<Listen>,
    /// Origins of pages that may call, beside those of this machine.
    pub allow_origins: Vec<String>,
    /// Time without a request or an open stream after which a session ends.
    pub session_idle: Duration,
    /// Time after the loss of the last connection of a session after which it ends.
    pub gone: Duration,
    /// Time that a connection may be silent between two requests.
    pub keep_alive: Duration,
    /// Maximum number of sessions of one identity.
    pub sessions_per_identity: usize,
    /// Maximum number of connections of one network address or local user.
    pub connections_per_address: usize,
    /// Bytes of events of one session that are kept for a client that comes back.
    pub replay_bytes: usize,
    /// Whether the live view is served at `/`.
    pub view: bool,
    /// Signed tokens that it takes.
    pub oauth: Option<Box<OAuth>>,
    /// Its certificate; without one it speaks plain HTTP.
    pub tls: Option<TlsFiles>,
}

impl Listen {
    /// The socket of the listener: its own for HTTP, else the listener itself.
    #[must_use]
    pub fn socket(&self) -> &Self {
        match self {
            Self::Http(http) => &http.socket,
            Self::Unix { .. } | Self::Tcp { .. } | Self::Stdio => self,
        }
    }
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections of one identity; all but an eighth if `None`.
    pub connections_per_identity: Option<usize>,
    /// Connections reserved for each operator.
    pub operator_connections: usize,
    /// Size limit of a message.
    pub message_bytes: usize,
    /// Maximum nesting of arrays and objects in a message.
    pub json_depth: usize,
    /// Maximum number of unanswered requests of a connection.
    pub inflight_per_connection: usize,
    /// Maximum number of non-terminal tasks of an identity.
    pub tasks_per_identity: usize,
    /// Maximum number of retained terminal tasks of an identity.
    pub stored_tasks_per_identity: usize,
    /// Maximum bytes of retained results of an identity.
    pub stored_bytes_per_identity: usize,
    /// Size up to which a result is kept in memory as well as in the store.
    pub resident_result_bytes: usize,
    /// Maximum rate of task requests of an identity.
    pub task_ops_per_second: u32,
    /// Maximum number of running jobs of an identity; all but an eighth of the workers if `None`.
    pub workers_per_identity: Option<usize>,
    /// Maximum number of queued jobs of an identity; seven eighths of the queue if `None`.
    pub queue_per_identity: Option<usize>,
    /// Maximum number of remembered idempotency keys of an identity.
    pub idempotency_keys_per_identity: usize,
    /// Time that the answer to a keyed call is remembered.
    pub idempotency_ttl: Duration,
    /// Bytes of output of ended jobs that are kept.
    pub output_bytes: usize,
    /// Of those, bytes of one identity.
    pub output_bytes_per_identity: usize,
    /// Unsent bytes of one connection past which new requests are refused; closed past twice this.
    pub write_buffer_bytes: usize,
    /// Time without progress of writes after which a peer is closed.
    pub write_stall: Duration,
    /// Deadline for presenting a token.
    pub authenticate_within: Duration,
    /// Time that a TCP peer may take to send one message.
    pub frame_time: Duration,
    /// Maximum bytes held for all peers.
    pub held_bytes: usize,
    /// Maximum bytes held for one identity; half of `held_bytes`, and at least one message, if
    /// `None`.
    pub held_bytes_per_identity: Option<usize>,
    /// Maximum bytes of incomplete messages of all peers.
    pub partial_bytes: usize,
    /// Maximum bytes of incomplete messages of one identity, or of one network address without one;
    /// half of `partial_bytes`, and at least one message, if `None`.
    pub partial_bytes_per_identity: Option<usize>,
    /// Maximum number of pending requests of a job to its client.
    pub asks_per_job: usize,
    /// Maximum number of calls of an identity suspended until it returns with the requested input
    /// (MOD-07).
    pub parked_per_identity: usize,
    /// Time that such a call stays suspended.
    pub parked_for: Duration,
    /// Maximum number of subscriptions of a connection (MOD-08).
    pub subscriptions_per_connection: usize,
    /// Maximum number of tasks of a subscription.
    pub tasks_per_subscription: usize,
}

/// `[tasks]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// TTL of a task that requests none; sent in whole milliseconds.
    pub default_ttl: Duration,
    /// Maximum TTL.
    pub max_ttl: Duration,
    /// Treatment of a task that still runs at its TTL.
    pub on_ttl: OnTtl,
    /// Time that the late result of such a task is kept.
    pub late_result: Duration,
    /// TTL of a task of an anonymous peer that requests none.
    pub anonymous_ttl: Duration,
    /// Poll interval sent to requestors.
    pub poll_interval: Duration,
    /// Page size of `tasks/list`.
    pub page_size: usize,
    /// Whether `notifications/tasks/status` are sent.
    pub status_notifications: bool,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Level of the log; None: "info", and "warn" where one peer is served on standard input.
    pub level: Option<Level>,
    /// File of the audit records; None: nothing is recorded.
    pub audit: Option<PathBuf>,
    /// The part of each call that the audit log records.
    pub calls: RecordCalls,
    /// Names of arguments whose values are not recorded; `*` stands for any characters.
    pub redact: Vec<String>,
    /// Maximum number of ended calls that are kept for views.
    pub ended_calls: usize,
    /// Time for which they are kept.
    pub ended_for: Duration,
}

/// The part of each call that the audit log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RecordCalls {
    /// Nothing.
    None,
    /// Identity, tool, outcome, exit code and duration.
    #[default]
    Names,
    /// That, and the arguments without those to be redacted.
    Arguments,
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Address of the metrics endpoint of `ceased serve`, a Unix socket or a loopback address;
    /// disabled if `None`.
    pub listen: Option<Address>,
}

/// `[otlp]`: the collector that gets a span of each call (OBS-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otlp {
    /// Its URL; spans go to `/v1/traces` below it.
    pub endpoint: String,
    /// File of headers of its requests, one `Name: value` a line; not read here.
    pub headers_file: Option<PathBuf>,
    /// File of the authorities that its certificate is checked with; those of the system if `None`.
    pub ca_file: Option<PathBuf>,
    /// Name of this service in traces.
    pub service_name: String,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Maximum number of spans that wait for delivery.
    pub queue: usize,
}

/// `[alerts]`: thresholds of warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// Percent of a limit at which its gauge is warned about; 0 disables the warnings.
    pub high_water: u8,
    /// Time after which stopping a job counts as slow.
    pub slow_stop: Duration,
    /// Interval over which the next two are counted.
    pub window: Duration,
    /// Requests of an identity for unknown tasks; 0 disables the warnings.
    pub unknown_tasks: u32,
    /// Requests of an identity for a task before its `poll_interval` has passed; 0 disables the
    /// warnings.
    pub fast_polls: u32,
}

/// Lowest level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Logging is disabled.
    Off,
    /// Failures.
    Error,
    /// Possible problems.
    Warn,
    /// Events relevant to an operator.
    Info,
    /// Events relevant to a developer.
    Debug,
    /// All events.
    Trace,
}

/// `[[tool]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name: 1 to 128 of `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// Display name for people.
    pub title: Option<String>,
    /// Description for models.
    pub description: Option<String>,
    /// Implementation.
    pub run: Run,
    /// Whether it has no side effects ([`ceased_core::tool::Tool::read_only`]).
    pub read_only: bool,
    /// Further hints for clients.
    pub hints: ToolHints,
    /// A picture for people: an `https:` or `data:` URI.
    pub icon: Option<String>,
    /// Whether it can be called as a task.
    pub task_support: TaskSupport,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Schema of its arguments.
    pub arguments: Arguments,
    /// Question to confirm before it runs.
    pub confirm: Option<Template>,
    /// Maximum interval of progress notifications to a requestor that wants progress; `None`: no
    /// heartbeat.
    pub heartbeat: Option<Duration>,
    /// Effect of a disconnect on a plain call.
    pub on_disconnect: OnDisconnect,
    /// Identities that may use it.
    pub allow: Allow,
    /// Calls of it that run at once; as many as there are workers if `None`.
    pub max_running: Option<usize>,
    /// Name of a lock: calls with the same one run one after the other.
    pub lock: Option<Template>,
    /// Command after the end of a task or a long call, in place of the daemon's.
    pub on_end: Option<OnEnd>,
}

/// Implementation of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum Run {
    /// A Rust function.
    Builtin(Builtin),
    /// A command.
    Command(Box<CommandTool>),
}

/// Output of a command that its result shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Standard output and standard error in the order they came.
    #[default]
    Combined,
    /// Standard output; standard error when it fails.
    Stdout,
    /// Standard output is a JSON object: the structured content.
    Json,
    /// Standard output is a JSON array of content blocks.
    Content,
}

/// A program as a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandTool {
    /// The command; [`CommandTemplate::fill`] produces the command line of a call.
    pub template: CommandTemplate,
    /// Whether each call names its own command, as `ceased run` does; `template` is not used then.
    pub is_given: bool,
    /// Time from SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// Bytes of output kept of each stream: its head and its tail.
    pub max_output: usize,
    /// User of the process; `None` if not configured.
    pub run_as: Option<RunAs>,
    /// Isolation from other processes of the same user.
    pub isolation: Isolation,
    /// Bounds of the resources of a call.
    pub bounds: Bounds,
    /// Variables inherited from the daemon's environment.
    pub inherit: Inherit,
    /// File of additional variables.
    pub env_file: Option<EnvFile>,
    /// Pattern that reads progress from its output.
    pub progress: Option<ProgressPattern>,
    /// Output that its result shows.
    pub output: Output,
    /// Schema of the JSON object that it prints.
    pub output_schema: Option<Arguments>,
    /// Bytes of output that a result shows as text.
    pub text_limit: usize,
    /// Where the directory of the client may be in which it runs; `None`: it does not run there.
    pub client_roots: Option<ClientRoots>,
}

/// The directories below which the directory of a client may be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientRoots {
    /// `roots` of `[daemon]`; empty: the home directory of the caller.
    pub listed: Vec<PathBuf>,
    /// The home directory of the user the daemon runs as.
    pub home: Option<PathBuf>,
}

impl ClientRoots {
    /// Replaces symbolic links: the kernel tells the directory of a process without them.
    fn resolve(&mut self) {
        for root in self.listed.iter_mut().chain(&mut self.home) {
            if let Ok(path) = root.canonicalize() {
                *root = path;
            }
        }
    }
}

impl CommandTool {
    /// Treatment of its output.
    pub(crate) fn output_options(&self) -> OutputOptions {
        let progress = self.progress.clone().map(|it| Arc::new(it) as Arc<dyn ReadProgress>);
        let merged = self.output == Output::Combined;
        OutputOptions { lines: true, progress, merged, ..OutputOptions::kept(self.max_output) }
    }

    /// The variables of its file.
    ///
    /// # Errors
    /// If the file has not been read.
    pub(crate) fn variables(&self) -> Result<Vec<(OsString, OsString)>, String> {
        let variables = self.env_file.as_ref().map(EnvFile::variables).transpose()?;
        Ok(env_file::for_launch(variables.unwrap_or_default()))
    }
}

/// User of a command's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// The daemon's user.
    Daemon,
    /// The calling user.
    Peer,
    /// A fixed user.
    User(u32),
}

impl Default for Daemon {
    fn default() -> Self {
        Self::default_in(&Environment::of_process())
    }
}

impl Default for Config {
    /// The configuration of an empty file.
    fn default() -> Self {
        Self::default_in(&Environment::of_process())
    }
}

impl Config {
    /// The default configuration of a user with this environment.
    #[must_use]
    pub fn default_in(environment: &Environment) -> Self {
        Self {
            daemon: Daemon::default_in(environment),
            listen: vec![Listen::default_in(environment)],
            limits: Limits::default(),
            tasks: Tasks::default(),
            log: Log::default(),
            metrics: Metrics::default(),
            alerts: Alerts::default(),
            otlp: None,
            fleet: None,
            tools: Vec::new(),
            start_at_once: start_at_once_default(),
            servers: Vec::new(),
            agents: Vec::new(),
            profiles: Vec::new(),
        }
    }

    /// Locates the file to use; see [`Environment::locate`].
    ///
    /// # Errors
    /// If an explicitly named file does not exist.
    pub fn locate(explicit: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
        Environment::of_process().locate(explicit)
    }

    /// The socket of a daemon that is not told another one; see [`Environment::socket`].
    #[must_use]
    pub fn default_socket() -> PathBuf {
        Environment::of_process().socket()
    }

    /// The first Unix socket it listens on, to which clients connect.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.listen.iter().find_map(|listen| match listen {
            Listen::Unix { path, .. } => Some(path.as_path()),
            Listen::Tcp { .. } | Listen::Stdio | Listen::Http(_) => None,
        })
    }

    /// The tool of this name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, other users than root and the user of this process can have written
    /// it, it is larger than [`FILE_BYTES_MAX`], is not UTF-8, or as [`Self::parse`] and
    /// [`Self::read_env_files`].
    #[cfg(feature = "config")]
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_bytes(Self::read(path)?, path)
    }

    /// Reads the bytes of a file without parsing them.
    ///
    /// # Errors
    /// When it cannot be read, others than root and the user of this process can have written it,
    /// or it is larger than [`FILE_BYTES_MAX`].
    pub fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
        let fail = |what: String, hint: &str| Err(ConfigError::of_file(path, what, hint));
        match owned_file::read(path, Secrecy::Public, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(bytes),
            Err(Unfit::Io(why)) if why.kind() == std::io::ErrorKind::FileTooLarge => {
                let what = format!("the configuration is larger than {FILE_BYTES_MAX} bytes");
                fail(what, "check the path")
            }
            Err(Unfit::Io(why)) => {
                fail(format!("cannot read the configuration: {why}"), "name another file")
            }
            Err(Unfit::Refused { what, remedy }) => {
                fail(format!("rejected the configuration: {what}"), &remedy)
            }
        }
    }

    /// As [`Self::read`], for a file that was found instead of named: a pipe or a device, of which a
    /// read may wait for ever, is refused.
    ///
    /// # Errors
    /// As [`Self::read`], and when it is no regular file.
    pub fn read_found(path: &Path) -> Result<Vec<u8>, ConfigError> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let what = "rejected the configuration: it is a pipe, a device or a directory";
            let hint = "write a file there, or name this one by `--config`";
            return Err(ConfigError::of_file(path, what, hint));
        }
        Self::read(path)
    }

    /// The configuration in the bytes of the file `path`, with the files that it names.
    ///
    /// # Errors
    /// When they are not UTF-8, or as [`Self::parse`] and [`Self::read_env_files`].
    #[cfg(feature = "config")]
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, ConfigError> {
        let fail = |what: String, hint: &str| Err(ConfigError::of_file(path, what, hint));
        match String::from_utf8(bytes) {
            Ok(text) => {
                let mut config = Self::parse(&text, path)?;
                config.read_env_files()?;
                config.resolve_roots();
                Ok(config)
            }
            Err(why) => {
                let at = why.utf8_error().valid_up_to();
                fail(format!("byte {at} of the configuration is not UTF-8"), "save it as UTF-8")
            }
        }
    }

    /// Reads the `env_file` of every tool, server and agent that has one.
    ///
    /// # Errors
    /// If one cannot be read, other users than root and the user of this process can have written
    /// it, or a line is malformed.
    pub fn read_env_files(&mut self) -> Result<(), ConfigError> {
        for tool in &mut self.tools {
            if let Run::Command(command) = &mut tool.run
                && let Some(file) = &mut command.env_file
            {
                file.read()?;
            }
        }
        let of_servers = self.servers.iter_mut().filter_map(|server| server.env_file.as_mut());
        let of_agents = self.agents.iter_mut().filter_map(|agent| agent.env_file.as_mut());
        for file in of_servers.chain(of_agents) {
            file.read()?;
        }
        for remote in self.servers.iter_mut().filter_map(|server| server.remote.as_mut()) {
            remote.read_files()?;
        }
        Ok(())
    }

    /// Adds the servers of another file, `path`, which may name further files.
    ///
    /// # Errors
    /// If names or prefixes clash, also with names of agents, or as [`Self::read_env_files`].
    pub fn add_servers(&mut self, servers: Vec<Server>, path: &Path) -> Result<(), ConfigError> {
        self.servers.extend(servers);
        if let Some(clash) = server::clashes(&self.servers, &self.tools).first() {
            return Err(ConfigError::of_file(path, clash.what.clone(), clash.hint));
        }
        if let Some((what, hint)) = agent::clash(&self.agents, &self.servers) {
            return Err(ConfigError::of_file(path, what, hint));
        }
        self.read_env_files()
    }

    /// Replaces symbolic links in the directories below which clients choose one.
    fn resolve_roots(&mut self) {
        for tool in &mut self.tools {
            if let Run::Command(command) = &mut tool.run
                && let Some(roots) = &mut command.client_roots
            {
                roots.resolve();
            }
        }
    }

    /// Reads the text of the file `path`, which is not opened: it is named in messages, and
    /// relative paths start in its directory. Neither is a file that it names; see
    /// [`Self::read_env_files`].
    ///
    /// # Errors
    /// All problems, each with its line and a hint.
    #[cfg(feature = "config")]
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_in(text, path, &Environment::of_process())
    }

    /// As [`Self::parse`], for a user with this environment.
    ///
    /// # Errors
    /// As [`Self::parse`].
    #[cfg(feature = "config")]
    pub fn parse_in(
        text: &str,
        path: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(path).map_err(|why| {
            let what = format!("cannot determine its directory: {why}");
            ConfigError::of_file(path, what, "use its absolute path")
        })?;
        // A text of several lines means the same, whichever line ends its file was saved with. An escaped
        // carriage return stays.
        let text = text.replace("\r\n", "\n");
        let mut check = check::Checker {
            text: &text,
            file: path,
            dir: absolute.parent().unwrap_or(Path::new("/")),
            environment,
            has_issuer: false,
            problems: Vec::new(),
            partial: Vec::new(),
        };
        let raw = raw::read(&mut check);
        check.has_issuer = raw.listen.iter().any(|(_, listen)| listen.issuer.is_some());
        let limits = sections::limits(&raw.limits, &mut check);
        let daemon = sections::daemon(&raw.daemon, &mut check);
        let listen = listen::listeners(&raw.listen, &mut check);
        let tools = tool::tools(raw.tools, &limits, &daemon, &mut check);
        let servers = server_table::servers(raw.servers, &tools, &daemon, &mut check);
        let config = Self {
            tasks: sections::tasks(&raw.tasks, &mut check),
            log: sections::log(&raw.log, &mut check),
            metrics: monitoring::metrics(&raw.metrics, &listen, &mut check),
            alerts: monitoring::alerts(&raw.alerts, &mut check),
            otlp: monitoring::otlp(raw.otlp.as_ref(), &mut check),
            fleet: fleet::fleet(raw.fleet.as_ref(), &mut check),
            start_at_once: server_table::start_at_once(&raw.common, &mut check),
            agents: agent_table::agents(raw.agents, &servers, &daemon, &mut check),
            profiles: profile_table::profiles(&raw.profiles, &servers, &mut check),
            servers,
            tools,
            listen,
            daemon,
            limits,
        };
        if check.problems.is_empty() { Ok(config) } else { Err(ConfigError::new(check.problems)) }
    }
}

pub(crate) mod discover;
#[cfg(all(test, feature = "config"))]
mod tests;
