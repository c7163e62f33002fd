//! Relayed jobs: a request of a client becomes one request of an upstream, and its outcome.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::{Action, AuditEvent, RelayEnd, RelayOutcome};
use crate::births::Births;
use crate::collections::timer_queue::Timer;
use crate::event::Outcome;
use crate::ids::{CheckId, ConnId, InstanceId, JobId};
use crate::jobs::job::{Job, JobState};
use crate::jobs::messages::ProgressReport;
use crate::json::meta::{CLIENT_INFO, write_with_meta};
use crate::json::raw::{Json, Raw};
use crate::outgoing::call::{AskTask, CallFor, OutgoingCall, OutgoingRequest};
use crate::protocol::request_meta::RequestContext;
use crate::protocol::revision::MCP_2026_07_28;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::Params;
use crate::rpc::result::ResultText;
use crate::time::Instant;
use crate::upstream::check::{CancelCheck, CheckEffect, CheckInput, Surroundings};
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::inputs::asks_for_input;
use crate::upstream::interface::{ProcessEvidence, Proof, UpstreamAction};
use crate::upstream::lifecycle::Assigned;
use crate::upstream::list::LISTS;
use crate::upstream::questions::{
    capabilities_of, passed_capabilities, without_tasks, write_capabilities,
};
use crate::upstream::rewrite::{
    error_of, member, text_member, with_member, without, without_hop_members,
};
use crate::upstream::route::Route;
use crate::upstream::server_task::{is_handle, with_tasks};
use crate::upstream::table::{InstanceKey, InstancePhase, RelayedJob, SentRequest};
use crate::upstream::targets::with_shown_uri;

impl Gateway<'_> {
    /// The turn of a relayed job has come.
    pub(crate) fn begin_relayed(&mut self, id: JobId, params: &Json) {
        let relayed = RelayedJob {
            instance: None,
            params: Some(params.get().into()),
            sent: None,
            check: None,
            timer: None,
            questions: BTreeMap::new(),
            last_ask: 0,
            inputs: None,
            declares_tasks: false,
            capabilities: "{}".into(),
            task: None,
            is_repeated: false,
        };
        self.upstreams.jobs.insert(id, relayed);
        if !self.asks_for_confirmation(id) {
            self.assign(id);
        }
    }

    fn route(&self, id: JobId) -> Option<Arc<Route>> {
        self.jobs.get(id)?.tool.route.clone()
    }

    /// Finds an instance for a relayed job.
    pub(crate) fn assign(&mut self, id: JobId) {
        let (Some(route), Some(job)) = (self.route(id), self.jobs.get(id)) else { return };
        let (conn, owner) = (job.conn, job.owner.clone());
        let Some(server) = self.upstreams.server(&route.server) else {
            let message = alloc::format!("server {:?} is not configured any more", route.server);
            let error = ErrorObject::new(code::INTERNAL_ERROR, message);
            return self.end_relayed(id, Outcome::Error(error));
        };
        let server = Arc::clone(&server.server);
        match self.instance_for(&server, conn, &owner) {
            Assigned::To(to) => {
                if let Some(relayed) = self.upstreams.jobs.get_mut(&id) {
                    relayed.instance = Some(to);
                }
                if let Some(instance) = self.upstreams.instances.get_mut(&to) {
                    instance.waiting.push_back(id);
                }
                self.send_waiting(to);
                self.keep_warm(&server);
            }
            Assigned::Full => {
                if let Some(server) = self.upstreams.server_mut(&route.server) {
                    server.waiting.push_back(id);
                }
            }
            Assigned::Failed(error) => self.end_relayed(id, Outcome::Error(error)),
        }
    }

    /// Sends the waiting requests of an instance, as many as it takes at once.
    pub(crate) fn send_waiting(&mut self, id: InstanceId) {
        loop {
            let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
            if !instance.has_room() {
                return;
            }
            let Some(job) = instance.waiting.pop_front() else { return };
            self.send_relayed(id, job);
        }
    }

    /// An instance works on a job from now on. Returns its connection, and whether it works on other
    /// jobs as well.
    fn occupy(&mut self, id: InstanceId, job: JobId) -> Option<(ConnId, bool)> {
        let instance = self.upstreams.instances.get_mut(&id)?;
        let conn = instance.conn?;
        // UPS-06: a call that is sent again, with inputs, does not put off the end of the draining.
        if instance.phase == InstancePhase::Ready {
            self.timers.disarm(&mut instance.timer, Timer::Upstream(id));
        }
        let others: Vec<JobId> = instance.calls.iter().copied().collect();
        instance.calls.insert(job);
        for other in &others {
            if let Some(RelayedJob { sent: Some(sent), .. }) = self.upstreams.jobs.get_mut(other) {
                sent.is_shared = true;
            }
        }
        Some((conn, !others.is_empty()))
    }

    /// UPS-02: the id of the request is a number of ours that is never used again.
    pub(crate) fn send_relayed(&mut self, id: InstanceId, job: JobId) {
        let (Some(route), Some(of)) = (self.route(job), self.jobs.get(job)) else { return };
        if let Some(error) = self.pin_refusal(id, &route) {
            return self.end_relayed(job, Outcome::Error(error));
        }
        let wants_progress = of.progress.token.is_some() || of.task.is_some();
        let Some((conn, is_shared)) = self.occupy(id, job) else { return };
        let level = self.level_of_call(job);
        if let Some(level) = level.filter(|level| self.is_more(id, *level)) {
            self.ask_for_level(id, level);
        }
        if self.outbox.dialect(conn) == &MCP_2026_07_28 && self.subscribe_by_listening(id, job) {
            return;
        }
        let Some(params) = self.params_to_send(id, conn, job) else { return };
        let method = route.method.clone();
        let task = self.runs_as_task(id, &method, &route.name).then(AskTask::default);
        let params = if task.is_some() { with_member(&params, "task", "{}") } else { params };
        let request =
            OutgoingRequest { key: None, method, params: None, answer_timeout: None, task };
        let call = OutgoingCall::new(CallFor::Relayed(job), &request, (None, false), None);
        let number = self.outgoing.insert(conn, call);
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        let is_modern = connection.dialect == &MCP_2026_07_28;
        let frame = connection.send_queue.frames_written();
        if let Some(server) = self.upstreams.server_mut(&route.server) {
            server.counts.calls += 1;
        }
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        relayed.sent = Some(SentRequest { call: number, frame, since: self.now.at, is_shared });
        let with_tasks = is_modern && self.declare_tasks(job, &route.method);
        let claim = match is_modern {
            true => self.claim_of_call(job, &params, with_tasks),
            false => String::new(),
        };
        let token = alloc::format!("{}", number.get());
        let parent = self.jobs.get(job).and_then(own_parent);
        let mut meta: Vec<(&str, &[u8])> = Vec::new();
        for key in [
            "io.modelcontextprotocol/protocolVersion",
            CLIENT_INFO,
            "io.modelcontextprotocol/clientCapabilities",
        ] {
            if let Some(value) = member(&claim, key).filter(|_| is_modern) {
                meta.push((key, value.as_bytes()));
            }
        }
        let level = level.map(|level| alloc::format!("\"{}\"", level.as_str()));
        let level = level.as_ref().filter(|_| is_modern);
        meta.extend(level.map(|it| ("io.modelcontextprotocol/logLevel", it.as_bytes())));
        meta.extend(parent.as_ref().map(|parent| ("traceparent", parent.as_bytes())));
        // UPS-03: a token of ours.
        meta.extend(wants_progress.then_some(("progressToken", token.as_bytes())));
        self.outbox.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"id\":").raw(&token).raw(",");
            json.member("method", &route.method).raw(",\"params\":");
            write_with_meta(json, &params, &meta);
            json.raw("}");
        });
    }

    /// Params of a relayed request in the revision of its upstream. They are kept where they may be
    /// sent again with inputs.
    fn params_to_send(&mut self, to: InstanceId, conn: ConnId, job: JobId) -> Option<String> {
        let is_modern = self.outbox.dialect(conn) == &MCP_2026_07_28;
        let may_repeat = is_modern && !self.passes_inputs(job) || self.is_remote(to);
        let relayed = self.upstreams.jobs.get_mut(&job)?;
        let params = match may_repeat {
            true => relayed.params.clone(),
            false => relayed.params.take(),
        };
        let params = String::from(params.unwrap_or_else(|| "{}".into()));
        Some(match &relayed.inputs {
            Some(inputs) => inputs.with(&params),
            None if !is_modern && params.contains(CAPABILITIES) => without_capabilities(&params),
            None => params,
        })
    }

    /// The metadata of a call for a server without sessions, which requests about its task repeat.
    fn claim_of_call(&mut self, job: JobId, params: &str, tasks: bool) -> String {
        let capabilities = self.capabilities_of_call(job, params, tasks);
        let claim = self.claim_meta(&capabilities, self.jobs.get(job).map(|job| job.conn));
        if let Some(relayed) = self.upstreams.jobs.get_mut(&job).filter(|_| tasks) {
            relayed.capabilities = capabilities.into();
        }
        claim
    }

    /// Capabilities of the client of a call, which a server without sessions is told with it.
    fn capabilities_of_call(&self, job: JobId, params: &str, tasks: bool) -> String {
        let own = member(params, "_meta").and_then(|meta| member(meta, CAPABILITIES));
        let known = match (own, self.jobs.get(job)) {
            (Some(own), _) => without_tasks(&passed_capabilities(own).unwrap_or("{}".into())),
            (None, Some(job)) => match &job.terms {
                RequestContext::Session(_) => capabilities_of(self.outbox, job.conn, false),
                RequestContext::Request(claim) => {
                    write_capabilities(|method| claim.peer.answers(method))
                }
            },
            (None, None) => "{}".into(),
        };
        if tasks { with_tasks(&known) } else { known }
    }

    /// The upstream answers a relayed request.
    pub(crate) fn on_relayed_answer(
        &mut self,
        id: JobId,
        outcome: Result<ResultText<'_>, Raw<'_>>,
    ) {
        let relayed = self.upstreams.jobs.get(&id);
        let is_checked = relayed.is_some_and(|relayed| relayed.check.is_some());
        let has_tasks = relayed.is_some_and(|relayed| relayed.declares_tasks);
        if let Ok(result) = &outcome
            && has_tasks
            && is_handle(result)
        {
            return self.follow_server_task(id, result.get());
        }
        if is_checked {
            return self.advance_check(id, CheckInput::Answered);
        }
        let outcome = match outcome {
            Err(error) if self.retry_as_task(id, &error_of(error.get())) => return,
            Ok(result) if asks_for_input(&result) && !self.passes_inputs(id) => {
                return self.take_inputs(id, result.get());
            }
            Ok(result) => Outcome::Result(self.relayed_result(id, result)),
            Err(error) => Outcome::Error(error_of(error.get())),
        };
        self.note_outcome(id, &outcome);
        self.end_relayed(id, outcome);
    }

    /// The result of a relayed job as the client's hop needs it: without the members that describe
    /// the hop of a server without sessions. An answer to a client of the same revision gets its own.
    pub(crate) fn relayed_result(&self, id: JobId, result: ResultText<'_>) -> Json {
        let result = self.result_of_hop(id, result);
        match self.route(id) {
            Some(route) if &*route.method == "resources/read" && route.own.is_some() => {
                Json::written(with_shown_uri(result.get(), &route).into_owned())
            }
            Some(route) if LISTS.iter().any(|list| *list.method == *route.method) => {
                Json::written(self.shown_page(id, result.get().into()))
            }
            Some(_) | None => result,
        }
    }

    fn result_of_hop(&self, id: JobId, result: ResultText<'_>) -> Json {
        let to = self.upstreams.jobs.get(&id).and_then(|relayed| relayed.instance);
        let conn = to.and_then(|to| self.upstreams.instances.get(&to)?.conn);
        let is_modern = conn.is_some_and(|conn| self.outbox.dialect(conn) == &MCP_2026_07_28);
        if is_modern && !asks_for_input(&result) {
            return without_hop_members(result);
        }
        Json::of_result(result.get().into(), result.is_bare())
    }

    /// The upstream is busy with a relayed request.
    pub(crate) fn on_relayed_progress(&mut self, id: JobId, params: &Params<'_>) {
        let Some(relayed) = self.upstreams.jobs.get(&id) else { return };
        if relayed.check.is_some() {
            // UPS-03: nothing is sent down after a cancel.
            return self.advance_check(id, CheckInput::Progress);
        }
        let number = |name| member(params.get(), name).and_then(|text| text.parse::<f64>().ok());
        let Some(progress) = number("progress") else { return };
        let message = text_member(params.get(), "message");
        let report =
            ProgressReport { progress, total: number("total"), message: message.as_deref() };
        self.jobs.on_progress(self.timers, (self.outbox, self.tasks), id, report);
    }

    /// Ends a relayed job, and gives its instance to the next.
    pub(crate) fn end_relayed(&mut self, id: JobId, outcome: Outcome) {
        self.end_questions(id);
        self.abandon_server_task(id);
        self.note_watched(id, &outcome);
        let Some(mut relayed) = self.upstreams.jobs.remove(&id) else { return };
        self.timers.disarm(&mut relayed.timer, Timer::Relayed(id));
        if let Some((check, _)) = &relayed.check {
            self.upstreams.checks.remove(check);
        }
        let instance = relayed.instance;
        if let Some(to) = instance {
            self.forget_subscribing(to, id);
            if let Some(sent) = relayed.sent.filter(|_| relayed.check.is_some()) {
                self.forget_remote_call(to, sent.call);
            }
        }
        if let Some((to, sent)) = instance.zip(relayed.sent)
            && let Some(conn) = self.upstreams.instances.get(&to).and_then(|of| of.conn)
        {
            // A late answer is dropped and counted (UPS-02).
            self.outgoing.take(conn, sent.call);
            self.outgoing.give_up_remote(self.outbox, self.timers, conn, sent.call);
        }
        self.note_relay_end(id, relayed.sent.as_ref().map(|sent| sent.since), &outcome);
        self.effect(GatewayEffect::End { job: id, outcome });
        if let Some(to) = instance {
            let was_sent = relayed.sent.is_some() || relayed.inputs.is_some();
            self.free_instance(to, id, was_sent);
        }
    }

    fn note_relay_end(&mut self, id: JobId, sent: Option<Instant>, outcome: &Outcome) {
        let Some((job, route)) = self.jobs.get(id).zip(self.route(id)) else { return };
        let is_error = |result: &str| {
            // Most results are of one pass: few of them name the member.
            result.contains("\"isError\"") && member(result, "isError") == Some("true")
        };
        let end = RelayEnd {
            job: id,
            tool: job.tool.name.clone(),
            server: route.server.clone(),
            owner: job.owner.clone(),
            task: job.task,
            method: route.method.clone(),
            request: job.request().cloned(),
            conn: job.conn,
            dialect: job.terms.dialect(),
            trace: job.trace().cloned(),
            outcome: match outcome {
                Outcome::Result(result) if is_error(result.get()) => RelayOutcome::Failed,
                Outcome::Result(_) => RelayOutcome::Ok,
                Outcome::Refused(_) | Outcome::Error(_) => RelayOutcome::Error,
                Outcome::Stopped => RelayOutcome::Stopped,
            },
            is_stopped: matches!(job.state(), JobState::Stopping { .. }),
            asked: job.since,
            sent,
        };
        self.outbox.note(AuditEvent::RelayEnded(Box::new(end)));
    }

    fn free_instance(&mut self, id: InstanceId, job: JobId, was_sent: bool) {
        let Some(instance) = self.upstreams.instances.get_mut(&id) else { return };
        instance.calls.remove(&job);
        instance.waiting.retain(|waiting| *waiting != job);
        if instance.key == InstanceKey::Call && was_sent && instance.phase == InstancePhase::Ready {
            let server = Arc::clone(&instance.server);
            self.end_instance(id, "its call is over");
            return self.keep_warm(&server);
        }
        let name = instance.server.name.clone();
        self.send_waiting(id);
        self.end_if_drained(id);
        self.rest_if_idle(id);
        let instance = self.upstreams.instances.get(&id);
        if instance.is_some_and(|of| of.phase == InstancePhase::Ready && of.is_idle()) {
            // A job that waits for a place gets that of an instance that works on nothing.
            self.assign_waiting(&name);
        }
    }

    /// A relayed job is told to stop (UPS-04).
    pub(crate) fn stop_relayed(&mut self, id: JobId, why: StopReason) {
        let Some(relayed) = self.upstreams.jobs.get(&id) else { return };
        let Some(route) = self.route(id) else { return };
        let sent = relayed.sent.zip(relayed.instance);
        let Some((sent, to)) = sent else {
            if let Some(server) = self.upstreams.server_mut(&route.server) {
                server.waiting.retain(|waiting| *waiting != id);
            }
            // Between two rounds of inputs the server has answered and works on nothing.
            let answered = self.upstreams.jobs.get(&id).is_some_and(|of| of.inputs.is_some());
            let proof = if answered { Proof::Answered } else { Proof::Unsent };
            self.upstreams.prove(id, &route.server, proof);
            return self.end_relayed(id, Outcome::Stopped);
        };
        let Some(instance) = self.upstreams.instances.get(&to) else { return };
        let (server, ends) =
            (Arc::clone(&instance.server), instance.phase == InstancePhase::Ending);
        let Some(conn) = instance.conn else { return };
        let queue = self.outbox.connection_mut(conn).map(|connection| &mut connection.send_queue);
        if queue.is_some_and(|queue| queue.remove(sent.frame)) {
            self.upstreams.prove(id, &route.server, Proof::Unsent);
            return self.end_relayed(id, Outcome::Stopped);
        }
        let cancel = self.jobs.get(id).and_then(|job| job.cancel());
        let reason = cancel.and_then(|cancel| cancel.reason);
        let reason = reason.as_deref().unwrap_or(why.as_str());
        // CAN-05: a task is cancelled as such, as soon as it has an id.
        let as_task = self.cancel_server_task(id)
            || self.cancel_relayed_task(conn, id, sent.call)
            || self.outgoing.call(conn, sent.call).is_some_and(|call| call.with_task);
        if !as_task {
            self.outbox.write_urgent_cancel(conn, sent.call.get(), reason);
        }
        let now = self.now.at;
        let (check, wait) = match server.is_remote {
            true => CancelCheck::remote(now, server.cancel_grace, self.on_ignored_by_remote(to)),
            false => CancelCheck::new(now, server.cancel_grace, server.on_ignored_cancel),
        };
        let number = self.upstreams.number_check(id);
        if let Some(relayed) = self.upstreams.jobs.get_mut(&id) {
            relayed.check = Some((number, check));
            self.timers.arm(&mut relayed.timer, Timer::Relayed(id), now + wait);
        }
        if !ends && !server.is_remote {
            let is_modern = self.outbox.dialect(conn) == &MCP_2026_07_28;
            let method = if is_modern { "server/discover" } else { "ping" };
            self.ask_instance(to, method, "{}", is_modern);
        }
        self.end_if_drained(to);
    }

    /// An instance has answered a ping: so it has for every check of one of its requests.
    pub(crate) fn on_pong(&mut self, id: InstanceId) {
        let Some(instance) = self.upstreams.instances.get(&id) else { return };
        let calls: Vec<JobId> = instance.calls.iter().copied().collect();
        calls.into_iter().for_each(|job| self.advance_check(job, CheckInput::Pong));
    }

    pub(crate) fn on_examined(&mut self, check: CheckId, found: ProcessEvidence) {
        if let Some(job) = self.upstreams.checks.get(&check).copied() {
            self.advance_check(job, CheckInput::Examined(found));
        }
    }

    pub(crate) fn on_strays_ended(&mut self, check: CheckId, ended: u32, left: u32) {
        if let Some(job) = self.upstreams.checks.get(&check).copied() {
            let route = self.route(job);
            let server = route.and_then(|route| self.upstreams.server_mut(&route.server));
            if let Some(server) = server {
                server.counts.strays_ended += u64::from(ended);
            }
            self.advance_check(job, CheckInput::StraysEnded { ended, left });
        }
    }

    pub(crate) fn on_relayed_timer(&mut self, id: JobId) {
        if let Some(relayed) = self.upstreams.jobs.get_mut(&id) {
            relayed.timer = None;
        }
        self.advance_check(id, CheckInput::TimerDue);
    }

    fn surroundings(&self, id: JobId, sent: &SentRequest, to: InstanceId) -> Surroundings {
        let calls = self.upstreams.instances.get(&to).map(|instance| &instance.calls);
        let is_live = |job: &&JobId| {
            let state = self.jobs.get(**job).map(|job| job.state());
            **job != id && !matches!(state, Some(JobState::Stopping { .. }) | None)
        };
        let alone = calls.is_none_or(|calls| !calls.iter().any(|job| is_live(&job)));
        Surroundings { exclusive: !sent.is_shared, alone }
    }

    /// Applies an input to the check of a cancelled job, and carries out the consequence.
    pub(crate) fn advance_check(&mut self, id: JobId, input: CheckInput) {
        let Some(relayed) = self.upstreams.jobs.get(&id) else { return };
        let (Some(sent), Some(to)) = (relayed.sent, relayed.instance) else { return };
        let around = self.surroundings(id, &sent, to);
        let (now, since) = (self.now.at, sent.since);
        let Some(relayed) = self.upstreams.jobs.get_mut(&id) else { return };
        let Some((check, state)) = &mut relayed.check else { return };
        let (check, effect) = (*check, state.take(input, around, now));
        let births = Births::since(since);
        let examine = UpstreamAction::Examine { instance: to, check, births: births.clone() };
        match effect {
            CheckEffect::Ignored => {}
            CheckEffect::Examine => self.outbox.push(Action::Upstream(examine)),
            CheckEffect::ExamineAndWait(wait) => {
                self.timers.arm(&mut relayed.timer, Timer::Relayed(id), now + wait);
                self.outbox.push(Action::Upstream(examine));
            }
            CheckEffect::EndStrays => {
                let Some(instance) = self.upstreams.instances.get(&to) else { return };
                let kill_grace = instance.server.kill_grace;
                let end = UpstreamAction::EndStrays { instance: to, check, births, kill_grace };
                self.outbox.push(Action::Upstream(end));
            }
            CheckEffect::Replace => {
                let instance = self.upstreams.instances.get(&to);
                let server = instance.filter(|instance| instance.is_open());
                let name = server.map(|instance| instance.server.name.clone());
                if let Some(server) = name.and_then(|name| self.upstreams.server_mut(&name)) {
                    server.counts.note_replacement();
                }
                self.drain_instance(to, "it ignored a cancel");
                self.end_if_drained(to);
            }
            CheckEffect::Over(proof) => {
                let route = self.route(id);
                self.upstreams.prove(id, route.as_ref().map_or("", |of| &of.server), proof);
                self.end_relayed(id, Outcome::Stopped);
            }
        }
    }
}

/// Key of `_meta` with the capabilities of a client without a session.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Params for a server with sessions, which were written for one without.
fn without_capabilities(params: &str) -> String {
    let meta = without(member(params, "_meta").unwrap_or("{}"), &[CAPABILITIES]);
    match &*meta {
        "{}" => without(params, &["_meta"]),
        _ => with_member(params, "_meta", &meta),
    }
}

/// The `traceparent` of the span of this hop as JSON, which takes the place of the client's
/// (OBS-01); `None` where there is no such span: the client's is relayed as it is.
fn own_parent(job: &Job) -> Option<String> {
    let span = job.trace()?.span.as_ref().filter(|span| span.is_own)?;
    Some(alloc::format!("\"{}\"", span.text))
}
