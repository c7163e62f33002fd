//! The server: one thread, one poll, one engine.
//!
//! A turn reads what has arrived, hears what other threads report, lets time pass, carries out
//! what the engine wants done and sends what it wants said, in this order. Nothing in it waits for
//! anything but the poll. While it reads and sends it looks again and again for cancels.

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
use crate::observability::calls::{CallPolicy, Calls};
use crate::observability::metrics::{Endpoint, Thresholds};
use crate::record::Recorded;
use crate::signals::Signals;
use crate::store::open::OpenedStore;
use crate::store::thread::StoreThread;
use crate::store::{StateDir, StoreError};
use crate::tools::worker_pool::Pool;
use ceased_process::{Containment, Orphans, Supervisor};

/// Connections start here; below are the waker, the signals and the listeners.
const FIRST_CONN: u64 = 1024;
const WAKER: Token = Token(0);
const SIGNALS: Token = Token(1);
const FIRST_LISTENER: usize = 2;

/// At most this much of a shutdown's time is kept for what comes after the end of its jobs.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long accepting rests when the system has no room for another peer.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Peers accepted in one turn at most, so that those already here are not kept waiting.
const ACCEPTS_MAX: usize = 64;
/// How often a TCP peer that has closed its side is asked whether it is still there.
const PROBE: Duration = Duration::from_secs(1);
/// How long the last words of a closed connection may take to leave, and those of all at the end
/// while nobody takes any.
const LAST_FLUSH: Duration = Duration::from_secs(1);
/// How long processes may take to go after SIGKILL, at the very end.
const LAST_KILL: Duration = Duration::from_secs(5);
/// How long the store may take to write what it was told, at the very end.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// What a server needs to start.
pub(crate) struct Options {
    /// What it offers and allows. Every tool's payload must come from [`crate::tools::catalog`].
    pub settings: Arc<Settings>,
    /// How processes of command tools are kept together.
    pub containment: Containment,
    /// What becomes of processes that lose their guard.
    pub orphans: Orphans,
    /// How long a shutdown may take.
    pub shutdown_grace: Duration,
    /// How long calls may go on after a peer that ends with its input has closed it.
    pub eof_grace: Duration,
    /// How long a peer may take to say who it is, where it has to.
    pub authenticate_within: Duration,
    /// What peers that never end a line may take.
    pub guards: Guards,
    /// Where everything the engine is handed and does is written, if it is.
    pub record: Option<File>,
    /// The audit log.
    pub audit: Audit,
    /// What is recorded of each call.
    pub calls: CallPolicy,
    /// When to warn.
    pub thresholds: Thresholds,
    /// Where the metrics are served, if they are.
    pub metrics: Option<ceased_transports::Address>,
    /// Where tasks are kept; `None`: in memory alone. The settings must agree.
    pub kept: Option<OpenedStore>,
}

/// Why a server ended that was not asked to.
#[derive(Debug)]
pub enum RunError {
    /// The poll failed.
    Io(io::Error),
    /// The store cannot be used any more, and a new process might: nothing more may be promised
    /// by this one (DUR-01).
    Store(StoreError),
    /// It was asked to end, and processes of its tools cannot be ended: they belong to another
    /// user, or the kernel keeps them.
    Outlasted,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the daemon cannot go on: {error}"),
            Self::Store(error) => write!(f, "the daemon cannot go on without its store: {error}"),
            Self::Outlasted => f.write_str(
                "processes of tools are left that SIGKILL did not end; the audit log has their \
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

/// One daemon. Made on the thread that runs it.
pub struct Server {
    poll: Poll,
    engine: Recorded,
    settings: Arc<Settings>,
    clock: Clock,
    doors: Vec<listeners::BoundListener>,
    links: BTreeMap<ConnId, Box<Peer>>,
    /// Peers the engine does not know, and when they go.
    strangers: BTreeSet<(Instant, ConnId)>,
    /// Peers whose process is being looked at.
    vetting: vetting::Vetting,
    /// Wrong tokens that were tried lately.
    guesses: guesses::Guesses,
    /// Records that are counted instead of written.
    repeats: repeats::Repeats,
    next_conn: u64,
    ready: read_scheduler::ReadScheduler,
    /// Bytes that were read ahead of their turn.
    ahead_bytes: usize,
    /// Connections to be sent what waits for them, and why.
    unsent: Vec<(ConnId, Sending)>,
    runs: jobs::Runs,
    client_directories: client_directory::ClientDirectories,
    /// Handlers that wait for an answer of their peer.
    asking: BTreeMap<Caller, Sender<Answer>>,
    pool: Pool,
    supervisor: Supervisor,
    reports: LoopSender,
    inbound: LoopReceiver,
    /// Where reports are heard from, empty in between.
    heard: Vec<Report>,
    signals: Option<(Signals, Option<Reload>)>,
    /// There is a signal to take.
    signalled: bool,
    actions: Vec<Action>,
    scratch: Box<[u8]>,
    shutdown_grace: Duration,
    eof_grace: Duration,
    authenticate_within: Duration,
    guards: Guards,
    /// Messages that have begun and not ended.
    unended: partial_frames::PartialFrames,
    upkeep: upkeep::Upkeep,
    stopping: Stopping,
    trail: observer::Trail,
    /// Served while this lives.
    _metrics: Option<Endpoint>,
    /// Why the one peer it was there for could not be served to the end.
    lost_stdio: Option<io::Error>,
    store: Option<StoreThread>,
    /// Where that keeps its tasks.
    place: persistence::Place,
    /// The store failed for good.
    failed: Option<StoreError>,
    /// Held for life.
    state_dir: Option<Arc<StateDir>>,
}

/// A connection as the loop sees it.
struct Peer {
    link: Link,
    stage: Stage,
    /// When it closes its input, the server's work is done.
    sole: bool,
    /// The engine wants it closed once its outbox is empty.
    closing: bool,
    /// The audit log has a record of it, and gets one of its end.
    on_record: bool,
    /// Hardly any has one.
    backlog: Option<Box<Backlog>>,
    /// Where it stands among those that have something left to read.
    place: read_scheduler::Cost,
}

/// Reaches into a running server from another thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    reports: LoopSender,
}

impl ServerHandle {
    /// A connection to the server, as a peer with this process's user.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.reports.send(Report::Adopt(theirs));
        Ok(ours)
    }

    /// Asks the server to shut down, as SIGTERM does.
    pub fn shut_down(&self) {
        self.reports.send(Report::ShutDown);
    }
}

impl Server {
    /// A server without listeners or peers.
    ///
    /// # Errors
    /// When the system gives no poll, no waker or no thread for the processes or the store.
    pub(crate) fn new(options: Options) -> Result<Self, StartError> {
        let trail =
            observer::Trail::new(options.audit, options.thresholds, options.containment.name());
        let trail = trail.with_calls(Calls::new(options.calls));
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

    /// Reaches into this server from other threads.
    #[must_use]
    pub fn remote(&self) -> ServerHandle {
        ServerHandle { reports: self.reports.clone() }
    }

    /// Serves a peer on `transport` with this process's user. When `sole`, the server shuts down
    /// with it.
    ///
    /// # Errors
    /// When the transport cannot be watched.
    pub fn serve_peer(&mut self, transport: Box<dyn Transport>, sole: bool) -> io::Result<()> {
        let identity = Identity::User(getuid().as_raw());
        let now = self.clock.now();
        self.admit(now, transport, identity, sole)
    }

    /// Watches SIGTERM and SIGINT (shut down; a second one ends at once) and SIGHUP (reload).
    ///
    /// # Errors
    /// When the system gives no descriptors for it.
    pub(crate) fn watch_signals(&mut self, reload: Option<Reload>) -> io::Result<()> {
        let mut signals = Signals::install()?;
        signals.register(self.poll.registry(), SIGNALS)?;
        self.signals = Some((signals, reload));
        Ok(())
    }

    /// A turn that does not poll reads nothing either: whoever has come since goes first.
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

    /// Notes who has something to say.
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

    /// How long the poll may wait: not at all while something is left to do.
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
        // A poll counts in milliseconds and rounds up in mio, so this never wakes too early.
        let first = first.map(|at| at - self.clock.now().at);
        let store = self.store.as_ref().and_then(StoreThread::slow_in);
        [first, store].into_iter().flatten().min()
    }

    fn take_time(&mut self, now: Now) {
        for work in self.pool.grow_if_stalled(now.at) {
            let message = "no thread could be started for the tool; the system gives no more";
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

    /// Starts the shutdown; asked a second time, ends it.
    fn shut_down(&mut self, now: Now) {
        match self.stopping {
            Stopping::No => {
                tracing::info!(grace = ?self.shutdown_grace, "shutting down");
                let by = now.at + self.shutdown_grace;
                self.stopping = Stopping::Draining(by);
                self.now_stopping();
                self.close_all_doors();
                // The rest of the time is for the last words to peers, and for the supervisor.
                let by = now.at + (self.shutdown_grace - (self.shutdown_grace / 8).min(LAST_WORDS));
                self.engine.handle(now, Event::Drain { by }, &mut self.actions);
            }
            Stopping::Draining(_) | Stopping::Flushing { .. } => {
                tracing::warn!("told to shut down again: ending at once");
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

    /// A moment of the system as the engine counts.
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
