//! The server: one thread, one poll, one engine.
//!
//! A turn reads input, handles reports of other threads, advances the time, carries out the
//! engine's actions and sends its output, in this order. It blocks only in the poll. While it reads
//! and sends it polls repeatedly for cancels.

pub(crate) mod actions;
pub(crate) mod auth;
pub(crate) mod client_directory;
pub(crate) mod connections;
pub(crate) mod guesses;
pub(crate) mod handshake;
pub(crate) mod jobs;
pub(crate) mod leader_follower;
pub(crate) mod listeners;
pub(crate) mod mailbox;
pub(crate) mod observer;
pub(crate) mod origin;
pub(crate) mod partial_frames;
pub(crate) mod persistence;
pub(crate) mod read_scheduler;
pub(crate) mod removed_files;
pub(crate) mod repeats;
pub(crate) mod run_as;
pub(crate) mod shutdown;
pub(crate) mod upkeep;
pub(crate) mod vetting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ceased_core::action::Action;
use ceased_core::collections::timer_queue::Timer;
use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::outgoing::call::{Answer, Caller};
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use ceased_transports::{Link, SCRATCH_BYTES, Transport};
use crossbeam_channel::Sender;
use mio::{Events, Poll, Token};
use rustix::process::getuid;

use self::connections::Sending;
use self::handshake::{Backlog, Stage};
pub(crate) use self::listeners::ListenSpec;
use self::shutdown::Stopping;
pub(crate) use self::upkeep::{Guards, Read, Reload, Reloaded};
use crate::daemon::StartError;
use crate::event_loop::mailbox::{LoopReceiver, LoopSender, Report};
use crate::ids::RandomIds;
use crate::observability::audit::Audit;
use crate::observability::metrics::{Endpoint, Thresholds};
use crate::record::Recorded;
use crate::signals::Signals;
use crate::store::open::OpenedStore;
use crate::store::thread::StoreThread;
use crate::store::{StateDir, StoreError};
use crate::tools::worker_pool::Pool;
use ceased_process::{Containment, Orphans, Supervisor};

/// First token of connections; below are the waker, the signals and the listeners.
const FIRST_CONN: u64 = 1024;
const WAKER: Token = Token(0);
const SIGNALS: Token = Token(1);
const FIRST_LISTENER: usize = 2;

/// Maximum part of the shutdown time reserved for flushing after the jobs have ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Pause of accepting when the system is out of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Maximum number of peers accepted per turn, so that existing ones do not wait.
const ACCEPTS_MAX: usize = 64;
/// Interval of probing a TCP peer that has closed its side.
const PROBE: Duration = Duration::from_secs(1);
/// Time limit for flushing the final output of a closed connection, and of all at the end without
/// progress.
const LAST_FLUSH: Duration = Duration::from_secs(1);
/// Time limit for processes to end after the final SIGKILL.
const LAST_KILL: Duration = Duration::from_secs(5);
/// Time limit for the store's final writes.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// Parameters of a server.
pub(crate) struct Options {
    /// Tools and limits. Every tool's payload must come from [`crate::tools::catalog`].
    pub settings: Arc<Settings>,
    /// Containment of command tools.
    pub containment: Containment,
    /// Handling of processes that lose their guard.
    pub orphans: Orphans,
    /// Time limit of a shutdown.
    pub shutdown_grace: Duration,
    /// Time that calls may continue after a sole peer has closed its input.
    pub eof_grace: Duration,
    /// Deadline for authentication.
    pub authenticate_within: Duration,
    /// Limits of incomplete messages.
    pub guards: Guards,
    /// File that records the engine's events and actions, if any.
    pub record: Option<File>,
    /// The audit log.
    pub audit: Audit,
    /// Thresholds of the warnings.
    pub thresholds: Thresholds,
    /// Address of the metrics endpoint, if any.
    pub metrics: Option<ceased_transports::Address>,
    /// Store of tasks; `None`: in memory only. The settings must agree.
    pub kept: Option<OpenedStore>,
}

/// Why a server ended by itself.
#[derive(Debug)]
pub enum RunError {
    /// The poll failed.
    Io(io::Error),
    /// The store failed for good; a new process may be able to use it. This one must not promise
    /// durability any more (DUR-01).
    Store(StoreError),
    /// The shutdown completed, except for processes of tools that cannot be ended: they belong to
    /// another user, or are stuck in the kernel.
    Outlasted,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the daemon cannot continue: {error}"),
            Self::Store(error) => {
                write!(f, "the daemon cannot continue without its store: {error}")
            }
            Self::Outlasted => f.write_str(
                "processes of tools remain after SIGKILL; the audit log lists their \
                 jobs, `ps` their owners and states",
            ),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One daemon. Created on the thread that runs it.
pub struct Server {
    poll: Poll,
    engine: Recorded,
    settings: Arc<Settings>,
    clock: Clock,
    doors: Vec<listeners::BoundListener>,
    links: BTreeMap<ConnId, Box<Peer>>,
    /// Connections that the engine does not know, and their deadlines.
    strangers: BTreeSet<(Instant, ConnId)>,
    /// Peers whose process is being inspected.
    vetting: vetting::Vetting,
    /// Recent wrong tokens.
    guesses: guesses::Guesses,
    /// Suppressed records.
    repeats: repeats::Repeats,
    next_conn: u64,
    ready: read_scheduler::ReadScheduler,
    /// Bytes read ahead.
    ahead_bytes: usize,
    /// Connections with output to send, and the cause.
    unsent: Vec<(ConnId, Sending)>,
    runs: jobs::Runs,
    client_directories: client_directory::ClientDirectories,
    /// Handlers that wait for a response of their peer.
    asking: BTreeMap<Caller, Sender<Answer>>,
    pool: Pool,
    supervisor: Supervisor,
    reports: LoopSender,
    inbound: LoopReceiver,
    /// Buffer of reports, empty between turns.
    heard: Vec<Report>,
    signals: Option<(Signals, Option<Reload>)>,
    /// A signal is pending.
    signalled: bool,
    actions: Vec<Action>,
    scratch: Box<[u8]>,
    shutdown_grace: Duration,
    eof_grace: Duration,
    authenticate_within: Duration,
    guards: Guards,
    /// Incomplete messages.
    unended: partial_frames::PartialFrames,
    upkeep: upkeep::Upkeep,
    stopping: Stopping,
    trail: observer::Trail,
    /// Metrics endpoint; stops when dropped.
    _metrics: Option<Endpoint>,
    /// Error of the sole peer.
    lost_stdio: Option<io::Error>,
    store: Option<StoreThread>,
    /// Location of the store.
    place: persistence::Place,
    /// Permanent failure of the store.
    failed: Option<StoreError>,
    /// Held for the lifetime of the server.
    state_dir: Option<Arc<StateDir>>,
}

/// A connection as the loop sees it.
struct Peer {
    link: Link,
    stage: Stage,
    /// The server shuts down when this peer closes its input.
    sole: bool,
    /// To be closed once its outbox is empty.
    closing: bool,
    /// Its connect was recorded in the audit log, so its disconnect is too.
    on_record: bool,
    /// Rarely present.
    backlog: Option<Box<Backlog>>,
    /// Position in the read order.
    place: read_scheduler::Cost,
}

/// Access to a running server from another thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    reports: LoopSender,
}

impl ServerHandle {
    /// Connects as a peer with this process's user.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.reports.send(Report::Adopt(theirs));
        Ok(ours)
    }

    /// Starts the shutdown, as SIGTERM does.
    pub fn shut_down(&self) {
        self.reports.send(Report::ShutDown);
    }
}

impl Server {
    /// A server without listeners or peers.
    ///
    /// # Errors
    /// If the poll, the waker, or a thread for the processes or the store cannot be created.
    pub(crate) fn new(options: Options) -> Result<Self, StartError> {
        let trail =
            observer::Trail::new(options.audit, options.thresholds, options.containment.name());
        let poll = Poll::new()?;
        let (reports, inbound) = LoopSender::new(&poll, WAKER)?;
        let supervisor = Supervisor::start(options.containment, options.orphans, {
            let reports = reports.clone();
            Box::new(move |report| reports.send(Report::Process(report)))
        })?;
        let metrics = observer::serve_metrics(options.metrics.as_ref(), &reports)?;
        let place = persistence::Place::of(options.kept.as_ref());
        let (kept, state_dir) =
            options.kept.map_or((None, None), |kept| (Some((kept.store, kept.records)), kept.dir));
        let (store, records) = kept.map_or((None, Vec::new()), |(s, r)| (Some(s), r));
        let store = store.map(|store| persistence::start(store, &reports)).transpose()?;
        let mut server = Self {
            poll,
            engine: Recorded::new(&options.settings, Box::new(RandomIds::new()), options.record),
            settings: options.settings,
            clock: Clock::new(),
            doors: Vec::new(),
            links: BTreeMap::new(),
            strangers: BTreeSet::new(),
            vetting: vetting::Vetting::default(),
            guesses: guesses::Guesses::default(),
            repeats: repeats::Repeats::default(),
            next_conn: FIRST_CONN,
            ready: read_scheduler::ReadScheduler::default(),
            ahead_bytes: 0,
            unsent: Vec::new(),
            runs: jobs::Runs::default(),
            client_directories: client_directory::ClientDirectories::default(),
            asking: BTreeMap::new(),
            pool: Pool::new(reports.clone()),
            supervisor,
            reports,
            inbound,
            heard: Vec::new(),
            signals: None,
            signalled: false,
            actions: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            shutdown_grace: options.shutdown_grace,
            eof_grace: options.eof_grace,
            authenticate_within: options.authenticate_within,
            guards: options.guards,
            unended: partial_frames::PartialFrames::default(),
            upkeep: upkeep::Upkeep::default(),
            stopping: Stopping::No,
            trail,
            _metrics: metrics,
            lost_stdio: None,
            store,
            place,
            failed: None,
            state_dir,
        };
        server.restore(records);
        Ok(server)
    }

    /// A handle of this server for other threads.
    #[must_use]
    pub fn remote(&self) -> ServerHandle {
        ServerHandle { reports: self.reports.clone() }
    }

    /// Serves a peer on `transport` with this process's user. If `sole`, the server shuts down with
    /// it.
    ///
    /// # Errors
    /// If the transport cannot be registered.
    pub fn serve_peer(&mut self, transport: Box<dyn Transport>, sole: bool) -> io::Result<()> {
        let identity = Identity::User(getuid().as_raw());
        let now = self.clock.now();
        self.admit(now, transport, identity, sole)
    }

    /// Handles SIGTERM and SIGINT (shutdown; a second one exits at once) and SIGHUP (reload).
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub(crate) fn watch_signals(&mut self, reload: Option<Reload>) -> io::Result<()> {
        let mut signals = Signals::install()?;
        signals.register(self.poll.registry(), SIGNALS)?;
        self.signals = Some((signals, reload));
        Ok(())
    }

    /// A turn without a poll reads nothing: new input must be scheduled first.
    fn turn(&mut self, events: &mut Events, polls: bool) -> io::Result<()> {
        events.clear();
        if polls {
            match self.poll.poll(events, self.timeout()) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let now = self.clock.now();
        self.note_events(now, events);
        if std::mem::take(&mut self.signalled) {
            self.take_signals(now);
        }
        self.take_peers(now);
        if polls {
            self.take_bytes(now, events);
        }
        self.take_reports(now);
        self.take_time(now);
        self.engine.handle(now, Event::Turn, &mut self.actions);
        self.act(now);
        self.send(now, events);
        self.trail.audit.hand_over();
        self.look_how_full(now);
        self.run_idle_checks(now);
        Ok(())
    }

    /// Records which connections are ready.
    fn note_events(&mut self, now: Now, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                SIGNALS => self.signalled = true,
                Token(number) if number < FIRST_CONN as usize => {
                    let mut doors = self.doors.iter_mut();
                    if let Some(door) = doors.find(|door| door.token == Token(number)) {
                        door.again = Some(now.at);
                    }
                }
                Token(number) => self.note_event(ConnId::new(number as u64), event),
            }
        }
    }

    /// Timeout of the poll: zero while work is pending.
    fn timeout(&self) -> Option<Duration> {
        let idle = self.ready.is_empty() && self.actions.is_empty() && self.unsent.is_empty();
        if !idle || self.signalled || self.engine.wants_turn() || !self.inbound.may_sleep() {
            return Some(Duration::ZERO);
        }
        let again = self.doors.iter().filter_map(|door| door.again).min();
        let engine = self.engine.deadline().map(|(at, _)| at);
        let end = match self.stopping {
            Stopping::Flushing { end, .. } => Some(end),
            Stopping::No | Stopping::Draining(_) => None,
        };
        let stranger = self.strangers.first().map(|(at, _)| *at);
        let own = [
            self.pool.deadline(),
            self.upkeep.deadline(),
            self.unended.deadline(),
            self.repeats.deadline(),
        ];
        let first = [again, engine, end, stranger].into_iter().chain(own).flatten().min();
        // mio rounds up to milliseconds, so this never wakes too early.
        let first = first.map(|at| at - self.clock.now().at);
        let store = self.store.as_ref().and_then(StoreThread::slow_in);
        [first, store].into_iter().flatten().min()
    }

    fn take_time(&mut self, now: Now) {
        for work in self.pool.grow_if_stalled(now.at) {
            let message = "cannot create a thread for the tool; a system limit is reached";
            self.not_started(now, work.call.id, ErrorObject::new(code::INTERNAL_ERROR, message));
        }
        self.dismiss_overdue(now);
        self.end_slow_frames(now);
        self.tell_repeats(now);
        if let Some(store) = &mut self.store {
            store.watch();
        }
        while let Some((at, timer)) = self.engine.deadline()
            && at <= now.at
        {
            if let Timer::Stall(conn) = timer
                && self.takes_something(now, conn)
            {
                continue;
            }
            self.engine.handle(now, Event::Tick, &mut self.actions);
            break;
        }
    }

    fn take_signals(&mut self, now: Now) {
        self.take_read(now);
        let Some((signals, _)) = &mut self.signals else { return };
        let taken = signals.take();
        if taken.reload {
            self.trail.audit.reopen();
            self.look_at_files(now);
            self.reload();
        }
        for _ in 0..taken.terminate {
            self.shut_down(now);
        }
    }

    /// Starts the shutdown; a second request ends it at once.
    fn shut_down(&mut self, now: Now) {
        match self.stopping {
            Stopping::No => {
                tracing::info!(grace = ?self.shutdown_grace, "shutting down");
                let by = now.at + self.shutdown_grace;
                self.stopping = Stopping::Draining(by);
                self.now_stopping();
                self.close_all_doors();
                // The rest of the time is for flushing output, and for the supervisor.
                let by = now.at + (self.shutdown_grace - (self.shutdown_grace / 8).min(LAST_WORDS));
                self.engine.handle(now, Event::Drain { by }, &mut self.actions);
            }
            Stopping::Draining(_) | Stopping::Flushing { .. } => {
                tracing::warn!("second shutdown request: exiting at once");
                self.stopping = Stopping::Flushing { end: now.at, by: now.at };
            }
        }
    }

    fn is_over(&self) -> bool {
        if self.failed.is_some() {
            return true;
        }
        match self.stopping {
            Stopping::No | Stopping::Draining(_) => false,
            Stopping::Flushing { end, .. } => self.links.is_empty() || end <= self.clock.now().at,
        }
    }
}

/// The clocks of this machine.
struct Clock {
    zero: std::time::Instant,
}

impl Clock {
    fn new() -> Self {
        Self { zero: std::time::Instant::now() }
    }

    /// Converts a time of the system for the engine.
    fn at(&self, moment: std::time::Instant) -> Instant {
        let nanos = moment.saturating_duration_since(self.zero).as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            at: self.at(std::time::Instant::now()),
            wall: Wall::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
