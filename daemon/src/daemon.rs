//! A daemon as a value: built from a configuration, from tools of the embedding program, or both;
//! run on the calling thread or on one of its own.

mod configured;
#[cfg(feature = "cli")]
pub(crate) mod preflight;
#[cfg(feature = "cli")]
pub(crate) mod reload;
pub(crate) mod servers;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::policy::access::Profile;
use ceased_core::provider::{HostOffer, Provider};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::Tool;
use ceased_core::upstream::server::UpstreamServer;
use ceased_transports::{Address, Transport};

#[cfg(all(feature = "cli", feature = "fleet"))]
pub(crate) use self::configured::fleet_settings;
#[cfg(feature = "sqlite")]
use self::configured::on_disk;
use self::configured::{
    bounded, ended, guards, isolated, keep, limits, listen_spec, numbers, on_end, open_http,
    operators, own_operators, server_info, task_policy, thresholds, unenforced,
};
use self::servers::KnownServers;
use crate::config::{self, Config, Listen};
use crate::event_loop::{Guards, ListenSpec, OnEndPolicy, Options, RunError, Server, ServerHandle};
use crate::needed_scopes::NeededScopes;
use crate::observability::audit::Audit;
use crate::observability::calls::CallPolicy;
use crate::observability::ended::{EndedLimits, Export};
use crate::observability::metrics::Thresholds;
#[cfg(feature = "tls")]
use crate::observability::otlp::Otlp;
use crate::record;
use crate::scarcity;
use crate::service_manager::InheritedSockets;
use crate::start_error::StartError;
use crate::store::Store;
use crate::store::directory::StateDir;
#[cfg(feature = "sqlite")]
use crate::store::open::OnDisk;
use crate::store::open::{OpenedStore, StoreLocation};
use crate::tools::{catalog, run_command};
use ceased_process::daemon_support::Roster;
use ceased_process::guard::Program;
use ceased_process::{Containment, Controller, Isolation, Orphans};

/// How long the running work may go on after `ceased drain`, unless `[fleet]` says.
const DRAIN: Duration = Duration::from_secs(300);

/// Builder of a daemon.
///
/// ```no_run
/// use ceased::{Daemon, HandlerTool, Job, ToolResult};
///
/// let greet = HandlerTool::new("greet", |_: &Job| Ok(ToolResult::text("hello"))).build()?;
/// let daemon = Daemon::new().tool(greet).start()?;
/// let _peer = daemon.connect()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Daemon {
    server: ServerInfo,
    limits: Limits,
    operators: Vec<Identity>,
    profiles: Vec<Profile>,
    /// Scopes that some requests need, for listeners with signed tokens.
    scopes: Arc<NeededScopes>,
    /// Directory for the keys of issuers.
    keys_dir: PathBuf,
    tasks: TaskPolicy,
    tools: Vec<Tool>,
    offers: Vec<HostOffer>,
    /// The tool behind `ceased/run`, if it is allowed.
    run: Option<Arc<Tool>>,
    servers: Vec<Arc<UpstreamServer>>,
    agents: Vec<Arc<UpstreamServer>>,
    agent_only: bool,
    /// Servers of the configuration that are in use.
    known: KnownServers,
    /// Why a part of the configuration cannot be used.
    unusable: Option<StartError>,
    start_at_once: usize,
    listen: Vec<ListenPlace>,
    containment: Option<Containment>,
    guard: Option<Program>,
    /// Tools configured to run in a pid namespace.
    isolated: Vec<String>,
    /// Tools with bounds, by the controller that enforces them.
    bounded: BTreeMap<Controller, Vec<String>>,
    /// Directory of the roster of guards if there is no state directory.
    runtime_dir: Option<PathBuf>,
    orphans: Orphans,
    shutdown_grace: Duration,
    drain: Duration,
    /// Name of this node in a fleet.
    node: Option<String>,
    eof_grace: Duration,
    authenticate_within: Duration,
    guards: Guards,
    inherited: InheritedSockets,
    idle_exit: Option<Duration>,
    record: Option<PathBuf>,
    audit: Option<PathBuf>,
    calls: CallPolicy,
    ended: EndedLimits,
    otlp: Option<config::Otlp>,
    on_end: OnEndPolicy,
    metrics: Option<Address>,
    thresholds: Thresholds,
    keep: StoreLocation,
}

/// A place to listen on.
enum ListenPlace {
    /// An address open to all users that can open the socket.
    Address(Address),
    /// The same for HTTP.
    Http(Address),
    /// A listener of the configuration, with its access rule.
    Configured(Listen),
}

impl ListenPlace {
    const fn is_http(&self) -> bool {
        match self {
            Self::Http(_) | Self::Configured(Listen::Http(_)) => true,
            Self::Address(_)
            | Self::Configured(Listen::Unix { .. } | Listen::Tcp { .. } | Listen::Stdio) => false,
        }
    }
}

impl Default for Daemon {
    fn default() -> Self {
        Self::new()
    }
}

impl Daemon {
    /// A daemon without tools or listeners, with default limits, that keeps tasks in memory and
    /// names itself `ceased` until [`server`](Self::server) sets another name.
    #[must_use]
    pub fn new() -> Self {
        Self {
            server: ServerInfo::default(),
            limits: Limits::default(),
            operators: own_operators(),
            profiles: Vec::new(),
            scopes: Arc::default(),
            keys_dir: PathBuf::new(),
            tasks: TaskPolicy::default(),
            tools: Vec::new(),
            offers: Vec::new(),
            run: None,
            servers: Vec::new(),
            agents: Vec::new(),
            agent_only: false,
            known: KnownServers::default(),
            unusable: None,
            start_at_once: config::start_at_once_default(),
            listen: Vec::new(),
            containment: None,
            guard: None,
            isolated: Vec::new(),
            bounded: BTreeMap::new(),
            runtime_dir: None,
            orphans: Orphans::Leave,
            shutdown_grace: Duration::from_secs(10),
            drain: DRAIN,
            node: None,
            eof_grace: Duration::from_millis(1500),
            authenticate_within: config::Limits::default().authenticate_within,
            guards: Guards::default(),
            inherited: InheritedSockets::default(),
            idle_exit: None,
            record: None,
            audit: None,
            calls: CallPolicy::default(),
            ended: EndedLimits::default(),
            otlp: None,
            on_end: OnEndPolicy::default(),
            metrics: None,
            thresholds: Thresholds::default(),
            keep: StoreLocation::Memory,
        }
    }

    /// The daemon of a configuration. Keeps tasks in the state directory unless `store = "memory"`.
    #[must_use]
    pub fn from_config(config: &Config) -> Self {
        let known = KnownServers::default();
        let both = known.of(config).and_then(|it| Ok((it, servers::agents(config)?)));
        let (servers, agents, mut unusable) = match both {
            Ok((servers, agents)) => (servers, agents, None),
            Err(why) => (Vec::new(), Vec::new(), Some(StartError::Server(why))),
        };
        let run = run_command::tool(config).unwrap_or_else(|error| {
            unusable = Some(StartError::AllowRun(error));
            None
        });
        Self {
            server: server_info(config),
            limits: limits(config),
            operators: operators(config),
            profiles: config.profiles.clone(),
            scopes: NeededScopes::of(config),
            keys_dir: config.daemon.state_dir.clone(),
            tasks: task_policy(config),
            tools: config.tools.iter().map(catalog::configured).collect(),
            offers: Vec::new(),
            run,
            servers,
            agents,
            agent_only: false,
            known,
            unusable,
            start_at_once: config.start_at_once,
            listen: config.listen.iter().cloned().map(ListenPlace::Configured).collect(),
            containment: None,
            guard: None,
            isolated: isolated(config),
            bounded: bounded(config),
            runtime_dir: None,
            orphans: Orphans::Leave,
            shutdown_grace: config.daemon.shutdown_grace,
            drain: config.fleet.as_ref().map_or(DRAIN, |fleet| fleet.drain),
            node: config.fleet.as_ref().map(|fleet| fleet.name.clone()),
            eof_grace: config.daemon.eof_grace,
            authenticate_within: config.limits.authenticate_within,
            guards: guards(config),
            inherited: InheritedSockets::default(),
            idle_exit: None,
            record: None,
            audit: config.log.audit.clone(),
            calls: CallPolicy { record: config.log.calls, redact: config.log.redact.clone() },
            ended: ended(config),
            otlp: config.otlp.clone(),
            on_end: on_end(config),
            metrics: config.metrics.listen.clone(),
            thresholds: thresholds(config),
            keep: keep(config),
        }
    }

    /// Sets how the server names itself to clients, and its instructions for models. The default
    /// name is `ceased`, with the version of this library.
    #[must_use]
    pub fn server(mut self, server: ServerInfo) -> Self {
        self.server = server;
        self
    }

    /// One more tool, made with [`HandlerTool`](crate::HandlerTool) or
    /// [`CommandTool`](crate::CommandTool). Two of one name are refused at the start, also where one
    /// is the configuration's.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        if let Some(command) = catalog::command_of(&tool) {
            for controller in command.bounds.controllers() {
                self.bounded.entry(controller).or_default().push(tool.name.to_string());
            }
            if command.isolation == Isolation::Pid {
                self.isolated.push(tool.name.to_string());
            }
        }
        self.tools.push(tool);
        self
    }

    /// One more prompt or resource, made with [`HandlerOffer`](crate::HandlerOffer). Two of one kind
    /// and name are refused at the start.
    #[must_use]
    pub fn offer(mut self, offer: HostOffer) -> Self {
        self.offers.push(offer);
        self
    }

    /// One more existing MCP server ([`UpstreamServer`](crate::UpstreamServer)) whose methods are
    /// offered as well. Its payload is an [`UpstreamLaunch`](crate::UpstreamLaunch).
    #[must_use]
    pub fn upstream(mut self, server: UpstreamServer) -> Self {
        self.servers.push(Arc::new(server));
        self
    }

    /// Puts an existing ACP agent behind every connection: each peer is a client of a process of
    /// its own. Its payload is an [`UpstreamLaunch`](crate::UpstreamLaunch).
    #[must_use]
    pub fn agent(mut self, agent: UpstreamServer) -> Self {
        self.agents.insert(0, Arc::new(agent));
        self.agent_only = true;
        self
    }

    /// The servers of the configuration, for a reload of it.
    #[cfg(feature = "cli")]
    pub(crate) fn known_servers(&self) -> KnownServers {
        self.known.clone()
    }

    /// Adds an address to listen on. Peers on TCP are anonymous (TSK-40): any program that can
    /// connect may call every tool, so use a loopback address.
    #[must_use]
    pub fn listen(mut self, address: Address) -> Self {
        self.listen.push(ListenPlace::Address(address));
        self
    }

    /// Adds an address to serve Streamable HTTP on, at `/mcp`, with the defaults of the configuration.
    /// Peers on TCP are anonymous, so use a loopback address; requests for other hosts are refused.
    #[must_use]
    pub fn listen_http(mut self, address: Address) -> Self {
        self.listen.push(ListenPlace::Http(address));
        self
    }

    /// Removes all listeners; peers connect only through [`DaemonHandle::connect`].
    #[must_use]
    pub fn without_listeners(mut self) -> Self {
        self.listen.clear();
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Replaces the default task policy.
    #[must_use]
    pub const fn tasks(mut self, tasks: TaskPolicy) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the containment of command tools; defaults to the best one available.
    #[must_use]
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = Some(containment);
        self
    }

    /// Another program to serve as the guard of processes, for a program that cannot call
    /// [`guard::init`](ceased_process::guard::init) itself.
    #[must_use]
    pub fn guard(mut self, program: Program) -> Self {
        self.guard = Some(program);
        self
    }

    /// Sets the handling of processes that lose their guard. A dedicated daemon adopts them; any
    /// other program could not tell them from children of its own.
    #[must_use]
    pub const fn orphans(mut self, orphans: Orphans) -> Self {
        self.orphans = orphans;
        self
    }

    /// Records all events and actions of the engine in a new file; see [`record`].
    #[must_use]
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// How long calls of a peer on stdio are answered after the end of its input, and after each
    /// answer from then on.
    #[must_use]
    pub const fn eof_grace(mut self, grace: Duration) -> Self {
        self.eof_grace = grace;
        self
    }

    /// Writes an audit log to this file, one JSON object a line; without it, nothing is recorded.
    #[must_use]
    pub fn audit(mut self, path: impl Into<PathBuf>) -> Self {
        self.audit = Some(path.into());
        self
    }

    /// Serves Prometheus metrics at this address.
    #[must_use]
    pub fn metrics(mut self, address: Address) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Disables the metrics endpoint of the configuration: its address is for one daemon, and this
    /// may be one of many processes.
    #[must_use]
    pub fn without_metrics(mut self) -> Self {
        self.metrics = None;
        self
    }

    /// Keeps the roster of guards here if tasks are kept in memory, so that another start can end
    /// guards that outlive this process. The directory must belong to this user.
    #[must_use]
    pub(crate) fn runtime_dir(mut self, dir: Option<PathBuf>) -> Self {
        self.runtime_dir = dir;
        self
    }

    /// Uses these inherited listeners instead of binding their addresses. Each must be requested
    /// with [`Daemon::listen`].
    #[must_use]
    pub(crate) fn inherit(mut self, sockets: InheritedSockets) -> Self {
        self.inherited = sockets;
        self
    }

    /// Ends the daemon after this time without connections, jobs and tasks in memory.
    #[must_use]
    pub const fn idle_exit(mut self, idle: Duration) -> Self {
        self.idle_exit = Some(idle);
        self
    }

    /// Keeps tasks in this directory, so that they outlive the process (DUR-01). It is created if
    /// it does not exist, must not be accessible to other users, and is used by one daemon at a
    /// time.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn state_dir(mut self, path: impl Into<PathBuf>) -> Self {
        let defaults = config::Daemon::default();
        self.keep = StoreLocation::Disk(OnDisk { dir: path.into(), ..on_disk(&defaults) });
        self
    }

    /// Keeps tasks in a store of the caller, and restores the tasks in it.
    #[must_use]
    pub fn store(mut self, store: impl Store + 'static) -> Self {
        self.keep = StoreLocation::In(Box::new(store));
        self
    }

    /// Keeps tasks in memory, whatever the configuration says: they end with the daemon.
    #[must_use]
    pub fn keep_in_memory(mut self) -> Self {
        self.keep = StoreLocation::Memory;
        self
    }

    /// Creates the server and its listeners. [`Server::run`] runs it.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn build(self) -> Result<Server, StartError> {
        let mut recording = None;
        self.assemble(&mut recording).inspect_err(|_| {
            // The recording is empty and would block the next start.
            if let Some(path) = recording {
                let _ = std::fs::remove_file(path);
            }
        })
    }

    /// Its limits, with the connections that its descriptors allow.
    fn limits_within_files(&self) -> Limits {
        let has_http = self.metrics.is_some() || self.listen.iter().any(ListenPlace::is_http);
        scarcity::within_files(self.limits, self.operators.len(), has_http, &self.servers)
    }

    /// [`Daemon::build`]; `recording` is set to the created recording file.
    fn assemble(self, recording: &mut Option<PathBuf>) -> Result<Server, StartError> {
        let limits = self.limits_within_files();
        if let Some(why) = self.unusable {
            return Err(why);
        }
        let catalog = catalog::catalog(self.tools)?;
        let provider = Provider::new(self.offers).map_err(StartError::Offer)?;
        // Before accepting: opening waits until the jobs of the previous daemon have ended.
        let kept = self.keep.open(&self.limits)?;
        let mut containment = match self.containment {
            Some(containment) => containment,
            None => Containment::detect(self.guard.or_else(Program::this))
                .map_err(StartError::Containment)?,
        };
        warn_of_isolation(&containment, &self.isolated);
        let missing = containment.enable(&self.bounded.keys().copied().collect());
        unenforced(&self.bounded, &missing).iter().for_each(|line| tracing::warn!("{line}"));
        let dir = kept.as_ref().and_then(|kept| kept.dir.as_ref());
        let containment = kept_track_of(containment, dir, self.runtime_dir.as_deref())?;
        let audit = Audit::start(self.audit)?;
        let record = self.record.as_ref().map(|path| {
            let cannot = |error| StartError::Record { path: path.clone(), error };
            let file = record::create(path).map_err(cannot)?;
            *recording = Some(path.clone());
            Ok::<_, StartError>(file)
        });
        let mut server = Server::new(Options {
            settings: Arc::new(Settings {
                server: self.server,
                limits,
                tasks: task_policy_with(self.tasks, kept.as_ref()),
                catalog,
                provider,
                run: self.run,
                outputs: self.servers.iter().all(|server| !server.transparent),
                servers: self.servers,
                agents: self.agents,
                agent_only: self.agent_only,
                start_at_once: self.start_at_once,
                operators: self.operators,
                profiles: self.profiles,
                own_spans: self.otlp.is_some(),
                ..Settings::default()
            }),
            containment,
            orphans: self.orphans,
            shutdown_grace: self.shutdown_grace,
            eof_grace: self.eof_grace,
            authenticate_within: self.authenticate_within,
            guards: self.guards,
            record: record.transpose()?,
            audit,
            calls: self.calls,
            ended: self.ended,
            exporter: exporter(self.otlp.as_ref())?,
            on_end: self.on_end,
            thresholds: self.thresholds,
            kept,
        })?;
        server.be_node(self.node.as_deref(), self.drain);
        if let Some(address) = self.metrics {
            server.listen_for(numbers(address))?;
        }
        listen_at(&mut server, &self.listen, (&self.scopes, &self.keys_dir), self.inherited)?;
        if let Some(idle) = self.idle_exit {
            server.exit_when_idle_for(idle);
        }
        Ok(server)
    }

    /// Starts the daemon on a thread of its own.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<DaemonHandle, StartError> {
        let server = self.build()?;
        let remote = server.remote();
        let thread = std::thread::Builder::new()
            .name("ceased".into())
            .spawn(move || server.run())
            .map_err(StartError::Io)?;
        Ok(DaemonHandle { remote, thread: Some(thread) })
    }
}

/// The task policy with this store.
fn task_policy_with(tasks: TaskPolicy, kept: Option<&OpenedStore>) -> TaskPolicy {
    let shared = kept.is_some_and(|kept| kept.store.is_remote());
    TaskPolicy { durable: kept.is_some(), shared, ..tasks }
}

/// Notes the containment in the place where the next daemon looks for remaining jobs.
fn kept_track_of(
    mut containment: Containment,
    dir: Option<&Arc<StateDir>>,
    runtime_dir: Option<&Path>,
) -> Result<Containment, StartError> {
    let roster = match (dir, runtime_dir) {
        (Some(dir), _) => dir.roster(),
        (None, Some(dir)) => roster_in(dir),
        (None, None) => None,
    };
    if let Some(roster) = roster {
        containment = containment.recorded(roster);
    }
    if let Some(dir) = dir {
        containment = containment.leased(dir.lease()?);
        if let Some(group) = containment.group() {
            dir.note_group(group)?;
        }
    }
    Ok(containment)
}

/// Begins to deliver spans, where the configuration names a collector.
#[cfg(feature = "tls")]
fn exporter(otlp: Option<&config::Otlp>) -> Result<Option<Box<dyn Export>>, StartError> {
    otlp.map(|otlp| Otlp::start(otlp).map(|it| Box::new(it) as Box<dyn Export>)).transpose()
}

/// As above: the client of HTTP comes with TLS.
#[cfg(not(feature = "tls"))]
fn exporter(otlp: Option<&config::Otlp>) -> Result<Option<Box<dyn Export>>, StartError> {
    match otlp {
        Some(_) => Err(StartError::Otlp("[otlp] needs a build with the feature `tls`".into())),
        None => Ok(None),
    }
}

/// Creates the roster of guards for a daemon without a state directory; failure is not fatal.
fn roster_in(dir: &Path) -> Option<Arc<Roster>> {
    let roster = Roster::open(dir).inspect_err(|error| {
        tracing::debug!(dir = %dir.display(), %error, "cannot create the roster of guards");
    });
    roster.ok().map(Arc::new)
}

/// Logs the tools that cannot be isolated as configured.
fn warn_of_isolation(containment: &Containment, isolated: &[String]) {
    if isolated.is_empty() {
        return;
    }
    if let Err(error) = containment.check_isolation() {
        let tools = isolated.join(", ");
        tracing::error!(%tools, "{error}; calls of these tools fail");
    }
}

/// A daemon on a thread of its own. Dropping it shuts it down and waits until everything it started
/// has ended. A handler that ignores its token is waited for until its `abandon_after` or the
/// shutdown timeout (10 s) expires, and keeps running.
#[derive(Debug)]
pub struct DaemonHandle {
    remote: ServerHandle,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl DaemonHandle {
    /// Handle for other threads: ends the daemon, and changes its offers.
    #[must_use]
    pub const fn remote(&self) -> &ServerHandle {
        &self.remote
    }

    /// Connects as a peer with this process's user.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn connect(&self) -> io::Result<UnixStream> {
        self.remote.connect()
    }

    /// Shuts the daemon down and waits for its end.
    ///
    /// # Errors
    /// If its loop failed.
    pub fn shut_down(mut self) -> Result<(), RunError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), RunError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.remote.shut_down();
        let panicked = || Err(io::Error::other("the loop of the daemon panicked").into());
        thread.join().unwrap_or_else(|_| panicked())
    }
}

impl Drop for DaemonHandle {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the embedded daemon failed");
        }
    }
}

fn stdio() -> io::Result<Box<dyn Transport>> {
    let stdio = ceased_transports::Stdio::take_over().map_err(io::Error::other)?;
    Ok(Box::new(stdio))
}

/// Listens at these places, on inherited sockets where there are some for them.
fn listen_at(
    server: &mut Server,
    places: &[ListenPlace],
    (scopes, keys_dir): (&Arc<NeededScopes>, &Path),
    mut inherited: InheritedSockets,
) -> Result<(), StartError> {
    for place in places {
        let spec = match place {
            ListenPlace::Address(address) => ListenSpec::open(address.clone()),
            ListenPlace::Http(address) => open_http(address),
            ListenPlace::Configured(listen) => listen_spec(listen, scopes, keys_dir)?,
        };
        match &spec.address {
            Address::Stdio => server.serve_peer(stdio()?, true)?,
            address @ (Address::Unix { .. } | Address::Tcp(_)) => match inherited.claim(address) {
                Some(listener) => server.listen_on(spec, listener),
                None => drop(server.listen_for(spec)?),
            },
        }
    }
    inherited.left().map_or(Ok(()), |why| Err(StartError::Inherited(why)))
}
