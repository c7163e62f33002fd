//! Incomplete messages: limits on their duration and size.
//!
//! A peer that sends a byte a minute would hold its incomplete message forever, and many peers with
//! one long line each would together hold far more than the limit of one. TCP peers have a deadline
//! per message; a Unix or stdio peer is a local process that may be stopped in a debugger. The
//! total size is bounded, and so is that of each party over all its connections; beyond that, the
//! largest connection of the largest party is closed.

use super::reload::Guards;

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::ids::ConnId;
use ceased_core::time::Instant;

use super::party::Party;

/// Connections with an incomplete message. Idle connections are not included.
#[derive(Debug, Default)]
pub(crate) struct PartialFrames {
    of: BTreeMap<ConnId, Held>,
    /// When which peer has to have ended its message.
    due: BTreeSet<(Instant, ConnId)>,
    /// Bytes of each party that holds any.
    parties: BTreeMap<Party, usize>,
    bytes: usize,
}

/// An exceeded limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) limit: &'static str,
    /// To be closed for it.
    pub(crate) conn: ConnId,
    /// Party of the connection, and bytes of it in all.
    pub(crate) party: Party,
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) party: Party,
    pub(crate) bytes: usize,
    pub(crate) due: Option<Instant>,
}

impl PartialFrames {
    /// Time of the next [`PartialFrames::take_overdue`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes the connection that takes too long for its message, if there is one.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<(ConnId, Party)> {
        let (_, conn) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        let party = self.of.get(&conn)?.party.clone();
        self.forget(conn);
        Some((conn, party))
    }

    /// A connection holds this much of a message now, and has to end it by then.
    pub(crate) fn set(&mut self, conn: ConnId, held: Held) {
        self.forget(conn);
        if held.bytes == 0 && held.due.is_none() {
            return;
        }
        self.bytes += held.bytes;
        *self.parties.entry(held.party.clone()).or_default() += held.bytes;
        self.due.extend(held.due.map(|at| (at, conn)));
        self.of.insert(conn, held);
    }

    /// Removes a closed connection.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        let Some(held) = self.of.remove(&conn) else { return };
        self.bytes -= held.bytes;
        if let Some(bytes) = self.parties.get_mut(&held.party) {
            *bytes -= held.bytes;
            if *bytes == 0 {
                self.parties.remove(&held.party);
            }
        }
        if let Some(at) = held.due {
            self.due.remove(&(at, conn));
        }
    }

    /// The limit that is passed now that a party holds more, and the connection to close for it:
    /// the connection that holds most, of the party that holds most.
    pub(crate) fn past(&self, party: &Party, guards: &Guards) -> Option<Past> {
        let bytes = self.parties.get(party).copied().unwrap_or(0);
        let (limit, party, bytes) = if bytes > guards.partial_bytes_per_identity {
            ("partial_bytes_per_identity", party, bytes)
        } else if self.bytes > guards.partial_bytes {
            let (party, bytes) = self.parties.iter().max_by_key(|(_, bytes)| **bytes)?;
            ("partial_bytes", party, *bytes)
        } else {
            return None;
        };
        let own = self.of.iter().filter(|(_, held)| held.party == *party);
        let (conn, _) = own.max_by_key(|(_, held)| held.bytes)?;
        Some(Past { limit, conn: *conn, party: party.clone(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ceased_core::identity::Identity;

    fn held(user: u32, bytes: usize, due: Option<u64>) -> Held {
        let party = Party::Identity(Identity::User(user));
        Held { party, bytes, due: due.map(Instant::from_nanos) }
    }

    #[test]
    fn sums_and_deadlines_are_updated() {
        let (one, two) = (ConnId::new(1), ConnId::new(2));
        let at = Instant::from_nanos;
        let mut unended = PartialFrames::default();
        unended.set(one, held(1, 5, Some(9)));
        unended.set(two, held(2, 7, Some(4)));
        assert_eq!((unended.bytes, unended.deadline()), (12, Some(at(4))));
        unended.set(two, held(2, 0, None));
        assert_eq!((unended.bytes, unended.deadline()), (5, Some(at(9))));
        unended.set(one, held(1, 6, Some(9)));
        assert_eq!(unended.bytes, 6);
        unended.forget(one);
        unended.forget(one);
        assert_eq!((unended.bytes, unended.deadline()), (0, None));
        assert!(unended.of.is_empty() && unended.due.is_empty() && unended.parties.is_empty());
    }

    /// Many small connections do not evict the one long message of another party.
    #[test]
    fn largest_party_is_evicted() {
        let guards =
            Guards { partial_bytes: 100, partial_bytes_per_identity: 60, ..Guards::default() };
        let mut unended = PartialFrames::default();
        unended.set(ConnId::new(1), held(1, 40, None));
        (2..9).for_each(|conn| unended.set(ConnId::new(conn), held(2, 8, None)));
        let user = |user| Party::Identity(Identity::User(user));
        assert_eq!(unended.past(&user(2), &guards), None);
        unended.set(ConnId::new(8), held(2, 13, None));
        let (limit, conn, party) = ("partial_bytes_per_identity", ConnId::new(8), user(2));
        let past = Past { limit, conn, party, bytes: 61 };
        assert_eq!(unended.past(&user(2), &guards), Some(past));
        unended.set(ConnId::new(8), held(3, 8, None));
        unended.set(ConnId::new(9), held(3, 5, None));
        assert_eq!(unended.bytes, 101);
        let past = Past { limit: "partial_bytes", conn: ConnId::new(7), party: user(2), bytes: 48 };
        assert_eq!(unended.past(&user(3), &guards), Some(past));
    }
}
