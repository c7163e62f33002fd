//! Mailbox of the loop: one bounded queue of reports from other threads, with one waker.
//!
//! `send` wakes the loop; `send_lazy` does not: a thread with many small results queues them and
//! wakes the loop once. The loop handles all queued reports whenever it is awake.
//! there whenever it is awake.

use super::state::reload::Read;

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ceased_core::event::{Event, Outcome};
use ceased_core::ids::{AskId, InstanceId, JobId, StatusId};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{Answer, OutgoingRequest};
use ceased_core::provider::{HostOffer, OfferKind};
use ceased_core::tool::Tool;
use crossbeam_channel::Sender;
use mio::{Poll, Token, Waker};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::process;
use crate::remote::{Bearer, Endpoint, SlotId};
use crate::server_token::TokenAnswer;
use crate::store;

/// Capacity of the queue; senders block when it is full.
const WAITING_MAX: usize = 4096;

/// A report of another thread.
#[derive(Debug)]
pub(crate) enum Report {
    /// Progress of a handler.
    Progress { job: JobId, progress: f64, total: Option<f64>, message: Option<Box<str>> },
    /// Log message of a handler.
    Log { job: JobId, level: LogLevel, data: Box<RawValue> },
    /// Requests of a handler to its peer, which go out together.
    Asked { job: JobId, asked: Vec<Asked> },
    /// The call of a handler becomes a task.
    Escalated(JobId),
    /// The offers of the daemon change.
    Offers(OfferChange),
    /// A handler has returned.
    Done { job: JobId, outcome: Outcome },
    /// A report of the process supervisor.
    Process(process::Report),
    /// A report of the store.
    Store(store::orders::Report),
    /// Serve the other end of this socket as a peer of our own user.
    Adopt(UnixStream),
    /// A server by URL was looked up, for a connection of an instance.
    Resolved { instance: InstanceId, slot: SlotId, found: Result<Vec<SocketAddr>, String> },
    /// The source of the token of a server by URL has answered.
    Token { bearer: Bearer, answer: TokenAnswer },
    /// The file of a login was written or removed: the answer to the peer that wanted it.
    Login { read: StatusId, server: Arc<Endpoint>, answer: Value },
    /// The keys of an issuer were read, or cannot be.
    KeysRead,
    /// The configuration was read again.
    Reloaded(Read),
    /// Shut down.
    ShutDown,
}

impl Report {
    /// The engine event of a report from a running handler; `None` for other reports.
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
            | Self::Escalated(_)
            | Self::Offers(_)
            | Self::Done { .. }
            | Self::Process(_)
            | Self::Store(_)
            | Self::Adopt(_)
            | Self::Resolved { .. }
            | Self::Token { .. }
            | Self::Login { .. }
            | Self::KeysRead
            | Self::Reloaded(_)
            | Self::ShutDown => None,
        }
    }
}

/// A request of a handler to its peer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ask: AskId,
    pub(crate) request: OutgoingRequest,
    pub(crate) answer: Sender<Answer>,
}

/// A change of the offers of a daemon.
#[derive(Debug)]
pub(crate) enum OfferChange {
    /// One more tool, or another one of its name.
    AddTool(Box<Tool>),
    /// No tool of this name any more.
    RemoveTool(Box<str>),
    /// One more prompt or resource, or another one of its name.
    Add(Box<HostOffer>),
    /// No prompt or resource of this kind and name any more.
    Remove(OfferKind, Box<str>),
    /// A resource has another content now.
    Updated(Box<str>),
}

/// The sending side. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct LoopSender {
    mailbox: Arc<Mailbox>,
}

#[derive(Debug)]
struct Mailbox {
    /// `None`: the loop polls by itself.
    waker: Option<Waker>,
    /// Capacity.
    most: usize,
    state: Mutex<State>,
    /// Signalled when there is room.
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Report>,
    /// The loop must handle reports before it sleeps.
    urgent: bool,
    /// The loop sleeps, or is about to.
    asleep: bool,
    /// The loop has ended; reports are dropped.
    closed: bool,
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct LoopReceiver {
    mailbox: Arc<Mailbox>,
}

impl LoopSender {
    /// Creates a mailbox for the loop that polls `poll`; wake-ups have `token`.
    pub(crate) fn new(poll: &Poll, token: Token) -> io::Result<(Self, LoopReceiver)> {
        let waker = Waker::new(poll.registry(), token)?;
        Ok(Self::pair(Some(waker), WAITING_MAX))
    }

    fn pair(waker: Option<Waker>, most: usize) -> (Self, LoopReceiver) {
        let (state, room) = (Mutex::default(), Condvar::new());
        let mailbox = Arc::new(Mailbox { waker, most, state, room });
        (Self { mailbox: Arc::clone(&mailbox) }, LoopReceiver { mailbox })
    }

    /// Sends a report and wakes the loop. Has no effect once the loop has ended.
    pub(crate) fn send(&self, report: Report) {
        let state = self.mailbox.put(report);
        self.mailbox.wake(state);
    }

    /// Queues a report without waking the loop; call [`LoopSender::wake`] soon.
    pub(crate) fn send_lazy(&self, report: Report) {
        drop(self.mailbox.put(report));
    }

    /// Wakes the loop to handle queued reports.
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
        // Only the first sender needs to wake it; a second system call would be wasted.
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep && let Some(waker) = &self.waker {
            // Fails only if the loop's descriptors are closed, and then no loop sleeps.
            let _ = waker.wake();
        }
    }
}

impl LoopReceiver {
    /// Moves all queued reports into `heard`, which must be empty; its buffer is reused.
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

    /// Whether the loop may sleep; from then on a report wakes it.
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
