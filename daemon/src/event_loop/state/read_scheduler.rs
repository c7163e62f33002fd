//! Fair scheduling of reads: connections with the least recent work first.
//!
//! A turn of the loop reads a bounded amount, then answers it, so that a message waits for one
//! turn beside others and for the connections with less recent work. No peer starves: work for a
//! peer moves it back in the order, and a quiet peer is ahead by a bounded amount only.

use std::collections::BTreeSet;

use ceased_core::ids::ConnId;
use ceased_core::time::Instant;

/// Reading work per turn of the loop.
pub(crate) const TURN: Cost = Cost(1024);
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
    /// Lower bound of positions: waiting connections are at most [`AHEAD`] before this.
    front: Cost,
    /// The connection read last, and since when it has been the only one.
    last: Option<(ConnId, Instant)>,
}

impl ReadScheduler {
    /// Position of a new connection.
    pub(crate) const fn front(&self) -> Cost {
        self.front
    }

    /// Adds a connection, unless present. `place` is its previous position, moved by the work for
    /// it since.
    pub(crate) fn insert(&mut self, conn: ConnId, place: &mut Cost) {
        // No change for a present connection.
        *place = (*place).max(self.front.less(AHEAD));
        self.waiting.insert((*place, conn));
    }

    pub(crate) fn remove(&mut self, conn: ConnId, place: Cost) {
        self.waiting.remove(&(place, conn));
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

    /// Takes the next connection.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        let next = self.waiting.pop_first()?;
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
        ready.insert(conn, &mut places[number]);
        number
    }

    fn busy(count: usize) -> (ReadScheduler, Vec<Cost>) {
        let (mut ready, mut places) = (ReadScheduler::default(), vec![Cost::default(); count + 1]);
        for (number, place) in (0..).zip(places.iter_mut().take(count)) {
            ready.insert(ConnId::new(number), place);
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
        ready.insert(ConnId::new(64), &mut places[64]);
        let first: Vec<usize> = (0..20).map(|_| read_on(&mut ready, &mut places, 1)).collect();
        let ahead = first.iter().take_while(|number| **number == 64).count();
        assert!((1..20).contains(&ahead), "{first:?}");
        assert!(!first[ahead..].contains(&64), "{first:?}");
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
                ready.insert(ConnId::new(number), place);
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
