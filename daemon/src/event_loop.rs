//! The server: one thread, one poll, one engine.
//!
//! A turn reads input, handles reports of other threads, advances the time, carries out the
//! engine's actions, sends its output and reads strangers, in this order. It blocks only in the poll.

mod actions;
mod admission;
mod apply_reload;
mod frame_limits;
pub(crate) mod handle;
mod http_input;
mod http_output;
mod http_requests;
mod idle;
mod input;
mod inspection;
mod jobs;
mod leader_follower;
mod listen;
mod logins;
pub(crate) mod mailbox;
mod observe;
mod on_end;
mod output;
mod output_requests;
mod persistence;
mod remotes;
mod run_as;
mod server;
pub(crate) mod state;
mod tokens;
mod upstream_manifests;
mod upstreams;

pub use self::handle::ServerHandle;
pub(crate) use self::server::Options;
pub use self::server::{RunError, Server};
use self::state::client_directory::ClientDirectories;
use self::state::clock::Clock;
use self::state::connections::Connections;
use self::state::constants::{FIRST_CONN, LAST_WORDS, SIGNALS, WAKER};
use self::state::endings::Endings;
pub(crate) use self::state::endings::OnEndPolicy;
use self::state::handshakes::Handshakes;
use self::state::job_output::JobOutputs;
pub(crate) use self::state::listen_spec::ListenSpec;
use self::state::listeners::Listeners;
use self::state::observer::Observer;
use self::state::partial_frames::PartialFrames;
use self::state::record_limiter::RecordLimiter;
pub(crate) use self::state::reload::{Guards, Reload, Reloaded};
use self::state::remote_instances::Remotes;
use self::state::running_jobs::RunningJobs;
use self::state::shutdown::Stopping;
use self::state::store_location::StoreLocation;
use self::state::upkeep::Upkeep;
use self::state::upstream_instances::Upstreams;
use self::state::wrong_tokens::WrongTokens;
use crate::http::endpoint::Endpoint as HttpEndpoint;
use std::io;
use std::mem;
use std::time::Duration;

use ceased_core::collections::timer_queue::Timer;
use ceased_core::event::{Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Now;
use ceased_transports::{SCRATCH_BYTES, Transport};
use mio::{Events, Poll, Token};
use rustix::process::getuid;

use crate::event_loop::mailbox::{LoopSender, Report};
#[cfg(feature = "fleet")]
use crate::fleet::Reader;
use crate::ids::RandomIds;
use crate::observability::calls::Calls;
use crate::record::Recorded;
use crate::signals::Signals;
use crate::start_error::StartError;
use crate::store::backing::Backing;
use crate::store::manifests::Manifests;
#[cfg(feature = "fleet")]
use crate::store::orders;
use crate::store::thread::StoreThread;
use crate::tools::worker_pool::Pool;
use ceased_process::Supervisor;

impl Server {
    /// A server without listeners or peers.
    ///
    /// # Errors
    /// If the poll, the waker, or a thread for the processes or the store cannot be created.
    pub(crate) fn new(options: Options) -> Result<Self, StartError> {
        let observer = Observer::new(options.audit, options.thresholds, options.containment.name());
        let mut observer = observer.with_calls(Calls::new(options.calls), options.ended);
        observer.exporter = options.exporter;
        let poll = Poll::new()?;
        let (reports, inbound) = LoopSender::new(&poll, WAKER)?;
        let supervisor = Supervisor::start(options.containment, options.orphans, {
            let reports = reports.clone();
            Box::new(move |report| reports.send(Report::Process(report)))
        })?;
        let store_location = StoreLocation::of(options.kept.as_ref());
        let mut kept = options.kept;
        let state_dir = kept.as_mut().and_then(|kept| kept.dir.take());
        let records = kept.as_mut().map(|kept| mem::take(&mut kept.records)).unwrap_or_default();
        #[cfg(feature = "fleet")]
        let reader = kept.as_mut().and_then(|kept| kept.reader.take());
        #[cfg(feature = "fleet")]
        let reader = reader.map(|reader| start_reader(reader, &reports)).transpose()?;
        let store = kept.map(|kept| start_store(kept.store, &reports)).transpose()?;
        let mut server = Self {
            poll,
            engine: Recorded::new(&options.settings, Box::new(RandomIds::new()), options.record),
            settings: options.settings,
            clock: Clock::new(),
            listeners: Listeners::default(),
            connections: Connections::default(),
            handshakes: Handshakes::default(),
            http: HttpEndpoint::default(),
            wrong_http_tokens: WrongTokens::default(),
            numbers: None,
            jobs: RunningJobs::default(),
            partial_frames: PartialFrames::default(),
            record_limiter: RecordLimiter::default(),
            outputs: JobOutputs::default(),
            upstreams: Upstreams::default(),
            manifests: None,
            remotes: Remotes::default(),
            endings: Endings::new(options.on_end),
            client_directories: ClientDirectories::default(),
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
            upkeep: Upkeep::default(),
            stopping: Stopping::No,
            observer,
            lost_stdio: None,
            store,
            #[cfg(feature = "fleet")]
            reader,
            store_location,
            failed: None,
            state_dir,
        };
        server.restore(records);
        server.manifests = server.state_dir.as_ref().map(|dir| Manifests::of(dir.path()));
        server.load_manifests(server.clock.now());
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
        self.http.date.set(now.wall);
        self.note_events(now, events);
        if mem::take(&mut self.signalled) {
            self.take_signals(now);
        }
        self.take_peers(now);
        if polls {
            self.take_bytes(now);
        }
        self.take_reports(now);
        self.take_time(now);
        self.engine.handle(now, Event::Turn, &mut self.actions);
        self.act(now);
        self.send(now);
        if polls {
            // After the output of all others.
            self.read_strangers(now);
        }
        self.resume_paused();
        self.observer.audit.hand_over();
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
                token @ Token(number) if number < FIRST_CONN as usize => {
                    self.listeners.note_event(token, now.at);
                }
                Token(number) => self.note_event(ConnId::new(number as u64), event),
            }
        }
    }

    /// Timeout of the poll: zero while work is pending.
    fn timeout(&self) -> Option<Duration> {
        let idle = self.connections.nothing_to_read()
            && self.actions.is_empty()
            && !self.connections.has_output();
        if !idle || self.signalled || self.engine.wants_turn() || !self.inbound.may_sleep() {
            return Some(Duration::ZERO);
        }
        let engine = self.engine.deadline().map(|(at, _)| at);
        let end = match self.stopping {
            Stopping::Flushing { end, .. } => Some(end),
            Stopping::No | Stopping::Draining(_) => None,
        };
        let own = [
            self.listeners.deadline(),
            self.handshakes.deadline(),
            self.http.deadline(),
            self.pool.deadline(),
            self.upkeep.deadline(),
            self.partial_frames.deadline(),
            self.record_limiter.deadline(),
            self.upstreams.deadline(),
            self.remotes.deadline(),
            self.endings.deadline(),
        ];
        let first = [engine, end].into_iter().chain(own).flatten().min();
        // mio rounds up to milliseconds, so this never wakes too early.
        let first = first.map(|at| at - self.clock.now().at);
        let store = self.store.as_ref().and_then(StoreThread::slow_in);
        [first, store].into_iter().flatten().min()
    }

    fn take_time(&mut self, now: Now) {
        for work in self.pool.grow_if_stalled(now.at) {
            let message = "cannot create a thread for the tool; the system gives no more";
            let error = ErrorObject::new(code::INTERNAL_ERROR, message);
            self.not_started(now, work.call.id, Outcome::Error(error));
        }
        self.end_overdue_handshakes(now);
        self.end_slow_frames(now);
        self.take_http_time(now);
        self.record_suppressed(now);
        self.take_upstream_steps(now);
        self.take_remote_time(now);
        self.take_on_end_time(now);
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
            self.observer.audit.reopen();
            self.check_files(now);
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
                self.http.health.note_draining();
                self.close_listeners();
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
            Stopping::Flushing { end, .. } => {
                self.connections.is_empty() || end <= self.clock.now().at
            }
        }
    }
}

/// Starts the threads that ask a shared table, and report to the loop.
#[cfg(feature = "fleet")]
fn start_reader(mut reader: Reader, reports: &LoopSender) -> io::Result<Reader> {
    let (reports, shown) = (reports.clone(), reports.clone());
    let shared = |event| Report::Store(orders::Report::Shared(event));
    let fleet = |survey, status| Report::Store(orders::Report::Fleet(survey, status));
    reader.start(
        Box::new(move |event| reports.send(shared(event))),
        Box::new(move |survey, status| shown.send(fleet(survey, status))),
    )?;
    Ok(reader)
}

/// Starts a store's thread that reports to the loop.
fn start_store(store: Backing, reports: &LoopSender) -> io::Result<StoreThread> {
    let reports = reports.clone();
    let report = Box::new(move |report| reports.send(Report::Store(report)));
    StoreThread::start(store, report)
}
