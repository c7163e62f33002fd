//! Timers, ordered by when they are due.

use alloc::vec::Vec;

use crate::collections::slab::{Place, Slab};
use crate::ids::{CallId, ConnId, InstanceId, JobId, KeyedId, RequestState, TaskId};
use crate::time::Instant;

/// A deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A job's timeout, or the next step of its ladder.
    Job(JobId),
    /// A task's ttl.
    Task(TaskId),
    /// A peer has read nothing for too long. A [`Tick`](crate::event::Event::Tick) takes it first
    /// or not at all: a host that sees it as the next [`deadline`](crate::engine::Engine::deadline)
    /// can try the peer once more before.
    Stall(ConnId),
    /// A full send queue may have been sent, and subscriptions be told what they do not know.
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
    /// A job has told its requestor nothing for as long as its heartbeat.
    Heartbeat(JobId),
    /// The next step of the check of a cancelled request of an upstream.
    Relayed(JobId),
    /// The deadline of an instance of an upstream.
    Upstream(InstanceId),
}

impl Timer {
    /// Its place among timers that are due at the same time.
    const fn kind(self) -> u64 {
        match self {
            Self::Job(_) => 0,
            Self::Task(_) => 1,
            Self::Stall(_) => 2,
            Self::CatchUp(_) => 3,
            Self::Linger(_) => 4,
            Self::Parked(_) => 5,
            Self::Orphan(_) => 6,
            Self::Keyed(_) => 7,
            Self::Call(..) => 8,
            Self::Poll(..) => 9,
            Self::Store => 10,
            Self::DrainKill => 11,
            Self::DrainEnd => 12,
            Self::Heartbeat(_) => 13,
            Self::Relayed(_) => 14,
            Self::Upstream(_) => 15,
        }
    }
}

/// Bits of an order that say the kind.
const KIND_BITS: u32 = 4;

/// An armed timer, as whoever armed it keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed(Place);

/// When a timer comes: those that are due at the same time by kind, and then as they were armed
/// (DET-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    /// The kind, and how many were armed before.
    order: u64,
}

/// An armed timer.
#[derive(Debug)]
struct Node {
    due: Due,
    timer: Timer,
    stands: Stands,
}

/// Where a timer stands.
#[derive(Debug, Clone, Copy)]
enum Stands {
    /// In a lane, between these.
    Lane { lane: u8, before: Option<Place>, after: Option<Place> },
    /// In the heap.
    Heap(u32),
}

/// Timers one behind the other, in the order in which they come.
#[derive(Debug)]
struct Lane {
    first: (Due, Place),
    last: (Due, Place),
}

/// Armed timers: lanes, and a heap for what fits into no lane.
///
/// Most are armed for a span that others were armed for before, and so come after those: each goes
/// to the end of the first lane in which it is the last to come. To arm it, to disarm it wherever
/// it stands, and to take the first that is due cost the same however many there are. With more
/// different spans than lanes some go to the heap, where that costs what the heap is deep.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    all: Slab<Node>,
    lanes: [Option<Lane>; LANES],
    heap: Vec<(Due, Place)>,
    /// How many were ever armed.
    armed: u64,
}

/// Lanes there are. Half of them are for tasks, whose spans peers choose: they must not crowd what
/// everything else needs into the heap.
const LANES: usize = 16;
/// Branches of the heap: with four it is half as deep as with two.
const BRANCHES: usize = 4;

impl TimerQueue {
    /// Arms `timer` for `at`, instead of `slot` if that holds a time, and notes it in `slot`.
    pub(crate) fn arm(&mut self, slot: &mut Option<Armed>, timer: Timer, at: Instant) {
        self.disarm(slot, timer);
        let order = timer.kind() << (u64::BITS - KIND_BITS) | self.armed;
        self.armed += 1;
        let due = Due { at, order };
        let place = match self.lane(due, timer) {
            Some(lane) => self.append(lane, due, timer),
            None => {
                let stands = self.heap.len();
                let node = Node { due, timer, stands: Stands::Heap(stands as u32) };
                let place = self.all.insert(node);
                self.heap.push((due, place));
                self.rise(stands);
                place
            }
        };
        *slot = Some(Armed(place));
    }

    /// The first lane in which a timer would be the last to come.
    fn lane(&self, due: Due, timer: Timer) -> Option<usize> {
        let from = if matches!(timer, Timer::Task(_)) { LANES / 2 } else { 0 };
        let mut lanes = self.lanes[from..from + LANES / 2].iter();
        let fits = |lane: &Option<Lane>| lane.as_ref().is_none_or(|lane| lane.last.0 < due);
        lanes.position(fits).map(|lane| from + lane)
    }

    /// Disarms `timer` if `slot` says it is armed.
    pub(crate) fn disarm(&mut self, slot: &mut Option<Armed>, timer: Timer) {
        if let Some(Armed(place)) = slot.take() {
            let node = self.take_out(place);
            assert!(node.timer == timer, "an armed timer is in the table");
        }
    }

    /// When an armed timer is due.
    pub(crate) fn due(&self, Armed(place): Armed) -> Instant {
        self.all.get(place).due.at
    }

    /// The first timer that is due.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let place = self.first()?;
        let node = self.all.get(place);
        Some((node.due.at, node.timer))
    }

    fn first(&self) -> Option<Place> {
        let lanes = self.lanes.iter().flatten().map(|lane| lane.first);
        let (_, place) = lanes.chain(self.heap.first().copied()).min_by_key(|(due, _)| *due)?;
        Some(place)
    }

    /// Takes the first timer due at `now`. Its owner's slot still names it and must be cleared.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let place = self.first()?;
        let at = self.all.get(place).due.at;
        if at > now {
            return None;
        }
        Some(self.take_out(place).timer)
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    /// Puts a timer at the end of a lane.
    fn append(&mut self, number: usize, due: Due, timer: Timer) -> Place {
        let before = self.lanes[number].as_ref().map(|lane| lane.last.1);
        let stands = Stands::Lane { lane: number as u8, before, after: None };
        let place = self.all.insert(Node { due, timer, stands });
        if let Some(before) = before {
            self.set_after(before, Some(place));
        }
        match &mut self.lanes[number] {
            None => self.lanes[number] = Some(Lane { first: (due, place), last: (due, place) }),
            Some(lane) => lane.last = (due, place),
        }
        place
    }

    fn take_out(&mut self, place: Place) -> Node {
        let node = self.all.remove(place);
        match node.stands {
            Stands::Heap(at) => self.leave_heap(at as usize),
            Stands::Lane { lane, before, after } => self.leave_lane(lane.into(), before, after),
        }
        node
    }

    /// What stood between these in a lane is gone.
    fn leave_lane(&mut self, lane: usize, before: Option<Place>, after: Option<Place>) {
        let last = before.map(|before| self.set_after(before, after));
        let first = after.map(|after| self.set_before(after, before));
        match (&mut self.lanes[lane], last, first) {
            (Some(_), Some(_), Some(_)) => {}
            (Some(lane), Some(last), None) => lane.last = last,
            (Some(lane), None, Some(first)) => lane.first = first,
            (lane, None, None) => *lane = None,
            (None, ..) => unreachable!("a timer in a lane says so of one that is there"),
        }
    }

    /// Says what comes after a timer in its lane; gives that timer back.
    fn set_after(&mut self, place: Place, next: Option<Place>) -> (Due, Place) {
        let node = self.all.get_mut(place);
        if let Stands::Lane { after, .. } = &mut node.stands {
            *after = next;
        }
        (node.due, place)
    }

    /// Says what comes before a timer in its lane; gives that timer back.
    fn set_before(&mut self, place: Place, previous: Option<Place>) -> (Due, Place) {
        let node = self.all.get_mut(place);
        if let Stands::Lane { before, .. } = &mut node.stands {
            *before = previous;
        }
        (node.due, place)
    }

    fn leave_heap(&mut self, at: usize) {
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    /// Moves what stands at `at` up to where it belongs; gives back where that is.
    fn rise(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let above = (at - 1) / BRANCHES;
            if self.heap[above].0 < entry.0 {
                break;
            }
            self.put(at, self.heap[above]);
            at = above;
        }
        self.put(at, entry);
        at
    }

    /// Moves what stands at `at` down to where it belongs.
    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let below = at * BRANCHES + 1;
            let end = self.heap.len().min(below + BRANCHES);
            let Some(first) = (below..end).min_by_key(|at| self.heap[*at].0) else { break };
            if entry.0 < self.heap[first].0 {
                break;
            }
            self.put(at, self.heap[first]);
            at = first;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: (Due, Place)) {
        self.heap[at] = entry;
        self.all.get_mut(entry.1).stands = Stands::Heap(at as u32);
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let mut found = self.heap.len();
        for (at, (due, place)) in self.heap.iter().enumerate() {
            let node = self.all.get(*place);
            assert_eq!(node.due, *due, "a timer is due at another time");
            assert!(matches!(node.stands, Stands::Heap(stands) if stands as usize == at));
            let (above, _) = self.heap[at.saturating_sub(1) / BRANCHES];
            assert!(above <= *due, "a later timer comes first");
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let mut last: Option<(Due, Place)> = None;
            let mut next = Some(lane.first.1);
            while let Some(place) = next {
                let node = self.all.get(place);
                let Stands::Lane { lane, before, after } = node.stands else {
                    panic!("a timer stands elsewhere");
                };
                assert_eq!((usize::from(lane), before), (number, last.map(|(_, place)| place)));
                assert!(last.is_none_or(|(due, _)| due < node.due), "a later timer comes first");
                last = Some((node.due, place));
                next = after;
                found += 1;
            }
            assert_eq!(last, Some(lane.last), "a lane ends where it says");
        }
        assert_eq!(found, self.all.len(), "a timer is lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn numbered(which: u64) -> Timer {
        match which % 2 {
            0 => Timer::Job(JobId::new(which)),
            _ => Timer::Task(TaskId::new(uuid::Uuid::from_u128(which.into()))),
        }
    }

    /// DET-01: whatever is armed, moved and disarmed, timers come in the order of an ordered set,
    /// those due at the same time by kind and as they were armed.
    #[test]
    fn timers_come_in_order() {
        let mut timers = TimerQueue::default();
        let mut slots = [None; 300];
        let mut set: BTreeSet<(Instant, u64, u64, Timer)> = BTreeSet::new();
        let mut random = 1_u64;
        let mut heap = 0;
        for turn in 0..60_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let which = (random >> 33) % 300;
            let timer = numbered(which);
            let slot = &mut slots[which as usize];
            match random >> 62 {
                0 => {
                    set.retain(|(.., armed)| *armed != timer);
                    timers.disarm(slot, timer);
                }
                1 if turn % 10 == 0 => {
                    let now = Instant::from_nanos(turn);
                    let due = timers.pop(now);
                    let first = set.first().filter(|(at, ..)| *at <= now);
                    assert_eq!(due, first.map(|(.., timer)| *timer));
                    if let Some(due) = due {
                        set.pop_first();
                        let which = (0..300).find(|which| numbered(*which) == due).unwrap();
                        slots[which as usize] = None;
                    }
                }
                _ => {
                    // A few spans at first, then any; few times, so that many are due at once.
                    let few = turn / 10_000 % 2 == 0;
                    let span = if few { (random >> 40) % 3 * 500 } else { (random >> 40) % 5_000 };
                    let at = Instant::from_nanos((turn + span) / 100 * 100);
                    set.retain(|(.., armed)| *armed != timer);
                    set.insert((at, timer.kind(), turn, timer));
                    timers.arm(slot, timer, at);
                    assert_eq!(slot.map(|armed| timers.due(armed)), Some(at));
                }
            }
            assert_eq!(timers.next(), set.first().map(|(at, .., timer)| (*at, *timer)));
            assert_eq!(timers.len(), set.len());
            heap += timers.heap.len();
            if turn % 100 == 0 {
                timers.check();
            }
        }
        assert!(heap > 0, "the heap was not needed");
    }

    /// A disarmed timer leaves nothing behind, and a few spans need no heap.
    #[test]
    fn lanes() {
        let mut timers = TimerQueue::default();
        let mut slots = [None; 100];
        for number in 0..100_000_u64 {
            let (slot, timer) = (number as usize % 100, Timer::Job(JobId::new(number % 100)));
            timers.disarm(&mut slots[slot], timer);
            let at = Instant::from_nanos(number + number % (LANES as u64 / 2) * 1_000);
            timers.arm(&mut slots[slot], timer, at);
            assert!(timers.len() <= 100 && timers.heap.is_empty());
        }
        timers.check();
        for (number, slot) in slots.iter_mut().enumerate() {
            timers.disarm(slot, Timer::Job(JobId::new(number as u64)));
        }
        assert_eq!((timers.len(), timers.next()), (0, None));
        assert!(timers.lanes.iter().all(Option::is_none));
    }
}
