//! The command line's interface to the daemon: serving, checking, locating, embedding.

mod check;
mod fleet;
mod seen;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ceased_core::limits::Limits;
use ceased_transports::Address;

use self::fleet::look;
use self::seen::ImaginedCaller;
use crate::announce::say;
use crate::cli::{
    Backend, DaemonLocation, Embedded, EngineFiles, Exit, Failure, FleetView, ServeOptions,
};
use crate::config::{Config, ConfigError, Environment, Keeping, Level};
use crate::daemon::preflight::{Preflight, preflight};
use crate::daemon::reload::reload;
use crate::daemon::{Daemon, DaemonHandle};
use crate::event_loop::RunError;
use crate::host_files::{HostServers, host_servers};
use crate::observability::logging;
use crate::resource_limits;
use crate::service_manager::Service;
use crate::signals;
use crate::start_error::StartError;
use crate::stderr_copy::StderrCopy;
use crate::store::StateDirError;
use crate::store::check_state_dir;
use crate::store::inspect::inspect;
use crate::trust_store::{PROJECT_FILE, TrustStore, Verdict};
use crate::wrap::WrapOptions;
use ceased_process::daemon_support::{
    close_inherited, forbid_tracing, keep_heap, trim_heap, unrunnable,
};
use ceased_process::guard::Program;
use ceased_process::{Cgroup, Containment, Orphans};

/// The daemon of this binary.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalBackend;

/// A configuration and its source.
struct Found {
    config: Config,
    source: Source,
    /// Why the project's file is not used, if it exists.
    note: Option<String>,
    /// A host's file with further servers.
    mcp_servers: Option<PathBuf>,
}

impl Found {
    /// Adds the servers of a host's file.
    fn with_servers(mut self, path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(self) };
        // A reload reads it again, from whatever directory.
        let path = std::path::absolute(path).map_err(|why| {
            let what = format!("cannot determine its directory: {why}");
            ConfigError::of_file(path, what, "use its absolute path")
        })?;
        let HostServers { servers, notes } = host_servers(&path)?;
        notes.iter().for_each(|note| say(format_args!("{note}")));
        self.config.add_servers(servers, &path)?;
        Ok(Self { mcp_servers: Some(path), ..self })
    }
}

/// The configuration that a reload applies, with the servers of a host's file.
fn load_again(source: &Source, mcp_servers: Option<&Path>) -> Result<Config, String> {
    let mut config = source.load_again(mcp_servers.is_some())?;
    if let Some(path) = mcp_servers {
        let HostServers { servers, notes } = host_servers(path).map_err(|why| why.to_string())?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        config.add_servers(servers, path).map_err(|why| why.to_string())?;
    }
    Ok(config)
}

/// Source of a configuration, which a reload reads again.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A file named explicitly or found at a default path.
    File(PathBuf),
    /// A trusted file of the project in the working directory.
    Project(PathBuf),
    /// There is no file yet: a reload looks again.
    Nowhere,
}

impl Source {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Project(path) => Some(path),
            Self::Nowhere => None,
        }
    }

    /// The configuration that a reload applies.
    fn load_again(&self, has_servers: bool) -> Result<Config, String> {
        let load = |path: &Path| Config::load(path).map_err(|error| error.to_string());
        match self {
            Self::File(path) => load(path),
            Self::Project(path) => {
                let bytes = trusted(path, &Environment::of_process())?;
                Config::from_bytes(bytes, path).map_err(|error| error.to_string())
            }
            Self::Nowhere => {
                let environment = Environment::of_process();
                let nowhere = || {
                    let place = place_of_configuration(&environment);
                    format!("there is no configuration file; create one at {place}")
                };
                match environment.usual() {
                    Some(path) => Config::read_found(&path)
                        .and_then(|bytes| Config::from_bytes(bytes, &path))
                        .map_err(|error| error.to_string()),
                    None if has_servers => Ok(Config::default()),
                    None => Err(nowhere()),
                }
            }
        }
    }
}

/// Where the configuration of this user belongs, for messages.
fn place_of_configuration(environment: &Environment) -> String {
    let place = environment.user_config();
    place.map_or_else(|| "/etc/ceased/config.toml".into(), |path| path.display().to_string())
}

/// The content of a project's file, if its user trusts it.
///
/// # Errors
/// The reason, and on a second line the remedy.
fn trusted(path: &Path, environment: &Environment) -> Result<Vec<u8>, String> {
    let bytes = Config::read_found(path).map_err(|error| error.to_string())?;
    let store = TrustStore::of(environment).map_err(|why| why.to_string())?;
    let why = match store.verdict(path, &bytes).map_err(|why| why.to_string())? {
        Verdict::Trusted => return Ok(bytes),
        Verdict::Changed => "has changed since it was trusted",
        Verdict::Unknown => "is not trusted",
    };
    let path = path.display();
    Err(format!(
        "{path} {why}, so its tools are not offered\nread it, then run `ceased trust {path}`"
    ))
}

/// Environment variable that overrides the choice of containment: `cgroup`, `guard` or `groups`.
/// For debugging only.
const CONTAINMENT: &str = "CEASED_CONTAINMENT";

/// The containment selected by the environment, if any.
fn containment() -> Result<Option<Containment>, Failure> {
    let Some(wanted) = std::env::var_os(CONTAINMENT).filter(|wanted| !wanted.is_empty()) else {
        return Ok(None);
    };
    let cannot = |why: std::io::Error| {
        let wanted = wanted.display();
        Failure::new(Exit::Usage, format!("{CONTAINMENT}={wanted} does not work here: {why}"))
    };
    let program = Program::this();
    match wanted.to_str() {
        Some("cgroup") => {
            let group = Cgroup::create().map_err(cannot)?;
            Ok(Some(Containment::Cgroup { group, keeper: program }))
        }
        Some("guard") => match program {
            Some(program) => {
                program.check().map_err(cannot)?;
                Ok(Some(Containment::Guard(program)))
            }
            None => Err(cannot(std::io::Error::other("this program cannot serve as a guard"))),
        },
        Some("groups") => Ok(Some(Containment::Groups)),
        Some(_) | None => Err(Failure::new(
            Exit::Usage,
            format!("{CONTAINMENT}={:?} is unknown; use cgroup, guard or groups", wanted),
        )),
    }
}

/// The directory of this user for files that need not outlive the next boot: that of its socket.
fn runtime_dir() -> Option<PathBuf> {
    Config::default_socket().parent().map(Path::to_path_buf)
}

/// The daemon of a configuration, with the containment selected by the environment.
fn daemon(config: &Config) -> Result<Daemon, Failure> {
    let daemon = Daemon::from_config(config).runtime_dir(runtime_dir());
    Ok(match containment()? {
        Some(containment) => daemon.containment(containment),
        None => daemon,
    })
}

/// Finds the configuration; the default one if there is no file.
fn find(explicit: Option<&Path>) -> Result<Found, ConfigError> {
    match Environment::of_process().named(explicit)? {
        Some(path) => Ok(found_at(Config::load(&path)?, Some(path))),
        None => find_usual(),
    }
}

/// As [`find`], where none is named.
fn find_usual() -> Result<Found, ConfigError> {
    let path = Environment::of_process().usual();
    let config = match &path {
        Some(path) => Config::from_bytes(Config::read_found(path)?, path)?,
        None => Config::default(),
    };
    Ok(found_at(config, path))
}

fn found_at(config: Config, path: Option<PathBuf>) -> Found {
    let source = path.map_or(Source::Nowhere, Source::File);
    Found { config, source, note: None, mcp_servers: None }
}

/// As [`find`], where a trusted file of the project in the working directory comes before the usual
/// places. For a process that serves the peer that started it there; a daemon that others use, too,
/// does not depend on a directory.
fn find_with_project(explicit: Option<&Path>) -> Result<Found, ConfigError> {
    let environment = Environment::of_process();
    if let Some(path) = environment.named(explicit)? {
        return Ok(found_at(Config::load(&path)?, Some(path)));
    }
    let note = match Path::new(PROJECT_FILE).canonicalize() {
        Ok(path) => match trusted(&path, &environment) {
            Ok(bytes) => {
                let config = Config::from_bytes(bytes, &path)?;
                let source = Source::Project(path);
                return Ok(Found { config, source, note: None, mcp_servers: None });
            }
            Err(why) => Some(why),
        },
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => None,
        Err(why) => Some(format!("cannot use ./{PROJECT_FILE}: {why}")),
    };
    Ok(Found { note, ..find_usual()? })
}

/// A report of a configuration without tools, and the remedy.
fn emptiness(found: &Found) -> Option<[String; 2]> {
    if !found.config.servers.is_empty() || !found.config.agents.is_empty() {
        return None;
    }
    match (found.source.path(), found.config.tools.is_empty()) {
        (Some(_), false) => None,
        (None, _) => Some([
            format!(
                "no configuration file, so there are no tools; create one at {}",
                place_of_configuration(&Environment::of_process())
            ),
            "`ceased init` in a project writes one with its build, its tests and its checks".into(),
        ]),
        (Some(path), true) => Some([
            format!(
                "{} has no [[tool]], [[server]] or [[agent]], so no tool can be called",
                path.display()
            ),
            "`ceased init --print` in a project shows tools for it".into(),
        ]),
    }
}

fn say_with_hint(lines: Option<[String; 2]>) {
    let Some([what, hint]) = lines else { return };
    say(format_args!("{what}"));
    say(format_args!("  hint: {hint}"));
}

/// Reports why the project's file is not used.
fn say_note(note: Option<&str>) {
    for (number, line) in note.iter().flat_map(|note| note.lines()).enumerate() {
        let prefix = if number == 0 { "" } else { "  hint: " };
        say(format_args!("{prefix}{line}"));
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Usage, error.to_string())
    }
}

/// Error text for commands other than `check`: the first problem, and a pointer to the others.
fn in_brief(error: &ConfigError) -> Failure {
    let problems = error.problems();
    let first = problems.first().map_or_else(|| error.to_string(), ToString::to_string);
    let message = match problems.len() {
        0 | 1 => first,
        2 => format!("{first}\nand one more problem; `ceased check` lists all of them"),
        all => {
            format!("{first}\nand {} more problems; `ceased check` lists all of them", all - 1)
        }
    };
    Failure::new(Exit::Usage, message)
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match error {
            StartError::Listen(_)
            | StartError::Tool(_)
            | StartError::Offer(_)
            | StartError::Server(_)
            | StartError::AllowRun(_)
            | StartError::Otlp(_)
            | StartError::Inherited(_)
            | StartError::Tokens(_)
            | StartError::Tls(_)
            | StartError::Audit { .. }
            | StartError::Record { .. } => Exit::Usage,
            StartError::Io(_) | StartError::Containment(_) => Exit::Failed,
            StartError::StateDir(StateDirError::Held { .. } | StateDirError::LeftBehind { .. }) => {
                Exit::Occupied
            }
            StartError::StateDir(_) | StartError::Store(_) | StartError::Fleet(_) => Exit::Store,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit = match error {
            RunError::Io(_) | RunError::Outlasted => Exit::Failed,
            RunError::Store(_) => Exit::Store,
        };
        Self::new(exit, error.to_string())
    }
}

fn said(done: Result<(), Failure>) -> Exit {
    match done {
        Ok(()) => Exit::Done,
        Err(Failure { exit, message }) => {
            for line in message.lines() {
                say(format_args!("{line}"));
            }
            exit
        }
    }
}

/// Source of the listeners; decides whether a reload changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listens {
    AsConfigured,
    OnStdio,
}

impl Listens {
    /// Level of the log where the configuration has none. Hosts keep the standard error of a server
    /// that they start as a list of its errors.
    const fn log_level(self) -> Level {
        match self {
            Self::AsConfigured => Level::Info,
            Self::OnStdio => Level::Warn,
        }
    }
}

fn serve(
    found: Found,
    daemon: Daemon,
    service: Service,
    listens: Listens,
    log: Option<&Path>,
) -> Result<(), Failure> {
    logging::can_start().map_err(StartError::Io)?;
    let default = listens.log_level();
    let level = found.config.log.level.unwrap_or(default);
    let logging = match log {
        Some(log) => logging::start_in(level, log),
        None => logging::start(level),
    };
    forbid_tracing();
    keep_heap();
    resource_limits::raise_files();
    // Must precede the first write to the store, the audit log and the recording.
    signals::survive_size_limits().map_err(StartError::Io)?;
    let known = daemon.known_servers();
    let mut server = daemon.orphans(Orphans::Adopt).inherit(service.sockets).build()?;
    server.report_to(service.notifier, service.watchdog);
    let listens = listens == Listens::AsConfigured;
    let emptiness = emptiness(&found);
    let Found { config, source, note, mcp_servers } = found;
    let load = Arc::new(move || load_again(&source, mcp_servers.as_deref()));
    let reload = reload(load, config, listens, default, logging.level_setter(), known);
    server.watch_signals(Some(reload)).map_err(StartError::Io)?;
    // A reader of these lines may send signals at once.
    say_note(note.as_deref());
    say_with_hint(emptiness);
    server.release_memory_with(trim_heap);
    server.run()?;
    Ok(())
}

/// Starts a new session: a Ctrl-C does not reach the process, and it releases inherited pipes.
fn leave_session() {
    close_inherited(3);
    // Fails if the process already leads a session.
    let _ = rustix::process::setsid();
}

fn recorded(daemon: Daemon, record: Option<&Path>) -> Daemon {
    match record {
        Some(path) => daemon.record(path),
        None => daemon,
    }
}

/// A server in this process, which keeps tasks in memory and listens nowhere.
fn embedded(config: &Config) -> Result<Embedded, Failure> {
    forbid_tracing();
    // Without a log: standard error of a client command is for the user of the tool.
    let daemon = daemon(config)?.keep_in_memory().without_listeners().without_metrics();
    let running = daemon.start()?;
    let stream = running.connect().map_err(StartError::Io)?;
    let server: Box<DaemonHandle> = Box::new(running);
    Ok(Embedded { stream, server })
}

/// Limits for a client and its server or agent, which have limits of their own: a message is refused
/// only beyond `--message-bytes`, and a whole one may wait for a peer that reads.
fn wrap_limits(message_bytes: usize) -> Limits {
    let mut limits = Limits::default();
    limits.frames.frame_bytes_max = message_bytes;
    limits.write_buffer_bytes = limits.write_buffer_bytes.max(message_bytes / 4);
    limits
}

/// Serves one client on standard input and output with one existing server or agent.
fn wrap(options: &WrapOptions) -> Result<(), Failure> {
    // The client gets an error for its first request; people read standard error and the exit code.
    let program = options.command.first().map(OsString::as_os_str).unwrap_or_default();
    let missing = unrunnable(program, options.env.get("PATH").map(OsString::from));
    if let Some(why) = &missing {
        say(format_args!("cannot run {program:?}, {why}"));
    }
    logging::can_start().map_err(StartError::Io)?;
    let _logging = logging::start(options.log_level.unwrap_or(Level::Warn));
    forbid_tracing();
    keep_heap();
    resource_limits::raise_files();
    signals::survive_size_limits().map_err(StartError::Io)?;
    let daemon = Daemon::new().runtime_dir(runtime_dir());
    // Dropped last: it writes the last output of the program.
    let stderr = StderrCopy::start().map_err(StartError::Io)?;
    let program = options.server(Some(stderr.sink()));
    let mut daemon = match options.acp {
        true => daemon.agent(program),
        false => daemon.upstream(program),
    };
    daemon = daemon.limits(wrap_limits(options.message_bytes)).eof_grace(options.eof_grace);
    if let Some(containment) = containment()? {
        daemon = daemon.containment(containment);
    }
    if let Some(audit) = &options.audit {
        daemon = daemon.audit(audit);
    }
    let daemon = daemon.listen(Address::Stdio).orphans(Orphans::Adopt);
    let mut server = daemon.build()?;
    server.watch_signals(None).map_err(StartError::Io)?;
    server.run()?;
    match missing {
        Some(_) => Err(Failure::new(Exit::Usage, "")),
        None => Ok(()),
    }
}

impl Backend for LocalBackend {
    fn serve(&self, files: EngineFiles<'_>, life: ServeOptions) -> Exit {
        if life.own_session.is_some() {
            leave_session();
        }
        let service = Service::take();
        let found = find(files.config).and_then(|found| found.with_servers(files.mcp_servers));
        said(found.map_err(Failure::from).and_then(|found| {
            let daemon = recorded(daemon(&found.config)?, files.record);
            let daemon = match life.idle_exit {
                Some(idle) => daemon.idle_exit(idle),
                None => daemon,
            };
            let log = life.own_session.as_deref();
            serve(found, daemon, service, Listens::AsConfigured, log)
        }))
    }

    fn stdio(&self, files: EngineFiles<'_>) -> Exit {
        let found = find_with_project(files.config);
        let found = found.and_then(|found| found.with_servers(files.mcp_servers));
        said(found.map_err(Failure::from).and_then(|found| {
            let daemon = daemon(&found.config)?.without_listeners().without_metrics();
            let mut daemon = daemon.listen(Address::Stdio);
            if found.config.daemon.store == Keeping::Auto {
                daemon = daemon.keep_in_memory();
            }
            let daemon = recorded(daemon, files.record);
            serve(found, daemon, Service::default(), Listens::OnStdio, None)
        }))
    }

    fn wrap(&self, options: &WrapOptions) -> Exit {
        said(wrap(options))
    }

    fn containment(&self) -> Result<Containment, Failure> {
        let cannot = |why: std::io::Error| Failure::new(Exit::Failed, why.to_string());
        match containment()? {
            Some(containment) => Ok(containment),
            None => Containment::detect(Program::this()).map_err(cannot),
        }
    }

    fn check(
        &self,
        config: Option<&Path>,
        caller: &[String],
        connects: bool,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        let caller = match ImaginedCaller::read(caller) {
            Ok(caller) => caller,
            Err(why) => {
                // A closed stderr does not change the verdict.
                let _ = writeln!(err, "ceased: {why}");
                return Exit::Usage;
            }
        };
        let found = find_with_project(config).map(|Found { config, source, note, .. }| {
            let path = source.path().map(|path| path.display().to_string());
            check::ToCheck { config, path, note }
        });
        let mut checked = check::configuration(found, caller);
        if connects {
            checked.connect();
        }
        let place = place_of_configuration(&Environment::of_process());
        let written = match json {
            true => checked.write_json(out),
            false => checked.write_text(&place, out, err),
        };
        match written {
            Ok(()) if checked.is_valid() => Exit::Done,
            Ok(()) => Exit::Usage,
            Err(_) => Exit::Failed,
        }
    }

    fn fleet(
        &self,
        config: Option<&Path>,
        database: Option<&str>,
        creates: bool,
    ) -> Result<FleetView, Failure> {
        let Found { config, source, .. } = find(config)?;
        if database.is_none() && config.fleet.is_none() {
            let none = source.path().map_or_else(
                || "there is no configuration, and so no [fleet]".to_owned(),
                |path| format!("{} has no [fleet]", path.display()),
            );
            return Err(Failure::new(Exit::Usage, none));
        }
        look(&config, database, creates).map_err(|why| Failure::new(Exit::Unreachable, why))
    }

    fn check_store(
        &self,
        config: Option<&Path>,
        json: bool,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Exit {
        let place = find(config).map(|found| found.config.daemon.state_dir);
        let inspected = place.map_err(Failure::from).and_then(|state_dir| {
            let inspected = inspect(&state_dir).map_err(Failure::from)?;
            Ok((state_dir, inspected))
        });
        let (exit, written) = match inspected {
            Ok((state_dir, inspected)) => {
                let exit = if inspected.problems.is_empty() { Exit::Done } else { Exit::Store };
                let written = match json {
                    true => check::write_store_json(&state_dir, &inspected, out),
                    false => check::write_store_text(&inspected, out, err),
                };
                (exit, written)
            }
            Err(Failure { exit, message }) => (exit, writeln!(err, "ceased: {message}")),
        };
        if written.is_ok() { exit } else { Exit::Failed }
    }

    fn site(&self, config: Option<&Path>) -> Result<DaemonLocation, Failure> {
        let Found { config, source, .. } = find(config).map_err(|error| in_brief(&error))?;
        Ok(DaemonLocation {
            config: source.path().map(Path::to_path_buf),
            socket: config.socket().map(Path::to_path_buf),
            eof_grace: config.daemon.eof_grace,
            shutdown_grace: config.daemon.shutdown_grace,
            state_dir: (config.daemon.store != Keeping::Memory)
                .then(|| config.daemon.state_dir.clone()),
        })
    }

    fn embed(
        &self,
        config: Option<&Path>,
        err: &mut dyn Write,
    ) -> Result<Option<Embedded>, Failure> {
        let found = find_with_project(config).map_err(|error| in_brief(&error))?;
        for (number, line) in found.note.iter().flat_map(|note| note.lines()).enumerate() {
            let prefix = if number == 0 { "ceased:" } else { "  hint:" };
            let _ = writeln!(err, "{prefix} {line}");
        }
        if found.source == Source::Nowhere {
            return Ok(None);
        }
        Ok(Some(embedded(&found.config)?))
    }

    fn embed_servers(&self, config: Option<&Path>, file: &Path) -> Result<Embedded, Failure> {
        let found = find_with_project(config)?.with_servers(Some(file))?;
        embedded(&found.config)
    }

    fn embed_project(&self) -> Result<Option<Embedded>, Failure> {
        let found = find_with_project(None).map_err(|error| in_brief(&error))?;
        match found.source {
            Source::Project(_) => Ok(Some(embedded(&found.config)?)),
            Source::File(_) | Source::Nowhere => Ok(None),
        }
    }

    fn embed_text(&self, text: &str, path: &Path) -> Result<Embedded, Failure> {
        embedded(&Config::parse(text, path)?)
    }

    fn check_text(&self, text: &str, path: &Path) -> Result<Vec<String>, Failure> {
        let config = Config::from_bytes(text.as_bytes().to_vec(), path)?;
        let state = &config.daemon.state_dir;
        if config.daemon.store != Keeping::Memory && state.exists() {
            check_state_dir(state).map_err(StartError::StateDir)?;
        }
        let Preflight { refusals, warnings } = preflight(&config);
        match refusals.into_iter().next() {
            Some(why) => Err(why.into()),
            None => Ok(warnings),
        }
    }
}
