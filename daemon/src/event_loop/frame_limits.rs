//! The limits of messages that have begun and not ended, applied to peers.

use super::server::Server;
use super::state::partial_frames::Held;
use super::state::partial_frames::Past;

use super::state::connections::Partial;
use super::state::party::Party;
use super::state::record_limiter::RecordKind;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::Now;

impl Server {
    /// Input of a peer was read: notes the frame that it has begun.
    pub(super) fn note_partial(&mut self, now: Now, conn: ConnId) {
        let Some(partial) = self.connections.partial(conn, now.at) else { return };
        let Partial { bytes, since } = partial;
        let due = since.map(|since| since + self.guards.frame_time);
        if bytes == 0 && due.is_none() {
            return self.partial_frames.forget(conn);
        }
        let identity = self.engine.identity(conn).unwrap_or(&Identity::Anonymous);
        let Some(origin) = self.connections.origin(conn) else { return };
        let party = Party::of(identity, origin);
        self.partial_frames.set(conn, Held { party: party.clone(), bytes, due });
        while let Some(past) = self.partial_frames.past(&party, &self.guards) {
            let Past { limit, conn, party, bytes } = past;
            if self.should_record(now, party.clone(), RecordKind::Close(limit)) {
                tracing::warn!(%conn, %party, bytes, "closing: unended messages pass limits.{limit}");
            }
            self.drop_peer(now, conn);
        }
    }

    /// Closes peers that take too long for a message.
    pub(super) fn end_slow_frames(&mut self, now: Now) {
        while let Some((conn, party)) = self.partial_frames.take_overdue(now.at) {
            let limit = self.guards.frame_time;
            if self.should_record(now, party, RecordKind::Close("frame_time")) {
                tracing::warn!(%conn, ?limit, "closing: a message takes longer than limits.frame_time");
            }
            self.drop_peer(now, conn);
        }
    }
}
