//! The machine of all supervisions: it hands in events of clients and agents, and carries out the
//! effects with the leaves of the engine. It calls no method of the engine.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::{Action, AuditEvent, Cancel, Receipt, RequestEnd};
use crate::collections::det_map::Seed;
use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::connection::{Connection, ConnectionEnd, Counterpart};
use crate::event::AfterInput;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::jobs::Jobs;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::protocol::role::{ClientSide, Declared, Offers, ServerCapabilities, Side};
use crate::reason::{CloseReason, StopReason};
use crate::rpc::send_queue::Tag;
use crate::settings::Settings;
use crate::supervisor::effect::{StopReceipt, SupervisionEffect, SupervisionInput};
use crate::supervisor::supervision::Supervision;
use crate::supervisor::table::{Agents, Supervised};
use crate::supervisor::terms::Terms;
use crate::time::Instant;
use crate::tool::{Catalog, StopStep};
use crate::upstream::interface::{UpstreamAction, UpstreamEvent, UpstreamReceipt};
use crate::upstream::server::UpstreamServer;
use crate::upstream::table::Upstreams;

/// The supervisions, and the leaves of the engine that they work on.
pub(crate) struct Supervisions<'a> {
    pub(crate) agents: &'a mut Agents,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) jobs: &'a mut Jobs,
    /// Processes of servers and agents are numbered together.
    pub(crate) upstreams: &'a mut Upstreams,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Instant,
    pub(crate) seed: Seed,
    pub(crate) outgoing: &'a OutgoingRequests,
    /// Whether the daemon shuts down.
    pub(crate) drains: bool,
}

impl Supervisions<'_> {
    /// Puts an agent behind a connection; everything on it passes to the agent from now on.
    pub(crate) fn supervise(&mut self, client: ConnId, server: &Arc<UpstreamServer>) {
        self.put_behind(client, server);
        self.hand_in_to(client, SupervisionInput::Opened, &[]);
    }

    /// As [`Supervisions::supervise`], for an agent that starts with the first request: it says nothing
    /// that the client could read together with the answer to `ceased/agent`.
    pub(crate) fn put_behind(&mut self, client: ConnId, server: &Arc<UpstreamServer>) {
        let terms = self.terms_of(server);
        let account = self.outbox.connection(client).map(|it| it.account().clone());
        let entry = Supervised {
            server: Arc::clone(server),
            identity: self.outbox.identity_of(client),
            since: self.now,
            supervision: Supervision::new(terms, &account.unwrap_or_default()),
            instance: None,
            conn: None,
            timer: None,
        };
        self.agents.clients.insert(client, entry);
        self.outbox.set_counterpart(client, Counterpart::AgentClient);
    }

    pub(super) fn terms_of(&self, server: &UpstreamServer) -> Terms {
        let limits = &self.settings.limits;
        Terms {
            name: server.name.clone(),
            start_timeout: server.start_timeout,
            cancel_grace: server.cancel_grace,
            drain: server.drain,
            on_ignored: server.on_ignored_cancel,
            turn_timeout: server.watchdogs.turn,
            stall_timeout: server.watchdogs.stall,
            held_bytes_max: limits.write_buffer_bytes,
            identity_bytes_max: limits.held_bytes_per_identity_max,
            works_max: limits.inflight_max,
            records_spans: self.settings.own_spans,
        }
    }

    /// A frame of a client with an agent.
    pub(crate) fn on_client_frame(&mut self, conn: ConnId, frame: &[u8]) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        if !matches!(connection.ending, ConnectionEnd::Closing(_)) {
            connection.requests_made += 1;
            connection.last_request = self.now;
            self.hand_in_to(conn, SupervisionInput::Client(frame), frame);
        }
    }

    /// A frame of the agent of a client.
    pub(crate) fn on_agent_frame(&mut self, client: ConnId, frame: &[u8]) {
        self.hand_in_to(client, SupervisionInput::Agent(frame), frame);
    }

    /// Hands an input to a supervision, and carries out the effects. `frame` is the one at hand.
    pub(super) fn hand_in_to(&mut self, client: ConnId, input: SupervisionInput<'_>, frame: &[u8]) {
        let now = self.now;
        let Some(entry) = self.agents.clients.get_mut(&client) else { return };
        let mut effects = Vec::new();
        entry.supervision.take(now, input, &mut effects);
        entry.supervision.number_works(|| self.jobs.draw_id());
        for effect in effects {
            self.carry_out(client, effect, frame);
        }
        let Some(entry) = self.agents.clients.get_mut(&client) else { return };
        match entry.supervision.deadline() {
            Some(at) => self.timers.arm(&mut entry.timer, Timer::Agent(client), at.max(now)),
            None => self.timers.disarm(&mut entry.timer, Timer::Agent(client)),
        }
        if entry.supervision.is_gone() && entry.instance.is_none() {
            self.timers.disarm(&mut entry.timer, Timer::Agent(client));
            self.agents.clients.remove(&client);
            self.outbox.set_counterpart(client, Counterpart::Peer);
        }
    }

    fn carry_out(&mut self, client: ConnId, effect: SupervisionEffect, frame: &[u8]) {
        let Some(entry) = self.agents.clients.get(&client) else { return };
        let agent = entry.conn;
        match effect {
            SupervisionEffect::ForwardToAgent => self.pass(agent, frame),
            SupervisionEffect::ToAgent(text) => self.pass(agent, &text),
            SupervisionEffect::ForwardToClient => self.pass(Some(client), frame),
            SupervisionEffect::ToClient(text) => self.pass(Some(client), &text),
            SupervisionEffect::Start => self.start_agent(client),
            SupervisionEffect::End => {
                if let Some(instance) = entry.instance {
                    let kill_grace = entry.server.kill_grace;
                    let end = UpstreamAction::End { instance, kill_grace };
                    self.outbox.push(Action::Upstream(end));
                }
            }
            SupervisionEffect::Examine { check, births } => {
                if let Some(instance) = entry.instance {
                    let check = crate::ids::CheckId::new(check);
                    let examine = UpstreamAction::Examine { instance, check, births };
                    self.outbox.push(Action::Upstream(examine));
                }
            }
            SupervisionEffect::EndStrays { check, births } => {
                if let Some(instance) = entry.instance {
                    let (check, kill_grace) =
                        (crate::ids::CheckId::new(check), entry.server.kill_grace);
                    let end = UpstreamAction::EndStrays { instance, check, births, kill_grace };
                    self.outbox.push(Action::Upstream(end));
                }
            }
            SupervisionEffect::Cancelled { request, method, said } => {
                let identity = entry.identity.clone();
                self.outbox.counters_mut().cancelled += 1;
                let cancel = Cancel { by: identity, conn: client, request, reason: None };
                let of = (method.into(), None);
                self.outbox.note(AuditEvent::call_cancelled(cancel, of, said));
            }
            SupervisionEffect::Ended(work) => {
                let (owner, agent) = (entry.identity.clone(), entry.server.name.clone());
                self.outbox.note(AuditEvent::RequestEnded(Box::new(RequestEnd {
                    conn: client,
                    owner,
                    method: self.outbox.clean(&work.method).into(),
                    request: work.request,
                    dialect: None,
                    agent: Some(agent),
                    trace: work.trace,
                    outcome: work.outcome,
                    asked: work.since,
                    stopped: work.stopped,
                })));
            }
            SupervisionEffect::Receipt(receipt) => self.write_receipt(client, receipt),
            SupervisionEffect::CloseClient => self.outbox.close(client, CloseReason::Finished),
        }
    }

    /// Sends a frame as it is.
    fn pass(&mut self, conn: Option<ConnId>, frame: &[u8]) {
        if let Some(conn) = conn {
            self.outbox.send_bytes(conn, Tag::NONE, |bytes| bytes.extend_from_slice(frame));
        }
    }

    fn start_agent(&mut self, client: ConnId) {
        let instance = self.upstreams.number_instance();
        let Some(entry) = self.agents.clients.get_mut(&client) else { return };
        entry.instance = Some(instance);
        let (server, owner) = (Arc::clone(&entry.server), Some(entry.identity.clone()));
        self.agents.by_instance.insert(instance, client);
        self.agents.counts_of(&server.name).starts += 1;
        let start = UpstreamAction::Start { instance, server, owner, client: Some(client) };
        self.outbox.push(Action::Upstream(start));
    }

    fn write_receipt(&mut self, client: ConnId, receipt: StopReceipt) {
        let Some(entry) = self.agents.clients.get(&client) else { return };
        let StopReceipt { job, request, method, why, cancel, since, proof, object } = receipt;
        let (server, instance) = (entry.server.name.clone(), entry.instance);
        self.agents.counts_of(&server).stops += 1;
        let Some(entry) = self.agents.clients.get(&client) else { return };
        let own = (why == StopReason::Requested).then(|| Cancel {
            by: entry.identity.clone(),
            conn: client,
            request,
            reason: None,
        });
        let upstream = UpstreamReceipt { server, instance, proof, object };
        let receipt = Receipt {
            job: job.unwrap_or_else(|| self.jobs.draw_id()),
            tool: method.into(),
            owner: entry.identity.clone(),
            conn: client,
            task: None,
            why,
            cancel: cancel.map_or(own, |cancel| Some(*cancel)),
            stage: Some(StopStep::Tell),
            since,
            trace: None,
            upstream: Some(Box::new(upstream)),
        };
        self.outbox.note(AuditEvent::Ceased(Box::new(receipt)));
    }

    /// An event of an upstream that is an agent. Returns the connection to the agent if that has
    /// ended; `None` if it is no agent.
    pub(crate) fn on_event(&mut self, event: &UpstreamEvent<'_>) -> Option<Option<ConnId>> {
        let instance = match *event {
            UpstreamEvent::Started { instance, .. }
            | UpstreamEvent::Examined { instance, .. }
            | UpstreamEvent::StraysEnded { instance, .. }
            | UpstreamEvent::Ended { instance, .. } => instance,
            UpstreamEvent::Known { .. }
            | UpstreamEvent::Approved { .. }
            | UpstreamEvent::Remote { .. } => return None,
        };
        let client = self.agents.by_instance.get(&instance).copied()?;
        match *event {
            UpstreamEvent::Started { conn, .. } => self.agent_started(client, conn),
            UpstreamEvent::Examined { check, processes, .. } => {
                let (check, born, cpu) = (check.get(), processes.born, processes.cpu);
                self.hand_in_to(client, SupervisionInput::Examined { check, born, cpu }, &[]);
            }
            UpstreamEvent::StraysEnded { check, ended, left, .. } => {
                let check = check.get();
                self.hand_in_to(client, SupervisionInput::StraysEnded { check, ended, left }, &[]);
            }
            UpstreamEvent::Ended { status, stderr, .. } => {
                return Some(self.agent_ended(client, instance, status, stderr));
            }
            UpstreamEvent::Known { .. }
            | UpstreamEvent::Approved { .. }
            | UpstreamEvent::Remote { .. } => {}
        }
        Some(None)
    }

    fn agent_started(&mut self, client: ConnId, conn: ConnId) {
        let mut connection = Connection::new(Identity::Anonymous, self.seed);
        connection.set_counterpart(Counterpart::Agent(client));
        connection.is_admitted = false;
        connection.since = self.now;
        connection.last_request = self.now;
        connection.side = Side::Client(Box::new(ClientSide {
            declared: Declared::of(Offers::default(), &Catalog::default(), false),
            server: ServerCapabilities::default(),
            tools: BTreeMap::new(),
        }));
        self.outbox.insert(conn, connection);
        if let Some(entry) = self.agents.clients.get_mut(&client) {
            entry.conn = Some(conn);
        }
        self.hand_in_to(client, SupervisionInput::Started, &[]);
    }

    fn agent_ended(
        &mut self,
        client: ConnId,
        instance: InstanceId,
        status: &str,
        stderr: &str,
    ) -> Option<ConnId> {
        let (status, lines): (_, Vec<_>) = (
            self.outbox.clean(status),
            stderr.lines().map(|line| self.outbox.clean(line)).collect(),
        );
        self.agents.by_instance.remove(&instance);
        let conn = self.agents.clients.get_mut(&client).and_then(|entry| entry.conn.take());
        let stderr = lines.join("\n");
        let input = SupervisionInput::Ended { status: &status, stderr: &stderr };
        // A receipt names the process that has ended.
        self.hand_in_ended(client, instance, input);
        conn
    }

    fn hand_in_ended(&mut self, client: ConnId, instance: InstanceId, input: SupervisionInput<'_>) {
        let now = self.now;
        let Some(entry) = self.agents.clients.get_mut(&client) else { return };
        let (name, end) = (entry.server.name.clone(), entry.supervision.end_of_process());
        self.agents.counts_of(&name).note_end(end);
        let Some(entry) = self.agents.clients.get_mut(&client) else { return };
        let mut effects = Vec::new();
        entry.supervision.take(now, input, &mut effects);
        entry.supervision.number_works(|| self.jobs.draw_id());
        for effect in effects {
            self.carry_out(client, effect, &[]);
        }
        if let Some(entry) = self.agents.clients.get_mut(&client)
            && entry.instance == Some(instance)
        {
            entry.instance = None;
        }
        // Arms the timer, and forgets a supervision of which nothing is left.
        self.hand_in_to(client, SupervisionInput::Turn, &[]);
    }

    /// A client with an agent has sent everything, or is gone.
    pub(crate) fn on_client_ended(&mut self, client: ConnId, then: Option<AfterInput>) {
        let input = match then {
            Some(AfterInput::AnswerWithin(span)) => SupervisionInput::Finished(Some(span)),
            Some(AfterInput::Answer | AfterInput::AnswerAndProbe(_)) => {
                SupervisionInput::Finished(None)
            }
            None => SupervisionInput::Closed,
        };
        self.hand_in_to(client, input, &[]);
    }

    /// Ends the agent of a client because of the connection to the agent.
    pub(crate) fn end(&mut self, client: ConnId, why: &'static str) {
        self.hand_in_to(client, SupervisionInput::Unusable(why), &[]);
    }

    /// Hands their turn to the supervisions that want one.
    pub(crate) fn flush(&mut self) {
        for client in self.agents.all() {
            let wants = self.agents.clients.get(&client);
            if wants.is_some_and(|entry| entry.supervision.wants_turn()) {
                self.hand_in_to(client, SupervisionInput::Turn, &[]);
            }
        }
    }

    /// The next deadline of an agent has come.
    pub(crate) fn on_timer(&mut self, client: ConnId) {
        if let Some(entry) = self.agents.clients.get_mut(&client) {
            entry.timer = None;
        }
        self.hand_in_to(client, SupervisionInput::Due, &[]);
    }

    /// The daemon shuts down.
    pub(crate) fn shut_down(&mut self) {
        for client in self.agents.all() {
            self.hand_in_to(client, SupervisionInput::ShutDown, &[]);
        }
    }
}
