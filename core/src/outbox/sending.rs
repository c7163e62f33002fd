//! Sending: frames into the send queues, the answers of batches, and the close of a connection
//! whose peer does not read.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::action::Action;
use crate::collections::lazy_box::LazyBox;
use crate::connection::{Connection, ConnectionEnd, Counterpart};
use crate::ids::ConnId;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::BatchId;
use crate::policy::account::Account;
use crate::reason::CloseReason;
use crate::rpc::send_queue::{SendQueue, Tag};
use crate::time::Instant;

impl Outbox {
    /// One message of a batch is settled; the last one sends the answers.
    #[inline(never)]
    pub(crate) fn settle_in_batch(
        &mut self,
        conn: ConnId,
        batch: BatchId,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some(aside) = connection.aside.some() else { return };
        let Some(answers) = aside.batches.get_mut(&batch) else { return };
        let before = answers.bytes.len();
        write(&mut answers.bytes);
        answers.open -= 1;
        aside.collected.grow(answers.bytes.len() - before);
        if answers.open > 0 {
            // Answers that wait for their batch wait for the peer as much as those in the send
            // queue.
            let mark = self.settings.limits.write_buffer_bytes;
            let max = most_waiting(&connection.send_queue, mark, self.now);
            if connection.aside.collected.bytes() + connection.send_queue.len() > max {
                self.give_up(conn, CloseReason::Flooded);
            }
            return;
        }
        let answers = aside.batches.remove(&batch).map_or(Vec::new(), |batch| batch.bytes);
        aside.collected.shrink(answers.len());
        if let Some(list) = answers.strip_suffix(b",") {
            self.send_bytes(conn, Tag::NONE, |bytes| {
                bytes.push(b'[');
                bytes.extend_from_slice(list);
                bytes.push(b']');
            });
        }
    }

    pub(crate) fn send(&mut self, conn: ConnId, write: impl FnOnce(&mut Writer<'_>)) {
        self.send_for(conn, Tag::NONE, write);
    }

    /// Sends a message that belongs to a request of the peer.
    pub(crate) fn send_for(
        &mut self,
        conn: ConnId,
        tag: Tag<'_>,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        self.send_bytes(conn, tag, |bytes| write(&mut Writer::new(bytes)));
    }

    pub(crate) fn send_bytes(
        &mut self,
        conn: ConnId,
        tag: Tag<'_>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.put(conn, tag, |queue, tag| queue.frame(tag, write));
    }

    /// Sends a message to a server ahead of all data that waits for it (UPS-04).
    pub(crate) fn send_urgent(&mut self, conn: ConnId, write: impl FnOnce(&mut Writer<'_>)) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let queue = &mut connection.send_queue;
        let was_empty = queue.is_empty();
        queue.urgent_frame(|bytes| write(&mut Writer::new(bytes)));
        if was_empty {
            self.actions.push(Action::Flush { conn });
        }
    }

    /// Has `put` append one frame to the send queue of a peer that keeps up.
    pub(super) fn put(
        &mut self,
        conn: ConnId,
        tag: Tag<'_>,
        put: impl FnOnce(&mut SendQueue, Tag<'_>),
    ) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if matches!(connection.ending, ConnectionEnd::Closing(_)) {
            return connection.lose_handle(tag);
        }
        let queue = &mut *connection.send_queue;
        let waiting = queue.len();
        let mark = self.settings.limits.write_buffer_bytes;
        if waiting < mark {
            queue.note_under_mark(self.now);
        } else if waiting >= most_waiting(queue, mark, self.now) {
            connection.lose_handle(tag);
            return self.give_up(conn, CloseReason::Flooded);
        }
        queue.charge_to(connection.requests.account());
        put(queue, tag);
        if waiting == 0 {
            return self.actions.push(Action::Flush { conn });
        }
        if connection.account().own() > self.settings.limits.held_bytes_per_identity_max {
            let account = connection.account().clone();
            self.cut_output(&account);
        }
    }

    /// Closes the connection to a peer. A server or an agent is ended with its connection, by
    /// the engine.
    #[cold]
    pub(crate) fn close(&mut self, conn: ConnId, why: CloseReason) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        // A peer that does not even take our last words is closed a second time, without them.
        if matches!(connection.ending, ConnectionEnd::Closing(was) if !was.flushes() || why.flushes())
        {
            return;
        }
        connection.ending = ConnectionEnd::Closing(why);
        if !why.flushes() {
            let lost = connection.send_queue.handles();
            if !lost.is_empty() {
                connection.aside.lost_handles.extend(lost);
            }
            connection.send_queue = LazyBox::default();
        }
        self.actions.push(Action::Close { conn, why });
    }

    /// Closes a connection whose peer has sent everything and was answered everything.
    pub(crate) fn close_if_finished(&mut self, conn: ConnId) {
        self.close_if_finished_as(conn, CloseReason::Finished);
    }

    /// As [`Outbox::close_if_finished`], for this reason.
    pub(crate) fn close_if_finished_as(&mut self, conn: ConnId, why: CloseReason) {
        let is_finished = |connection: &Connection| {
            matches!(connection.ending, ConnectionEnd::Finished(_))
                && connection.requests.is_empty()
        };
        if !self.keeps_finished && self.connection(conn).is_some_and(is_finished) {
            self.close(conn, why);
        }
    }

    /// Keeps finished connections open from now on, or closes them: a shutdown is announced to all
    /// first.
    pub(crate) fn keep_finished(&mut self, keeps: bool) {
        self.keeps_finished = keeps;
        if !keeps {
            let conns: Vec<_> = self.connections.keys().copied().collect();
            conns.into_iter().for_each(|conn| self.close_if_finished(conn));
        }
    }

    /// Closes the connection to a peer, or has the server or agent behind it ended.
    #[cold]
    pub(crate) fn give_up(&mut self, conn: ConnId, why: CloseReason) {
        match self.counterpart(conn) {
            Counterpart::Peer | Counterpart::AgentClient => self.close(conn, why),
            Counterpart::Instance(_) | Counterpart::Agent(_) => self.unread.push(conn),
        }
    }

    #[inline]
    pub(crate) const fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The next connection of a server or agent that reads too little.
    pub(crate) fn take_unread(&mut self) -> Option<ConnId> {
        (!self.unread.is_empty()).then(|| self.unread.remove(0))
    }

    /// Closes the connection of an identity that has most unsent bytes: with them the identity
    /// holds more than its share.
    #[cold]
    fn cut_output(&mut self, account: &Account) {
        let largest = self.connections.least(|conn, peer| {
            let is_open = !matches!(peer.ending, ConnectionEnd::Closing(_));
            let is_own = is_open && peer.account().is(account);
            is_own.then(|| (Reverse(peer.send_queue.len()), *conn))
        });
        if let Some((_, conn)) = largest {
            self.close(conn, CloseReason::Flooded);
        }
    }
}

impl Connection {
    /// A frame is not sent: no peer will be able to name its handle.
    fn lose_handle(&mut self, tag: Tag<'_>) {
        if let Some(handle) = tag.handle {
            self.aside.lost_handles.push(handle);
        }
    }
}

/// How long a peer may take nothing before it counts as one that does not read.
const HESITATION: Duration = Duration::from_secs(1);

/// Bytes that may wait for a peer before it is given up, by the bytes at which it counts as slow.
///
/// A peer that does not read gets as much again. One that reads may just have got more answers
/// than it can take at once, since its requests end when their jobs end: it gets four times
/// that, and the time limit for a peer that stops.
fn most_waiting(queue: &SendQueue, mark: usize, now: Instant) -> usize {
    let (since, takes) = queue.over_mark();
    let reads = takes || now - since < HESITATION;
    mark.saturating_mul(if reads { 8 } else { 2 })
}
