//! Incomplete messages: limits on their duration and size.
//!
//! A peer that sends a byte a minute would hold its incomplete message forever, and many peers with
//! one long line each would together hold far more than the limit of one. TCP peers have a deadline
//! per message; a Unix or stdio peer is a local process that may be stopped in a debugger. The
//! total size is bounded, and so is that of each party over all its connections; beyond that, the
//! largest connection of the largest party is closed.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::{Instant, Now};
use ceased_transports::Peer as Origin;

use super::origin::Party;
use super::repeats::Kind;
use super::{Guards, Server};

/// Connections with an incomplete message. Idle connections are not included.
#[derive(Debug, Default)]
pub(super) struct PartialFrames {
    of: BTreeMap<ConnId, Held>,
    /// Deadlines of the messages.
    due: BTreeSet<(Instant, ConnId)>,
    /// Bytes of each party with incomplete messages.
    parties: BTreeMap<Party, usize>,
    bytes: usize,
}

/// An exceeded limit.
#[derive(Debug, PartialEq, Eq)]
struct Past {
    limit: &'static str,
    /// Connection to close.
    conn: ConnId,
    /// Its party, and the bytes of that party.
    party: Party,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Held {
    party: Party,
    bytes: usize,
    due: Option<Instant>,
}

impl PartialFrames {
    /// Time of the next [`Server::end_slow_frames`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Records the size and deadline of a connection's incomplete message.
    fn set(&mut self, conn: ConnId, held: Held) {
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
    pub(super) fn forget(&mut self, conn: ConnId) {
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

    /// The limit exceeded by the growth of a party, and the connection to close: the largest one of
    /// the largest party.
    fn past(&self, party: &Party, guards: &Guards) -> Option<Past> {
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

impl Server {
    /// Records the incomplete message of a peer after a read.
    pub(super) fn note_partial(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let bytes = peer.link.partial_bytes();
        let is_timed = matches!(peer.link.peer(), Origin::Tcp { .. });
        let since = is_timed.then(|| peer.link.mid_frame_since(now.at)).flatten();
        let due = since.map(|since| since + self.guards.frame_time);
        if bytes == 0 && due.is_none() {
            return self.unended.forget(conn);
        }
        let identity = self.engine.identity(conn).unwrap_or(&Identity::Anonymous);
        let party = Party::of(identity, peer.link.peer());
        self.unended.set(conn, Held { party: party.clone(), bytes, due });
        while let Some(past) = self.unended.past(&party, &self.guards) {
            let Past { limit, conn, party, bytes } = past;
            if self.is_news(now, party.clone(), Kind::Close(limit)) {
                tracing::warn!(%conn, %party, bytes, "closing: incomplete messages exceed limits.{limit}");
            }
            self.drop_peer(now, conn);
        }
    }

    /// Closes peers past the deadline of their message.
    pub(super) fn end_slow_frames(&mut self, now: Now) {
        while let Some((at, conn)) = self.unended.due.first().copied() {
            if at > now.at {
                break;
            }
            let limit = self.guards.frame_time;
            let party = self.unended.of.get(&conn).map(|held| held.party.clone());
            if party.is_none_or(|party| self.is_news(now, party, Kind::Close("frame_time"))) {
                tracing::warn!(%conn, ?limit, "closing: a message takes longer than limits.frame_time");
            }
            // No other code removes it from the list.
            self.unended.forget(conn);
            self.drop_peer(now, conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
