//! Worker threads: few for short calls, as many as there are calls if those block.
//!
//! The main costs of a small call are waking the thread that runs it and waking the loop when it is
//! done. So the calls of one turn are handed over together to one thread, which wakes the loop when
//! it has no calls left. A call of a tool whose last call was long is expected to be long: pending
//! results are reported, and other calls handed on, before it starts.

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
use crate::tools::handler::{Call, Job, Work as HandlerWork};

/// Time after which an idle thread ends: bounded, so that an idle daemon has none; long, so that a
/// busy one does not recreate them.
const IDLE: Duration = Duration::from_secs(10);

/// Time that calls may wait without any completing before threads are added, and that a result may
/// wait behind a call that blocks unexpectedly.
const STALLED_AFTER: Duration = Duration::from_millis(1);

/// Time that results may be batched while the calls of one thread continue.
const BATCH_WITHIN: Duration = Duration::from_micros(100);

/// Pause after a failed thread creation.
const RETRY: Duration = Duration::from_millis(100);

/// Time after which waiting calls fail if threads cannot be created and none completes.
const NO_THREAD_MAX: Duration = Duration::from_secs(1);

/// One call for a worker thread.
pub(crate) struct Work {
    pub(crate) run: Arc<HandlerRun>,
    pub(crate) call: Call,
    pub(crate) token: CancelToken,
}

/// The worker pool. The engine bounds the number of concurrent calls.
pub(crate) struct Pool {
    crew: Arc<Workers>,
    /// Calls of the current turn.
    fresh: Vec<Work>,
    /// Calls of the current turn that the leader may run itself.
    quick: VecDeque<Work>,
    /// Time of the next stall check, and the number of completed calls at the last one.
    check: Option<(Instant, u64)>,
    /// Since when thread creation has failed without any call completing.
    starved_since: Option<Instant>,
    /// Number of started calls at the last check with waiting calls, and since when it is
    /// unchanged.
    standing: Option<(u64, Instant)>,
}

/// State shared by the threads.
struct Workers {
    reports: LoopSender,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// Threads that wait for work; the one that worked last is at the end and woken first.
    idle: Vec<Thread>,
    threads: usize,
    /// Total of completed calls.
    done: u64,
    /// Total of started calls.
    begun: u64,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(reports: LoopSender) -> Self {
        let crew = Arc::new(Workers { reports, queue: Mutex::default() });
        let (fresh, quick) = (Vec::new(), VecDeque::new());
        Self { crew, fresh, quick, check: None, starved_since: None, standing: None }
    }

    /// Accepts a call for the next [`Pool::dispatch`], or for [`Pool::quick`].
    pub(crate) fn submit(&mut self, work: Work) {
        if work.run.latency_class(&work.call).is_quick() {
            self.quick.push_back(work);
        } else {
            self.fresh.push(work);
        }
    }

    /// Calls that take less time than handing them to another thread: run them on the leader, or
    /// pass them to [`Pool::submit_all`].
    pub(crate) const fn quick(&mut self) -> &mut VecDeque<Work> {
        &mut self.quick
    }

    /// Accepts calls for the next [`Pool::dispatch`], quick ones included.
    pub(crate) fn submit_all(&mut self, works: impl IntoIterator<Item = Work>) {
        self.fresh.extend(works);
    }

    /// Hands the accepted calls to the worker threads.
    ///
    /// # Errors
    /// If there is no thread and none can be created: the cause, and the calls that cannot run.
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
        self.check.get_or_insert((now + STALLED_AFTER, done));
        Ok(())
    }

    /// Time of the next [`Pool::grow_if_stalled`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.check.map(|(at, _)| at)
    }

    /// Time that calls have waited without any thread starting one. The duration of a started call
    /// is not limited here.
    pub(crate) fn stuck_for(&self, now: Instant) -> Duration {
        self.standing.map_or(Duration::ZERO, |(_, since)| now - since)
    }

    /// Wakes or adds threads if calls wait and none completes.
    ///
    /// Returns the calls that have waited too long for a thread and must fail.
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
        let mut wait = STALLED_AFTER;
        let mut given_up = Vec::new();
        if done == before {
            // Double the number each time, so that a burst of blocking calls soon has enough
            // threads.
            let wanted = waiting.min(threads.max(1));
            let asleep = queue.idle.len().saturating_sub(wanted);
            let rested = queue.idle.split_off(asleep);
            drop(queue);
            rested.iter().for_each(Thread::unpark);
            let refused = (rested.len()..wanted).find_map(|_| self.spawn().err());
            if let Some(error) = &refused {
                wait = RETRY;
                let since = *self.starved_since.get_or_insert_with(|| {
                    // Log once, not at every attempt.
                    let what = "cannot create a thread for waiting calls";
                    tracing::warn!(%error, waiting, threads, "{what}");
                    now
                });
                if now >= since + NO_THREAD_MAX {
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

    /// Main function of a worker thread.
    fn work(&self) {
        // The loop hands over the first call with the thread's start.
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

    /// Runs the waiting calls. All reports to the loop are sent before it returns.
    fn work_off<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        // One sender for all jobs of the thread: a shared reference counter would be contended.
        let mut reports = self.reports.clone();
        let mut untold = false;
        let mut began = std::time::Instant::now();
        let mut told = began;
        while let Some(Work { run, call, token }) = queue.waiting.pop_front() {
            queue.begun += 1;
            let pace = run.latency_class(&call);
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
            // A cancelled call says nothing about the duration of others.
            if !cancelled {
                pace.note(ended - began);
            }
            untold = ended - told <= BATCH_WITHIN;
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

    /// Waits for work; `None` after [`IDLE`].
    fn rest<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> Option<MutexGuard<'q, Queue>> {
        let this = thread::current();
        let until = std::time::Instant::now() + IDLE;
        queue.idle.push(this.clone());
        loop {
            drop(queue);
            let left = until.saturating_duration_since(std::time::Instant::now());
            thread::park_timeout(left);
            queue = self.queue();
            // A waking thread has removed it from the list.
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

pub(crate) fn run_guarded(handler: &dyn HandlerWork, job: &Job) -> Outcome {
    // Unwind safety: the handler gets the job by reference, and must protect its own shared state.
    let answer = catch_unwind(AssertUnwindSafe(|| handler.work(job)));
    answer.unwrap_or_else(|panic| {
        drop_panic(panic);
        let message = "the tool panicked; see the daemon's log";
        Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
    })
}

/// Drops a panic payload, whose destructor may panic in turn: that would end this thread and leave
/// the call without a response.
fn drop_panic(panic: Box<dyn Any + Send>) {
    let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) else { return };
    tracing::error!("the panic payload of a tool panics when dropped; leaking it");
    // The destructor of the second payload may panic again: leak it.
    let _ = ManuallyDrop::new(again);
}
