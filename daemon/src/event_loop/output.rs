//! Output: sends pending frames to peers, and closes connections.

use std::sync::PoisonError;

use ceased_core::event::Event;
use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::Now;

use super::server::Server;
use super::state::connections::{AfterSend, Closed, Greeted, Sending};
use super::state::handshakes::Abandoned;
use super::state::record_limiter::RecordKind;
use super::state::shutdown::Stopping;

/// Recorded reason of a peer that disconnected before it authenticated.
const WENT: &str = "disconnected before it was identified";

impl Server {
    /// Sends the engine's output, after its writes were handed to the store.
    pub(super) fn send(&mut self, now: Now) {
        self.hand_over_to_store(now);
        for (conn, sending) in self.connections.take_output() {
            self.send_to(now, conn, sending);
        }
    }

    fn send_to(&mut self, now: Now, conn: ConnId, sending: Sending) {
        if self.http.contains(conn) {
            return self.send_http(now, conn);
        }
        if self.http.is_engine_side(conn) {
            return self.send_engine_side(now, conn);
        }
        if let Some(instance) = self.remotes.of_engine(conn) {
            return self.send_to_remote(now, conn, instance);
        }
        if let Some(slot) = self.remotes.of_conn(conn) {
            return self.send_remote(now, conn, slot);
        }
        if !self.send_greeting(now, conn) {
            return;
        }
        let Some(queue) = self.engine.send_queue(conn) else { return };
        let sent = self.connections.send(self.poll.registry(), conn, queue, sending);
        let Some(delivery) = sent else { return };
        if delivery.progress {
            self.stopping.put_off(now.at);
        }
        match delivery.then {
            AfterSend::Empty { was_blocked } => {
                if was_blocked {
                    self.engine.handle(now, Event::Drained { conn }, &mut self.actions);
                }
                self.drop_if_closing(now, conn);
            }
            AfterSend::Blocked { is_news: true } => {
                self.engine.handle(now, Event::Blocked { conn }, &mut self.actions);
            }
            AfterSend::Blocked { is_news: false } => {}
            // A read reports the loss, after the remaining input.
            AfterSend::Lost => self.connections.note_readable(conn),
        }
    }

    /// Sends pending output from before the engine; returns whether all is sent.
    fn send_greeting(&mut self, now: Now, conn: ConnId) -> bool {
        let rejected = self.handshakes.is_rejected(conn);
        match self.connections.send_greeting(self.poll.registry(), conn, rejected) {
            Some(Greeted::Done) => true,
            Some(Greeted::Finished) => {
                self.drop_peer(now, conn);
                false
            }
            Some(Greeted::Lost) => {
                self.connections.note_readable(conn);
                false
            }
            Some(Greeted::Waiting) | None => false,
        }
    }

    /// Retries to send to a peer that seems not to read. Returns whether it accepted anything.
    pub(super) fn takes_something(&mut self, now: Now, conn: ConnId) -> bool {
        if self.http.is_engine_side(conn) {
            return self.unblock_engine_side(now, conn);
        }
        let before = self.connections.bytes_sent(conn);
        self.connections.retry_send(conn);
        self.send_to(now, conn, Sending::More);
        self.connections.bytes_sent(conn) > before
    }

    /// Closes a connection whose final output was sent.
    pub(super) fn drop_if_closing(&mut self, now: Now, conn: ConnId) {
        if self.http.contains(conn) {
            // Closed when its output was sent.
            return;
        }
        let empty = self.engine.send_queue(conn).is_none_or(|queue| queue.is_empty());
        if self.connections.is_closing(conn) && empty {
            self.drop_peer(now, conn);
        }
    }

    /// Shutdown: closes every connection after its pending output.
    pub(super) fn close_all_connections(&mut self, now: Now) {
        self.listeners.close_all(self.poll.registry());
        self.close_all_http(now);
        for conn in self.connections.ids() {
            self.connections.close_after_output(conn);
            self.drop_if_closing(now, conn);
        }
    }

    /// Closes the connections whose token was revoked.
    pub(super) fn drop_revoked(&mut self, now: Now) {
        if self.stopping != Stopping::No {
            // The listeners are closed; remaining peers may still be answered.
            return;
        }
        let listeners = &self.listeners;
        let revoked = self.connections.with_token(|token| !listeners.accept_token(token));
        let of_http = self.http.with_token(|token| !listeners.accept_token(token));
        for conn in revoked {
            tracing::warn!(%conn, "closed: its token was revoked");
            self.drop_peer(now, conn);
        }
        for conn in of_http {
            tracing::warn!(%conn, "closed: its token was revoked");
            self.end_engine_side(now, conn);
        }
    }

    /// Ends the links of the live view, and the streams of browsers that opened one.
    pub(super) fn drop_links(&mut self, now: Now) {
        self.http.passes.lock().unwrap_or_else(PoisonError::into_inner).end_all();
        for conn in self.http.with_link() {
            tracing::info!(%conn, "closed: the listeners changed, and links of the view ended");
            self.end_engine_side(now, conn);
        }
    }

    /// Closes a connection.
    pub(super) fn drop_peer(&mut self, now: Now, conn: ConnId) {
        // The engine is told when no process of an upstream is left.
        if self.end_upstream_of(now, conn) || self.drop_remote(now, conn) {
            return;
        }
        let Some(closed) = self.connections.remove(self.poll.registry(), conn) else { return };
        let Closed { link, sole, recorded } = closed;
        let bytes = (link.bytes_received(), link.bytes_sent());
        self.partial_frames.forget(conn);
        tracing::debug!(%conn, received = link.bytes_received(), sent = link.bytes_sent(), "closed");
        self.note_close(&link);
        if self.forget_http(now, conn, bytes) {
            return;
        }
        match self.handshakes.close(conn) {
            Some(Abandoned::Authenticating) => {
                let (identity, kind) = (Identity::Anonymous, RecordKind::Refuse(WENT));
                self.record_refusal(now, Some(conn), identity, link.peer(), kind, WENT);
            }
            Some(Abandoned::Delayed(party)) => self.resume_handshakes(&party),
            Some(Abandoned::Rejected) => {}
            None => {
                if recorded {
                    self.record_disconnect(now, conn, &link);
                }
                self.engine.handle(now, Event::Closed { conn }, &mut self.actions);
            }
        }
        if sole && self.stopping == Stopping::No {
            self.shut_down(now);
        }
    }
}
