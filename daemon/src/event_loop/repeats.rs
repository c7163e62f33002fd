//! Rate limit of log records: the first ones are written in full and later ones counted, so that a
//! peer that reconnects in a loop does not fill the log.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::time::Instant;

use super::origin::Party;

/// Interval of counting before a record is written in full again.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of counts; further parties share one.
const COUNTS_MAX: usize = 1024;
/// Connections of a party recorded in full per interval, enough for a client that runs one command
/// after the other.
const CONNECTIONS_IN_FULL: u64 = 64;

/// Kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
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

impl Kind {
    /// Number of records per interval written in full.
    const fn in_full(self) -> u64 {
        match self {
            Self::Connect => CONNECTIONS_IN_FULL,
            Self::Refuse(_) | Self::Limit(_) | Self::Close(_) | Self::NoRoom => 1,
        }
    }

    /// Name of the records.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refuse(_) | Self::Limit(_) => "refuse",
            Self::Close(_) => "close",
            Self::NoRoom => "no_room",
        }
    }

    /// Limit named by the records.
    pub(super) const fn limit(self) -> Option<&'static str> {
        match self {
            Self::Limit(limit) | Self::Close(limit) => Some(limit),
            Self::Connect | Self::Refuse(_) | Self::NoRoom => None,
        }
    }

    /// Reason that the records give beside a limit.
    pub(super) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Refuse(reason) => Some(reason),
            Self::Connect | Self::Limit(_) | Self::Close(_) | Self::NoRoom => None,
        }
    }
}

/// A party with a count of its own, and the kind.
type Key = (Option<Party>, Kind);

/// Counts of the last interval.
#[derive(Debug, Default)]
pub(super) struct Repeats {
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
pub(super) struct Unwritten {
    pub(super) party: Option<Party>,
    pub(super) kind: Kind,
    pub(super) count: u64,
}

impl Repeats {
    /// Counts a record; returns whether to write it in full.
    pub(super) fn note(&mut self, now: Instant, party: Party, kind: Kind) -> bool {
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

    /// Time of the next [`Repeats::take_due`].
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the suppressed records of ended intervals.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Unwritten> {
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
        Unwritten { party: Some(party), kind: Kind::Refuse("wrong token"), count }
    }

    #[test]
    fn first_record_of_an_interval_is_written_and_others_are_counted() {
        let mut repeats = Repeats::default();
        let bob = Party::Identity(Identity::User(2));
        assert!(repeats.note(at(0), ann(), Kind::Refuse("wrong token")));
        assert_eq!(repeats.deadline(), None, "nothing is left to tell");
        for _ in 0..1000 {
            assert!(!repeats.note(at(3), ann(), Kind::Refuse("wrong token")));
        }
        assert!(repeats.note(at(4), bob.clone(), Kind::Refuse("wrong token")), "by party");
        assert!(repeats.note(at(4), ann(), Kind::Limit("queue")), "by kind");
        assert!(!repeats.note(at(5), bob.clone(), Kind::Refuse("wrong token")));
        assert_eq!((repeats.deadline(), repeats.take_due(at(9))), (Some(at(10)), vec![]));
        assert_eq!(repeats.take_due(at(10)), [unwritten(ann(), 1000)]);
        assert!(repeats.note(at(10), ann(), Kind::Refuse("wrong token")), "in full again");
        assert_eq!(repeats.deadline(), Some(at(14)));
        assert_eq!(repeats.take_due(at(14)), [unwritten(bob, 1)]);
        assert_eq!(repeats.deadline(), None);
        assert!(repeats.note(at(30), ann(), Kind::Refuse("wrong token")));
    }

    #[test]
    fn first_connections_are_written_in_full() {
        let mut repeats = Repeats::default();
        let written = (0..1000).filter(|_| repeats.note(at(1), ann(), Kind::Connect)).count();
        assert_eq!(written as u64, CONNECTIONS_IN_FULL);
        let told = repeats.take_due(at(11));
        assert_eq!(told.iter().map(|told| told.count).collect::<Vec<_>>(), [936]);
    }

    #[test]
    fn number_of_counted_parties_is_bounded() {
        let mut repeats = Repeats::default();
        let written = (0..100_000_u32)
            .filter(|user| {
                let party = Party::Identity(Identity::User(*user));
                repeats.note(at(1), party, Kind::Refuse("wrong token"))
            })
            .count();
        assert_eq!(written, COUNTS_MAX + 1, "those past it are one party");
        assert_eq!(repeats.counts.len(), COUNTS_MAX + 1);
        assert_eq!(repeats.take_due(at(11)).len(), 1);
        assert!(
            repeats.note(at(12), ann(), Kind::Refuse("wrong token")) && repeats.counts.len() == 1
        );
    }
}
