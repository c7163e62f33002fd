//! Leader and follower: calls of a microsecond run on the thread of the loop, and cannot hold it up.
//!
//! Handing such a call to another thread and its result back costs more than the call. So the
//! thread that runs the loop, the leader, lays the server down between two turns and runs the calls
//! of tools that have been quick all along itself. Another thread, the follower, looks now and
//! then: when one and the same run of calls goes on from one look to the next, a call takes long
//! after all. Then the follower takes the server up and is the leader from there on, the calls that
//! have not begun go to the worker threads, and the old leader ends with the call that it runs.
//!
//! A small batch of the store is carried out in the same way while the disk is quick and nobody
//! waits for anything else: a disk that stalls is left alone with the thread that met with it.
//!
//! The thread that called [`Server::run`] has to return at the end, whatever a handler does, so it
//! leads only while there is nothing of the kind.

use super::constants::{LAST_KILL, LAST_WRITES};
use super::running_jobs::RunningJob;
use super::server::{RunError, Server};
use super::shutdown::Stopping;

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

/// How often the follower looks: what is not quick after all holds up the loop for less
/// than twice this.
const LOOK: Duration = Duration::from_micros(500);
/// Looks without a call in between before the follower sleeps.
const QUIET_LOOKS: u32 = 20;
/// How long it sleeps before it ends. Not forever, so that a daemon at rest has none.
const IDLE: Duration = Duration::from_secs(10);
/// How long the leader runs calls before it looks after everything else again; what is left then
/// goes to the worker threads, which may be many.
const AT_ONCE: Duration = Duration::from_micros(100);

/// How long the supervisor waits for what outlasts SIGKILL.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// How long it waits at least for what was not killed before.
const KILL_LEAST: Duration = Duration::from_secs(1);

impl Server {
    /// Runs until it was asked to shut down and has.
    ///
    /// # Errors
    /// [`RunError`]. What it started is gone then, too.
    pub fn run(mut self) -> Result<(), RunError> {
        self.open_doors(0)?;
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

    /// The calls that the leader might have run are handed to the worker threads.
    fn hand_out_quick_calls(&mut self) {
        let calls = std::mem::take(self.pool.quick());
        self.pool.submit_all(calls);
        let now = self.clock.now();
        self.dispatch(now);
    }

    /// Ends what may be left: processes are killed and waited for, and so are the last writes.
    fn end(mut self) -> Result<(), RunError> {
        let failed = self.failed.take().map(RunError::Store);
        let failed = failed.or(self.lost_stdio.take().map(RunError::Io));
        let within = self.time_to_kill();
        let has_commands = self.runs.values().any(RunningJob::is_command);
        let Self { supervisor, inbound, links, store, .. } = self;
        // The supervisor must not wait for a loop that has ended.
        drop(inbound);
        drop(links);
        let is_clean = supervisor.shutdown(within);
        if !is_clean {
            tracing::error!(?within, "processes are left that SIGKILL did not end");
        }
        let failed = failed.or((!is_clean && has_commands).then_some(RunError::Outlasted));
        if store.is_some_and(|store| !store.finish(LAST_WRITES)) {
            tracing::error!(within = ?LAST_WRITES, "the store has not written what it was told");
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Server {
    /// How long the supervisor may wait for the death of what it kills: not for what outlasts
    /// SIGKILL, and not beyond the time of the shutdown.
    fn time_to_kill(&self) -> Duration {
        let left = match self.stopping {
            Stopping::Flushing { by, .. } | Stopping::Draining(by) => by - self.clock.now().at,
            Stopping::No => LAST_KILL,
        };
        let mut commands = self.runs.values().filter(|run| run.is_command()).peekable();
        if commands.peek().is_some() && commands.all(|run| matches!(run, RunningJob::Outlasting)) {
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
    /// A thread that may be lost to a handler.
    Own,
}

/// What the thread waited for that called [`Server::run`].
enum Waited {
    /// It leads again.
    Server(Box<Server>),
    End(Result<(), RunError>),
}

/// What leader and follower share.
struct LoopHandoff {
    reports: LoopSender,
    state: Mutex<State>,
    /// There has been no quick call for long: whoever called leads again.
    retires: AtomicBool,
    /// Grows when the server is laid down and when it is taken up; written with `state` locked.
    epoch: AtomicU64,
    /// The server is given back, or has ended.
    waited: Condvar,
}

#[derive(Default)]
struct State {
    /// There while the leader runs calls.
    server: Option<Box<Server>>,
    /// The calls it has not begun.
    calls: VecDeque<Work>,
    /// There when whoever called is to lead again.
    given_back: Option<Box<Server>>,
    follower: Follower,
    is_over: bool,
    /// How it ended, or what a panic had to say.
    end: Option<thread::Result<Result<(), RunError>>>,
}

#[derive(Default)]
enum Follower {
    #[default]
    None,
    /// Looks all the time.
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

    /// The server, if it lies there, with the calls that were not begun.
    fn take(&self, state: &mut State) -> Option<Box<Server>> {
        let mut server = state.server.take()?;
        self.next_epoch();
        std::mem::swap(&mut state.calls, server.pool.quick());
        Some(server)
    }

    /// Runs the loop to its end; `None` when another thread runs it on.
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
            // What they came to is told first, but not for ever without looking who is there.
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

    /// Has another thread lead; the server is back when there is none.
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
        // It is the follower who says that this thread is needed no more.
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

    /// Runs the quick calls; `None` when the server was taken meanwhile.
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

    /// Carries out what the store was ordered; `None` when the server was taken meanwhile.
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
        tracing::warn!(%error, "no thread could be started beside the loop's own");
    }

    /// Lays the server down with its quick calls, where a follower watches.
    fn release(self: &Arc<Self>, mut server: Box<Server>) -> Result<u64, (io::Error, Box<Server>)> {
        let mut state = self.state();
        if let Err(error) = self.call_follower(&mut state) {
            return Err((error, server));
        }
        std::mem::swap(&mut state.calls, server.pool.quick());
        state.server = Some(server);
        Ok(self.next_epoch())
    }

    /// Has a follower look.
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
            let pace = run.pace(&call);
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
            pace.return_trust(ended - last);
            last = ended;
            next = if ended - began > AT_ONCE { None } else { self.next_call(epoch) };
        }
        // For the next turn of whoever leads.
        reports.wake();
    }

    fn next_call(&self, epoch: u64) -> Option<Work> {
        let mut state = self.state();
        if self.epoch() == epoch { state.calls.pop_front() } else { None }
    }

    /// Takes up what was laid down, unless another thread has.
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

    /// The life of a follower.
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
                tracing::debug!("what was quick before is not: another thread runs the loop on");
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
