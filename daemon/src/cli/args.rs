//! Definition of the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ceased_core::tool::TaskSupport;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use super::adopt_args::{AdoptArgs, ImportArgs};
use super::argument_values::{duration, duration_or_none, host_and_port, message_bytes};
#[cfg(feature = "probe")]
use super::probe::args::{ProbeArgs, ProbeServerArgs};
use super::{EngineFiles, completion};
use crate::config::Level;
use crate::wrap::WrapOptions;
use ceased_core::upstream::server::Watchdogs;
use ceased_core::upstream::spoken::Revision;

/// The parsed arguments.
#[derive(Debug, Parser)]
#[command(
    name = "ceased",
    version,
    about = "Ends everything that a cancelled MCP call has started.",
    after_help = "Exit codes: 0 done, 1 the tool failed or the daemon refused, 2 wrong use or \
                  wrong config, 3 no daemon reachable, 4 the task is unknown, 74 the state \
                  directory or the store in it cannot be used, 75 another daemon uses the state \
                  directory, 124 timed out, 130 cancelled by the user.\n\
                  Results go to stdout, everything else to stderr. Control characters from a \
                  server are escaped, except in a result whose stdout is not a terminal: that \
                  one is written as it came."
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the daemon in the foreground until SIGTERM or SIGINT
    #[command(visible_alias = "start")]
    Serve(ServeArgs),
    /// Serve one peer on stdin and stdout, without a daemon; for an MCP host's `command`
    Stdio(EngineArgs),
    /// Stand in front of an existing MCP server or ACP agent on stdin and stdout, so that its
    /// cancelled calls and turns end
    Wrap(WrapArgs),
    #[cfg(feature = "probe")]
    /// Check how an MCP server cancels, ends and cleans up: each check starts it anew, contained
    Probe(Box<ProbeArgs>),
    /// Bridge stdin and stdout to a running daemon, byte for byte
    Connect(ConnectArgs),
    /// Call a tool: progress on stderr, the result on stdout; Ctrl-C cancels it properly
    Call(CallArgs),
    /// Run a command as a job of the daemon, as this user; Ctrl-C cancels it properly
    Run(RunArgs),
    /// List the tools, or show the arguments of one
    #[command(visible_alias = "list")]
    Tools(ToolsArgs),
    /// List the tasks
    Tasks(ListArgs),
    /// Show one task
    Get(GetArgs),
    /// Wait for a task and print its result; Ctrl-C ends the wait, not the task
    Result(ResultArgs),
    /// Cancel tasks or jobs, and wait until their processes are gone
    #[command(visible_alias = "kill")]
    Cancel(CancelArgs),
    /// Print a line whenever a task changes, until it ends; without ID for all, until Ctrl-C
    Watch(WatchArgs),
    /// Print the output of a job or of a server, while it runs and afterwards
    #[command(visible_alias = "log")]
    Logs(LogsArgs),
    /// Show the activity of the daemon: connections, jobs, tasks, limits, counters
    Status(ListArgs),
    /// List running jobs with their processes, owner, age and cancel state
    Ps(PsArgs),
    #[cfg(feature = "top")]
    /// Show the same live, full screen; jobs can be inspected and cancelled
    Top(TopArgs),
    /// Print a link that opens the live view in a browser of this machine, as this user
    View(ControlArgs),
    /// List the MCP servers behind the daemon with their instances, processes, calls and counts
    Servers(ListArgs),
    #[cfg(feature = "tls")]
    /// Log in to an MCP server by URL, in a browser; the daemon keeps and renews the tokens
    Login(LoginArgs),
    #[cfg(feature = "tls")]
    /// End a login, at the server and here
    Logout(LogoutArgs),
    /// Replace the processes of an MCP server or agent; those at work finish their calls first
    Restart(RestartArgs),
    /// Show the tools of an MCP server that differ from the approved ones, and approve them
    Approve(ApproveArgs),
    /// Have the daemon read its config again; a wrong one changes nothing
    Reload(ControlArgs),
    /// Have the daemon take no further work and end when the running work has ended
    Drain(ControlArgs),
    /// Show the daemons that share one table of tasks, and the database with it
    Fleet(FleetArgs),
    /// Shut the daemon down and wait until it and everything it ran has ended
    Stop(ControlArgs),
    /// Write a first config with the build, tests and checks of the project in this directory
    Init(InitArgs),
    /// Put `ceased wrap` in front of the MCP servers in a host's configuration, or take it back
    Adopt(AdoptArgs),
    /// Print the MCP servers in a host's configuration as [[server]] tables
    Import(ImportArgs),
    /// Validate a config file and print its tools
    Check(CheckArgs),
    /// Offer the tools of ./ceased.toml in `ceased stdio` there, until the file changes
    Trust(TrustArgs),
    /// Maintain the tasks on disk while no daemon uses them
    Store(StoreArgs),
    /// Print a script that completes command lines of ceased in a shell
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
    #[cfg(feature = "probe")]
    /// The server that a client gets in a probe
    #[command(hide = true)]
    ProbeServer(ProbeServerArgs),
}

/// Selection of the config.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Config file [default: $CEASED_CONFIG, $XDG_CONFIG_HOME/ceased/config.toml,
    /// /etc/ceased/config.toml]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
}

/// `check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Config file, as with --config
    #[arg(value_name = "FILE", conflicts_with = "config", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Also try the database of [fleet]
    #[arg(long)]
    pub(super) connect: bool,
    /// Also print the view of a caller: an identity such as user:ann, token:ci or
    /// sub:ISSUER#SUBJECT, and with further --as group:NAME and scope:NAME of its token
    #[arg(long = "as", value_name = "CALLER")]
    pub(super) caller: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl CheckArgs {
    /// The file that is named.
    pub(super) fn config(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.config.as_deref())
    }
}

/// `store check`.
#[derive(Debug, Args)]
pub(super) struct StoreCheckArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) engine: EngineArgs,
    /// Exit after this time without connections, jobs and tasks in memory, such as "10m" [default:
    /// never]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(super) idle_exit: Option<Duration>,
    /// Start a new session and rotate the log file that standard error is; used by `connect
    /// --spawn`
    #[arg(long, hide = true, value_name = "LOG")]
    pub(super) own_session: Option<PathBuf>,
}

/// `serve`, `stdio`.
#[derive(Debug, Args)]
pub(super) struct EngineArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Record all input and output of the engine in this new file, for debugging; it contains
    /// everything that peers and tools send
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// A host's file, such as .mcp.json: its MCP servers beside those of the config
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) mcp_servers: Option<PathBuf>,
}

impl EngineArgs {
    /// The files for the daemon.
    pub(super) fn files(&self) -> EngineFiles<'_> {
        EngineFiles {
            config: self.config.config.as_deref(),
            record: self.record.as_deref(),
            mcp_servers: self.mcp_servers.as_deref(),
        }
    }
}

/// `wrap`.
#[derive(Debug, Args)]
pub(super) struct WrapArgs {
    #[command(flatten)]
    agent: WrapAgentArgs,
    /// Name of the server in records and errors [default: the name of its program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Revision in which the server is spoken to: auto (that of the client), session, or a revision
    #[arg(long, value_name = "REVISION", value_parser = server_revision, default_value = "auto")]
    revision: Revision,
    /// Processes of the server: one for the connection, or one for each call
    #[arg(long, value_name = "SCOPE", default_value = "connection")]
    share: WrapShare,
    /// From the protocol's cancel to its enforcement
    #[arg(long, value_name = "DUR", value_parser = duration_or_none, default_value = "2s")]
    cancel_grace: Duration,
    /// Between SIGTERM and SIGKILL
    #[arg(long, value_name = "DUR", value_parser = duration_or_none, default_value = "2s")]
    kill_grace: Duration,
    /// From the start of the server to the end of its handshake
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "60s")]
    start_timeout: Duration,
    /// The longest that one call may take [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    call_timeout: Option<Duration>,
    /// How long a call with a progress token is silent at most; 0s for no heartbeat
    #[arg(long, value_name = "DUR", value_parser = duration_or_none, default_value = "10s")]
    heartbeat: Duration,
    /// Longest message of the client or the server; up to 128MiB
    #[arg(long, value_name = "SIZE", value_parser = message_bytes, default_value = "64MiB")]
    message_bytes: usize,
    /// How long to wait for answers after the end of stdin, and after each answer
    #[arg(long, value_name = "DUR", value_parser = duration_or_none, default_value = "1500ms")]
    eof_grace: Duration,
    /// Whether its tools run as tasks [default: as the server says]
    #[arg(long, value_name = "SUPPORT")]
    task_support: Option<WrapTasks>,
    /// Treatment of a server that goes on with a cancelled call
    #[arg(long, value_name = "ACTION", default_value = "replace")]
    on_ignored_cancel: WrapIgnored,
    /// Variable that is set for the server; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Variable that the server inherits, with --clean-env; may be repeated
    #[arg(long, value_name = "KEY", requires = "clean_env")]
    pass_env: Vec<String>,
    /// Inherit PATH, HOME, LANG, LC_*, TMPDIR, XDG_*, USER, LOGNAME and SHELL alone
    #[arg(long)]
    clean_env: bool,
    /// Write the audit log to this file
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Level of the log on stderr
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    log_level: Option<Level>,
    /// Program of the server and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND",
          value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// `--share` of `wrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WrapShare {
    Connection,
    Call,
}

/// `--task-support` of `wrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WrapTasks {
    Forbidden,
    Optional,
    Required,
}

/// `--on-ignored-cancel` of `wrap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WrapIgnored {
    Replace,
    Leave,
}

impl WrapArgs {
    /// The options for the daemon.
    pub(super) fn options(&self) -> WrapOptions {
        WrapOptions {
            acp: self.agent.acp,
            watchdogs: self.agent.watchdogs(),
            command: self.command.clone(),
            name: self.name.clone(),
            revision: self.revision.clone(),
            instance_per_call: self.share == WrapShare::Call,
            cancel_grace: self.cancel_grace,
            kill_grace: self.kill_grace,
            start_timeout: self.start_timeout,
            call_timeout: self.call_timeout,
            heartbeat: (!self.heartbeat.is_zero()).then_some(self.heartbeat),
            message_bytes: self.message_bytes,
            eof_grace: self.eof_grace,
            task_support: self.task_support.map(|support| match support {
                WrapTasks::Forbidden => TaskSupport::Forbidden,
                WrapTasks::Optional => TaskSupport::Optional,
                WrapTasks::Required => TaskSupport::Required,
            }),
            leave_ignored_cancel: self.on_ignored_cancel == WrapIgnored::Leave,
            env: self.env.iter().cloned().collect(),
            pass_env: self.pass_env.clone(),
            clean_env: self.clean_env,
            audit: self.audit.clone(),
            log_level: self.log_level,
        }
    }
}

/// Options of `wrap` for an ACP agent.
#[derive(Debug, Args)]
struct WrapAgentArgs {
    /// The command is an ACP agent instead of an MCP server
    #[arg(
        long,
        conflicts_with_all = ["share", "revision", "call_timeout", "task_support", "heartbeat"]
    )]
    acp: bool,
    /// The longest that one prompt turn may take [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration, requires = "acp")]
    turn_timeout: Option<Duration>,
    /// How long a prompt turn may go on without an update, CPU time of the agent's processes, or a
    /// question to the client [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration, requires = "acp")]
    stall_timeout: Option<Duration>,
}

impl WrapAgentArgs {
    const fn watchdogs(&self) -> Watchdogs {
        Watchdogs { turn: self.turn_timeout, stall: self.stall_timeout }
    }
}

/// A revision of a server, or a word for several.
fn server_revision(text: &str) -> Result<Revision, String> {
    let words = || Revision::words().collect::<Vec<_>>().join(", ");
    Revision::of(text).ok_or_else(|| format!("it takes one of {}", words()))
}

/// A variable written as `KEY=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like KEY=VALUE")?;
    if key.is_empty() {
        return Err("the name before = is empty".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn log_level(text: &str) -> Result<Level, String> {
    Ok(match text {
        "off" => Level::Off,
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => return Err("it is off, error, warn, info, debug or trace".to_owned()),
    })
}

/// Selection of the daemon.
#[derive(Debug, Args)]
#[command(next_help_heading = "Finding the daemon")]
pub(super) struct DaemonArgs {
    /// Unix socket of the daemon [default: $CEASED_SOCKET, the first Unix listener of the config,
    /// $XDG_RUNTIME_DIR/ceased/ceased.sock, the same in /run/user/UID,
    /// ~/.local/state/ceased/run/ceased.sock, /run/ceased/ceased.sock]
    #[arg(short, long, value_name = "PATH", conflicts_with = "tcp")]
    pub(super) socket: Option<PathBuf>,
    /// TCP address of the daemon
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(super) tcp: Option<String>,
    /// File with the token for --tcp, alone or as `name token` [default: $CEASED_TOKEN]
    #[arg(long, value_name = "FILE", requires = "tcp")]
    pub(super) token_file: Option<PathBuf>,
    /// Config file whose first Unix listener is the daemon's
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,
}

/// `connect`.
#[derive(Debug, Args)]
pub(super) struct ConnectArgs {
    /// Start a daemon of this user if none runs; it exits after ten minutes without use
    #[arg(long, conflicts_with_all = ["socket", "tcp"])]
    pub(super) spawn: bool,
    /// Show this [[server]] of the daemon alone, without its prefix; may be repeated, then with
    /// prefixes
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::servers))]
    pub(super) server: Vec<String>,
    /// Speak ACP to a process of this [[agent]] of the daemon, which ends with the connection
    #[arg(long, value_name = "NAME", conflicts_with = "server",
        add = ArgValueCompleter::new(completion::agents))]
    pub(super) agent: Option<String>,
    /// Show the view of this [[profile]] of the daemon alone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["server", "agent"])]
    pub(super) profile: Option<String>,
    /// Command that the bridge took the place of, after `--`; kept for `ceased adopt --undo`, without
    /// effect
    #[arg(last = true, hide = true, requires = "server")]
    pub(super) _replaced: Vec<OsString>,
    /// How long to wait for answers after the end of stdin [default: `daemon.eof_grace` of the
    /// config]
    #[arg(long, value_name = "DUR", value_parser = duration_or_none)]
    pub(super) eof_grace: Option<Duration>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `trust`.
#[derive(Debug, Args)]
pub(super) struct TrustArgs {
    /// The file [default: ./ceased.toml]
    pub(super) file: Option<PathBuf>,
    /// List the trusted files, and which of them have changed
    #[arg(long, conflicts_with_all = ["file", "revoke"])]
    pub(super) list: bool,
    /// Trust it no longer
    #[arg(long)]
    pub(super) revoke: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// `store`.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    pub(super) command: StoreCommand,
}

/// A command of `store`.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Read the whole store and report whether it is intact; changes nothing
    Check(StoreCheckArgs),
}

/// `fleet`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    pub(super) command: Option<FleetCommand>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// A command of `fleet`.
#[derive(Debug, Subcommand)]
pub(super) enum FleetCommand {
    /// Create the tables in the database, with a role that may
    Init(FleetInitArgs),
}

/// `fleet init`.
#[derive(Debug, Args)]
pub(super) struct FleetInitArgs {
    /// Address of the database [default: that of the config]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub(super) database: Option<String>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// `completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    pub(super) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Target directory; created if missing
    pub(super) dir: PathBuf,
}

/// `tools`.
#[derive(Debug, Args)]
pub(super) struct ToolsArgs {
    /// Name of the tool [default: all tools]
    #[arg(add = ArgValueCompleter::new(completion::tools))]
    pub(super) name: Option<String>,
    /// List the tools of this [[profile]] of the daemon alone
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    pub(super) profile: Option<String>,
    #[command(flatten)]
    pub(super) list: ListArgs,
}

/// `tasks`, `status`, `ps`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print one JSON document, as the server wrote it
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `ps`.
#[derive(Debug, Args)]
pub(super) struct PsArgs {
    /// Also the calls that have ended, with their outcomes and receipts
    #[arg(short, long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) list: ListArgs,
}

/// `init`.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Write ./ceased.toml for this project alone, and trust it, instead of the user's config
    #[arg(long)]
    pub(super) project: bool,
    /// Print the tools and write nothing
    #[arg(long)]
    pub(super) print: bool,
    /// Do not run each tool once first
    #[arg(long)]
    pub(super) no_run: bool,
    /// How long each tool may run, such as "90s" or "10m" [default: 30m]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// `restart`.
#[derive(Debug, Args)]
pub(super) struct RestartArgs {
    /// Name of the server or agent
    #[arg(add = ArgValueCompleter::new(completion::servers_and_agents))]
    pub(super) server: String,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `approve`.
#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// Name of the server
    #[arg(add = ArgValueCompleter::new(completion::servers))]
    pub(super) server: String,
    /// Approve the differences that were shown with this number; without it they are only shown
    #[arg(long, value_name = "N")]
    pub(super) revision: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `login`.
#[cfg(feature = "tls")]
#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    /// Name of the server
    #[arg(add = ArgValueCompleter::new(completion::servers))]
    pub(super) server: String,
    /// Id of a client that was registered by hand [default: `oauth` of the server, or a new one]
    #[arg(long, value_name = "ID")]
    pub(super) client_id: Option<String>,
    /// A host's file that has the server, as of `ceased stdio --mcp-servers`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) mcp_servers: Option<PathBuf>,
    /// Open no browser; the address that a browser elsewhere ends at can be pasted
    #[arg(long)]
    pub(super) no_browser: bool,
    /// Print one JSON document; the address goes to stderr
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `logout`.
#[cfg(feature = "tls")]
#[derive(Debug, Args)]
pub(super) struct LogoutArgs {
    /// Name of the server
    #[arg(add = ArgValueCompleter::new(completion::servers))]
    pub(super) server: String,
    /// A host's file that has the server, as of `ceased stdio --mcp-servers`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) mcp_servers: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `reload`, `drain`, `stop`, `view`.
#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `top`.
#[cfg(feature = "top")]
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Refresh interval, such as "500ms" [default: 1s]
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(super) every: Option<Duration>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `call`.
#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// Name of the tool
    #[arg(add = ArgValueCompleter::new(completion::tools))]
    pub(super) tool: String,
    /// Arguments, converted as the tool's input schema says; KEY:=JSON for a value in JSON
    #[arg(value_name = "KEY=VALUE", add = ArgValueCompleter::new(completion::pairs))]
    pub(super) pairs: Vec<String>,
    /// Print the result as one JSON document, as the server wrote it
    #[arg(long)]
    pub(super) json_result: bool,
    /// Arguments as one JSON object; KEY=VALUE overrides its members
    #[arg(long, value_name = "OBJECT")]
    pub(super) json: Option<String>,
    /// Run it as a task, whose result can be fetched again later
    #[arg(long)]
    pub(super) task: bool,
    /// Start a task, print its id and exit
    #[arg(short, long, conflicts_with = "timeout")]
    pub(super) detach: bool,
    /// Cancel it after this time, such as "90s" or "1h 30m", and exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "The daemon must allow it: allow_run = true in [daemon] of its config. The \
                        command starts in this directory, with the PATH of this process and \
                        otherwise the clean environment of tools. It has the standard streams of this \
                        process; with --json, over TCP or with isolation = \"pid\" its output is the \
                        result. The exit code is that of the command, 128 and the signal if one ended it, \
                        127 if the program is not there."
)]
pub(super) struct RunArgs {
    /// Start it as a task, print its id and exit
    #[arg(short, long, conflicts_with = "timeout")]
    pub(super) detach: bool,
    /// Cancel it after this time, such as "90s" or "1h 30m", and exit with 124
    #[arg(short, long, value_name = "DUR", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    /// Variable that is set for the command; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = variable)]
    pub(super) env: Vec<(String, String)>,
    /// Print the result, or with --detach the task, as one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND",
          value_hint = clap::ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

/// `get`.
#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Id of the task, or the beginning of it, or job:N
    #[arg(add = ArgValueCompleter::new(completion::ids))]
    pub(super) id: String,
    /// Print one JSON document, as the server wrote it
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `result`.
#[derive(Debug, Args)]
pub(super) struct ResultArgs {
    /// Id of the task, or the beginning of it, or job:N
    #[arg(add = ArgValueCompleter::new(completion::ids))]
    pub(super) id: String,
    /// Print one JSON document, as the server wrote it
    #[arg(long)]
    pub(super) json: bool,
    /// Wait no longer than this and exit with 124; the task continues
    #[arg(short, long, value_name = "DUR", value_parser = duration)]
    pub(super) timeout: Option<Duration>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `cancel`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["ids", "job", "all", "tool", "user"]).multiple(true))]
pub(super) struct CancelArgs {
    /// Ids of tasks, or the beginnings of them, or job:N
    #[arg(value_name = "ID", conflicts_with_all = ["job", "all", "tool", "user"],
          add = ArgValueCompleter::new(completion::cancellable))]
    pub(super) ids: Vec<String>,
    /// The job of this number, as `ceased ps` shows it
    #[arg(long, value_name = "N", conflicts_with_all = ["all", "tool", "user"], add = ArgValueCompleter::new(completion::jobs))]
    pub(super) job: Option<u64>,
    /// Every job: of all users for an operator, one's own otherwise
    #[arg(long, conflicts_with_all = ["tool", "user"])]
    pub(super) all: bool,
    /// The jobs of a tool
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::tools))]
    pub(super) tool: Option<String>,
    /// The jobs of a user, by name or number, or of an identity such as token:ci
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::users))]
    pub(super) user: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// Why, for the daemon's log
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The job, as `job:7` or `7`, or the id of its task, or the name of a server
    #[arg(add = ArgValueCompleter::new(completion::ids))]
    pub(super) id: String,
    /// Go on until the job has ended, for a server until Ctrl-C
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Begin with the last N lines that are kept
    #[arg(long, value_name = "N")]
    pub(super) tail: Option<usize>,
    /// Begin with the output of this last time, such as "90s" or "10m"
    #[arg(long, value_name = "DUR", value_parser = duration)]
    pub(super) since: Option<Duration>,
    /// Print a JSON document for each line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}

/// `watch`.
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Id of the task, or the beginning of it, or job:N [default: all tasks]
    #[arg(add = ArgValueCompleter::new(completion::ids))]
    pub(super) id: Option<String>,
    /// Print a JSON document for each line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
}
