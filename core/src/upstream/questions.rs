//! Requests of servers to clients (UPS-12): sampling, elicitation and roots.
//!
//! A question whose call is known becomes a question of that job, which reaches its client in the
//! form of the client's revision: a request, an `input_required` result, or a task that needs
//! input. An instance with one client asks that client directly where several calls are in flight.
//! Every other question is refused.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use serde_json::value::RawValue;

use crate::client::session::permitted;
use crate::collections::timer_queue::Timer;
use crate::connection::{ConnectionEnd, SessionPhase};
use crate::event::Outcome;
use crate::ids::{AskId, CallId, ConnId, InstanceId, JobId, RequestId};
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, RequestWork, Settled};
use crate::outgoing::call::{
    self, Answer, AnswerTimeout, CallFor, Caller, OutgoingRequest, Refusal,
};
use crate::protocol::capabilities::{ELICITATION, ROOTS, SAMPLING};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::Params;
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::list::LISTS;
use crate::upstream::question::{AskedOf, ServerQuestion};
use crate::upstream::rewrite::{
    error_of, failed_result, member, members, params_for_other_hop, text_member,
};
use crate::upstream::table::InstanceKey;
use crate::upstream::tasked::TASK;

/// Number of the question whether a tool may run; others are numbered from 1.
const CONFIRM: AskId = AskId::new(0);

/// The client that a request of a server is for.
enum AskedClient {
    /// That of this job.
    Job(JobId),
    /// The only one of the instance.
    Client(ConnId),
    /// It cannot be told.
    Unknown,
}

impl Gateway<'_> {
    /// A server asks something of its client. UPS-01: `ping` is answered here.
    pub(crate) fn on_request_of_upstream(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        if method == "ping" {
            return self.answer(reply, |json| {
                json.raw("{}");
            });
        }
        let Some(id) = self.outbox.instance(reply.conn) else { return self.outbox.forget(reply) };
        let text = params.map_or("{}", Params::get);
        let cause = self.cause_of(reply.conn, text);
        let job = match &cause {
            AskedClient::Job(job) => Some(*job),
            AskedClient::Client(_) | AskedClient::Unknown => None,
        };
        let shown = self.shown_client(id, job);
        let is_known = is_question(method);
        if !is_known && shown.is_none() {
            return self.outbox.unknown_method(reply, method);
        }
        if self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        // UPS-17: a task of the client itself is between it and the server.
        let augments = |client: ConnId| {
            let peer = self.outbox.connection(client);
            peer.is_some_and(|peer| peer.peer.tasks.augments(method))
        };
        let with_task = member(text, "task").is_some() && shown.is_some_and(augments);
        let passed = params_for_other_hop(text, None, is_known && !with_task);
        let cause = shown.filter(|_| !is_known || with_task).map_or(cause, AskedClient::Client);
        let asked = match &cause {
            AskedClient::Job(job) => self.jobs.get(*job).map(|job| job.conn),
            AskedClient::Client(client) => Some(*client),
            AskedClient::Unknown => None,
        };
        if let Some(client) = asked {
            self.note_question(id, (method, text), client);
        }
        let passed = self.with_token(&reply, (text, asked), passed);
        let is_left_out = passed == "{}" && (is_known || params.is_none());
        let request = OutgoingRequest {
            key: None,
            method: method.into(),
            params: RawValue::from_string(passed).ok().filter(|_| !is_left_out),
            answer_timeout: None,
            task: None,
        };
        match cause {
            AskedClient::Job(job) => self.ask_for_job(reply, job, request),
            AskedClient::Client(client) => {
                if let Some((reply, request)) = self.hold_question(reply, client, request) {
                    self.ask_client(reply, client, request);
                }
            }
            AskedClient::Unknown => {
                let message = format!(
                    "{method:?} is refused: no single call can have caused it, and several clients \
                     share this instance (share = \"connection\" gives each client its own)"
                );
                self.outbox.fail(reply, &ErrorObject::new(code::METHOD_NOT_FOUND, message));
            }
        }
    }

    /// The client whose call caused a request of a server. A cancelled call counts as long as the
    /// server may work on it: a guess would ask the wrong client.
    fn cause_of(&self, conn: ConnId, params: &str) -> AskedClient {
        let instance = self.outbox.instance(conn);
        let Some(instance) = instance.and_then(|id| self.upstreams.instances.get(&id)) else {
            return AskedClient::Unknown;
        };
        if let Some(job) = self.related_job(conn, params) {
            return AskedClient::Job(job);
        }
        // A list is answered without a question.
        let is_list = |job: &&JobId| {
            let route = self.jobs.get(**job).and_then(|job| job.tool.route.as_ref());
            route.is_some_and(|route| LISTS.iter().any(|list| *list.method == *route.method))
        };
        let mut calls = instance.calls.iter().filter(|job| !is_list(job));
        match (calls.next(), calls.next(), &instance.key) {
            (Some(only), None, _) => AskedClient::Job(*only),
            (_, _, InstanceKey::Client(client)) => AskedClient::Client(*client),
            (_, _, InstanceKey::Owner(_) | InstanceKey::Call) => AskedClient::Unknown,
        }
    }

    /// The job that a message of a server names, by its progress token or its task.
    pub(crate) fn related_job(&self, conn: ConnId, params: &str) -> Option<JobId> {
        let meta = member(params, "_meta")?;
        let by_token = member(meta, "progressToken").and_then(CallId::read);
        let by_token = by_token.and_then(|call| self.outgoing.call(conn, call));
        if let Some(CallFor::Relayed(job)) = by_token.map(|call| call.receiver()) {
            return Some(job);
        }
        let related = member(meta, "io.modelcontextprotocol/related-task")?;
        let task = text_member(related, "taskId")?;
        let peer = self.outgoing.on(conn)?;
        let remote = peer.remote_tasks().find(|(_, remote)| remote.id == task)?;
        match remote.1.caller {
            Caller::Job { job, .. } => Some(job),
            Caller::Host(_) => None,
        }
    }

    fn ask_for_job(&mut self, reply: Reply, job: JobId, request: OutgoingRequest) {
        let question = ServerQuestion::Request(reply.id.clone());
        let Some(ask) = self.number_question(job, question) else {
            return refuse_question(self.outbox, reply, Refusal::NoJob);
        };
        let Some(connection) = self.outbox.connection_mut(reply.conn) else { return };
        connection.requests.open(reply, RequestWork::Question(AskedOf::Job(job, ask)));
        self.effect(GatewayEffect::AskForJob { job, ask, request });
    }

    /// Notes a question of a relayed job; `None` if the job has ended.
    fn number_question(&mut self, job: JobId, question: ServerQuestion) -> Option<AskId> {
        let relayed = self.upstreams.jobs.get_mut(&job)?;
        relayed.last_ask += 1;
        let ask = AskId::new(relayed.last_ask);
        relayed.questions.insert(ask, question);
        Some(ask)
    }

    /// A job asks for an input that a result of its server names by this key.
    pub(crate) fn ask_for_input(&mut self, job: JobId, key: &str, request: OutgoingRequest) {
        if let Some(ask) = self.number_question(job, ServerQuestion::Input(key.into())) {
            self.effect(GatewayEffect::AskForJob { job, ask, request });
        }
    }

    /// How many requests of servers wait for answers of an identity's clients, and of its jobs.
    fn asking_of(&self, client: ConnId) -> usize {
        let Some(owner) = self.outbox.identity(client) else { return 0 };
        let asked = self.upstreams.asked.keys();
        let of_owner =
            asked.filter(|(other, _)| self.outbox.identity(*other) == Some(owner)).count();
        of_owner + self.jobs.pools().asking_of(owner)
    }

    /// Passes a request of a server to the only client of its instance.
    pub(super) fn ask_client(&mut self, reply: Reply, client: ConnId, request: OutgoingRequest) {
        let limits = self.settings.limits;
        let answer_timeout = Some(AnswerTimeout::fixed(limits.parked_for));
        let request = OutgoingRequest { answer_timeout, ..request };
        let refusal = match self.outbox.connection(client) {
            None => Some(Refusal::NoConnection),
            Some(connection) if connection.ending != ConnectionEnd::Open => {
                Some(Refusal::NoConnection)
            }
            Some(connection) if connection.phase == SessionPhase::Fresh => {
                Some(Refusal::NotInitialized)
            }
            Some(_) if self.outgoing.counts(client).0 >= limits.calls_max => Some(Refusal::TooMany),
            Some(_) if self.asking_of(client) >= limits.parked_max => Some(Refusal::TooMany),
            // The server has seen the declaration of the client itself.
            Some(_) if !is_question(&request.method) || names_task(&request) => None,
            Some(connection) => permitted(connection, &request).err(),
        };
        if let Some(refusal) = refusal {
            return refuse_question(self.outbox, reply, refusal);
        }
        let call = self.outgoing.place(
            self.outbox,
            self.timers,
            client,
            CallFor::Question,
            &request,
            &call::CallCause::default(),
        );
        self.upstreams.asked.insert((client, call), (reply.conn, reply.id.clone()));
        if let Some(connection) = self.outbox.connection_mut(reply.conn) {
            connection.requests.open(reply, RequestWork::Question(AskedOf::Client(client, call)));
        }
    }

    /// The client has answered a request of its server, or will not.
    pub(crate) fn on_client_answered(&mut self, client: ConnId, call: CallId, answer: Answer) {
        if let Some((conn, request)) = self.upstreams.asked.remove(&(client, call)) {
            self.answer_question(conn, &request, AskedOf::Client(client, call), answer);
        }
    }

    /// A question of a relayed job has an answer.
    pub(crate) fn on_question_answered(&mut self, job: JobId, ask: AskId, answer: Answer) {
        if ask == TASK {
            return self.on_relayed_task_answer(job, answer);
        }
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let Some(question) = relayed.questions.remove(&ask) else { return };
        let instance = relayed.instance;
        match question {
            ServerQuestion::Request(request) => {
                let of = instance.and_then(|id| self.upstreams.instances.get(&id));
                if let Some(conn) = of.and_then(|instance| instance.conn) {
                    self.answer_question(conn, &request, AskedOf::Job(job, ask), answer);
                }
            }
            ServerQuestion::Input(key) => self.on_input(job, &key, answer),
            ServerQuestion::Confirmation => self.on_confirmation(job, answer),
        }
    }

    fn answer_question(&mut self, conn: ConnId, request: &RequestId, of: AskedOf, answer: Answer) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        // A question that its server has withdrawn has no answer (CAN-08).
        let Some(reply) = connection.requests.settle(request, Settled::Question(of)) else {
            return;
        };
        match answer {
            Answer::Result(result) => self.answer(reply, |json| {
                json.raw(result.get());
            }),
            Answer::Error(error) => self.outbox.fail(reply, &error_of(error.get())),
            Answer::Refused(refusal) => refuse_question(self.outbox, reply, refusal),
            Answer::Unusable(why) => self.fail_question(reply, why),
            Answer::TimedOut => self.fail_question(reply, "the client did not answer in time"),
            Answer::Cancelled => self.fail_question(reply, "the call that it is for is over"),
            Answer::Lost => self.fail_question(reply, "the client is gone"),
        }
    }

    fn fail_question(&mut self, reply: Reply, why: &'static str) {
        self.outbox.fail(reply, &ErrorObject::new(code::INTERNAL_ERROR, why));
    }

    /// A server withdraws one of its requests.
    pub(crate) fn on_cancel_of_upstream(&mut self, conn: ConnId, params: Option<&Params<'_>>) {
        let cancellation = self.outbox.read_cancellation(params);
        if let Some(call) = cancellation.as_ref().and_then(|it| CallId::named(&it.request))
            && self.is_end_of_listen(conn, call)
        {
            return;
        }
        if let Some(cancellation) = &cancellation
            && self.withdraw_early(conn, &cancellation.request)
        {
            self.outbox.counters_mut().cancelled += 1;
            return;
        }
        let cancelled = cancellation.and_then(|cancellation| {
            let connection = self.outbox.connection_mut(conn)?;
            let cancelled = connection.requests.cancel(&cancellation.request, |_, _| false)?;
            Some((cancelled.work, cancellation.reason))
        });
        match cancelled {
            Some((RequestWork::Question(of), reason)) => {
                self.outbox.counters_mut().cancelled += 1;
                self.withdraw_question(of, reason.as_deref());
            }
            Some(_) | None => self.outbox.counters_mut().cancels_ignored += 1,
        }
    }

    /// Cancels a question at its client: the server has withdrawn it, or has ended.
    pub(crate) fn withdraw_question(&mut self, of: AskedOf, reason: Option<&str>) {
        match of {
            AskedOf::Job(job, ask) => {
                if let Some(relayed) = self.upstreams.jobs.get_mut(&job) {
                    relayed.questions.remove(&ask);
                }
                self.effect(GatewayEffect::Withdraw { job, ask, reason: reason.map(Into::into) });
            }
            AskedOf::Client(client, call) => {
                if self.upstreams.asked.remove(&(client, call)).is_some()
                    && let Some(mut taken) = self.outgoing.take(client, call)
                {
                    self.timers.disarm(&mut taken.timer, Timer::Call(client, call));
                    self.outbox.write_cancel(client, call, reason);
                }
            }
        }
    }

    /// Asks for the confirmation of a call, if its tool needs one. True if it does.
    pub(crate) fn asks_for_confirmation(&mut self, job: JobId) -> bool {
        let route = self.jobs.get(job).and_then(|job| job.tool.route.clone());
        let Some(route) = route.filter(|route| &*route.method == "tools/call") else {
            return false;
        };
        let server = self.upstreams.server(&route.server);
        let Some(text) = server.and_then(|of| of.server.confirm.get(&route.name).cloned()) else {
            return false;
        };
        let params = format!(
            "{{\"message\":{},\"requestedSchema\":{{\"type\":\"object\",\"properties\":{{}}}}}}",
            crate::upstream::rewrite::quoted(&text)
        );
        let request = OutgoingRequest {
            key: None,
            method: ELICITATION.into(),
            params: RawValue::from_string(params).ok(),
            answer_timeout: None,
            task: None,
        };
        if let Some(relayed) = self.upstreams.jobs.get_mut(&job) {
            relayed.questions.insert(CONFIRM, ServerQuestion::Confirmation);
        }
        self.effect(GatewayEffect::AskForJob { job, ask: CONFIRM, request });
        true
    }

    /// Only an acceptance starts the call; the texts are those of the daemon's own tools.
    fn on_confirmation(&mut self, job: JobId, answer: Answer) {
        let why: String = match answer {
            Answer::Result(result) => match text_member(result.get(), "action").as_deref() {
                Some("accept") => return self.assign(job),
                Some(_) => "not run: the requestor did not confirm the call".into(),
                None => "not run: the response to the confirmation names no action".into(),
            },
            Answer::Error(error) => {
                format!("not run: the confirmation request failed: {}", error.get())
            }
            Answer::Refused(refusal @ Refusal::TooMany) => format!("not run: {refusal}"),
            Answer::Refused(refusal) => format!(
                "not run: the tool needs confirmation, which the client does not support: {refusal}"
            ),
            Answer::TimedOut => "not run: the requestor did not answer in time".into(),
            Answer::Lost | Answer::Unusable(_) => "not run: the call was not confirmed".into(),
            // The job is being stopped, which ends it.
            Answer::Cancelled => return,
        };
        self.end_relayed(job, Outcome::Result(failed_result(&why)));
    }

    /// Answers the questions of a job that ends: they belong to its call.
    pub(crate) fn end_questions(&mut self, job: JobId) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        let questions = core::mem::take(&mut relayed.questions);
        let instance = relayed.instance.and_then(|id| self.upstreams.instances.get(&id));
        let conn = instance.and_then(|instance| instance.conn);
        for (ask, question) in questions {
            if let (ServerQuestion::Request(request), Some(conn)) = (question, conn) {
                self.answer_question(conn, &request, AskedOf::Job(job, ask), Answer::Cancelled);
            }
        }
    }

    /// Capabilities that an instance is told of: those of its only client (UPS-12). One that
    /// several clients share is told of none, since its questions could be of any of them.
    pub(crate) fn declared_to(&self, id: InstanceId) -> String {
        let Some(instance) = self.upstreams.instances.get(&id) else { return "{}".into() };
        match &instance.key {
            InstanceKey::Client(client) => {
                let is_shown = self.upstreams.shown_through(self.outbox, *client).is_some();
                capabilities_of(self.outbox, *client, is_shown)
            }
            InstanceKey::Owner(_) => "{}".into(),
            // It serves one call at a time, whose client may ask for more than another.
            InstanceKey::Call => {
                let able = |method: &str| {
                    let clients = self.outbox.connections().values();
                    { clients }.any(|client| client.peer.answers(method))
                };
                write_capabilities(able)
            }
        }
    }

    /// The roots of a client have changed: its own instances are told.
    pub(crate) fn on_roots_changed(&mut self, client: ConnId) {
        let own: alloc::vec::Vec<ConnId> = {
            let all = self.upstreams.instances.values();
            let own = all.filter(|instance| instance.key == InstanceKey::Client(client));
            own.filter(|instance| instance.is_in_session()).filter_map(|of| of.conn).collect()
        };
        for conn in own {
            self.outbox.send(conn, |json| {
                json.raw(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
            });
        }
    }
}

/// Answers a request of a server, which no client is asked.
pub(crate) fn refuse_question(outbox: &mut Outbox, reply: Reply, refusal: Refusal) {
    let code = match matches!(refusal, Refusal::NotDeclared | Refusal::NotInitialized) {
        true => code::METHOD_NOT_FOUND,
        false => code::INTERNAL_ERROR,
    };
    let message = format!("the client was not asked: {refusal}");
    outbox.fail(reply, &ErrorObject::new(code, message));
}

/// Whether a request of a server is one of those that this engine knows.
fn is_question(method: &str) -> bool {
    [SAMPLING, ELICITATION, ROOTS].contains(&method)
}

fn names_task(request: &OutgoingRequest) -> bool {
    let params = request.params.as_ref();
    params.is_some_and(|params| member(params.get(), "task").is_some())
}

/// Capabilities of a client, as it wrote them; tasks of its own only where the server shows through.
pub(super) fn capabilities_of(outbox: &Outbox, client: ConnId, with_tasks: bool) -> String {
    let Some(connection) = outbox.connection(client) else { return "{}".into() };
    match &connection.aside.declared {
        Some(declared) if with_tasks => String::from(&**declared),
        Some(declared) => without_tasks(declared),
        None => write_capabilities(|method| connection.peer.answers(method)),
    }
}

/// Capabilities of a client as JSON text, from the methods that it answers.
pub(crate) fn write_capabilities(able: impl Fn(&str) -> bool) -> String {
    let all = [("elicitation", ELICITATION), ("roots", ROOTS), ("sampling", SAMPLING)];
    let mut text = String::from("{");
    for (name, _) in all.into_iter().filter(|(_, method)| able(method)) {
        text.push_str(if text.ends_with('{') { "\"" } else { ",\"" });
        text.push_str(name);
        text.push_str("\":{}");
    }
    text.push('}');
    text
}

/// Capabilities without the tasks of sessions.
pub(super) fn without_tasks(capabilities: &str) -> String {
    match member(capabilities, "tasks") {
        Some(_) => crate::upstream::rewrite::without(capabilities, &["tasks"]),
        None => capabilities.into(),
    }
}

/// Capabilities with an extension.
pub(super) fn with_extension(capabilities: &str, name: &str) -> String {
    let extensions = member(capabilities, "extensions").unwrap_or("{}");
    match members(extensions).iter().any(|(key, _)| *key == name) {
        true => capabilities.into(),
        false => {
            let all = crate::upstream::rewrite::with_member(extensions, name, "{}");
            crate::upstream::rewrite::with_member(capabilities, "extensions", &all)
        }
    }
}

/// The members of a client's capabilities that a server behind us may know of: all but the tasks
/// that this engine makes.
pub(crate) fn passed_capabilities(text: &str) -> Option<Box<str>> {
    const TASKS: &str = "io.modelcontextprotocol/tasks";
    let kept = match member(text, "extensions") {
        Some(extensions) if member(extensions, TASKS).is_some() => {
            let others = crate::upstream::rewrite::without(extensions, &[TASKS]);
            crate::upstream::rewrite::with_member(text, "extensions", &others)
        }
        Some(_) | None => text.into(),
    };
    (kept != "{}").then(|| kept.into())
}
