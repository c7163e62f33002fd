//! Timers, ordered by due time.

use alloc::vec::Vec;

use crate::collections::slab::{Slab, SlabPlace};
use crate::ids::{CallId, ConnId, InstanceId, JobId, KeyedId, RequestState, TaskId};
use crate::time::Instant;

/// A deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A job's timeout, or the next step of its stop policy.
    Job(JobId),
    /// End of a task's ttl.
    Task(TaskId),
    /// A peer has read nothing for too long. Only a [`Tick`](crate::event::Event::Tick) takes this
    /// timer: a host that sees it as the next [`deadline`](crate::engine::Engine::deadline) can try
    /// to send once more before.
    Stall(ConnId),
    /// A full send queue may have drained; pending notifications of subscriptions are due.
    CatchUp(ConnId),
    /// A half-closed peer has waited its maximum for running calls.
    Linger(ConnId),
    /// A suspended call has waited its maximum for its retry (input required).
    Suspended(RequestState),
    /// A call whose connection is gone has run its maximum.
    Orphan(JobId),
    /// The retention of a call with an idempotency key ends.
    Keyed(KeyedId),
    /// Timeout of an outgoing request.
    Call(ConnId, CallId),
    /// Next poll of a task at a peer.
    Poll(ConnId, CallId),
    /// Retry of a failed store.
    Store,
    /// End of the membership in a table that several engines share.
    Lease,
    /// SIGKILL for the remaining jobs during shutdown.
    DrainKill,
    /// End of the shutdown.
    DrainEnd,
    /// A job has sent its requestor nothing for one heartbeat interval.
    Heartbeat(JobId),
    /// The next step of the check of a cancelled request of an upstream.
    Relayed(JobId),
    /// Next poll of the task that a server without sessions made of a relayed call.
    ServerTask(JobId),
    /// The deadline of an instance of an upstream.
    Upstream(InstanceId),
    /// The earliest deadline of the lists of an instance.
    Lists(InstanceId),
    /// The next start of an instance that takes long.
    SlowStart,
    /// The next deadline of the agent of a client.
    Agent(ConnId),
}

impl Timer {
    /// Rank among timers that are due at the same time.
    const fn kind(self) -> u64 {
        match self {
            Self::Job(_) => 0,
            Self::Task(_) => 1,
            Self::Stall(_) => 2,
            Self::CatchUp(_) => 3,
            Self::Linger(_) => 4,
            Self::Suspended(_) => 5,
            Self::Orphan(_) => 6,
            Self::Keyed(_) => 7,
            Self::Call(..) => 8,
            Self::Poll(..) => 9,
            Self::Store | Self::Lease => 10,
            Self::DrainKill => 11,
            Self::DrainEnd => 12,
            Self::Heartbeat(_) => 13,
            Self::Relayed(_) | Self::ServerTask(_) => 14,
            Self::Upstream(_) | Self::Lists(_) | Self::SlowStart | Self::Agent(_) => 15,
        }
    }
}

/// Bits of `order` that hold the kind.
const KIND_BITS: u32 = 4;

/// Handle of an armed timer, kept by its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Armed(SlabPlace);

/// Sort key of a timer: due time, then kind, then the order of arming (DET-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DueKey {
    at: Instant,
    /// The kind, and the number of timers armed before.
    order: u64,
}

/// An armed timer.
#[derive(Debug)]
struct TimerNode {
    due: DueKey,
    timer: Timer,
    stands: Position,
}

/// Position of a timer.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// In a lane, between these neighbours.
    Lane { lane: u8, before: Option<SlabPlace>, after: Option<SlabPlace> },
    /// In the heap, at this index.
    Heap(u32),
}

/// A list of timers, sorted by due time.
#[derive(Debug)]
struct TimerLane {
    first: (DueKey, SlabPlace),
    last: (DueKey, SlabPlace),
}

/// Armed timers: sorted lanes, and a heap for timers that fit into no lane.
///
/// Most timers have the same span as earlier ones and so are due after them: each is appended to
/// the first lane whose last timer is due before it. Arming, disarming and taking the first due
/// timer take constant time in a lane. With more different spans than lanes, some go to the heap,
/// at logarithmic cost.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    all: Slab<TimerNode>,
    lanes: [Option<TimerLane>; LANES],
    heap: Vec<(DueKey, SlabPlace)>,
    /// Number of timers ever armed.
    armed: u64,
}

/// Number of lanes. Half of them are for tasks, whose ttls are chosen by peers: peers must not
/// crowd other timers into the heap.
const LANES: usize = 16;
/// Children of a heap node: a heap of four is half as deep as one of two.
const BRANCHES: usize = 4;

impl TimerQueue {
    /// Arms `timer` for `at`, replacing the time in `slot` if it has one, and stores the handle in
    /// `slot`.
    pub(crate) fn arm(&mut self, slot: &mut Option<Armed>, timer: Timer, at: Instant) {
        self.disarm(slot, timer);
        let order = timer.kind() << (u64::BITS - KIND_BITS) | self.armed;
        self.armed += 1;
        let due = DueKey { at, order };
        let place = match self.lane(due, timer) {
            Some(lane) => self.append(lane, due, timer),
            None => {
                let stands = self.heap.len();
                let node = TimerNode { due, timer, stands: Position::Heap(stands as u32) };
                let place = self.all.insert(node);
                self.heap.push((due, place));
                self.rise(stands);
                place
            }
        };
        *slot = Some(Armed(place));
    }

    /// First lane in which the timer would be the last.
    fn lane(&self, due: DueKey, timer: Timer) -> Option<usize> {
        let from = if matches!(timer, Timer::Task(_)) { LANES / 2 } else { 0 };
        let mut lanes = self.lanes[from..from + LANES / 2].iter();
        let fits = |lane: &Option<TimerLane>| lane.as_ref().is_none_or(|lane| lane.last.0 < due);
        lanes.position(fits).map(|lane| from + lane)
    }

    /// Disarms `timer` if `slot` has a handle.
    pub(crate) fn disarm(&mut self, slot: &mut Option<Armed>, timer: Timer) {
        if let Some(Armed(place)) = slot.take() {
            let node = self.take_out(place);
            assert!(node.timer == timer, "the handle belongs to this timer");
        }
    }

    /// Due time of an armed timer.
    pub(crate) fn due(&self, Armed(place): Armed) -> Instant {
        self.all.get(place).due.at
    }

    /// The first due timer.
    pub(crate) fn next(&self) -> Option<(Instant, Timer)> {
        let place = self.first()?;
        let node = self.all.get(place);
        Some((node.due.at, node.timer))
    }

    fn first(&self) -> Option<SlabPlace> {
        let lanes = self.lanes.iter().flatten().map(|lane| lane.first);
        let (_, place) = lanes.chain(self.heap.first().copied()).min_by_key(|(due, _)| *due)?;
        Some(place)
    }

    /// Takes the first timer due at `now`. Its owner must clear its slot.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Timer> {
        let place = self.first()?;
        let at = self.all.get(place).due.at;
        if at > now {
            return None;
        }
        Some(self.take_out(place).timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Appends a timer to a lane.
    fn append(&mut self, number: usize, due: DueKey, timer: Timer) -> SlabPlace {
        let before = self.lanes[number].as_ref().map(|lane| lane.last.1);
        let stands = Position::Lane { lane: number as u8, before, after: None };
        let place = self.all.insert(TimerNode { due, timer, stands });
        if let Some(before) = before {
            self.set_after(before, Some(place));
        }
        match &mut self.lanes[number] {
            None => {
                self.lanes[number] = Some(TimerLane { first: (due, place), last: (due, place) });
            }
            Some(lane) => lane.last = (due, place),
        }
        place
    }

    fn take_out(&mut self, place: SlabPlace) -> TimerNode {
        let node = self.all.remove(place);
        match node.stands {
            Position::Heap(at) => self.leave_heap(at as usize),
            Position::Lane { lane, before, after } => self.leave_lane(lane.into(), before, after),
        }
        node
    }

    /// Links the neighbours of a removed timer, or updates the ends of its lane.
    fn leave_lane(&mut self, lane: usize, before: Option<SlabPlace>, after: Option<SlabPlace>) {
        let last = before.map(|before| self.set_after(before, after));
        let first = after.map(|after| self.set_before(after, before));
        match (&mut self.lanes[lane], last, first) {
            (Some(_), Some(_), Some(_)) => {}
            (Some(lane), Some(last), None) => lane.last = last,
            (Some(lane), None, Some(first)) => lane.first = first,
            (lane, None, None) => *lane = None,
            (None, ..) => unreachable!("both neighbours of a timer in a lane are armed"),
        }
    }

    /// Sets the successor of a timer in its lane; returns the timer's sort key and place.
    fn set_after(&mut self, place: SlabPlace, next: Option<SlabPlace>) -> (DueKey, SlabPlace) {
        let node = self.all.get_mut(place);
        if let Position::Lane { after, .. } = &mut node.stands {
            *after = next;
        }
        (node.due, place)
    }

    /// Sets the predecessor of a timer in its lane; returns the timer's sort key and place.
    fn set_before(&mut self, place: SlabPlace, previous: Option<SlabPlace>) -> (DueKey, SlabPlace) {
        let node = self.all.get_mut(place);
        if let Position::Lane { before, .. } = &mut node.stands {
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

    /// Moves the timer at `at` up the heap; returns its new index.
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

    /// Moves the timer at `at` down the heap.
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

    fn put(&mut self, at: usize, entry: (DueKey, SlabPlace)) {
        self.heap[at] = entry;
        self.all.get_mut(entry.1).stands = Position::Heap(at as u32);
    }

    /// Checks the internal invariants, for tests.
    ///
    /// # Panics
    ///
    /// On a broken invariant.
    pub(crate) fn check(&self) {
        let mut found = self.heap.len();
        for (at, (due, place)) in self.heap.iter().enumerate() {
            let node = self.all.get(*place);
            assert_eq!(node.due, *due, "a timer has another due time than its node");
            assert!(matches!(node.stands, Position::Heap(stands) if stands as usize == at));
            let (above, _) = self.heap[at.saturating_sub(1) / BRANCHES];
            assert!(above <= *due, "a later timer precedes an earlier one");
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            let mut last: Option<(DueKey, SlabPlace)> = None;
            let mut next = Some(lane.first.1);
            while let Some(place) = next {
                let node = self.all.get(place);
                let Position::Lane { lane, before, after } = node.stands else {
                    panic!("a timer has another position than its node");
                };
                assert_eq!((usize::from(lane), before), (number, last.map(|(_, place)| place)));
                assert!(
                    last.is_none_or(|(due, _)| due < node.due),
                    "a later timer precedes an earlier one"
                );
                last = Some((node.due, place));
                next = after;
                found += 1;
            }
            assert_eq!(last, Some(lane.last), "a lane's last timer is the end of its list");
        }
        assert_eq!(found, self.all.len(), "every timer is in a lane or in the heap");
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

    /// DET-01: after any arming, moving and disarming, timers come in the order of an ordered set:
    /// by due time, then by kind, then by the order of arming.
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
                    // Few spans at first, then many; a few due times, so that many timers share
                    // one.
                    let is_few = turn / 10_000 % 2 == 0;
                    let span =
                        if is_few { (random >> 40) % 3 * 500 } else { (random >> 40) % 5_000 };
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
        assert!(heap > 0, "no timer went to the heap");
    }

    /// A disarmed timer frees its place, and a few spans need no heap.
    #[test]
    fn few_spans_need_no_heap() {
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
