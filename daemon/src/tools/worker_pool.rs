//! Worker threads: few while calls are short, as many as there are calls when those block.
//!
//! What costs most about a small call is waking the thread that runs it and waking the loop when
//! it is done. So the calls of one turn are handed over together, one thread is woken for them,
//! and it wakes the loop once it has nothing left to do. Calls of a tool that took long the last
//! time are expected to do so again: nothing waits behind them that could be told or begun before.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::error::code;
use ceased_core::time::Instant;

use crate::event_loop::mailbox::{LoopSender, Report};
use crate::tools::call_latency::HandlerRun;
use crate::tools::cancel_token::CancelToken;
use crate::tools::handler::{Call, Handler, Job, outcome};

/// How long a thread waits for more work before it ends. Not forever, so that a daemon at rest
/// has none; not briefly, so that a busy one does not keep making them.
const IDLE: Duration = Duration::from_secs(10);

/// How long calls may wait without any getting done before there are more threads, and how long a
/// result may wait behind a call that unexpectedly blocks.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long results may wait for each other while the calls of one thread go on.
const TOGETHER: Duration = Duration::from_micros(100);

/// How long the system is left alone after it gave no thread.
const RETRY: Duration = Duration::from_millis(100);

/// How long calls may wait for a thread that the system does not give, while those that have one
/// get nothing done; then they fail, so that whoever called learns why.
const STARVED_MAX: Duration = Duration::from_secs(1);

/// One call for a worker thread.
pub(crate) struct Work {
    pub(crate) run: Arc<HandlerRun>,
    pub(crate) call: Call,
    pub(crate) token: CancelToken,
}

/// The threads. How many calls run at once is bounded by the engine.
pub(crate) struct Pool {
    crew: Arc<Workers>,
    /// Calls of this turn.
    fresh: Vec<Work>,
    /// Those of them that the leader may run itself.
    quick: VecDeque<Work>,
    /// When to look whether the waiting calls get done, and how many were done before.
    check: Option<(Instant, u64)>,
    /// Since when the system has given no thread and no call got done.
    starved_since: Option<Instant>,
    /// How many calls were begun when it was last looked while some waited, and since when it has
    /// been that many.
    standing: Option<(u64, Instant)>,
}

/// What the threads share.
struct Workers {
    reports: LoopSender,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Threads that wait for work, the one that worked last at the end: it is woken first.
    idle: Vec<Thread>,
    threads: usize,
    /// Calls done, in all.
    done: u64,
    /// Calls begun, in all.
    begun: u64,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(reports: LoopSender) -> Self {
        let crew = Arc::new(Workers { reports, queue: Mutex::default() });
        let (fresh, quick) = (Vec::new(), VecDeque::new());
        Self { crew, fresh, quick, check: None, starved_since: None, standing: None }
    }

    /// Takes a call for the next [`Pool::dispatch`], or for [`Pool::quick`].
    pub(crate) fn submit(&mut self, work: Work) {
        if work.run.pace(&work.call).is_quick() {
            self.quick.push_back(work);
        } else {
            self.fresh.push(work);
        }
    }

    /// Calls that take less than handing them to another thread: for the leader to run, or for
    /// [`Pool::submit_all`].
    pub(crate) const fn quick(&mut self) -> &mut VecDeque<Work> {
        &mut self.quick
    }

    /// Takes calls for the next [`Pool::dispatch`], however quick they are.
    pub(crate) fn submit_all(&mut self, works: impl IntoIterator<Item = Work>) {
        self.fresh.extend(works);
    }

    /// Hands the submitted calls to the worker threads.
    ///
    /// # Errors
    /// When there is no thread and the system gives none: why, and the calls that nobody runs.
    pub(crate) fn dispatch(&mut self, now: Instant) -> Result<(), (io::Error, Vec<Work>)> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let mut queue = self.crew.queue();
        queue.waiting.extend(self.fresh.drain(..));
        let done = queue.done;
        let first = queue.idle.pop();
        let is_deserted = queue.threads == 0;
        drop(queue);
        if let Some(first) = first {
            first.unpark();
        } else if is_deserted && let Err(error) = self.spawn() {
            return Err((error, self.crew.queue().waiting.drain(..).collect()));
        }
        self.check.get_or_insert((now + PATIENCE, done));
        Ok(())
    }

    /// When to call [`Pool::grow_if_stalled`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.check.map(|(at, _)| at)
    }

    /// For how long calls have waited and no thread has begun one. What a call does once it has
    /// begun is its tool's business, however long it takes.
    pub(crate) fn stuck_for(&self, now: Instant) -> Duration {
        self.standing.map_or(Duration::ZERO, |(_, since)| now - since)
    }

    /// Wakes or adds threads when calls wait and none gets done.
    ///
    /// The calls it gives up are given back: there has been no thread for them for long.
    pub(crate) fn grow_if_stalled(&mut self, now: Instant) -> Vec<Work> {
        let Some((_, before)) = self.check.take_if(|(at, _)| *at <= now) else { return Vec::new() };
        let mut queue = self.crew.queue();
        let (waiting, threads, done) = (queue.waiting.len(), queue.threads, queue.done);
        self.standing = match self.standing {
            _ if waiting == 0 => None,
            Some((before, since)) if before == queue.begun => Some((before, since)),
            Some(_) | None => Some((queue.begun, now)),
        };
        if waiting == 0 && done == before {
            self.starved_since = None;
            return Vec::new();
        }
        let mut wait = PATIENCE;
        let mut given_up = Vec::new();
        if done == before {
            // Twice as many each time: a burst of blocking calls has its threads soon.
            let wanted = waiting.min(threads.max(1));
            let asleep = queue.idle.len().saturating_sub(wanted);
            let rested = queue.idle.split_off(asleep);
            drop(queue);
            rested.iter().for_each(Thread::unpark);
            let refused = (rested.len()..wanted).find_map(|_| self.spawn().err());
            if let Some(error) = &refused {
                wait = RETRY;
                let since = *self.starved_since.get_or_insert_with(|| {
                    // Once, not with every try.
                    let what = "calls wait: no thread could be started";
                    tracing::warn!(%error, waiting, threads, "{what}");
                    now
                });
                if now >= since + STARVED_MAX {
                    given_up = self.crew.queue().waiting.drain(..).collect();
                }
            }
            if refused.is_none() {
                self.starved_since = None;
            }
        } else {
            self.starved_since = None;
        }
        self.check = Some((now + wait, done));
        given_up
    }

    fn spawn(&self) -> io::Result<()> {
        let crew = Arc::clone(&self.crew);
        crew.queue().threads += 1;
        let spawned =
            thread::Builder::new().name("ceased-worker".into()).spawn(move || crew.work());
        if spawned.is_err() {
            self.crew.queue().threads -= 1;
        }
        spawned.map(drop)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.crew.queue();
        queue.closed = true;
        queue.waiting.clear();
        queue.idle.iter().for_each(Thread::unpark);
    }
}

impl Workers {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a worker thread.
    fn work(&self) {
        // The loop starts it and has shorter ones.
        let mut queue = self.queue();
        while !queue.closed {
            queue = match self.work_off(queue) {
                queue if !queue.waiting.is_empty() => queue,
                queue => match self.rest(queue) {
                    Some(queue) => queue,
                    None => return,
                },
            };
        }
    }

    /// Runs what waits. Everything it leaves for the loop is told when it returns.
    fn work_off<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        // Its own, lent to one job after the other: threads that count on one counter wait for it.
        let mut reports = self.reports.clone();
        let mut untold = false;
        let mut began = std::time::Instant::now();
        let mut told = began;
        while let Some(Work { run, call, token }) = queue.waiting.pop_front() {
            queue.begun += 1;
            let pace = run.pace(&call);
            let short = pace.is_short();
            let help = if short || queue.waiting.is_empty() { None } else { queue.idle.pop() };
            drop(queue);
            if let Some(thread) = help {
                thread.unpark();
            }
            if untold && !short {
                reports.wake();
            }
            let job = Job::new(call, token, reports);
            let outcome = run_guarded(&*run.handler, &job);
            let cancelled = job.token().is_cancelled();
            let done = Report::Done { job: job.id(), outcome };
            reports = job.into_reports();
            let ended = std::time::Instant::now();
            // How soon a call ends that is cancelled says nothing about the others.
            if !cancelled {
                pace.note(ended - began);
            }
            untold = ended - told <= TOGETHER;
            if untold {
                reports.send_lazy(done);
            } else {
                reports.send(done);
                told = ended;
            }
            began = ended;
            queue = self.queue();
            queue.done += 1;
        }
        if untold {
            drop(queue);
            reports.wake();
            queue = self.queue();
        }
        queue
    }

    /// Waits until it was woken for work; `None` when there was none for long.
    fn rest<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> Option<MutexGuard<'q, Queue>> {
        let this = thread::current();
        let until = std::time::Instant::now() + IDLE;
        queue.idle.push(this.clone());
        loop {
            drop(queue);
            let left = until.saturating_duration_since(std::time::Instant::now());
            thread::park_timeout(left);
            queue = self.queue();
            // The thread that wakes it has taken it out of the list.
            let place = queue.idle.iter().position(|thread| thread.id() == this.id());
            let Some(place) = place.filter(|_| !queue.closed) else { return Some(queue) };
            if left.is_zero() {
                queue.idle.remove(place);
                queue.threads -= 1;
                return None;
            }
        }
    }
}

pub(crate) fn run_guarded(handler: &dyn Handler, job: &Job) -> Outcome {
    // The handler sees the job by reference only, and what it shares it must guard itself.
    let answer = catch_unwind(AssertUnwindSafe(|| handler.run(job)));
    answer.map_or_else(
        |panic| {
            bury(panic);
            let message = "the tool panicked; the daemon's log has the details";
            Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
        },
        outcome,
    )
}

/// Drops what a panic carried, which is the handler's as well and may panic in turn: that would
/// end this thread, and the call that it was would never be answered.
fn bury(panic: Box<dyn Any + Send>) {
    let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) else { return };
    tracing::error!("what a tool panicked with panics as well when it is dropped: it is kept");
    // It may go on like that for ever.
    let _ = ManuallyDrop::new(again);
}
