//! Messages that have begun and not ended: how long and how many bytes they may be.
//!
//! A peer that sends a byte a minute would keep what it has begun for ever, and many peers with a
//! long line each would together hold far more than any one of them may. TCP peers get a time for
//! each message; a Unix or stdio peer is a process of this machine that may be stopped in a
//! debugger. All together get a number of bytes; past it, whoever holds most goes.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::id::ConnId;
use ceased_core::time::{Instant, Now};
use ceased_transports::Peer as Origin;

use super::Server;

/// What is known of them. Idle connections are not in it.
#[derive(Debug, Default)]
pub(super) struct Unended {
    of: BTreeMap<ConnId, Held>,
    /// When which peer has to have ended its message.
    due: BTreeSet<(Instant, ConnId)>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: usize,
    due: Option<Instant>,
}

impl Unended {
    /// When [`Server::end_slow_frames`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A connection holds this much of a message now, and has to end it by then.
    fn set(&mut self, conn: ConnId, held: Held) {
        self.forget(conn);
        if held.bytes == 0 && held.due.is_none() {
            return;
        }
        self.bytes += held.bytes;
        self.due.extend(held.due.map(|at| (at, conn)));
        self.of.insert(conn, held);
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, conn: ConnId) {
        let Some(held) = self.of.remove(&conn) else { return };
        self.bytes -= held.bytes;
        if let Some(at) = held.due {
            self.due.remove(&(at, conn));
        }
    }

    /// Who holds most.
    fn greatest(&self) -> Option<(ConnId, usize)> {
        let most = self.of.iter().max_by_key(|(_, held)| held.bytes)?;
        Some((*most.0, most.1.bytes))
    }
}

impl Server {
    /// Something was read from a peer: notes what it has begun.
    pub(super) fn note_partial(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.links.get_mut(&conn) else { return };
        let bytes = peer.link.partial_bytes();
        let is_timed = matches!(peer.link.peer(), Origin::Tcp { .. });
        let since = is_timed.then(|| peer.link.mid_frame_since(now.at)).flatten();
        let due = since.map(|since| since + self.guards.frame_time);
        self.unended.set(conn, Held { bytes, due });
        while self.unended.bytes > self.guards.partial_bytes {
            let Some((conn, bytes)) = self.unended.greatest() else { break };
            let limit = self.guards.partial_bytes;
            tracing::warn!(%conn, bytes, limit, "closing: unended messages pass limits.partial_bytes");
            self.drop_peer(now, conn);
        }
    }

    /// Closes peers that take too long for a message.
    pub(super) fn end_slow_frames(&mut self, now: Now) {
        while let Some((at, conn)) = self.unended.due.first().copied() {
            if at > now.at {
                break;
            }
            let limit = self.guards.frame_time;
            tracing::warn!(%conn, ?limit, "closing: a message takes longer than limits.frame_time");
            // Nobody else would take it out of the list.
            self.unended.forget(conn);
            self.drop_peer(now, conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_deadlines_follow() {
        let (one, two) = (ConnId::new(1), ConnId::new(2));
        let at = Instant::from_nanos;
        let mut unended = Unended::default();
        unended.set(one, Held { bytes: 5, due: Some(at(9)) });
        unended.set(two, Held { bytes: 7, due: Some(at(4)) });
        assert_eq!((unended.bytes, unended.deadline()), (12, Some(at(4))));
        assert_eq!(unended.greatest(), Some((two, 7)));
        unended.set(two, Held::default());
        assert_eq!((unended.bytes, unended.deadline()), (5, Some(at(9))));
        unended.set(one, Held { bytes: 6, due: Some(at(9)) });
        assert_eq!(unended.bytes, 6);
        unended.forget(one);
        unended.forget(one);
        assert_eq!((unended.bytes, unended.deadline()), (0, None));
        assert!(unended.of.is_empty() && unended.due.is_empty());
    }
}
