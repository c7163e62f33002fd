//! Rate limit of log records: the first ones are written in full and later ones counted, so that a
//! peer that reconnects in a loop does not fill the log.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::time::Instant;

use super::party::Party;

/// Interval of counting before a record is written in full again.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of counts; further parties share one.
const COUNTS_MAX: usize = 1024;
/// Connections of a party recorded in full per interval, enough for a client that runs one command
/// after the other.
const CONNECTIONS_IN_FULL: u64 = 64;

/// RecordKind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordKind {
    /// A peer connected.
    Connect,
    /// A peer was rejected for this reason: it may not use the listener, or has not presented a
    /// token.
    Refuse(&'static str),
    /// A request of a peer was rejected by this limit.
    Limit(&'static str),
    /// A connection was closed by this limit.
    Close(&'static str),
    /// The system is out of resources for another peer.
    NoRoom,
}

impl RecordKind {
    /// Number of records per interval written in full.
    const fn in_full(self) -> u64 {
        match self {
            Self::Connect => CONNECTIONS_IN_FULL,
            Self::Refuse(_) | Self::Limit(_) | Self::Close(_) | Self::NoRoom => 1,
        }
    }

    /// Name of the records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refuse(_) | Self::Limit(_) => "refuse",
            Self::Close(_) => "close",
            Self::NoRoom => "no_room",
        }
    }

    /// Limit named by the records.
    pub(crate) const fn limit(self) -> Option<&'static str> {
        match self {
            Self::Limit(limit) | Self::Close(limit) => Some(limit),
            Self::Connect | Self::Refuse(_) | Self::NoRoom => None,
        }
    }

    /// Reason that the records give beside a limit.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Refuse(reason) => Some(reason),
            Self::Connect | Self::Limit(_) | Self::Close(_) | Self::NoRoom => None,
        }
    }
}

/// A party with a count of its own, and the kind.
type Key = (Option<Party>, RecordKind);

/// Counts of the last interval.
#[derive(Debug, Default)]
pub(crate) struct RecordLimiter {
    counts: BTreeMap<Key, Count>,
    /// End of the first interval with suppressed records.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Count {
    since: Instant,
    all: u64,
}

/// Suppressed records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwritten {
    pub(crate) party: Option<Party>,
    pub(crate) kind: RecordKind,
    pub(crate) count: u64,
}

impl RecordLimiter {
    /// Counts a record; returns whether to write it in full.
    pub(crate) fn note(&mut self, now: Instant, party: Party, kind: RecordKind) -> bool {
        let mut key = (Some(party), kind);
        if !self.counts.contains_key(&key) && self.counts.len() >= COUNTS_MAX {
            self.forget_old(now);
            if self.counts.len() >= COUNTS_MAX {
                key.0 = None;
            }
        }
        let count = self.counts.entry(key).or_insert(Count { since: now, all: 0 });
        if count.all <= kind.in_full() && now >= count.since + INTERVAL {
            *count = Count { since: now, all: 0 };
        }
        count.all += 1;
        let in_full = count.all <= kind.in_full();
        if !in_full {
            let end = count.since + INTERVAL;
            self.due = Some(self.due.map_or(end, |due| due.min(end)));
        }
        in_full
    }

    /// Drops the counts of past intervals.
    fn forget_old(&mut self, now: Instant) {
        self.counts
            .retain(|(_, kind), count| now < count.since + INTERVAL || count.all > kind.in_full());
    }

    /// Time of the next [`RecordLimiter::take_due`].
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the suppressed records of ended intervals.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Unwritten> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut told = Vec::new();
        self.counts.retain(|(party, kind), count| {
            if now < count.since + INTERVAL {
                return true;
            }
            let unwritten = count.all.saturating_sub(kind.in_full());
            if unwritten > 0 {
                told.push(Unwritten { party: party.clone(), kind: *kind, count: unwritten });
            }
            false
        });
        let left = self.counts.iter().filter(|((_, kind), count)| count.all > kind.in_full());
        self.due = left.map(|(_, count)| count.since + INTERVAL).min();
        told
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::identity::Identity;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn ann() -> Party {
        Party::Identity(Identity::User(1))
    }

    fn unwritten(party: Party, count: u64) -> Unwritten {
        Unwritten { party: Some(party), kind: RecordKind::Refuse("wrong token"), count }
    }

    #[test]
    fn first_record_of_an_interval_is_written_and_others_are_counted() {
        let mut limiter = RecordLimiter::default();
        let bob = Party::Identity(Identity::User(2));
        assert!(limiter.note(at(0), ann(), RecordKind::Refuse("wrong token")));
        assert_eq!(limiter.deadline(), None, "nothing is left to tell");
        for _ in 0..1000 {
            assert!(!limiter.note(at(3), ann(), RecordKind::Refuse("wrong token")));
        }
        assert!(limiter.note(at(4), bob.clone(), RecordKind::Refuse("wrong token")), "by party");
        assert!(limiter.note(at(4), ann(), RecordKind::Limit("queue")), "by kind");
        assert!(!limiter.note(at(5), bob.clone(), RecordKind::Refuse("wrong token")));
        assert_eq!((limiter.deadline(), limiter.take_due(at(9))), (Some(at(10)), vec![]));
        assert_eq!(limiter.take_due(at(10)), [unwritten(ann(), 1000)]);
        assert!(limiter.note(at(10), ann(), RecordKind::Refuse("wrong token")), "in full again");
        assert_eq!(limiter.deadline(), Some(at(14)));
        assert_eq!(limiter.take_due(at(14)), [unwritten(bob, 1)]);
        assert_eq!(limiter.deadline(), None);
        assert!(limiter.note(at(30), ann(), RecordKind::Refuse("wrong token")));
    }

    #[test]
    fn first_connections_are_written_in_full() {
        let mut limiter = RecordLimiter::default();
        let written = (0..1000).filter(|_| limiter.note(at(1), ann(), RecordKind::Connect)).count();
        assert_eq!(written as u64, CONNECTIONS_IN_FULL);
        let told = limiter.take_due(at(11));
        assert_eq!(told.iter().map(|told| told.count).collect::<Vec<_>>(), [936]);
    }

    #[test]
    fn number_of_counted_parties_is_bounded() {
        let mut limiter = RecordLimiter::default();
        let written = (0..100_000_u32)
            .filter(|user| {
                let party = Party::Identity(Identity::User(*user));
                limiter.note(at(1), party, RecordKind::Refuse("wrong token"))
            })
            .count();
        assert_eq!(written, COUNTS_MAX + 1, "those past it are one party");
        assert_eq!(limiter.counts.len(), COUNTS_MAX + 1);
        assert_eq!(limiter.take_due(at(11)).len(), 1);
        assert!(
            limiter.note(at(12), ann(), RecordKind::Refuse("wrong token"))
                && limiter.counts.len() == 1
        );
    }
}
