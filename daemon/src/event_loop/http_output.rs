//! HTTP connections: sending, and the end of connections and sessions.

use ceased_core::event::Event;
use ceased_core::ids::ConnId;
use ceased_core::time::Now;
use ceased_transports::Sent;

use super::server::Server;
use super::state::connections::Sending;
use super::state::shutdown::Stopping;
use crate::http::answer;
use crate::observability::audit::Happening;

/// Sending.
impl Server {
    /// Delivers the frames of an engine connection of HTTP to its HTTP connections.
    pub(super) fn send_engine_side(&mut self, now: Now, engine: ConnId) {
        let revision = self.engine.session_dialect(engine).map(|dialect| dialect.revision);
        let Some(queue) = self.engine.send_queue(engine) else { return };
        let delivered = self.http.deliver(engine, revision, queue.frames(), now.at);
        for (request, count) in &delivered.taken {
            queue.take_frames_of(request.as_ref(), *count);
        }
        let is_empty = queue.is_empty();
        // A client with many sessions uses few of them.
        queue.release();
        if !delivered.taken.is_empty() {
            self.stopping.put_off(now.at);
        }
        let progress = !delivered.taken.is_empty();
        let told = self.http.note_told(engine, !is_empty);
        if is_empty && told {
            self.engine.handle(now, Event::Drained { conn: engine }, &mut self.actions);
        } else if !is_empty && (!told || progress) {
            self.engine.handle(now, Event::Blocked { conn: engine }, &mut self.actions);
        }
        for conn in delivered.touched {
            self.finish_http_output(now, conn);
        }
        self.end_cancelled_streams(now, engine);
        if delivered.failed {
            return self.end_session(now, engine);
        }
        self.http.schedule_session(engine);
        if is_empty && self.http.is_closing(engine) {
            self.end_engine_side(now, engine);
        }
    }

    /// HTTP-07: after a cancel its stream ends without an answer.
    fn end_cancelled_streams(&mut self, now: Now, session: ConnId) {
        let Some(state) = self.http.session_mut(session) else { return };
        if !std::mem::take(&mut state.had_cancel) {
            return;
        }
        let engine = &self.engine;
        let is_open = |id: &ceased_core::ids::RequestId| engine.has_open_request(session, id);
        for conn in self.http.end_cancelled(session, now.at, is_open) {
            self.finish_http_output(now, conn);
        }
    }

    /// After output was written to an HTTP connection: sends it, and reads on if its request was
    /// answered.
    pub(super) fn finish_http_output(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        peer.note_phase(now.at, true);
        if peer.exchange().is_none() {
            peer.advance();
            if peer.take_unread() {
                self.connections.note_readable(conn);
            }
        }
        self.send_http(now, conn);
    }

    /// Sends the output of an HTTP connection.
    pub(super) fn send_http(&mut self, now: Now, conn: ConnId) {
        let Some(peer) = self.http.peer_mut(conn) else { return };
        if peer.held_until.is_some() {
            return;
        }
        let registry = self.poll.registry();
        let Some((sent, progress)) = self.connections.send_bytes(registry, conn, peer.output())
        else {
            return;
        };
        if progress {
            self.stopping.put_off(now.at);
        }
        match sent {
            Sent::Everything => {
                peer.note_unblocked();
                if peer.begin_linger() {
                    // The client reads the response and then the end; closing at once could
                    // discard the response.
                    let _ = self.connections.finish(conn);
                    let is_over = peer.is_half_closed() || self.stopping != Stopping::No;
                    if is_over {
                        return self.drop_peer(now, conn);
                    }
                    self.connections.note_readable(conn);
                } else if peer.is_finished() || self.connections.is_closing(conn) {
                    return self.drop_peer(now, conn);
                }
                self.resume_engine_side(conn);
            }
            Sent::Blocked => {
                peer.note_blocked(now.at, progress);
                self.resume_engine_side(conn);
            }
            Sent::Lost => return self.drop_peer(now, conn),
        }
        if let Some(peer) = self.http.peer_mut(conn) {
            peer.note_phase(now.at, false);
        }
        self.http.schedule(conn, self.settings.limits.write_stall);
    }

    /// An HTTP connection has room: delivers the frames that waited for it.
    fn resume_engine_side(&mut self, conn: ConnId) {
        if let Some(engine) = self.http.waiting_engine_side(conn) {
            self.connections.note_output(engine, Sending::More);
        }
    }

    /// The engine is about to give up an engine connection of HTTP because its client does not
    /// read: closes the HTTP connections that hold its frames back. Returns whether that helps.
    pub(super) fn unblock_engine_side(&mut self, now: Now, engine: ConnId) -> bool {
        if self.http.session(engine).is_none() {
            return false;
        }
        let blockers = self.http.blockers(engine);
        let helps = !blockers.is_empty();
        for conn in blockers {
            tracing::debug!(%conn, "closed: the client does not read its stream");
            self.drop_peer(now, conn);
        }
        self.send_engine_side(now, engine);
        helps
    }
}

/// Ending.
impl Server {
    /// Ends a session: its streams, and its engine connection, which cancels its requests as
    /// `on_disconnect` says.
    pub(super) fn end_session(&mut self, now: Now, key: ConnId) {
        let Some(session) = self.http.remove_session(key) else { return };
        for conn in session.peers() {
            let Some(peer) = self.http.peer_mut(conn) else { continue };
            if peer.is_streaming() {
                peer.end_events();
            } else {
                let text = "the session has ended";
                peer.respond(answer::refusal(ceased_transports::http::Status::NotFound, text));
            }
            self.finish_http_output(now, conn);
        }
        self.close_engine_side(now, key, session.bytes);
    }

    /// Ends an engine connection of HTTP that the engine has closed.
    pub(super) fn end_engine_side(&mut self, now: Now, engine: ConnId) {
        if self.http.session(engine).is_some() {
            return self.end_session(now, engine);
        }
        if let Some(conn) = self.http.stateless_peer(engine) {
            if let Some(peer) = self.http.peer_mut(conn) {
                if peer.exchange().is_some() && !peer.is_streaming() {
                    let text = "the request cannot be answered any more: try again";
                    let status = ceased_transports::http::Status::Unavailable;
                    peer.respond(answer::refusal(status, text));
                }
                peer.close();
            }
            self.http.forget_stateless(conn);
            self.close_engine_side(now, engine, (0, 0));
            self.note_http_output(now, conn);
        }
    }

    /// Closes an engine connection that belongs to no socket.
    pub(super) fn close_engine_side(&mut self, now: Now, engine: ConnId, bytes: (u64, u64)) {
        let identity = self.engine.identity(engine).cloned();
        if self.http.forget_engine_side(engine)
            && let Some(identity) = identity
        {
            let (received_bytes, sent_bytes) = bytes;
            let gone = Happening::Disconnect { identity, conn: engine, received_bytes, sent_bytes };
            self.audit(now, &gone);
        }
        self.engine.handle(now, Event::Closed { conn: engine }, &mut self.actions);
    }

    /// Removes a closed HTTP connection. Returns false if the connection is none.
    pub(super) fn forget_http(&mut self, now: Now, conn: ConnId, bytes: (u64, u64)) -> bool {
        let Some(removed) = self.http.remove(conn, now.at) else { return false };
        // HTTP-08: the end of the connection is the cancel.
        if let Some((engine, _)) = removed.stateless {
            self.close_engine_side(now, engine, bytes);
        }
        true
    }

    /// Shutdown: ends every stream and connection after its output.
    pub(super) fn close_all_http(&mut self, now: Now) {
        for engine in self.http.engine_ids() {
            self.send_engine_side(now, engine);
            self.end_engine_side(now, engine);
        }
        for conn in self.http.peer_ids() {
            if let Some(peer) = self.http.peer_mut(conn) {
                peer.close();
            }
            self.connections.close_after_output(conn);
        }
    }
}
