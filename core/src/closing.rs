//! Connections that end, and peers that do not read.

use alloc::vec::Vec;
use core::time::Duration;

use crate::acp::cancel::cut_off;
use crate::collections::timer_queue::Timer;
use crate::connection::{ConnectionEnd, Counterpart, SessionPhase};
use crate::engine::Engine;
use crate::event::AfterInput;
use crate::ids::{CallId, ConnId, RequestId};
use crate::outbox::requests::{Reply, RequestWork};
use crate::outgoing::call::OutgoingCall;
use crate::protocol::revision::Methods;
use crate::reason::{CloseReason, StopReason};

/// Why the instance and the agent end behind a connection that ends.
const OUTPUT_CLOSED: [&str; 2] = ["it closed its standard output"; 2];
/// The same for a connection whose output is not taken.
const NOT_READING: [&str; 2] = ["it does not read, or broke the protocol", "it does not read"];

impl Engine {
    pub(crate) fn on_finished(&mut self, conn: ConnId, then: AfterInput) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        if connection.ending != ConnectionEnd::Open {
            return;
        }
        match connection.counterpart() {
            Counterpart::Instance(_) | Counterpart::Agent(_) => {
                return self.end_behind(conn, OUTPUT_CLOSED);
            }
            Counterpart::AgentClient => return self.supervisor().on_client_ended(conn, Some(then)),
            Counterpart::Peer => {}
        }
        connection.ending = ConnectionEnd::Finished(then);
        let after = match then {
            AfterInput::Answer => None,
            AfterInput::AnswerAndProbe(after) | AfterInput::AnswerWithin(after) => Some(after),
        };
        if let Some(after) = after {
            let at = self.now.at + after;
            self.timers.arm(&mut connection.aside.linger_timer, Timer::Linger(conn), at);
        }
        let calls = self.take_all_calls(conn);
        self.outgoing().lose_calls(conn, calls);
        // A peer that cannot cancel any more would listen forever.
        self.end_subscriptions(conn);
        if let Some(connection) = self.outbox.connection_mut(conn)
            && matches!(then, AfterInput::AnswerWithin(_))
        {
            connection.aside.lingering = connection.requests.len();
        }
        self.outbox.close_if_finished(conn);
    }

    pub(crate) fn on_closed(&mut self, conn: ConnId) {
        match self.outbox.counterpart(conn) {
            // Its end is reported when no process is left, with its status.
            Counterpart::Instance(_) | Counterpart::Agent(_) => {
                return self.end_behind(conn, OUTPUT_CLOSED);
            }
            // The rest of the connection is that of any peer.
            Counterpart::AgentClient => self.supervisor().on_client_ended(conn, None),
            Counterpart::Peer => {}
        }
        self.remove_connection(conn);
    }

    /// Ends the server or agent behind a connection that has read too little.
    #[cold]
    pub(crate) fn end_unread(&mut self, conn: ConnId) {
        self.end_behind(conn, NOT_READING);
    }

    /// Ends the instance or the agent behind a connection, each for its reason.
    fn end_behind(&mut self, conn: ConnId, [of_instance, of_agent]: [&'static str; 2]) {
        match self.outbox.counterpart(conn) {
            Counterpart::Peer | Counterpart::AgentClient => {}
            Counterpart::Instance(id) => self.gateway().fail_instance(id, of_instance),
            Counterpart::Agent(client) => self.supervisor().end(client, of_agent),
        }
    }

    /// Forgets a connection, and cancels everything that its peer waits for.
    pub(crate) fn remove_connection(&mut self, conn: ConnId) {
        // Gone first, so that nothing more is written for it, the rest of a batch neither.
        let Some(mut connection) = self.outbox.remove(conn) else { return };
        let mut aside = connection.aside.take();
        self.timers.disarm(&mut aside.catch_up_timer, Timer::CatchUp(conn));
        self.timers.disarm(&mut aside.stall_timer, Timer::Stall(conn));
        self.timers.disarm(&mut aside.linger_timer, Timer::Linger(conn));
        // Out of the table before jobs are stopped, whose questions on it are cancelled then.
        let calls = self.take_all_calls(conn);
        self.cancel_requests(conn, connection.requests.take_all());
        self.outgoing().lose_calls(conn, calls);
        aside.lost_handles.extend(connection.send_queue.handles());
        self.unsuspend_lost(aside.lost_handles);
        if !self.upstreams.is_empty() || !self.upstreams.watched.is_empty() {
            self.gateway().client_gone(conn, &connection.identity);
        }
    }

    /// Takes out all calls of a peer that answers nothing more. Its remote tasks are lost, and
    /// their calls with them.
    fn take_all_calls(&mut self, conn: ConnId) -> Vec<(CallId, OutgoingCall)> {
        let mut calls = self.outgoing.lose_calls(conn);
        for (id, remote) in self.outgoing.lose_remote_tasks(conn) {
            calls.push(self.outgoing().lose_remote(conn, id, remote));
        }
        calls
    }

    /// Cancels the plain calls of a peer that is gone and ends its waits. Tasks go on (TSK-15).
    fn cancel_requests(&mut self, conn: ConnId, requests: Vec<(RequestId, Reply, RequestWork)>) {
        for (id, reply, work) in requests {
            match work {
                RequestWork::Job(job) => self.requestor_gone(job),
                RequestWork::Task(task, _) => {
                    if let Some(task) = self.tasks.get_mut(task) {
                        task.aside.forget_waiter(&(conn, id));
                    }
                }
                RequestWork::Listen(listening) => self.unlisten(conn, &id, &listening),
                RequestWork::Survey(_) | RequestWork::Lookup(_) => {}
                RequestWork::Upstream(_) => _ = self.upstreams.waiters.remove(&(conn, id)),
                RequestWork::Question(of) => self.gateway().withdraw_question(of, None),
            }
            match cut_off(&self.outbox, conn, StopReason::Disconnected) {
                Some(error) => self.outbox.fail(reply, &error),
                None => self.outbox.forget(reply),
            }
        }
    }

    pub(crate) fn on_blocked(&mut self, conn: ConnId) {
        // The other side of a supervision is not read meanwhile.
        match self.outbox.counterpart(conn) {
            Counterpart::Peer | Counterpart::Instance(_) => {}
            Counterpart::AgentClient | Counterpart::Agent(_) => return,
        }
        let at = self.now.at + self.settings.limits.write_stall;
        if let Some(connection) = self.outbox.connection_mut(conn) {
            self.timers.arm(&mut connection.aside.stall_timer, Timer::Stall(conn), at);
        }
    }

    pub(crate) fn on_drained(&mut self, conn: ConnId) {
        if let Some(connection) = self.outbox.connection_mut(conn)
            && let Some(aside) = connection.aside.some()
        {
            self.timers.disarm(&mut aside.stall_timer, Timer::Stall(conn));
        }
        self.jobs.show_all_held_progress(&mut self.outbox, &mut self.tasks, conn);
        self.news().catch_up(conn);
    }

    /// A period in which a peer without input was to be answered is over. Another follows if a
    /// request was answered meanwhile, or if one waits for an upstream that still starts: answers
    /// to a script that was written into a pipe are on their way.
    fn linger_or_end(&mut self, conn: ConnId, grace: Duration) {
        let waits = self.upstreams.awaits_start(&self.outbox, conn);
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        let open = connection.requests.len();
        if !grace.is_zero() && (waits || open < connection.aside.lingering) {
            connection.aside.lingering = open;
            let at = self.now.at + grace;
            return self.timers.arm(&mut connection.aside.linger_timer, Timer::Linger(conn), at);
        }
        let requests = connection.requests.take_all();
        let why = if requests.is_empty() { CloseReason::Finished } else { CloseReason::Unanswered };
        self.cancel_requests(conn, requests);
        self.outbox.close_if_finished_as(conn, why);
    }

    pub(crate) fn on_linger_timer(&mut self, conn: ConnId) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        connection.aside.linger_timer = None;
        match connection.ending {
            ConnectionEnd::Open
            | ConnectionEnd::Closing(_)
            | ConnectionEnd::Finished(AfterInput::Answer) => {}
            ConnectionEnd::Finished(AfterInput::AnswerWithin(grace)) => {
                self.linger_or_end(conn, grace);
            }
            // Outside a session there is nothing a server may send unasked: the answer will tell.
            ConnectionEnd::Finished(AfterInput::AnswerAndProbe(_))
                if connection.phase == SessionPhase::Fresh => {}
            ConnectionEnd::Finished(AfterInput::AnswerAndProbe(every)) => {
                let at = self.now.at + every;
                self.timers.arm(&mut connection.aside.linger_timer, Timer::Linger(conn), at);
                // It cannot answer any more; if it is gone, the transport will say so.
                connection.aside.probes += 1;
                let probe = connection.aside.probes;
                if connection.dialect.methods == Methods::Services {
                    // There is no such request in ACP, and an unknown one is ignored there.
                    return self.outbox.send(conn, |json| {
                        json.raw(r#"{"jsonrpc":"2.0","method":"_ceased/probe"}"#);
                    });
                }
                self.outbox.send(conn, |json| {
                    json.raw("{\"jsonrpc\":\"2.0\",\"id\":\"probe-").display(probe);
                    json.raw("\",\"method\":\"ping\"}");
                });
            }
        }
    }
}
