//! Worker threads: as many as there are handlers running, kept for a while when there are fewer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ceased_core::event::Outcome;
use ceased_core::message::{ErrorObject, code};
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

/// The threads. How many calls run at once is bounded by the engine; here every submitted call
/// has a thread of its own from the start, or a handler that blocks could keep another from ever
/// starting.
pub(crate) struct Pool {
    sender: Sender<Work>,
    receiver: Receiver<Work>,
    census: Arc<Census>,
}

/// There are never fewer threads than calls: whoever changes one number looks at the other after,
/// in one order for everybody.
#[derive(Debug, Default)]
struct Census {
    calls: AtomicUsize,
    threads: AtomicUsize,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver, census: Arc::default() }
    }

    /// Hands a call to a worker thread.
    ///
    /// # Errors
    /// When it needs a new thread and the system gives none. The call is dropped.
    pub(crate) fn submit(&self, work: Work) -> io::Result<()> {
        let calls = self.census.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if calls > self.census.threads.load(Ordering::SeqCst)
            && let Err(error) = self.spawn()
        {
            self.census.calls.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        self.sender.send(work).map_err(|_| io::ErrorKind::BrokenPipe.into())
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
                // A call was counted on this thread just now.
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
    job.reports.send(Report::Done { job: job.id, outcome });
}
