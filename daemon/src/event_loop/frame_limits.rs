//! The limits of messages that have begun and not ended, applied to peers.

use super::partial_frames::Held;
use super::partial_frames::Past;
use super::server::Server;

use super::origin::Party;
use super::repeats::Kind;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::Now;
use ceased_transports::Peer as Origin;

impl Server {
    /// Something was read from a peer: notes what it has begun.
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
                tracing::warn!(%conn, %party, bytes, "closing: unended messages pass limits.{limit}");
            }
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
            let party = self.unended.of.get(&conn).map(|held| held.party.clone());
            if party.is_none_or(|party| self.is_news(now, party, Kind::Close("frame_time"))) {
                tracing::warn!(%conn, ?limit, "closing: a message takes longer than limits.frame_time");
            }
            // No other code takes it out of the list.
            self.unended.forget(conn);
            self.drop_peer(now, conn);
        }
    }
}
