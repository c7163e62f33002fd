//! The command line of `ceased`: client commands, and the entry points of the daemon.
//!
//! [`run`] executes one command on given streams; [`main`] passes those of the process. Functions
//! of the daemon are behind [`Backend`].

mod adopt;
mod adopt_args;
mod adopt_targets;
mod approve;
mod args;
mod argument_values;
mod arguments;
mod browser;
mod call;
mod cancel_jobs;
mod command_line;
mod completion;
mod connect;
mod control;
mod directory;
mod display;
mod fleet;
mod format;
mod generate;
mod host_entry;
mod import;
mod init;
mod job_output;
mod live_output;
mod local_time;
#[cfg(feature = "tls")]
mod login;
mod logs;
mod output;
#[cfg(feature = "probe")]
mod probe;
mod project_tools;
mod project_trust;
mod ps;
mod run;
mod run_streams;
mod server_logs;
mod servers;
mod shared_servers;
mod spawn;
mod status;
mod survivors;
mod table;
mod tasks;
mod tools;
#[cfg(feature = "top")]
mod top;
mod view;
mod watch;
mod written_file;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, LineWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::config::{Environment, SocketPaths};
use crate::stderr::TimedStderr;
use crate::wrap::WrapOptions;
use args::{Arguments, Command, StoreArgs, StoreCommand};
use ceased_client::{Error, Interrupts, Refusal};
use ceased_process::Containment;
pub use fleet::{FleetNode, FleetView};
use format::{clean, is_timeout};
use output::Output;

/// Exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: success.
    Done,
    /// 1: the tool failed, or the daemon rejected the request.
    Failed,
    /// 2: invalid arguments or config.
    Usage,
    /// 3: no daemon reachable, or the connection was lost.
    Unreachable,
    /// 4: the task is unknown.
    UnknownTask,
    /// 74: the store or its directory cannot be used.
    Store,
    /// 75: another daemon uses the state directory.
    Occupied,
    /// 124: timed out.
    TimedOut,
    /// 130: cancelled by the user.
    Cancelled,
    /// The exit code of a command that `ceased run` ran.
    OfCommand(u8),
}

impl Exit {
    /// The numeric exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::UnknownTask => 4,
            Self::Store => 74,
            Self::Occupied => 75,
            Self::TimedOut => 124,
            Self::Cancelled => 130,
            Self::OfCommand(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Functions that need the daemon in the build. `config` is the value of `--config`; `None` means
/// the default paths.
pub trait Backend {
    /// `ceased serve`, until a signal ends it.
    fn serve(&self, files: EngineFiles<'_>, life: ServeOptions) -> Exit;

    /// `ceased stdio`, until its peer disconnects.
    fn stdio(&self, files: EngineFiles<'_>) -> Exit;

    /// `ceased wrap`, until its client disconnects.
    fn wrap(&self, options: &WrapOptions) -> Exit;

    /// The containment of processes that this program starts for itself.
    ///
    /// # Errors
    /// If no process can be started here.
    fn containment(&self) -> Result<Containment, Failure>;

    /// `ceased check`: writes the verdict to `out` and problems to `err`; with `json` everything to
    /// `out`. `caller`: the elements of `--as`. With `connects` the database of `[fleet]` is tried.
    fn check(
        &self,
        config: Option<&Path>,
        caller: &[String],
        connects: bool,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit;

    /// The database of `[fleet]` and the daemons there, without joining; with `creates` its tables are
    /// created. `database` takes the place of the configured address.
    ///
    /// # Errors
    /// When there is no `[fleet]`, or its database cannot be used.
    fn fleet(
        &self,
        config: Option<&Path>,
        database: Option<&str>,
        creates: bool,
    ) -> Result<FleetView, Failure>;

    /// `ceased store check`: writes the verdict to `out` and damage to `err`; with `json` both to
    /// `out`.
    fn check_store(
        &self,
        config: Option<&Path>,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit;

    /// Settings of this user's daemon.
    ///
    /// # Errors
    /// If there is an invalid config.
    fn site(&self, config: Option<&Path>) -> Result<DaemonLocation, Failure>;

    /// A server in this process for one peer, with a trusted `./ceased.toml` before the usual
    /// configuration; `None` if there is no config. Writes to `err` why the project's file is not
    /// used.
    ///
    /// # Errors
    /// If there is an invalid config, or the server cannot start.
    fn embed(
        &self,
        config: Option<&Path>,
        err: &mut dyn Write,
    ) -> Result<Option<Embedded>, Failure>;

    /// A server in this process with the servers of a host's file beside those of the configuration.
    ///
    /// # Errors
    /// If one of the files is invalid, or the server cannot start.
    fn embed_servers(&self, config: Option<&Path>, file: &Path) -> Result<Embedded, Failure>;

    /// A server in this process with a trusted `./ceased.toml`; `None` if there is none.
    ///
    /// # Errors
    /// If it is invalid, or the server cannot start.
    fn embed_project(&self) -> Result<Option<Embedded>, Failure>;

    /// A server in this process with the text of a configuration, as if it were the file `path`.
    ///
    /// # Errors
    /// When it is wrong, or the server cannot start.
    fn embed_text(&self, text: &str, path: &Path) -> Result<Embedded, Failure>;

    /// Checks the text of a configuration as `serve` would, with the files that it names, as if it
    /// were the file `path`. Returns defects that do not prevent a start.
    ///
    /// # Errors
    /// When `serve` would refuse it.
    fn check_text(&self, text: &str, path: &Path) -> Result<Vec<String>, Failure>;
}

/// Files of `ceased serve` and `ceased stdio`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineFiles<'a> {
    /// The value of `--config`.
    pub config: Option<&'a Path>,
    /// A new file that everything is recorded into.
    pub record: Option<&'a Path>,
    /// A host's file whose servers are offered, too.
    pub mcp_servers: Option<&'a Path>,
}

/// Options of `ceased serve`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeOptions {
    /// Exit after this time without use; `None`: never.
    pub idle_exit: Option<Duration>,
    /// Start a new session and close every descriptor but 0 to 3. Standard error is this file,
    /// which the daemon rotates.
    pub own_session: Option<PathBuf>,
}

/// Settings of this user's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonLocation {
    /// The configuration file; `None` if there is none, and the rest are defaults.
    pub config: Option<PathBuf>,
    /// The first Unix listener.
    pub socket: Option<PathBuf>,
    /// `daemon.eof_grace`.
    pub eof_grace: Duration,
    /// `daemon.shutdown_grace`.
    pub shutdown_grace: Duration,
    /// `daemon.state_dir`, if tasks are kept on disk.
    pub state_dir: Option<PathBuf>,
}

impl Default for DaemonLocation {
    /// Facts that do not need the daemon in the build.
    fn default() -> Self {
        Self {
            config: None,
            socket: None,
            eof_grace: Duration::from_millis(1500),
            shutdown_grace: Duration::from_secs(10),
            state_dir: None,
        }
    }
}

/// A server in this process.
pub struct Embedded {
    /// The peer's end of a connection to it.
    pub stream: UnixStream,
    /// Dropped after `stream`; the drop returns when everything the server started has ended.
    pub server: Box<dyn Send>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Embedded {{ {:?} }}", self.stream)
    }
}

/// Why a command ended early: a message for the user, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The problem, and the remedy on further lines. Printed with a prefix and with control
    /// characters escaped. Empty for no message.
    pub message: String,
}

impl Failure {
    /// A failure with this exit code.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// Prints the message, further lines as hints.
    fn print(&self, io: &mut Io<'_>) {
        for (number, line) in self.message.lines().enumerate() {
            let prefix = if number == 0 { "ceased:" } else { "  hint:" };
            let _ = writeln!(io.err, "{prefix} {}", clean(line));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Unreachable { .. } | Error::Closed | Error::Io(_) => Exit::Unreachable,
            Error::Rpc(rpc) if is_timeout(rpc) => Exit::TimedOut,
            Error::TimedOut(_) => Exit::TimedOut,
            Error::Interrupted => Exit::Cancelled,
            Error::Refused(Refusal::NotOffered(_)) => Exit::Failed,
            Error::Refused(_) => Exit::Usage,
            Error::Rpc(_) | Error::Protocol(_) | _ => Exit::Failed,
        };
        // Text of a server is kept on one line: further lines would look like hints of this
        // program.
        Self::new(exit, clean(&error.to_string()))
    }
}

impl From<io::Error> for Failure {
    /// For failed writes to stdout and stderr. A closed reader is not reported.
    fn from(why: io::Error) -> Self {
        let why = match why.downcast::<Error>() {
            Ok(error) => return error.into(),
            Err(why) => why,
        };
        let message = if why.kind() == io::ErrorKind::BrokenPipe {
            String::new()
        } else {
            format!("cannot write the result: {why}")
        };
        Self::new(Exit::Failed, message)
    }
}

/// Environment variables used by commands.
#[derive(Debug, Clone, Default)]
pub struct Env {
    /// `$CEASED_SOCKET`.
    pub socket: Option<OsString>,
    /// `$CEASED_TOKEN`.
    pub token: Option<String>,
    /// Where daemons listen that are not told another place.
    pub sockets: SocketPaths,
    /// Whether a terminal shows colours: not with `$NO_COLOR` or `TERM=dumb`.
    pub colours: bool,
}

impl Env {
    /// Reads the environment of this process. Empty variables count as unset.
    #[must_use]
    pub fn of_process() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            socket: var("CEASED_SOCKET"),
            token: var("CEASED_TOKEN").and_then(|token| token.into_string().ok()),
            sockets: Environment::of_process().sockets,
            colours: var("NO_COLOR").is_none() && var("TERM").is_none_or(|term| term != "dumb"),
        }
    }
}

/// The streams of a command.
pub struct Io<'a> {
    /// Results only.
    pub out: &'a mut dyn Write,
    /// Messages and progress.
    pub err: &'a mut dyn Write,
    /// Whether `out` is a terminal: then control characters in results are escaped.
    pub out_is_terminal: bool,
    /// Whether `err` is the process's stderr and a terminal: then progress is a bar.
    pub err_is_terminal: bool,
    /// Input of `connect`.
    pub input: BorrowedFd<'a>,
    /// Output of `connect`; the descriptor of `out`.
    pub output: BorrowedFd<'a>,
    /// Creates the source of interrupts. Called once, when the daemon is reached: until then
    /// signals end the process.
    pub interrupts: &'a mut dyn FnMut() -> io::Result<Interrupts>,
    /// The environment.
    pub env: Env,
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Io {{ env: {:?} }}", self.env)
    }
}

impl Io<'_> {
    /// Prints a line for the user. A failed write to stderr is ignored, so that it cannot end a
    /// command that is cancelling.
    fn say(&mut self, line: &str) {
        let _ = writeln!(self.err, "ceased: {}", clean(line));
    }
}

/// Runs [`run`] with the arguments and streams of this process.
#[must_use]
pub fn main(backend: &dyn Backend) -> ExitCode {
    completion::complete_if_asked(<Arguments as clap::CommandFactory>::command);
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let wishes = OnceCell::new();
    let mut interrupts = || {
        let interrupts = Interrupts::on_signals()?;
        let copy = interrupts.as_fd().try_clone_to_owned()?;
        wishes.get_or_init(|| copy);
        Ok(interrupts)
    };
    let mut io = Io {
        out: &mut LineWriter::new(Output { interrupts: &wishes }),
        err: &mut TimedStderr::default(),
        out_is_terminal: stdout.is_terminal(),
        err_is_terminal: io::stderr().is_terminal(),
        input: stdin.as_fd(),
        output: stdout.as_fd(),
        interrupts: &mut interrupts,
        env: Env::of_process(),
    };
    run(std::env::args_os(), &mut io, backend).into()
}

/// Executes `args`; the first one is the program's name.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Exit {
    let words = command_line::reordered(args.into_iter().collect());
    let command = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments.command,
        Err(error) => return usage(&command_line::explained(error, &words), io),
    };
    let done = execute(&command, io, backend);
    let flushed = io.out.flush().map_err(Failure::from);
    match done.and_then(|exit| flushed.map(|()| exit)) {
        Ok(exit) => exit,
        Err(failure) => {
            failure.print(io);
            failure.exit
        }
    }
}

fn execute(command: &Command, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => {
            let life =
                ServeOptions { idle_exit: args.idle_exit, own_session: args.own_session.clone() };
            Ok(backend.serve(args.engine.files(), life))
        }
        Command::Stdio(args) => Ok(backend.stdio(args.files())),
        Command::Wrap(args) => Ok(backend.wrap(&args.options())),
        #[cfg(feature = "probe")]
        Command::Probe(args) => probe::probe(args, io, backend),
        Command::Check(args) => {
            let connects = args.connect;
            Ok(backend.check(args.config(), &args.caller, connects, args.json, io.out, io.err))
        }
        Command::Store(StoreArgs { command: StoreCommand::Check(args) }) => {
            let config = args.config.config.as_deref();
            Ok(backend.check_store(config, args.json, io.out, io.err))
        }
        Command::Init(args) => init::init(args, io, backend),
        Command::Adopt(args) => adopt::adopt(args, io, backend),
        Command::Import(args) => import::import(args, io),
        Command::Trust(args) => project_trust::trust(args, io),
        Command::Completions(args) => generate::completions(args, io),
        #[cfg(feature = "probe")]
        Command::ProbeServer(args) => probe::serve(args),
        Command::Man(args) => generate::man(args),
        Command::Connect(args) => connect::connect(args, io, backend),
        Command::Call(args) => call::call(args, io, backend),
        Command::Run(args) => run::run(args, io, backend),
        Command::Tools(args) => tools::tools(args, io, backend),
        Command::Status(args) => status::status(args, io, backend),
        Command::Ps(args) => ps::ps(args, io, backend),
        #[cfg(feature = "top")]
        Command::Top(args) => top::top(args, io, backend),
        Command::Tasks(args) => tasks::tasks(args, io, backend),
        Command::Get(args) => tasks::get(args, io, backend),
        Command::Result(args) => tasks::result(args, io, backend),
        Command::Cancel(args) => tasks::cancel(args, io, backend),
        Command::Servers(args) => servers::servers(args, io, backend),
        #[cfg(feature = "tls")]
        Command::Login(args) => login::login(args, io, backend),
        #[cfg(feature = "tls")]
        Command::Logout(args) => login::logout(args, io, backend),
        Command::Restart(args) => servers::restart(args, io, backend),
        Command::Approve(args) => approve::approve(args, io, backend),
        Command::Reload(args) => control::reload(args, io, backend),
        Command::Drain(args) => control::drain(args, io, backend),
        Command::Fleet(args) => fleet::fleet(args, io, backend),
        Command::Stop(args) => control::stop(args, io, backend),
        Command::View(args) => browser::view(args, io, backend),
        Command::Watch(args) => watch::watch(args, io, backend),
        Command::Logs(args) => logs::logs(args, io, backend),
    }
}

/// Prints help and version to stdout with success, errors to stderr.
fn usage(error: &clap::Error, io: &mut Io<'_>) -> Exit {
    let text = error.render();
    if error.use_stderr() {
        let _ = write!(io.err, "{text}");
        Exit::Usage
    } else {
        match write!(io.out, "{text}").and_then(|()| io.out.flush()) {
            Ok(()) => Exit::Done,
            Err(_) => Exit::Failed,
        }
    }
}

/// A build without the daemon: every client command works with a daemon elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientOnly;

impl ClientOnly {
    const WHY: &str = "this build contains only the client commands";

    fn refuse(err: &mut dyn Write) -> Exit {
        let _ = writeln!(err, "ceased: {}", Self::WHY);
        Exit::Usage
    }
}

impl Backend for ClientOnly {
    fn serve(&self, _: EngineFiles<'_>, _: ServeOptions) -> Exit {
        Self::refuse(&mut io::stderr())
    }

    fn stdio(&self, _: EngineFiles<'_>) -> Exit {
        Self::refuse(&mut io::stderr())
    }

    fn wrap(&self, _: &WrapOptions) -> Exit {
        Self::refuse(&mut io::stderr())
    }

    fn containment(&self) -> Result<Containment, Failure> {
        Err(Failure::new(Exit::Usage, Self::WHY))
    }

    fn check(
        &self,
        _: Option<&Path>,
        _: &[String],
        _: bool,
        _: bool,
        _: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        Self::refuse(err)
    }

    fn fleet(&self, _: Option<&Path>, _: Option<&str>, _: bool) -> Result<FleetView, Failure> {
        Err(Failure::new(Exit::Usage, Self::WHY))
    }

    fn check_store(
        &self,
        _: Option<&Path>,
        _: bool,
        _: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        Self::refuse(err)
    }

    fn site(&self, config: Option<&Path>) -> Result<DaemonLocation, Failure> {
        match config {
            Some(_) => Err(Failure::new(Exit::Usage, format!("{}; use --socket", Self::WHY))),
            None => Ok(DaemonLocation::default()),
        }
    }

    fn embed(&self, _: Option<&Path>, _: &mut dyn Write) -> Result<Option<Embedded>, Failure> {
        Ok(None)
    }

    fn embed_servers(&self, _: Option<&Path>, _: &Path) -> Result<Embedded, Failure> {
        Err(Failure::new(Exit::Usage, Self::WHY))
    }

    fn embed_project(&self) -> Result<Option<Embedded>, Failure> {
        Ok(None)
    }

    fn embed_text(&self, _: &str, _: &Path) -> Result<Embedded, Failure> {
        Err(Failure::new(Exit::Usage, Self::WHY))
    }

    fn check_text(&self, _: &str, _: &Path) -> Result<Vec<String>, Failure> {
        Err(Failure::new(Exit::Usage, Self::WHY))
    }
}

pub(crate) mod cancel;
pub(crate) mod discover;
#[cfg(test)]
mod tests;
