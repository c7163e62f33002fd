//! Timers, ordered by when they are due.

use alloc::vec::Vec;
use core::num::NonZeroU32;

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

impl Timer {
    /// The first bits of the order of timers: where two ranks differ, the timers do likewise.
    fn rank(self) -> u64 {
        let (kind, number) = match self {
            Self::Job(id) => (0, id.get()),
            Self::Task(id) => (1, id.uuid().as_u64_pair().0 >> KIND_BITS),
            Self::Stall(conn) => (2, conn.get()),
            Self::CatchUp(conn) => (3, conn.get()),
            Self::Linger(conn) => (4, conn.get()),
            Self::Parked(state) => (5, state.uuid().as_u64_pair().0 >> KIND_BITS),
            Self::Orphan(id) => (6, id.get()),
            Self::Keyed(id) => (7, id.get()),
            Self::Call(conn, _) => (8, conn.get()),
            Self::Poll(conn, _) => (9, conn.get()),
            Self::Store => (10, 0),
            Self::DrainKill => (11, 0),
            Self::DrainEnd => (12, 0),
        };
        // A number that does not fit is none that is counted to.
        kind << (u64::BITS - KIND_BITS) | (number << KIND_BITS >> KIND_BITS)
    }
}

/// Bits of a rank that say the kind.
const KIND_BITS: u32 = 4;

/// An armed timer, as whoever armed it keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed(Number);

/// The number of a place, from 1, so that an optional one takes no more room.
type Number = NonZeroU32;

/// An armed timer in the heap.
#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    rank: u64,
    place: Number,
}

/// Armed timers: a heap of when they are due, each knowing where it stands in it.
///
/// Most are armed for later than every other and disarmed before they are due: the first costs
/// one comparison, the second as many as the heap is deep, and what is disarmed leaves nothing
/// behind.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<Due>,
    places: Vec<Place>,
    free: Vec<Number>,
}

#[derive(Debug)]
struct Place {
    timer: Timer,
    /// Where it stands in the heap.
    at: u32,
}

/// Branches of the heap: with four it is half as deep as with two.
const BRANCHES: usize = 4;
/// Places kept for later when no timer is armed.
const PLACES_KEPT: usize = 1024;

impl Timers {
    /// Arms `timer` for `at`, instead of `slot` if that holds a time, and notes it in `slot`.
    pub(crate) fn arm(&mut self, slot: &mut Option<Armed>, timer: Timer, at: Instant) {
        match slot {
            Some(armed) => {
                let stands = self.find(*armed, timer);
                self.heap[stands].at = at;
                let stands = self.rise(stands);
                self.sink(stands);
            }
            None => {
                let stands = self.heap.len();
                let place = self.take_place(Place { timer, at: stands as u32 });
                self.heap.push(Due { at, rank: timer.rank(), place });
                self.rise(stands);
                *slot = Some(Armed(place));
            }
        }
    }

    /// Disarms `timer` if `slot` says it is armed.
    pub(crate) fn disarm(&mut self, slot: &mut Option<Armed>, timer: Timer) {
        if let Some(armed) = slot.take() {
            self.take_out(self.find(armed, timer));
        }
    }

    /// Where an armed timer stands in the heap.
    fn find(&self, armed: Armed, timer: Timer) -> usize {
        let place = &self.places[armed.0.get() as usize - 1];
        assert!(place.timer == timer, "an armed timer is in the table");
        place.at as usize
    }

    /// When an armed timer is due.
    pub(crate) fn due(&self, armed: Armed) -> Instant {
        self.heap[self.places[armed.0.get() as usize - 1].at as usize].at
    }

    fn take_place(&mut self, place: Place) -> Number {
        if let Some(number) = self.free.pop() {
            *self.place(number) = place;
            return number;
        }
        self.places.push(place);
        Number::new(self.places.len() as u32).expect("there is one now")
    }

    fn place(&mut self, number: Number) -> &mut Place {
        &mut self.places[number.get() as usize - 1]
    }

    /// The first timer that is due.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let first = self.heap.first()?;
        Some((first.at, self.places[first.place.get() as usize - 1].timer))
    }

    /// Takes the first timer due at `now`. Its owner's slot still names it and must be cleared.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let (at, timer) = self.next()?;
        if at > now {
            return None;
        }
        self.take_out(0);
        Some(timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    fn take_out(&mut self, at: usize) {
        self.free.push(self.heap.swap_remove(at).place);
        if at < self.heap.len() {
            let at = self.rise(at);
            self.sink(at);
        } else if self.heap.is_empty() && self.places.len() > PLACES_KEPT {
            *self = Self::default();
        }
    }

    /// Moves what stands at `at` up to where it belongs; gives back where that is.
    fn rise(&mut self, mut at: usize) -> usize {
        let due = self.heap[at];
        while at > 0 {
            let above = (at - 1) / BRANCHES;
            if !self.is_before(due, self.heap[above]) {
                break;
            }
            self.put(at, self.heap[above]);
            at = above;
        }
        self.put(at, due);
        at
    }

    /// Moves what stands at `at` down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        let due = self.heap[at];
        loop {
            let below = at * BRANCHES + 1;
            let mut first = below;
            for other in below + 1..self.heap.len().min(below + BRANCHES) {
                if self.is_before(self.heap[other], self.heap[first]) {
                    first = other;
                }
            }
            if first >= self.heap.len() || !self.is_before(self.heap[first], due) {
                break;
            }
            self.put(at, self.heap[first]);
            at = first;
        }
        self.put(at, due);
    }

    fn put(&mut self, at: usize, due: Due) {
        self.heap[at] = due;
        self.place(due.place).at = at as u32;
    }

    /// What is due at the same time comes in the order of [`Timer`] (DET-01).
    fn is_before(&self, a: Due, b: Due) -> bool {
        let timer = |due: Due| self.places[due.place.get() as usize - 1].timer;
        if a.at != b.at {
            a.at < b.at
        } else if a.rank != b.rank {
            a.rank < b.rank
        } else {
            timer(a) < timer(b)
        }
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        assert_eq!(self.heap.len() + self.free.len(), self.places.len(), "a place is lost");
        for (at, due) in self.heap.iter().enumerate() {
            assert_eq!(
                self.places[due.place.get() as usize - 1].at as usize,
                at,
                "a timer is elsewhere"
            );
            let above = self.heap[at.saturating_sub(1) / BRANCHES];
            assert!(!self.is_before(*due, above), "a later timer comes first");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    /// Timers of two kinds, some of which differ in their last bits alone.
    fn numbered(which: u64) -> Timer {
        match which % 2 {
            0 => Timer::Job(JobId::new(which)),
            _ => Timer::Task(TaskId::new(uuid::Uuid::from_u128(which.into()))),
        }
    }

    /// DET-01: whatever is armed, moved and disarmed, timers come in the order of an ordered set.
    #[test]
    fn timers_come_in_order() {
        let mut timers = Timers::default();
        let mut slots = [None; 300];
        let mut set = BTreeSet::new();
        let mut random = 1_u64;
        for turn in 0..30_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let which = (random >> 33) % 300;
            let timer = numbered(which);
            let slot = &mut slots[which as usize];
            match random >> 62 {
                0 => {
                    set.retain(|(_, armed)| *armed != timer);
                    timers.disarm(slot, timer);
                }
                1 if turn % 50 == 0 => {
                    let now = Instant::from_nanos(turn);
                    let due = timers.pop(now);
                    assert_eq!(due, set.first().filter(|(at, _)| *at <= now).map(|(_, t)| *t));
                    if let Some(due) = due {
                        set.pop_first();
                        let which = (0..300).find(|which| numbered(*which) == due).unwrap();
                        slots[which as usize] = None;
                    }
                }
                _ => {
                    // Few different times, so that many are due at once.
                    let at = Instant::from_nanos((turn + (random >> 40) % 5_000) / 100 * 100);
                    set.retain(|(_, armed)| *armed != timer);
                    set.insert((at, timer));
                    timers.arm(slot, timer, at);
                }
            }
            assert_eq!(timers.next(), set.first().copied());
            assert_eq!(timers.len(), set.len());
            if turn % 100 == 0 {
                timers.check();
            }
        }
    }

    /// What is disarmed leaves nothing behind.
    #[test]
    fn places_are_used_again() {
        let mut timers = Timers::default();
        for number in 0..100_000 {
            let (timer, mut slot) = (Timer::Job(JobId::new(number)), None);
            timers.arm(&mut slot, timer, Instant::from_nanos(number));
            timers.disarm(&mut slot, timer);
        }
        assert_eq!((timers.len(), timers.places.len()), (0, 1));
    }
}
