//! Fair scheduling of reads: connections with the least recent work first.
//!
//! A turn of the loop reads a bounded amount, then answers it, so that a message waits for one
//! turn beside others and for the connections with less recent work. No peer starves: work for a
//! peer moves it back in the order, and a quiet peer is ahead by a bounded amount only.
//!
//! Strangers, which are connections without an identity yet, come after all others and have a short
//! time of each turn, so that a flood of them delays no other peer by more than that time.

use std::collections::BTreeSet;
use std::time::Duration;

use ceased_core::ids::ConnId;
use ceased_core::time::Instant;

/// Reading work per turn of the loop.
pub(crate) const TURN: Cost = Cost(1024);
/// Time of a turn for strangers, of which each turn reads one at least. The check of a signature takes
/// a fifth of it, and a TLS handshake more than all of it.
pub(crate) const STRANGERS_TIME: Duration = Duration::from_micros(250);
/// Strangers read in one turn at most, and those that wait to be read: further ones are accepted later.
pub(crate) const STRANGERS_MAX: usize = 16;
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
    strangers: BTreeSet<(Cost, ConnId)>,
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
    pub(crate) fn insert(&mut self, conn: ConnId, place: &mut Cost, is_stranger: bool) {
        // No change for a present connection.
        *place = (*place).max(self.front.less(AHEAD));
        self.of(is_stranger).insert((*place, conn));
    }

    /// Removes a connection; returns whether it was present.
    pub(crate) fn remove(&mut self, conn: ConnId, place: Cost, is_stranger: bool) -> bool {
        self.of(is_stranger).remove(&(place, conn))
    }

    const fn of(&mut self, is_stranger: bool) -> &mut BTreeSet<(Cost, ConnId)> {
        if is_stranger { &mut self.strangers } else { &mut self.waiting }
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

    /// Takes the next stranger, which waits longest.
    pub(crate) fn next_stranger(&mut self) -> Option<ConnId> {
        self.strangers.pop_first().map(|(_, conn)| conn)
    }

    /// Whether as many strangers wait as may: further ones stay in the backlogs of the listeners.
    pub(crate) fn is_full_of_strangers(&self) -> bool {
        self.strangers.len() >= STRANGERS_MAX
    }

    /// Takes the next connection that is no stranger.
    pub(crate) fn next(&mut self) -> Option<ConnId> {
        let next = self.waiting.pop_first()?;
        self.front = self.front.max(next.0);
        Some(next.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.strangers.is_empty()
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
                ready.insert(ConnId::new(number), place, false);
            }
            assert_eq!(ready.waiting.len(), 3);
        }
        assert!(ready.remove(ConnId::new(1), places[1], false));
        assert_eq!(ready.waiting.len(), 2);
        ready.next();
        assert!(!ready.is_empty());
        ready.next();
        assert_eq!(ready.next(), None);
    }

    /// Strangers are not among the connections of a turn, keep their order, and are bounded.
    #[test]
    fn strangers_wait_apart() {
        let (mut ready, mut places) = busy(2);
        let mut place = Cost::default();
        for number in (10..).take(STRANGERS_MAX) {
            assert!(!ready.is_full_of_strangers());
            ready.insert(ConnId::new(number), &mut place, true);
        }
        assert!(ready.is_full_of_strangers());
        for _ in 0..10 {
            assert!(read_on(&mut ready, &mut places, 1) < 2);
        }
        assert_eq!(ready.next_stranger(), Some(ConnId::new(10)));
        assert!(!ready.is_full_of_strangers() && !ready.remove(ConnId::new(11), place, false));
        assert!(ready.remove(ConnId::new(11), place, true));
        assert_eq!(ready.next_stranger(), Some(ConnId::new(12)));
        while ready.next().is_some() {}
        assert!(!ready.is_empty(), "strangers keep the loop from sleeping");
    }
}
