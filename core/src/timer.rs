//! Timers, ordered by when they are due.

use alloc::collections::BTreeSet;

use crate::id::{CallId, ConnId, JobId, RequestState, TaskId};
use crate::idempotency::KeyedId;
use crate::time::Instant;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A job's timeout, or the next step of its ladder.
    Job(JobId),
    /// A task's ttl.
    Task(TaskId),
    /// A peer has read nothing for too long.
    Stall(ConnId),
    /// A full outbox may have been sent, and subscriptions be told what they do not know.
    CatchUp(ConnId),
    /// A peer that closed its side may not wait longer for what still runs.
    Linger(ConnId),
    /// A call has waited long enough for what it asked for.
    Parked(RequestState),
    /// A call whose connection is gone has gone on for long enough.
    Orphan(JobId),
    /// What came of a call with an idempotency key was remembered for long enough.
    Keyed(KeyedId),
    /// An answer we wait for.
    Call(ConnId, CallId),
    /// A task at a peer that is to be asked about.
    Poll(ConnId, CallId),
    /// The store that failed is to be tried again.
    Store,
    /// SIGKILL for what is left while shutting down.
    DrainKill,
    /// The end of the shutdown.
    DrainEnd,
}

/// Armed timers. Whoever arms one remembers when it is due, and disarms it by that.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    /// Arms `timer` for `at`, instead of `slot` if that holds a time, and notes it in `slot`.
    pub(crate) fn arm(&mut self, slot: &mut Option<Instant>, timer: Timer, at: Instant) {
        self.disarm(slot, timer);
        assert!(self.due.insert((at, timer)), "a timer is armed once");
        *slot = Some(at);
    }

    /// Disarms `timer` if `slot` says it is armed.
    pub(crate) fn disarm(&mut self, slot: &mut Option<Instant>, timer: Timer) {
        if let Some(at) = slot.take() {
            assert!(self.due.remove(&(at, timer)), "an armed timer is in the table");
        }
    }

    /// The first timer that is due.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        self.due.first().copied()
    }

    /// Takes the first timer due at `now`. Its owner's slot still names it and must be cleared.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let (at, timer) = self.next()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        Some(timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }
}
