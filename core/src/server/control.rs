//! Connections that end, peers that do not read, reload, shutdown, timers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acp::cancel::cut_off;
use crate::action::Action;
use crate::collections::timer_queue::Timer;
use crate::connection::{Counterpart, Ending, Phase};
use crate::engine::{Drain, Engine};
use crate::event::AfterInput;
use crate::ids::{CallId, ConnId, JobId, RequestId};
use crate::jobs::result;
use crate::outbox::requests::{Reply, Topic, Work};
use crate::outgoing::call::Call;
use crate::protocol::revision::Methods;
use crate::protocol::role::Side;
use crate::provider::OfferKind;
use crate::reason::CloseReason;
use crate::reason::StopReason;
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::settings::Settings;
use crate::tasks::task::Change;
use crate::time::Instant;

/// Timers that one tick takes at most, so that a million tasks that expire together delay no peer
/// for long.
const TICK_MAX: usize = 128;
/// Why an instance or an agent ends whose connection ends.
const OUTPUT_CLOSED: &str = "it closed its standard output";

impl Engine {
    /// The first bytes are no JSON-RPC: nothing after them is read, whatever it says. A person
    /// at a terminal is told the reason; a browser or a TLS client gets nothing.
    pub(crate) fn on_alien(&mut self, conn: ConnId, bytes: &[u8]) {
        self.outbox.counters_mut().invalid += 1;
        if self.outbox.counterpart(conn).is_behind() {
            // UPS-14: skipped and counted.
            return;
        }
        let printable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        let http = bytes.windows(5).any(|window| window == b"HTTP/")
            || bytes
                .split(|byte| *byte == b' ')
                .next()
                .is_some_and(|word| word.len() >= 3 && word.iter().all(u8::is_ascii_uppercase));
        if printable && !http {
            let message = "the first line is not JSON: this connection speaks JSON-RPC";
            self.outbox.refuse_unreadable(
                conn,
                &ErrorObject::new(code::PARSE_ERROR, message),
                None,
            );
        }
        self.outbox.close(conn, CloseReason::Alien);
    }

    pub(crate) fn on_finished(&mut self, conn: ConnId, then: AfterInput) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        if connection.ending != Ending::Open {
            return;
        }
        match connection.counterpart() {
            Counterpart::Instance(id) => {
                return self.gateway().fail_instance(id, OUTPUT_CLOSED);
            }
            Counterpart::Agent(client) => return self.supervisor().end(client, OUTPUT_CLOSED),
            Counterpart::AgentClient => return self.supervisor().on_client_ended(conn, Some(then)),
            Counterpart::Peer => {}
        }
        connection.ending = Ending::Finished(then);
        let after = match then {
            AfterInput::Answer => None,
            AfterInput::AnswerAndProbe(after) | AfterInput::AnswerWithin(after) => Some(after),
        };
        if let Some(after) = after {
            let at = self.now.at + after;
            self.timers.arm(&mut connection.aside.linger_timer, Timer::Linger(conn), at);
        }
        let calls = self.take_all_calls(conn);
        self.lose_calls(conn, calls);
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
            Counterpart::Instance(id) => {
                return self.gateway().fail_instance(id, OUTPUT_CLOSED);
            }
            Counterpart::Agent(client) => return self.supervisor().end(client, OUTPUT_CLOSED),
            // The rest of the connection is that of any peer.
            Counterpart::AgentClient => self.supervisor().on_client_ended(conn, None),
            Counterpart::Peer => {}
        }
        self.remove_connection(conn);
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
        self.lose_calls(conn, calls);
        aside.lost_handles.extend(connection.send_queue.handles());
        self.unsuspend_lost(aside.lost_handles);
        if !self.upstreams.is_empty() || !self.upstreams.watched.is_empty() {
            self.gateway().client_gone(conn, &connection.identity);
        }
    }

    /// Takes out all calls of a peer that answers nothing more. Its remote tasks are lost, and
    /// their calls with them.
    fn take_all_calls(&mut self, conn: ConnId) -> Vec<(CallId, Call)> {
        let mut calls = self.outgoing.lose_calls(conn);
        for (id, remote) in self.outgoing.lose_remote_tasks(conn) {
            calls.push(self.lose_remote(conn, id, remote));
        }
        calls
    }

    /// Cancels the plain calls of a peer that is gone and ends its waits. Tasks go on (TSK-15).
    fn cancel_requests(&mut self, conn: ConnId, requests: Vec<(RequestId, Reply, Work)>) {
        for (id, reply, work) in requests {
            match work {
                Work::Job(job) => self.requestor_gone(job),
                Work::Task(task, _) => {
                    if let Some(task) = self.tasks.get_mut(task) {
                        task.aside.forget_waiter(&(conn, id));
                    }
                }
                Work::Listen(listening) => self.unlisten(conn, &id, &listening),
                Work::Survey(_) | Work::Lookup(_) => {}
                Work::Upstream(_) => _ = self.upstreams.waiters.remove(&(conn, id)),
                Work::Question(of) => self.gateway().withdraw_question(of, None),
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
        self.catch_up(conn);
    }

    pub(crate) fn on_configured(&mut self, settings: Arc<Settings>) {
        self.loosest = self.loosest.or(crate::engine::Admitted::of(&settings));
        self.outbox.configure(Arc::clone(&settings));
        let before = core::mem::replace(&mut self.settings, settings);
        let had_servers = !self.upstreams.is_empty();
        self.gateway().configure();
        self.agents.keep_counts(&self.settings.agents);
        self.announce_list(Topic::Tools);
        let has_servers = had_servers || !self.upstreams.is_empty();
        for (topic, kinds) in [
            (Topic::Prompts, &[OfferKind::Prompt] as &[OfferKind]),
            (Topic::Resources, &[OfferKind::Resource, OfferKind::Template]),
        ] {
            if has_servers || !before.provider.is_same(&self.settings.provider, kinds) {
                self.announce_list(topic);
            }
        }
    }

    /// Tells every client that one of its lists may be another now.
    pub(crate) fn announce_list(&mut self, topic: Topic) {
        let audience: Vec<ConnId> =
            self.outbox.connections().iter().map(|(conn, _)| *conn).collect();
        self.announce_list_to(topic, &audience);
    }

    /// Tells these clients that one of their lists may be another now: sessions, and subscriptions.
    pub(crate) fn announce_list_to(&mut self, topic: Topic, audience: &[ConnId]) {
        let Some(method) = topic.method() else { return };
        let is_session = |conn: &&ConnId| {
            self.outbox.connection(**conn).is_some_and(|peer| {
                peer.phase == Phase::Ready
                    && peer.dialect.methods == Methods::Tools
                    && matches!(peer.side, Side::Server)
            })
        };
        let ready: Vec<ConnId> = audience.iter().filter(is_session).copied().collect();
        for conn in ready {
            if self.upstreams.hold_topic(conn, topic) {
                continue;
            }
            self.outbox.send(conn, |json| {
                json.raw("{\"jsonrpc\":\"2.0\",").member("method", method).raw("}");
            });
        }
        self.tell_of_list(topic, audience);
    }

    /// Shuts down: every running job is stopped and every request is answered at once. A
    /// second call brings the end forward.
    pub(crate) fn on_drain(&mut self, by: Instant) {
        let end_timer = self.drain.as_ref().and_then(|drain| drain.end_timer);
        let earlier = end_timer.map(|armed| self.timers.due(armed));
        let by = earlier.map_or(by, |earlier| earlier.min(by));
        let grace = by - self.now.at;
        // The last quarter is for the SIGKILL to do its work.
        let kill_at = self.now.at + grace / 4 * 3;
        let drain = self.drain.get_or_insert_with(Drain::default);
        if drain.exit_said {
            return;
        }
        self.outbox.keep_finished(true);
        self.timers.arm(&mut drain.kill_timer, Timer::DrainKill, kill_at);
        self.timers.arm(&mut drain.end_timer, Timer::DrainEnd, by);
        self.abandon_creations(&result::shutting_down());
        self.interrupt_tasks();
        self.answer_all_requests();
        self.keyed.forget_all(&mut self.timers);
        let ids: Vec<JobId> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            self.release_job_claim(id, StopReason::Shutdown);
        }
        self.gateway().end_all_instances();
        self.supervisor().shut_down();
        self.unsuspend_all();
        self.outbox.keep_finished(false);
        self.hurry_store();
    }

    /// Tasks whose work is cut off have failed, and say why; their waiters are told.
    fn interrupt_tasks(&mut self) {
        let live: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.status().is_terminal())
            .map(|(id, _)| *id)
            .collect();
        for id in live {
            let error = result::shutting_down();
            self.end_task(id, Change::Fail, Some(error.message.as_ref().into()), Err(error));
        }
    }

    fn answer_all_requests(&mut self) {
        let conns: Vec<_> = self.outbox.connections().keys().copied().collect();
        for conn in conns {
            self.end_subscriptions(conn);
            let Some(connection) = self.outbox.connection_mut(conn) else { continue };
            for (_, reply, work) in connection.requests.take_all() {
                match work {
                    Work::Job(job) => _ = self.jobs.release(job),
                    Work::Task(task, _) => {
                        if let Some(task) = self.tasks.get_mut(task) {
                            task.aside.forget_waiter(&(conn, reply.id.clone()));
                        }
                    }
                    Work::Upstream(_) => {
                        self.upstreams.waiters.remove(&(conn, reply.id.clone()));
                    }
                    Work::Question(of) => self.gateway().withdraw_question(of, None),
                    Work::Listen(_) | Work::Survey(_) | Work::Lookup(_) => {}
                }
                let error = match cut_off(&self.outbox, conn, StopReason::Shutdown) {
                    Some(error) => error,
                    None => result::shutting_down(),
                };
                self.outbox.fail(reply, &error);
            }
        }
    }

    /// While shutting down: says when nothing is left to wait for, or no time to wait. The store
    /// has all records by then (DUR-01).
    pub(crate) fn exit_if_drained(&mut self) {
        // Nothing that comes to pass here ends a job that outlasts SIGKILL.
        let idle = self.jobs.len() == self.jobs.outlasting()
            && self.tasks.writes().none_on_their_way()
            && self.upstreams.instances.is_empty()
            && !self.agents.has_processes();
        if let Some(drain) = &mut self.drain
            && (idle || drain.over)
            && !drain.exit_said
        {
            drain.exit_said = true;
            self.timers.disarm(&mut drain.kill_timer, Timer::DrainKill);
            self.timers.disarm(&mut drain.end_timer, Timer::DrainEnd);
            self.outbox.push(Action::Exit);
        }
    }

    /// Runs due timers, at most [`TICK_MAX`] of them: the deadline stays due for the rest. A peer
    /// that seems not to read comes first of a tick or in a later one, so that the host can try it
    /// once more.
    pub(crate) fn on_tick(&mut self) {
        for taken in 0..TICK_MAX {
            if taken > 0 && matches!(self.timers.next(), Some((_, Timer::Stall(_)))) {
                break;
            }
            let Some(timer) = self.timers.pop(self.now.at) else { break };
            match timer {
                Timer::Job(id) => self.on_job_timer(id),
                Timer::Task(id) => self.on_task_timer(id),
                Timer::Stall(conn) => {
                    if let Some(connection) = self.outbox.connection_mut(conn) {
                        connection.aside.stall_timer = None;
                    }
                    self.outbox.give_up(conn, CloseReason::Stalled);
                }
                Timer::CatchUp(conn) => self.on_catch_up_timer(conn),
                Timer::Linger(conn) => self.on_linger_timer(conn),
                Timer::Suspended(state) => self.on_suspended_timer(state),
                Timer::Orphan(id) => self.on_orphan_timer(id),
                Timer::Keyed(id) => self.keyed.on_timer(id),
                Timer::Call(conn, call) => self.on_call_timer(conn, call),
                Timer::Poll(conn, call) => self.on_poll_timer(conn, call),
                Timer::Store => self.on_store_timer(),
                Timer::Lease => self.on_lease_timer(),
                Timer::DrainKill => {
                    if let Some(drain) = &mut self.drain {
                        drain.kill_timer = None;
                    }
                    self.kill_everything();
                }
                Timer::DrainEnd => self.end_drain(),
                Timer::Heartbeat(id) => {
                    let (timers, outbox) = (&mut self.timers, &mut self.outbox);
                    self.jobs.on_heartbeat_timer(timers, outbox, &mut self.tasks, id);
                }
                Timer::Relayed(id) => self.gateway().on_relayed_timer(id),
                Timer::ServerTask(id) => self.gateway().on_server_task_timer(id),
                Timer::Upstream(id) => self.gateway().on_upstream_timer(id),
                Timer::Lists(id) => self.gateway().on_lists_timer(id),
                Timer::SlowStart => self.gateway().on_slow_start(),
                Timer::Agent(client) => self.supervisor().on_timer(client),
            }
        }
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

    fn on_linger_timer(&mut self, conn: ConnId) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        connection.aside.linger_timer = None;
        match connection.ending {
            Ending::Open | Ending::Closing(_) | Ending::Finished(AfterInput::Answer) => {}
            Ending::Finished(AfterInput::AnswerWithin(grace)) => self.linger_or_end(conn, grace),
            // Outside a session there is nothing a server may send unasked: the answer will tell.
            Ending::Finished(AfterInput::AnswerAndProbe(_)) if connection.phase == Phase::Fresh => {
            }
            Ending::Finished(AfterInput::AnswerAndProbe(every)) => {
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

    /// The shutdown's time is over: whatever is left is the host's to end with itself.
    fn end_drain(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.end_timer = None;
            drain.over = true;
        }
    }
}
