//! Leader/follower: calls of a microsecond run on the thread of the loop without being able to
//! block it.
//!
//! Handing such a call and its result to another thread costs more than the call. So the thread
//! that runs the loop, the leader, releases the server between two turns and itself runs the calls
//! of tools that have always been quick. Another thread, the follower, polls: if the same run of
//! calls is in progress at two consecutive polls, a call takes long. Then the follower reclaims the
//! server and becomes the leader, calls not yet started go to the worker threads, and the old
//! leader ends with its call.
//!
//! A small batch of the store is carried out likewise while the disk is quick and no other work is
//! pending: a stalling disk blocks only the thread that uses it.
//!
//! The thread that called [`Server::run`] must return at the end, whatever a handler does, so it
//! leads only while no such calls run.

use super::server::{RunError, Server};
use super::state::constants::{LAST_KILL, LAST_WRITES};
use super::state::shutdown::Stopping;

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mio::Events;

use crate::event_loop::mailbox::{LoopSender, Report};
use crate::store::thread::{StoreThread, Turn};

use crate::tools::handler::Job;
use crate::tools::worker_pool::{Work, run_guarded};

/// Polling interval of the follower: a slow call delays the loop for less than twice this.
const LOOK: Duration = Duration::from_micros(500);
/// Consecutive polls without a call before the follower sleeps.
const QUIET_LOOKS: u32 = 20;
/// Time of sleep after which it ends, so that an idle daemon has no follower.
const IDLE: Duration = Duration::from_secs(10);
/// Time the leader runs calls between turns; the remaining ones go to the worker threads.
const AT_ONCE: Duration = Duration::from_micros(100);

/// Time the supervisor waits for processes that outlast SIGKILL.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// Minimum time it waits for processes not killed before.
const KILL_LEAST: Duration = Duration::from_secs(1);

impl Server {
    /// Runs until the shutdown is complete.
    ///
    /// # Errors
    /// [`RunError`]. Everything the server started has ended then, too.
    pub fn run(mut self) -> Result<(), RunError> {
        self.register_listeners(0)?;
        self.now_ready();
        let lead = Arc::new(LoopHandoff::new(self.reports.clone()));
        let mut server = Box::new(self);
        loop {
            if let Some(end) = lead.lead(server, Leader::Caller) {
                return end;
            }
            match lead.wait() {
                Waited::Server(back) => server = back,
                Waited::End(end) => return end,
            }
        }
    }

    /// Hands the remaining quick calls to the worker threads.
    fn hand_out_quick_calls(&mut self) {
        let calls = std::mem::take(self.pool.quick());
        self.pool.submit_all(calls);
        let now = self.clock.now();
        self.dispatch(now);
    }

    /// Cleans up: kills remaining processes and waits for them and for the last writes.
    fn end(mut self) -> Result<(), RunError> {
        let failed = self.failed.take().map(RunError::Store);
        let failed = failed.or(self.lost_stdio.take().map(RunError::Io));
        let within = self.time_to_kill();
        let has_commands = self.jobs.has_processes();
        let Self { supervisor, inbound, connections, store, .. } = self;
        // The supervisor must not block on the mailbox of an ended loop.
        drop(inbound);
        drop(connections);
        let is_clean = supervisor.shutdown(within);
        if !is_clean {
            tracing::error!(?within, "processes remain after SIGKILL");
        }
        let failed = failed.or((!is_clean && has_commands).then_some(RunError::Outlasted));
        if store.is_some_and(|store| !store.finish(LAST_WRITES)) {
            tracing::error!(within = ?LAST_WRITES, "the store has not completed its writes in time");
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Server {
    /// Time limit for the end of killed processes: excludes those that outlast SIGKILL, and is
    /// bounded by the shutdown deadline.
    fn time_to_kill(&self) -> Duration {
        let left = match self.stopping {
            Stopping::Flushing { by, .. } | Stopping::Draining(by) => by - self.clock.now().at,
            Stopping::No => LAST_KILL,
        };
        if self.jobs.all_processes_outlast() {
            return LAST_LOOK;
        }
        left.clamp(KILL_LEAST, LAST_KILL)
    }
}

/// The leading thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leader {
    /// The thread that called [`Server::run`].
    Caller,
    /// A thread that a handler may block forever.
    Own,
}

/// Result of waiting in [`Server::run`].
enum Waited {
    /// It leads again.
    Server(Box<Server>),
    End(Result<(), RunError>),
}

/// State shared by leader and follower.
struct LoopHandoff {
    reports: LoopSender,
    state: Mutex<State>,
    /// No quick call for long: the caller of `run` leads again.
    retires: AtomicBool,
    /// Incremented on release and reclaim; written with `state` locked.
    epoch: AtomicU64,
    /// The server was handed back, or has ended.
    waited: Condvar,
}

#[derive(Default)]
struct State {
    /// Present while the leader runs calls.
    server: Option<Box<Server>>,
    /// Calls not started yet.
    calls: VecDeque<Work>,
    /// Present when the caller of `run` is to lead again.
    given_back: Option<Box<Server>>,
    follower: Follower,
    is_over: bool,
    /// Result of the loop, or the payload of a panic.
    end: Option<thread::Result<Result<(), RunError>>>,
}

#[derive(Default)]
enum Follower {
    #[default]
    None,
    /// Polling.
    Awake,
    Asleep(Thread),
}

impl LoopHandoff {
    fn new(reports: LoopSender) -> Self {
        Self {
            reports,
            state: Mutex::default(),
            retires: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            waited: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the server, if released, with the calls not started yet.
    fn take(&self, state: &mut State) -> Option<Box<Server>> {
        let mut server = state.server.take()?;
        self.next_epoch();
        std::mem::swap(&mut state.calls, server.pool.quick());
        Some(server)
    }

    /// Runs the loop to its end; `None` if another thread continues it.
    fn lead(
        self: &Arc<Self>,
        mut server: Box<Server>,
        leader: Leader,
    ) -> Option<Result<(), RunError>> {
        let mut events = Events::with_capacity(1024);
        let mut polls = true;
        while !server.is_over() {
            if let Err(error) = server.turn(&mut events, polls) {
                return Some(Err(error.into()));
            }
            let has_quick = !server.pool.quick().is_empty();
            if has_quick {
                server = match leader {
                    Leader::Caller => self.delegate(server)?,
                    Leader::Own => self.run_calls(server)?,
                };
            } else if let Some(turn) = server.store.as_mut().and_then(StoreThread::turn) {
                server = match leader {
                    Leader::Caller => {
                        drop(turn);
                        self.delegate(server)?
                    }
                    Leader::Own => self.carry_out(server, turn)?,
                };
            }
            // Report their results first, but poll at least every second turn.
            polls = !(has_quick && polls);
            if leader == Leader::Own && self.retires.swap(false, Ordering::Relaxed) {
                if let Some(store) = &server.store {
                    store.distrust();
                }
                self.state().given_back = Some(server);
                self.waited.notify_all();
                return None;
            }
        }
        Some(server.end())
    }

    /// Lets another thread lead; returns the server if none can be created.
    fn delegate(self: &Arc<Self>, server: Box<Server>) -> Option<Box<Server>> {
        self.state().server = Some(server);
        let lead = Arc::clone(self);
        let spawned = thread::Builder::new().name("ceased-loop".into()).spawn(move || {
            let server = lead.state().server.take();
            if let Some(server) = server {
                lead.lead_to_the_end(server);
            }
        });
        match spawned {
            Ok(_) => None,
            Err(error) => {
                let mut server = self.state().server.take()?;
                Self::complain(&error);
                server.hand_out_quick_calls();
                Some(server)
            }
        }
    }

    fn lead_to_the_end(self: &Arc<Self>, mut server: Box<Server>) {
        server.hand_out_quick_calls();
        // The follower decides when this thread is no longer needed.
        if let Err(error) = self.call_follower(&mut self.state()) {
            Self::complain(&error);
            self.retires.store(true, Ordering::Relaxed);
            self.reports.wake();
        }
        let led = catch_unwind(AssertUnwindSafe(|| self.lead(server, Leader::Own)));
        let Some(end) = led.transpose() else { return };
        let mut state = self.state();
        state.is_over = true;
        state.end = Some(end);
        if let Follower::Asleep(follower) = &state.follower {
            follower.unpark();
        }
        drop(state);
        self.waited.notify_all();
    }

    /// Waits while other threads lead.
    fn wait(&self) -> Waited {
        let mut state = self.state();
        loop {
            if let Some(server) = state.given_back.take() {
                return Waited::Server(server);
            }
            match state.end.take() {
                Some(Ok(end)) => return Waited::End(end),
                Some(Err(panic)) => {
                    drop(state);
                    resume_unwind(panic)
                }
                None => state = self.waited.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Runs the quick calls; `None` if the server was reclaimed meanwhile.
    fn run_calls(self: &Arc<Self>, server: Box<Server>) -> Option<Box<Server>> {
        match self.release(server) {
            Ok(epoch) => {
                self.run_laid_calls(epoch);
                self.reclaim(epoch)
            }
            Err((error, mut server)) => {
                Self::complain(&error);
                server.hand_out_quick_calls();
                Some(server)
            }
        }
    }

    /// Carries out the store's orders; `None` if the server was reclaimed meanwhile.
    fn carry_out(self: &Arc<Self>, server: Box<Server>, mut turn: Turn) -> Option<Box<Server>> {
        match self.release(server) {
            Ok(epoch) => {
                turn.carry_out();
                drop(turn);
                self.reclaim(epoch)
            }
            Err((error, server)) => {
                Self::complain(&error);
                Some(server)
            }
        }
    }

    fn complain(error: &io::Error) {
        tracing::warn!(%error, "cannot create a thread beside that of the loop");
    }

    /// Releases the server with its quick calls, if a follower watches.
    fn release(self: &Arc<Self>, mut server: Box<Server>) -> Result<u64, (io::Error, Box<Server>)> {
        let mut state = self.state();
        if let Err(error) = self.call_follower(&mut state) {
            return Err((error, server));
        }
        std::mem::swap(&mut state.calls, server.pool.quick());
        state.server = Some(server);
        Ok(self.next_epoch())
    }

    /// Wakes or creates a follower.
    fn call_follower(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        match std::mem::replace(&mut state.follower, Follower::Awake) {
            Follower::Awake => {}
            Follower::Asleep(follower) => follower.unpark(),
            Follower::None => {
                let lead = Arc::clone(self);
                let thread = thread::Builder::new().name("ceased-follower".into());
                if let Err(error) = thread.spawn(move || lead.follow()) {
                    state.follower = Follower::None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn run_laid_calls(&self, epoch: u64) {
        let mut reports = self.reports.clone();
        let began = Instant::now();
        let mut last = began;
        let mut next = self.next_call(epoch);
        while let Some(Work { run, call, token }) = next {
            let pace = run.latency_class(&call);
            pace.begin_probation();
            let job = Job::new(call, token, reports);
            let outcome = run_guarded(&*run.handler, &job);
            let id = job.id();
            reports = job.into_reports();
            reports.send_lazy(Report::Done { job: id, outcome });
            let ended = Instant::now();
            if self.epoch() != epoch {
                break;
            }
            pace.end_probation(ended - last);
            last = ended;
            next = if ended - began > AT_ONCE { None } else { self.next_call(epoch) };
        }
        // For the next turn of the leader.
        reports.wake();
    }

    fn next_call(&self, epoch: u64) -> Option<Work> {
        let mut state = self.state();
        if self.epoch() == epoch { state.calls.pop_front() } else { None }
    }

    /// Reclaims the released server, unless another thread has.
    fn reclaim(&self, epoch: u64) -> Option<Box<Server>> {
        let mut state = self.state();
        if self.epoch() != epoch {
            return None;
        }
        let mut server = self.take(&mut state)?;
        drop(state);
        if !server.pool.quick().is_empty() {
            server.hand_out_quick_calls();
        }
        Some(server)
    }

    /// Main function of a follower.
    fn follow(self: &Arc<Self>) {
        let (mut seen, mut quiet) = (0, 0);
        loop {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            if self.epoch() != seen {
                seen = self.epoch();
                quiet = 0;
            } else if let Some(server) = self.take(&mut state) {
                state.follower = Follower::None;
                drop(state);
                tracing::debug!("a quick call took long; another thread took over the loop");
                return self.lead_to_the_end(server);
            } else {
                quiet += 1;
            }
            if quiet < QUIET_LOOKS {
                drop(state);
                thread::sleep(LOOK);
                continue;
            }
            state.follower = Follower::Asleep(thread::current());
            drop(state);
            thread::park_timeout(IDLE);
            let mut state = self.state();
            if let Follower::Asleep(_) = state.follower {
                state.follower = Follower::None;
                drop(state);
                self.retires.store(true, Ordering::Relaxed);
                return self.reports.wake();
            }
            quiet = 0;
        }
    }
}
