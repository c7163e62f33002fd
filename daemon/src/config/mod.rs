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
#[cfg(feature = "config")]
mod entry;
mod env_file;
mod error;
mod fleet;
#[cfg(feature = "config")]
mod forms;
#[cfg(feature = "config")]
mod identities;
#[cfg(feature = "config")]
mod input;
#[cfg(feature = "config")]
mod json;
mod keys;
#[cfg(feature = "config")]
mod kinds;
mod launch;
#[cfg(feature = "config")]
mod listen;
#[cfg(feature = "config")]
mod listen_access;
mod monitoring;
mod oauth;
mod on_end;
#[cfg(feature = "config")]
mod profile_table;
mod progress;
#[cfg(feature = "config")]
mod raw;
mod remote_server;
mod sections;
mod server;
#[cfg(feature = "config")]
mod server_table;
#[cfg(feature = "config")]
mod server_url;
mod socket_paths;
#[cfg(feature = "config")]
mod table;
#[cfg(feature = "config")]
mod tool;
pub(crate) mod units;
mod users;
#[cfg(feature = "config")]
mod values;
mod variables;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::policy::access::Profile;
use ceased_core::policy::allow::Allow;
use ceased_core::tool::{OnDisconnect, TaskSupport, ToolHints};

use crate::owned_file::{self, Secrecy, Unfit};
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
pub(crate) use keys::Declared;
pub use launch::Launch;
pub use monitoring::{Alerts, Metrics, Otlp};
pub use oauth::{Jwks, OAuth, TlsFiles};
pub use on_end::OnEnd;
pub use progress::ProgressPattern;
pub use remote_server::{Oauth, RemoteServer};
pub use sections::{Daemon, Limits, Log, Tasks};
pub use server::{SERVER_NAME_MAX, Server, prefix_of};
pub use socket_paths::{PathFacts, SocketPaths, SocketVariables};
#[cfg(feature = "config")]
use table::Table;
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
        let of_servers =
            self.servers.iter_mut().filter_map(|server| server.launch.env_file.as_mut());
        let of_agents = self.agents.iter_mut().filter_map(|agent| agent.launch.env_file.as_mut());
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
        let file = table::file(&mut check);
        let check = &mut check;
        let limits = Limits::read(&mut Table::of(&file, Limits::HEADING, check));
        let daemon = Daemon::read(&mut Table::of(&file, Daemon::HEADING, check));
        let listen: Vec<(usize, raw::Listen)> = table::items(&file, "[[listen]]", check);
        check.has_issuer = listen.iter().any(|(_, listen)| listen.tokens.issuer.is_some());
        let listen = listen::listeners(&listen, check);
        let tools = tool::tools(table::items(&file, "[[tool]]", check), &limits, &daemon, check);
        let servers = table::items(&file, "[[server]]", check);
        let servers = server_table::servers(servers, &tools, &daemon, check);
        let agents = table::items(&file, "[[agent]]", check);
        let agents = agent_table::agents(agents, &servers, &daemon, check);
        let profiles = table::items(&file, "[[profile]]", check);
        let otlp = Table::written(&file, Otlp::HEADING, check);
        let otlp = otlp.and_then(|mut table| Otlp::read_whole(&mut table));
        let fleet = Table::written(&file, Fleet::HEADING, check);
        let fleet = fleet.and_then(|mut table| Fleet::read_whole(&mut table));
        let config = Self {
            tasks: Tasks::read_checked(&mut Table::of(&file, Tasks::HEADING, check)),
            log: Log::read(&mut Table::of(&file, Log::HEADING, check)),
            metrics: Metrics::read_beside(&listen, &mut Table::of(&file, Metrics::HEADING, check)),
            alerts: Alerts::read(&mut Table::of(&file, Alerts::HEADING, check)),
            otlp,
            fleet,
            start_at_once: server_table::start_at_once(&mut Table::of(&file, "[servers]", check)),
            profiles: profile_table::profiles(&profiles, &servers, check),
            agents,
            servers,
            tools,
            listen,
            daemon,
            limits,
        };
        let problems = std::mem::take(&mut check.problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError::new(problems)) }
    }
}

/// The keys of tables that the file has once, and whether each is read at the start alone.
#[cfg(all(test, feature = "config"))]
pub(crate) fn declared_keys() -> Vec<(&'static str, bool)> {
    [Daemon::KEYS, Limits::KEYS, Tasks::KEYS, Log::KEYS, Metrics::KEYS, Alerts::KEYS].concat()
}

pub(crate) mod discover;
#[cfg(all(test, feature = "config"))]
mod tests;
