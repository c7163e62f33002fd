//! Fair scheduling of reads: cancels first, then connections with the least recent work.
//!
//! A turn of the loop may have much to read and to answer. So after each slice it polls for further
//! input; the next bytes of each connection are peeked at, which is cheap, and connections with
//! cancels are read before the rest. A cancel waits for at most one slice, whatever the load. No
//! peer starves: cancels get at most half a slice at a time, work for a peer moves it back in the
//! order, and a quiet peer is ahead by a bounded amount only.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use ceased_core::ids::ConnId;
use ceased_core::time::Instant;

/// Reading work per turn of the loop.
pub(crate) const TURN: Cost = Cost(1024);
/// Work between two polls.
pub(crate) const SLICE: Cost = Cost(32);
/// Budget per pass for urgent connections.
const URGENT: Cost = Cost(SLICE.0 / 2);
/// At most this many waiting connections are read without peeking.
const FEW: usize = 4;
/// Connections peeked at before pending cancels are handled.
pub(crate) const GLANCE: usize = 8;
/// Number of such rounds per pass.
pub(crate) const GLANCES: usize = 8;
/// Maximum advance of a quiet peer.
const AHEAD: Cost = Cost(64);
/// Fixed cost of a read, including its answer, in system calls.
const LOOK: u64 = 4;
/// Bytes with the cost of one frame.
const BYTES: u64 = 2048;

/// Work in units of a small frame; also the position in the order, which is accumulated work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Cost(u64);

impl Cost {
    /// Cost of reading this from a peer.
    pub(crate) const fn reading(frames: u64, bytes: u64) -> Self {
        Self(LOOK + frames + bytes / BYTES)
    }

    pub(crate) const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    pub(crate) const fn less(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0))
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Connections with pending input that no event will announce.
#[derive(Debug, Default)]
pub(crate) struct ReadScheduler {
    waiting: BTreeSet<(Cost, ConnId)>,
    /// Waiting connections with a pending cancel.
    urgent: BTreeSet<(Cost, ConnId)>,
    /// Waiting connections not peeked at yet, those with nothing to cancel last, and their position
    /// on arrival.
    fresh: BinaryHeap<Reverse<(bool, Cost, ConnId)>>,
    /// Lower bound of positions: waiting connections are at most [`AHEAD`] before this.
    front: Cost,
    /// Excess of urgent reads over their budget: a single read may exceed it.
    debt: Cost,
    /// The connection read last, and since when it has been the only one.
    last: Option<(ConnId, Instant)>,
}

impl ReadScheduler {
    /// Position of a new connection.
    pub(crate) const fn front(&self) -> Cost {
        self.front
    }

    /// Adds a connection, unless present. `place` is its previous position, moved by the work for
    /// it since. Connections that `could_cancel` are peeked at before others.
    pub(crate) fn insert(&mut self, conn: ConnId, place: &mut Cost, could_cancel: bool) {
        // No change for a present connection.
        *place = (*place).max(self.front.less(AHEAD));
        if self.waiting.insert((*place, conn)) {
            self.fresh.push(Reverse((!could_cancel, *place, conn)));
        }
    }

    /// Next connection to peek at: those that could cancel first, then by least recent work.
    pub(crate) fn fresh(&mut self) -> Option<ConnId> {
        loop {
            let Reverse((_, place, conn)) = self.fresh.pop()?;
            // It may have been read since.
            if self.waiting.contains(&(place, conn)) {
                return Some(conn);
            }
        }
    }

    /// Skips peeking if few connections wait.
    pub(crate) fn skip_few(&mut self) {
        if self.waiting.len() <= FEW {
            self.fresh.clear();
        }
    }

    /// Makes a waiting connection urgent.
    pub(crate) fn expedite(&mut self, conn: ConnId, place: Cost) {
        if self.waiting.contains(&(place, conn)) {
            self.urgent.insert((place, conn));
        }
    }

    pub(crate) fn remove(&mut self, conn: ConnId, place: Cost) {
        self.waiting.remove(&(place, conn));
        self.urgent.remove(&(place, conn));
    }

    /// Records a read of a connection.
    pub(crate) fn note_read(&mut self, conn: ConnId, at: Instant) {
        if self.last.is_none_or(|(last, _)| last != conn) {
            self.last = Some((conn, at));
        }
    }

    /// Since when a single connection has been read from.
    pub(crate) fn alone_since(&self) -> Option<Instant> {
        self.last.map(|(_, since)| since)
    }

    /// Budget of the urgent connections for this pass.
    pub(crate) fn allowance(&mut self) -> Cost {
        let allowance = URGENT.less(self.debt);
        self.debt = self.debt.less(URGENT);
        allowance
    }

    /// Charges the excess of urgent reads to the next passes.
    pub(crate) fn overdraw(&mut self, by: Cost) {
        self.debt = self.debt.plus(by);
    }

    /// Takes the next urgent connection.
    pub(crate) fn next_urgent(&mut self) -> Option<ConnId> {
        let next = self.urgent.pop_first()?;
        self.waiting.remove(&next);
        Some(next.1)
    }

    /// Takes the next connection.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        let next = self.waiting.pop_first()?;
        self.urgent.remove(&next);
        self.front = self.front.max(next.0);
        Some(next.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads this many frames of the next connection and adds it again.
    fn read_on(ready: &mut ReadScheduler, places: &mut [Cost], frames: u64) -> usize {
        let conn = ready.next().expect("a connection waits");
        let number = usize::try_from(conn.get()).expect("it is small");
        places[number] = places[number].plus(Cost::reading(frames, 0));
        ready.insert(conn, &mut places[number], false);
        number
    }

    fn busy(count: usize) -> (ReadScheduler, Vec<Cost>) {
        let (mut ready, mut places) = (ReadScheduler::default(), vec![Cost::default(); count + 1]);
        for (number, place) in (0..).zip(places.iter_mut().take(count)) {
            ready.insert(ConnId::new(number), place, false);
        }
        (ready, places)
    }

    /// A quiet connection is first, and waits like others once its advance is used up.
    #[test]
    fn quiet_connection_is_read_first() {
        let (mut ready, mut places) = busy(64);
        for _ in 0..1000 {
            read_on(&mut ready, &mut places, 1);
        }
        ready.insert(ConnId::new(64), &mut places[64], false);
        let first: Vec<usize> = (0..20).map(|_| read_on(&mut ready, &mut places, 1)).collect();
        let ahead = first.iter().take_while(|number| **number == 64).count();
        assert!((1..20).contains(&ahead), "{first:?}");
        assert!(!first[ahead..].contains(&64), "{first:?}");
    }

    /// Connections that could cancel are peeked at first, then quiet ones.
    #[test]
    fn connection_that_could_cancel_is_peeked_at_first() {
        let (mut ready, mut places) = busy(9);
        let loud: Vec<usize> = (0..1000).map(|_| read_on(&mut ready, &mut places, 1)).collect();
        assert!(loud.contains(&3));
        ready.insert(ConnId::new(9), &mut places[9], false);
        ready.remove(ConnId::new(3), places[3]);
        places[3] = places[3].plus(Cost(1000));
        ready.insert(ConnId::new(3), &mut places[3], true);
        assert_eq!(ready.fresh(), Some(ConnId::new(3)));
        assert_eq!(ready.fresh(), Some(ConnId::new(9)));
        let rest = std::iter::from_fn(|| ready.fresh()).count();
        assert_eq!(rest, 8, "each once");
    }

    /// No connection starves: each gets the same work, whatever the cost of its frames.
    #[test]
    fn work_is_shared_equally() {
        let (mut ready, mut places) = busy(8);
        let mut reads = [0_u64; 8];
        for _ in 0..10_000 {
            let costs = |number: u64| 1 + number * 20;
            let next = ready.waiting.first().expect("a connection waits").1.get();
            reads[read_on(&mut ready, &mut places, costs(next))] += LOOK + costs(next);
        }
        let (least, most) = (reads.iter().min(), reads.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 300), "{reads:?}");
    }

    /// Urgent connections are first, but limited to their share of the work.
    #[test]
    fn urgent_connections_are_limited_to_their_share() {
        let (mut ready, mut places) = busy(1);
        let flood = Cost::reading(3000, 256 * 1024);
        let (mut urgent, rounds) = (Cost::default(), 10_000);
        for _ in 0..rounds {
            ready.expedite(ConnId::new(0), places[0]);
            let (allowed, mut done) = (ready.allowance(), Cost::default());
            while done < allowed
                && let Some(conn) = ready.next_urgent()
            {
                done = done.plus(flood);
                places[0] = places[0].plus(flood);
                ready.insert(conn, &mut places[0], false);
                ready.expedite(conn, places[0]);
            }
            ready.overdraw(done.less(allowed));
            urgent = urgent.plus(done);
        }
        let share = rounds * URGENT.0;
        assert!((share..=share + flood.0).contains(&urgent.0), "{urgent:?} of {share}");
    }

    /// A connection is alone while no other one is read.
    #[test]
    fn single_active_connection_is_detected() {
        let mut ready = ReadScheduler::default();
        assert_eq!(ready.alone_since(), None);
        for (at, conn, since) in [(1, 7, 1), (2, 7, 1), (3, 8, 3), (4, 7, 4), (5, 7, 4)] {
            ready.note_read(ConnId::new(conn), Instant::from_nanos(at));
            assert_eq!(ready.alone_since(), Some(Instant::from_nanos(since)));
        }
    }

    /// A present connection is not added again, and can be removed.
    #[test]
    fn connection_is_queued_once() {
        let (mut ready, mut places) = busy(3);
        for _ in 0..100 {
            read_on(&mut ready, &mut places, 7);
            for (number, place) in (0..).zip(places.iter_mut().take(3)) {
                ready.insert(ConnId::new(number), place, false);
            }
            assert_eq!(ready.waiting.len(), 3);
        }
        ready.remove(ConnId::new(1), places[1]);
        assert_eq!(ready.waiting.len(), 2);
        ready.next();
        assert!(!ready.is_empty());
        ready.next();
        assert_eq!(ready.next(), None);
    }
}
