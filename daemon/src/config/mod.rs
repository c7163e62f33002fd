//! The configuration: `config.toml`, read twice. First as written (`raw`), then as meant: typed,
//! within its limits, no key left out.
//!
//! Everything a reader must know about a key stands in `config.toml` at the top of the repository.

mod check;
mod code;
mod describe;
mod env_file;
mod error;
mod input;
mod json;
mod listen;
mod monitoring;
mod progress;
mod raw;
mod sections;
mod socket_paths;
mod tool;
mod units;
mod users;
mod values;
mod who;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::limits::OnTtl;
use ceased_core::policy::access::Allow;
use ceased_core::tool::{OnDisconnect, TaskSupport, ToolHints};
use ceased_transports::Address;

use crate::owned_file::{self, Secrecy, Unfit};
use crate::store::Damaged;
use crate::tools::arguments::{Arguments, CommandTemplate, Template};
use crate::tools::builtin_name::Builtin;
use ceased_process::{Isolation, OutputOptions, ReadProgress};

pub use ceased_process::Inherit;
pub(crate) use code::option_warning;
pub use discover::Environment;
pub use env_file::EnvFile;
pub use error::{ConfigError, Problem};
pub use progress::ProgressPattern;
pub use socket_paths::{PathFacts, SocketPaths, SocketVariables};
pub use users::Users;

/// Bytes of a configuration file: far more than one needs, little enough to be read at once.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A configuration that can be used: every value present and within its limits.
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
    /// `[[tool]]`, in the order of the file; no name twice.
    pub tools: Vec<Tool>,
}

/// `[daemon]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Where durable tasks are kept; absolute.
    pub state_dir: PathBuf,
    /// Whether they are.
    pub store: Keeping,
    /// Bytes kept free for what is owed when the disk is full.
    pub store_reserve: usize,
    /// How long a store that did not take a write is left alone.
    pub store_retry: Duration,
    /// What becomes of a damaged store.
    pub damaged_store: Damaged,
    /// Jobs that run at once.
    pub workers: usize,
    /// Jobs that wait for a worker at most.
    pub queue: usize,
    /// From SIGTERM to the end, for everything.
    pub shutdown_grace: Duration,
    /// What becomes of a plain call whose peer is gone, if its tool does not say.
    pub on_disconnect: OnDisconnect,
    /// What separates commands from other processes, if their tool does not say.
    pub isolation: Isolation,
    /// Directories below which clients choose where a tool runs; empty: the home of the caller.
    pub roots: Vec<PathBuf>,
    /// How long a requestor that wants progress is told nothing at most; `None`: no heartbeat.
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
}

/// Where tasks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// On the disk by a daemon that goes on when its peers leave, in memory by one that does not.
    Auto,
    /// On the disk.
    Disk,
    /// In memory.
    Memory,
}

/// Where peers come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket.
    Unix {
        /// The socket; absolute, at most 107 bytes.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The group its file belongs to; that of the daemon when `None`.
        group: Option<u32>,
        /// Users that may connect, of those that can open it; all of them when `None`.
        allow: Option<Users>,
    },
    /// A TCP port: on a loopback address unless there are tokens and no anonymous peers.
    Tcp {
        /// The address; port 0 lets the system choose.
        address: SocketAddr,
        /// Names and tokens; not read here.
        token_file: Option<PathBuf>,
        /// Whether peers without a token are served, as anonymous ones.
        anonymous: bool,
    },
    /// The standard input and output of the daemon.
    Stdio,
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections of one identity at once; all but an eighth if `None`.
    pub connections_per_identity: Option<usize>,
    /// Connections that each operator can have however many others there are.
    pub operator_connections: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// How deep arrays and objects of one message may nest.
    pub json_depth: usize,
    /// Unanswered requests of one connection.
    pub inflight_per_connection: usize,
    /// Tasks of one identity that are not terminal.
    pub tasks_per_identity: usize,
    /// Terminal tasks of one identity that are kept.
    pub stored_tasks_per_identity: usize,
    /// Bytes of the kept results of one identity.
    pub stored_bytes_per_identity: usize,
    /// Bytes of the largest result that is kept in memory as well as in the store.
    pub resident_result_bytes: usize,
    /// Task requests of one identity a second.
    pub task_ops_per_second: u32,
    /// Jobs of one identity that run at once; all but an eighth of the workers if `None`.
    pub workers_per_identity: Option<usize>,
    /// Jobs of one identity that wait for a worker at most; seven eighths of the queue if `None`.
    pub queue_per_identity: Option<usize>,
    /// Calls of one identity with an idempotency key that are remembered.
    pub idempotency_keys_per_identity: usize,
    /// How long the answer to such a call is remembered.
    pub idempotency_ttl: Duration,
    /// Bytes of output of ended jobs that are kept.
    pub output_bytes: usize,
    /// Of those, bytes of one identity.
    pub output_bytes_per_identity: usize,
    /// Unsent bytes of one connection past which new requests are refused; closed past twice this.
    pub write_buffer_bytes: usize,
    /// How long a peer may take nothing of what it was sent before it is closed.
    pub write_stall: Duration,
    /// How long a peer may take to present its token where one is wanted.
    pub authenticate_within: Duration,
    /// How long a TCP peer may take for one message.
    pub frame_time: Duration,
    /// Bytes of messages that have begun and not ended, of all peers together.
    pub partial_bytes: usize,
    /// Of those, bytes of one identity, or of one network address without one; half of them, and
    /// one message at least, if `None`.
    pub partial_bytes_per_identity: Option<usize>,
    /// Questions of one job that wait for an answer.
    pub asks_per_job: usize,
    /// Calls of one identity that wait for it to come back with what they asked (MOD-07).
    pub parked_per_identity: usize,
    /// How long such a call waits.
    pub parked_for: Duration,
    /// Subscriptions of one connection (MOD-08).
    pub subscriptions_per_connection: usize,
    /// Tasks one subscription names.
    pub tasks_per_subscription: usize,
}

/// `[tasks]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// The ttl of a task that asks for none; whole milliseconds go on the wire.
    pub default_ttl: Duration,
    /// The longest ttl that is granted.
    pub max_ttl: Duration,
    /// What becomes of a task that still runs at its ttl.
    pub on_ttl: OnTtl,
    /// How long the result of such a task is kept.
    pub late_result: Duration,
    /// The ttl of a task whose peer has no identity and asks for none.
    pub anonymous_ttl: Duration,
    /// How often a requestor is told to poll.
    pub poll_interval: Duration,
    /// Tasks on one page of `tasks/list`.
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
    /// What the audit log has of each call.
    pub calls: RecordCalls,
    /// Names of arguments whose values are not recorded; `*` stands for any characters.
    pub redact: Vec<String>,
}

/// What the audit log has of each call.
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
    /// Where Prometheus reads them of `ceased serve`: a Unix socket or a loopback address; None:
    /// nowhere.
    pub listen: Option<Address>,
}

/// `[alerts]`: what raises a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// Percent of a limit that what it bounds may reach; 0: no warnings.
    pub high_water: u8,
    /// How long a job that was told to stop may take.
    pub slow_stop: Duration,
    /// How long the next two are counted.
    pub window: Duration,
    /// Requests of one identity for tasks it has not; 0: no warnings.
    pub unknown_tasks: u32,
    /// Requests of one identity for a task before `poll_interval` has passed; 0: no warnings.
    pub fast_polls: u32,
}

/// Lowest level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

/// `[[tool]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// What it is called: 1 to 128 of `A-Z a-z 0-9 _ . -`.
    pub name: String,
    /// What people see.
    pub title: Option<String>,
    /// What models see.
    pub description: Option<String>,
    /// What it does.
    pub run: Run,
    /// Whether it changes nothing ([`ceased_core::tool::Tool::read_only`]).
    pub read_only: bool,
    /// Further hints for clients.
    pub hints: ToolHints,
    /// A picture for people: an `https:` or `data:` URI.
    pub icon: Option<String>,
    /// Whether it can be called as a task.
    pub task_support: TaskSupport,
    /// How long a call may take.
    pub timeout: Duration,
    /// What it takes.
    pub arguments: Arguments,
    /// What its requestor is asked before it runs.
    pub confirm: Option<Template>,
    /// How long a requestor that wants progress is told nothing at most; `None`: no heartbeat.
    pub heartbeat: Option<Duration>,
    /// What becomes of a plain call whose peer is gone.
    pub on_disconnect: OnDisconnect,
    /// Identities that may use it.
    pub allow: Allow,
}

/// What a tool does when it is called.
#[derive(Debug, Clone, PartialEq)]
pub enum Run {
    /// Something in this process.
    Builtin(Builtin),
    /// A program.
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
    /// The command; [`CommandTemplate::fill`] makes the command line of a call.
    pub template: CommandTemplate,
    /// From SIGTERM to SIGKILL.
    pub kill_grace: Duration,
    /// Bytes of output that are kept of each stream: its head and its tail.
    pub max_output: usize,
    /// As which user it runs; `None` where nothing is said.
    pub run_as: Option<RunAs>,
    /// What separates it from the other processes of its user.
    pub isolation: Isolation,
    /// What it inherits of the daemon's environment.
    pub inherit: Inherit,
    /// A file of further variables.
    pub env_file: Option<EnvFile>,
    /// How its output shows its progress.
    pub progress: Option<ProgressPattern>,
    /// Output that its result shows.
    pub output: Output,
    /// What a JSON object that it prints must be.
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
    /// What becomes of its output.
    pub(crate) fn output_options(&self) -> OutputOptions {
        let progress = self.progress.clone().map(|it| Arc::new(it) as Arc<dyn ReadProgress>);
        let merged = self.output == Output::Combined;
        OutputOptions { lines: true, progress, merged, ..OutputOptions::kept(self.max_output) }
    }

    /// The variables of its file.
    ///
    /// # Errors
    /// When that was never read.
    pub(crate) fn variables(&self) -> Result<Vec<(OsString, OsString)>, String> {
        let variables = self.env_file.as_ref().map(EnvFile::variables).transpose()?;
        Ok(env_file::for_launch(variables.unwrap_or_default()))
    }
}

/// As which user a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    /// The daemon's own, whoever calls.
    Daemon,
    /// The one who calls.
    Peer,
    /// This one, whoever calls.
    User(u32),
}

impl Default for Daemon {
    fn default() -> Self {
        Self::default_in(&Environment::of_process())
    }
}

impl Default for Config {
    /// What an empty file gives.
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
            tools: Vec::new(),
        }
    }

    /// The file to use; see [`Environment::locate`].
    ///
    /// # Errors
    /// When a file that was asked for by name does not exist.
    pub fn locate(explicit: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
        Environment::of_process().locate(explicit)
    }

    /// The socket of a daemon that is not told another one; see [`Environment::socket`].
    #[must_use]
    pub fn default_socket() -> PathBuf {
        Environment::of_process().socket()
    }

    /// The first Unix socket it listens on, where clients look for the daemon.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.listen.iter().find_map(|listen| match listen {
            Listen::Unix { path, .. } => Some(path.as_path()),
            Listen::Tcp { .. } | Listen::Stdio => None,
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
    /// When it cannot be read, others than root and the user of this process can have written it,
    /// it is larger than [`FILE_BYTES_MAX`], is not UTF-8, or as [`Self::parse`] and
    /// [`Self::read_env_files`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_bytes(Self::read(path)?, path)
    }

    /// Reads the bytes of a file, and nothing of what is in it.
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
                fail(what, "is it the right file?")
            }
            Err(Unfit::Io(why)) => {
                fail(format!("cannot read the configuration: {why}"), "name another file")
            }
            Err(Unfit::Refused { what, remedy }) => {
                fail(format!("the configuration is not taken: {what}"), &remedy)
            }
        }
    }

    /// The configuration in the bytes of the file `path`, with the files that it names.
    ///
    /// # Errors
    /// When they are not UTF-8, or as [`Self::parse`] and [`Self::read_env_files`].
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

    /// Reads the `env_file` of every tool that has one.
    ///
    /// # Errors
    /// When one cannot be read, others than root and the user of this process can have written it,
    /// or a line of it is no variable.
    pub fn read_env_files(&mut self) -> Result<(), ConfigError> {
        for tool in &mut self.tools {
            if let Run::Command(command) = &mut tool.run
                && let Some(file) = &mut command.env_file
            {
                file.read()?;
            }
        }
        Ok(())
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
    /// Everything that is wrong with it, each with its line and a hint.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_in(text, path, &Environment::of_process())
    }

    /// As [`Self::parse`], for a user with this environment.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_in(
        text: &str,
        path: &Path,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(path).map_err(|why| {
            let what = format!("cannot tell which directory this is in: {why}");
            ConfigError::of_file(path, what, "name it by its absolute path")
        })?;
        let mut check = check::Checker {
            text,
            file: path,
            dir: absolute.parent().unwrap_or(Path::new("/")),
            environment,
            problems: Vec::new(),
        };
        let raw = raw::read(&mut check);
        let limits = sections::limits(&raw.limits, &mut check);
        let daemon = sections::daemon(&raw.daemon, &mut check);
        let listen = listen::listeners(&raw.listen, &mut check);
        let config = Self {
            tasks: sections::tasks(&raw.tasks, &mut check),
            log: sections::log(&raw.log, &mut check),
            metrics: monitoring::metrics(&raw.metrics, &listen, &mut check),
            alerts: monitoring::alerts(&raw.alerts, &mut check),
            tools: tool::tools(raw.tools, &limits, &daemon, &mut check),
            listen,
            daemon,
            limits,
        };
        if check.problems.is_empty() { Ok(config) } else { Err(ConfigError::new(check.problems)) }
    }
}

pub(crate) mod discover;
#[cfg(test)]
mod tests;
