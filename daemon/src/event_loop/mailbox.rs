//! Reports: everything other threads tell the loop, through one bounded mailbox and one waker.
//!
//! A report is either told, which wakes the loop, or left, which does not: a thread with many small
//! results leaves them and wakes the loop once for all of them. The loop hears everything that lies
//! there whenever it is awake.

use super::reload::Read;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ceased_core::event::{Event, Outcome};
use ceased_core::ids::{AskId, JobId};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, OutgoingRequest};
use crossbeam_channel::Sender;
use mio::{Poll, Token, Waker};
use serde_json::value::RawValue;

use crate::process;
use crate::store;

/// Reports that may wait for the loop; a thread that reports more waits for it.
const WAITING_MAX: usize = 4096;

/// Something another thread tells the loop.
#[derive(Debug)]
pub(crate) enum Report {
    /// A handler got further.
    Progress { job: JobId, progress: f64, total: Option<f64>, message: Option<Box<str>> },
    /// A handler says something.
    Log { job: JobId, level: LogLevel, data: Box<RawValue> },
    /// A handler asks its peer something.
    Asked { job: JobId, ask: AskId, request: OutgoingRequest, answer: Sender<Answer> },
    /// A handler has returned.
    Done { job: JobId, outcome: Outcome },
    /// What the supervisor of processes has to say.
    Process(process::Report),
    /// What the store has to say.
    Store(store::orders::Report),
    /// Serve the other end of this socket as a peer of our own user.
    Adopt(UnixStream),
    /// Say what there is to measure, as Prometheus reads it.
    Scrape(Sender<String>),
    /// The configuration has been read again.
    Reloaded(Read),
    /// Shut down.
    ShutDown,
}

impl Report {
    /// What a handler says while it runs, as the engine is told of it; `None` of all else.
    pub(crate) fn said(&self) -> Option<Event<'_>> {
        match self {
            Self::Progress { job, progress, total, message } => Some(Event::Progress {
                job: *job,
                progress: *progress,
                total: *total,
                message: message.as_deref(),
            }),
            Self::Log { job, level, data } => Some(Event::Log { job: *job, level: *level, data }),
            Self::Asked { .. }
            | Self::Done { .. }
            | Self::Process(_)
            | Self::Store(_)
            | Self::Adopt(_)
            | Self::Scrape(_)
            | Self::Reloaded(_)
            | Self::ShutDown => None,
        }
    }
}

/// The sending side. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LoopSender {
    mailbox: Arc<Mailbox>,
}

#[derive(Debug)]
struct Mailbox {
    /// None: the loop looks by itself.
    waker: Option<Waker>,
    /// Reports that may wait.
    most: usize,
    state: Mutex<State>,
    /// There is room again.
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Report>,
    /// The loop is to look before it sleeps.
    urgent: bool,
    /// The loop sleeps, or is about to.
    asleep: bool,
    /// The loop has ended: nobody hears anything any more.
    closed: bool,
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct LoopReceiver {
    mailbox: Arc<Mailbox>,
}

impl LoopSender {
    /// A mailbox for the loop that polls `poll`, announced under `token`.
    pub(crate) fn new(poll: &Poll, token: Token) -> io::Result<(Self, LoopReceiver)> {
        let waker = Waker::new(poll.registry(), token)?;
        Ok(Self::pair(Some(waker), WAITING_MAX))
    }

    /// A mailbox without a loop that sleeps, for tests.
    #[cfg(test)]
    pub(crate) fn aside() -> (Self, LoopReceiver) {
        Self::pair(None, usize::MAX)
    }

    fn pair(waker: Option<Waker>, most: usize) -> (Self, LoopReceiver) {
        let (state, room) = (Mutex::default(), Condvar::new());
        let mailbox = Arc::new(Mailbox { waker, most, state, room });
        (Self { mailbox: Arc::clone(&mailbox) }, LoopReceiver { mailbox })
    }

    /// Tells the loop, at once. Once the loop has ended nobody listens, and that is fine.
    pub(crate) fn send(&self, report: Report) {
        let state = self.mailbox.put(report);
        self.mailbox.wake(state);
    }

    /// As [`LoopSender::send`], unless that would have to wait; false when it would.
    pub(crate) fn try_send(&self, report: Report) -> bool {
        let mut state = self.mailbox.state();
        let room = !state.closed && state.waiting.len() < self.mailbox.most;
        if room {
            self.mailbox.push(&mut state, report);
            self.mailbox.wake(state);
        }
        room
    }

    /// Leaves a report for whenever the loop looks: [`LoopSender::wake`] it soon.
    pub(crate) fn send_lazy(&self, report: Report) {
        drop(self.mailbox.put(report));
    }

    /// Has the loop hear what was left.
    pub(crate) fn wake(&self) {
        self.mailbox.wake(self.mailbox.state());
    }
}

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, report: Report) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.waiting.len() >= self.most && !state.closed {
            self.wake(state);
            let full = |state: &mut State| state.waiting.len() >= self.most && !state.closed;
            let waited = self.room.wait_while(self.state(), full);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            self.push(&mut state, report);
        }
        state
    }

    fn push(&self, state: &mut State, report: Report) {
        state.waiting.push(report);
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        state.urgent = true;
        // The sender that finds it asleep wakes it; for others that would be a wasted system call.
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep && let Some(waker) = &self.waker {
            // Fails only when the loop's descriptors are gone, and then nobody waits.
            let _ = waker.wake();
        }
    }
}

impl LoopReceiver {
    /// Moves what has arrived into `heard`, which must be empty: its room is used for what comes.
    pub(crate) fn take(&self, heard: &mut Vec<Report>) {
        let mut state = self.mailbox.state();
        state.urgent = false;
        state.asleep = false;
        std::mem::swap(&mut state.waiting, heard);
        drop(state);
        if heard.len() >= self.mailbox.most {
            self.mailbox.room.notify_all();
        }
    }

    /// Says whether the loop may sleep; from then on a report wakes it.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut state = self.mailbox.state();
        state.asleep = !state.urgent;
        state.asleep
    }
}

impl Drop for LoopReceiver {
    fn drop(&mut self) {
        let mut state = self.mailbox.state();
        state.closed = true;
        state.waiting = Vec::new();
        drop(state);
        self.mailbox.room.notify_all();
    }
}
