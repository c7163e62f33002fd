//! Whose turn it is to be read: cancels first, then those for whom least was done lately.
//!
//! A turn of the loop may have much to read and to answer. So after each slice of it the loop looks
//! who else has come; what is next from each is read ahead, at little cost, and what has to do with
//! a cancel is handled before the rest. It waits for one slice, however busy all others are. No peer
//! starves: cancels get half as much as a slice at a time, work done for a peer moves it
//! back, and who has been quiet is ahead by a little, not by all it did not use.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use ceased_core::ids::ConnId;
use ceased_core::time::Instant;

/// Work of reading in one turn of the loop.
pub(super) const TURN: Cost = Cost(1024);
/// Work before the loop polls again.
pub(super) const SLICE: Cost = Cost(32);
/// What may be read each time of those who come first because of what they say.
const URGENT: Cost = Cost(SLICE.0 / 2);
/// While no more than these wait, nobody waits long.
const FEW: usize = 4;
/// Connections looked at ahead of their turn before what they want cancelled is.
pub(super) const GLANCE: usize = 8;
/// How often that is done at a time.
pub(super) const GLANCES: usize = 8;
/// How far ahead of the others a peer is that has been quiet.
const AHEAD: Cost = Cost(64);
/// What looking at a peer costs, whatever it has said: the system takes as much for reading it and
/// for its answer.
const LOOK: u64 = 4;
/// Bytes that cost as much as a frame.
const BYTES: u64 = 2048;

/// Work, in units of a small frame; and a place in the order, which is the work that led there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost(u64);

impl Cost {
    /// What it takes to read this from a peer.
    pub(super) const fn reading(frames: u64, bytes: u64) -> Self {
        Self(LOOK + frames + bytes / BYTES)
    }

    pub(super) const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }

    pub(super) const fn less(self, done: Self) -> Self {
        Self(self.0.saturating_sub(done.0))
    }

    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Connections with something left to read that no event will announce.
#[derive(Debug, Default)]
pub(super) struct ReadScheduler {
    waiting: BTreeSet<(Cost, ConnId)>,
    /// Those of them that come first because of what they say.
    urgent: BTreeSet<(Cost, ConnId)>,
    /// Those of them that nobody has looked at, those with nothing to cancel last, and where they
    /// stood when they came.
    fresh: BinaryHeap<Reverse<(bool, Cost, ConnId)>>,
    /// No waiting connection stands further than [`AHEAD`] before this.
    front: Cost,
    /// What the urgent have had beyond what they may: one read may be longer than that.
    debt: Cost,
    /// The connection that was read last, and since when it has been alone.
    last: Option<(ConnId, Instant)>,
}

impl ReadScheduler {
    /// Where a new connection stands.
    pub(super) const fn front(&self) -> Cost {
        self.front
    }

    /// Puts a connection in, unless it is there. `place` is where it stood, moved back by the work
    /// done for it since. One that `could_cancel` something is looked at before the others.
    pub(super) fn insert(&mut self, conn: ConnId, place: &mut Cost, could_cancel: bool) {
        // Changes nothing for one that is there.
        *place = (*place).max(self.front.less(AHEAD));
        if self.waiting.insert((*place, conn)) {
            self.fresh.push(Reverse((!could_cancel, *place, conn)));
        }
    }

    /// A connection to look at before its turn; of those that could cancel as much, first those for
    /// whom least was done lately.
    pub(super) fn fresh(&mut self) -> Option<ConnId> {
        loop {
            let Reverse((_, place, conn)) = self.fresh.pop()?;
            // It may have had its turn since.
            if self.waiting.contains(&(place, conn)) {
                return Some(conn);
            }
        }
    }

    /// When few wait, and are read now, none needs a look before.
    pub(super) fn skip_few(&mut self) {
        if self.waiting.len() <= FEW {
            self.fresh.clear();
        }
    }

    /// A connection that waits comes first.
    pub(super) fn expedite(&mut self, conn: ConnId, place: Cost) {
        if self.waiting.contains(&(place, conn)) {
            self.urgent.insert((place, conn));
        }
    }

    pub(super) fn remove(&mut self, conn: ConnId, place: Cost) {
        self.waiting.remove(&(place, conn));
        self.urgent.remove(&(place, conn));
    }

    /// Notes that a connection is read from.
    pub(super) fn note_read(&mut self, conn: ConnId, at: Instant) {
        if self.last.is_none_or(|(last, _)| last != conn) {
            self.last = Some((conn, at));
        }
    }

    /// Since when one connection alone has been read from.
    pub(super) fn alone_since(&self) -> Option<Instant> {
        self.last.map(|(_, since)| since)
    }

    /// What the urgent may have this time.
    pub(super) fn allowance(&mut self) -> Cost {
        let allowance = URGENT.less(self.debt);
        self.debt = self.debt.less(URGENT);
        allowance
    }

    /// The urgent have had more than that, and wait for it the next times.
    pub(super) fn overdraw(&mut self, by: Cost) {
        self.debt = self.debt.plus(by);
    }

    /// Takes out one that comes first because of what it says.
    pub(super) fn next_urgent(&mut self) -> Option<ConnId> {
        let next = self.urgent.pop_first()?;
        self.waiting.remove(&next);
        Some(next.1)
    }

    /// Takes out the one whose turn it is.
    pub(super) fn next(&mut self) -> Option<ConnId> {
        let next = self.waiting.pop_first()?;
        self.urgent.remove(&next);
        self.front = self.front.max(next.0);
        Some(next.1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads so many frames of whoever comes first, and puts it back in.
    fn read_on(ready: &mut ReadScheduler, places: &mut [Cost], frames: u64) -> usize {
        let conn = ready.next().expect("somebody waits");
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

    /// A quiet connection comes next, and waits like others once its advance is used up.
    #[test]
    fn the_quiet_come_first() {
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

    /// Connections that could cancel something are looked at first, and then quiet ones.
    #[test]
    fn whoever_may_cancel_is_looked_at_first() {
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

    /// No connection starves: each gets the same work done, whatever its frames cost.
    #[test]
    fn all_get_the_same() {
        let (mut ready, mut places) = busy(8);
        let mut reads = [0_u64; 8];
        for _ in 0..10_000 {
            let costs = |number: u64| 1 + number * 20;
            let next = ready.waiting.first().expect("somebody waits").1.get();
            reads[read_on(&mut ready, &mut places, costs(next))] += LOOK + costs(next);
        }
        let (least, most) = (reads.iter().min(), reads.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 300), "{reads:?}");
    }

    /// However much the urgent have to say at once, they come first with a share of the work only.
    #[test]
    fn the_urgent_have_their_share() {
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

    /// A connection is alone for as long as no other has spoken.
    #[test]
    fn one_alone_is_known() {
        let mut ready = ReadScheduler::default();
        assert_eq!(ready.alone_since(), None);
        for (at, conn, since) in [(1, 7, 1), (2, 7, 1), (3, 8, 3), (4, 7, 4), (5, 7, 4)] {
            ready.note_read(ConnId::new(conn), Instant::from_nanos(at));
            assert_eq!(ready.alone_since(), Some(Instant::from_nanos(since)));
        }
    }

    /// One that is in is not put in again, however late it says more, and can be taken out.
    #[test]
    fn a_connection_is_in_once() {
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
