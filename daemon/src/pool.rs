//! Worker threads: few while calls are short, as many as there are calls when those block.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::message::{ErrorObject, code};
use ceased_core::time::Instant;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::handler::{Handler, Job, outcome};
use crate::reports::Report;

/// How long a thread waits for more work before it ends. Not forever, so that a daemon at rest
/// has none; not briefly, so that a busy one does not keep making them.
const IDLE: Duration = Duration::from_secs(10);

/// One call for a worker thread.
pub(crate) struct Work {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) job: Job,
}

/// How long calls may wait without any getting done before there are more threads. Short calls
/// are done by few threads, which is many times faster than handing each to its own; a handler
/// that blocks holds up the others no longer than this.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long the system is left alone after it gave no thread.
const RETRY: Duration = Duration::from_millis(100);

/// How long calls may wait for a thread that the system does not give, while those that have one
/// get nothing done; then they fail, so that whoever called learns why.
const STARVED_MAX: Duration = Duration::from_secs(1);

/// The threads. How many calls run at once is bounded by the engine.
pub(crate) struct Pool {
    sender: Sender<Work>,
    receiver: Receiver<Work>,
    census: Arc<Census>,
    /// When to look whether the waiting calls get done, and how many were done before.
    check: Option<(Instant, u64)>,
    /// Since when the system has given no thread and no call got done.
    starved_since: Option<Instant>,
}

/// Whoever changes one number looks at the other after, in one order for everybody.
#[derive(Debug, Default)]
struct Census {
    /// Calls submitted and not done.
    calls: AtomicUsize,
    threads: AtomicUsize,
    done: AtomicU64,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver, census: Arc::default(), check: None, starved_since: None }
    }

    /// Hands a call to the worker threads.
    ///
    /// # Errors
    /// When there is no thread and the system gives none. The call is dropped.
    pub(crate) fn submit(&mut self, now: Instant, work: Work) -> io::Result<()> {
        let calls = self.census.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let threads = self.census.threads.load(Ordering::SeqCst);
        if threads == 0
            && let Err(error) = self.spawn()
        {
            self.census.calls.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        if calls > threads.max(1) && self.check.is_none() {
            self.check = Some((now + PATIENCE, self.census.done.load(Ordering::Relaxed)));
        }
        self.sender.send(work).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// When to call [`Pool::relieve`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.check.map(|(at, _)| at)
    }

    /// Adds threads when calls wait and none gets done.
    ///
    /// The calls it gives up are given back: there has been no thread for them for long.
    pub(crate) fn relieve(&mut self, now: Instant) -> Vec<Work> {
        let Some((_, before)) = self.check.take_if(|(at, _)| *at <= now) else { return Vec::new() };
        let calls = self.census.calls.load(Ordering::SeqCst);
        let threads = self.census.threads.load(Ordering::SeqCst);
        let done = self.census.done.load(Ordering::Relaxed);
        if calls <= threads {
            self.starved_since = None;
            return Vec::new();
        }
        let mut wait = PATIENCE;
        let mut given_up = Vec::new();
        if done == before {
            // Twice as many each time: a burst of blocking calls has its threads soon.
            let wanted = (calls - threads).min(threads.max(1));
            let refused = (0..wanted).find_map(|_| self.spawn().err());
            if let Some(error) = &refused {
                wait = RETRY;
                let since = *self.starved_since.get_or_insert_with(|| {
                    // Once, not with every try.
                    tracing::warn!(%error, calls, threads, "calls wait: no thread could be started");
                    now
                });
                if now >= since + STARVED_MAX {
                    given_up = self.receiver.try_iter().collect();
                    self.census.calls.fetch_sub(given_up.len(), Ordering::SeqCst);
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
        let (receiver, census) = (self.receiver.clone(), Arc::clone(&self.census));
        census.threads.fetch_add(1, Ordering::SeqCst);
        let spawned = thread::Builder::new()
            .name("ceased-worker".into())
            .spawn(move || work(&receiver, &census));
        if spawned.is_err() {
            self.census.threads.fetch_sub(1, Ordering::SeqCst);
        }
        spawned.map(drop)
    }
}

fn work(receiver: &Receiver<Work>, census: &Census) {
    loop {
        match receiver.recv_timeout(IDLE) {
            Ok(work) => run(&work, census),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let left = census.threads.fetch_sub(1, Ordering::SeqCst) - 1;
                if census.calls.load(Ordering::SeqCst) <= left {
                    return;
                }
                // A call was submitted just now.
                census.threads.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn run(Work { handler, job }: &Work, census: &Census) {
    // The handler sees the job by reference only, and what it shares it must guard itself.
    let answer = catch_unwind(AssertUnwindSafe(|| handler.run(job)));
    let outcome = answer.map_or_else(
        |_| {
            let message = "the tool panicked; the daemon's log has the details";
            Outcome::Error(ErrorObject::new(code::INTERNAL_ERROR, message))
        },
        outcome,
    );
    // Before the report, so that the call it makes room for finds this thread free.
    census.calls.fetch_sub(1, Ordering::SeqCst);
    census.done.fetch_add(1, Ordering::Relaxed);
    job.reports.send(Report::Done { job: job.id, outcome });
}
