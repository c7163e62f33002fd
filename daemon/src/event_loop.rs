//! The server: one thread, one poll, one engine.
//!
//! A turn reads input, handles reports of other threads, advances the time, carries out the
//! engine's actions and sends its output, in this order. It blocks only in the poll. While it reads
//! and sends it polls repeatedly for cancels.

pub(crate) mod actions;
pub(crate) mod auth;
pub(crate) mod bound_listener;
pub(crate) mod client_directory;
pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod constants;
pub(crate) mod frame_limits;
pub(crate) mod guesses;
pub(crate) mod handshake;
pub(crate) mod job_output;
mod jobs;
pub(crate) mod leader_follower;
pub(crate) mod listen_spec;
pub(crate) mod listeners;
pub(crate) mod mailbox;
pub(crate) mod observer;
pub(crate) mod origin;
mod output_requests;
pub(crate) mod partial_frames;
pub(crate) mod peer;
pub(crate) mod persistence;
pub(crate) mod read_scheduler;
pub(crate) mod reload;
pub(crate) mod removed_files;
pub(crate) mod repeated_records;
pub(crate) mod repeats;
pub(crate) mod run_as;
pub(crate) mod running_jobs;
pub(crate) mod server;
pub(crate) mod shutdown;
pub(crate) mod store_place;
pub(crate) mod trail;
pub(crate) mod upkeep;
pub(crate) mod upkeep_state;
mod upstream_instances;
mod upstreams;
pub(crate) mod vetting;
pub(crate) mod vetting_queue;

use self::clock::Clock;
use self::constants::{FIRST_CONN, LAST_WORDS, SIGNALS, WAKER};
use self::guesses::Guesses;
pub(crate) use self::listen_spec::ListenSpec;
use self::partial_frames::PartialFrames;
use self::read_scheduler::ReadScheduler;
pub(crate) use self::reload::{Guards, Reload, Reloaded};
use self::repeats::Repeats;
use self::running_jobs::Runs;
pub(crate) use self::server::Options;
pub use self::server::{RunError, Server, ServerHandle};
use self::shutdown::Stopping;
use self::store_place::Place;
use self::trail::{Trail, serve_metrics};
use self::upkeep_state::Upkeep;
use self::vetting_queue::Vetting;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
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
use crate::ids::RandomIds;
use crate::observability::calls::Calls;
use crate::record::Recorded;
use crate::signals::Signals;
use crate::start_error::StartError;
use crate::store::thread::StoreThread;
use crate::tools::worker_pool::Pool;
use ceased_process::Supervisor;

impl Server {
    /// A server without listeners or peers.
    ///
    /// # Errors
    /// If the poll, the waker, or a thread for the processes or the store cannot be created.
    pub(crate) fn new(options: Options) -> Result<Self, StartError> {
        let trail = Trail::new(options.audit, options.thresholds, options.containment.name());
        let trail = trail.with_calls(Calls::new(options.calls));
        let poll = Poll::new()?;
        let (reports, inbound) = LoopSender::new(&poll, WAKER)?;
        let supervisor = Supervisor::start(options.containment, options.orphans, {
            let reports = reports.clone();
            Box::new(move |report| reports.send(Report::Process(report)))
        })?;
        let metrics = serve_metrics(options.metrics.as_ref(), &reports)?;
        let place = Place::of(options.kept.as_ref());
        let (kept, state_dir) =
            options.kept.map_or((None, None), |kept| (Some((kept.store, kept.records)), kept.dir));
        let (store, records) = kept.map_or((None, Vec::new()), |(s, r)| (Some(s), r));
        let store = store.map(|store| store_place::start(store, &reports)).transpose()?;
        let mut server = Self {
            poll,
            engine: Recorded::new(&options.settings, Box::new(RandomIds::new()), options.record),
            settings: options.settings,
            clock: Clock::new(),
            doors: Vec::new(),
            links: BTreeMap::new(),
            strangers: BTreeSet::new(),
            vetting: Vetting::default(),
            guesses: Guesses::default(),
            repeats: Repeats::default(),
            next_conn: FIRST_CONN,
            ready: ReadScheduler::default(),
            ahead_bytes: 0,
            unsent: Vec::new(),
            runs: Runs::default(),
            outputs: job_output::JobOutputs::default(),
            upstreams: upstream_instances::Upstreams::default(),
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
            unended: PartialFrames::default(),
            upkeep: Upkeep::default(),
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
            self.upstreams.deadline(),
        ];
        let first = [again, engine, end, stranger].into_iter().chain(own).flatten().min();
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
        self.dismiss_overdue(now);
        self.end_slow_frames(now);
        self.tell_repeats(now);
        self.take_upstream_steps(now);
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
