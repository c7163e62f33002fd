//! Work that is asked for: from a request to a job, plain or as a task; `tools/call`, and the
//! services of a client.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, TaskId};
use crate::jobs::job::{Job, JobState, Purpose};
use crate::jobs::result::correctable;
use crate::json::raw::{FoundMembers, Json, Raw};
use crate::json::whole::WholeNumber;
use crate::outbox::requests::{Reply, RequestWork, TaskView};
use crate::policy::access::Item;
use crate::protocol::request_meta::{self, RequestContext, RequestMeta};
use crate::protocol::revision::TaskRules;
use crate::protocol::trace_context::TraceContext;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::call_params::{CallParams, progress_token, trace_of};
use crate::server::idempotency::{KeyedRequest, read_key};
use crate::server::input_required::Retry;
use crate::server::keyed_calls::CallContent;
use crate::server::rate::rated;
use crate::server::stateless::missing_tasks;
use crate::tasks::creation::HandOver;
use crate::tasks::durable::ClaimedKey;
use crate::tool::{TaskSupport, Tool};
use crate::upstream::narrow::era_of;
use crate::upstream::rewrite::params_for_other_hop;

/// A call that may go ahead.
struct Admitted<'a> {
    tool: Arc<Tool>,
    arguments: Json,
    /// The ttl asked for, if it is to be a task.
    task: Option<RequestedTtl>,
    progress_token: Option<Raw<'a>>,
    terms: RequestContext,
    /// Responses to questions that the call has not asked yet, by the keys of those.
    responses: Option<Raw<'a>>,
    /// Trace context of the request.
    trace: Option<Box<TraceContext>>,
}

/// Why a call may not go ahead.
enum NotAdmitted {
    /// The request is wrong.
    Error(ErrorObject),
    /// Its arguments are, which a model can correct (SEP-1303).
    Correctable(ErrorObject),
}

impl From<ErrorObject> for NotAdmitted {
    fn from(error: ErrorObject) -> Self {
        Self::Error(error)
    }
}

/// The ttl that a requestor asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedTtl {
    Default,
    Millis(u64),
}

impl Engine {
    /// A call of a session, or one that makes a claim. Takes its key out of `granted` if the table that several
    /// engines share has granted it one.
    pub(crate) fn call_tool(
        &mut self,
        reply: Reply,
        params: Option<&Params<'_>>,
        claim: Option<&RequestMeta>,
        granted: &mut Option<ClaimedKey>,
    ) {
        let params = match CallParams::read(params) {
            Ok(params) => params,
            Err(error) => return self.fail_call(reply, params, &error),
        };
        if let (Some(claim), Some(state)) = (claim, params.request_state) {
            let (responses, progress_token) = (params.input_responses, progress_token(params.meta));
            let retry = Retry { state, responses, progress_token };
            // UPS-12: a state that is not ours is for the server that gave it.
            let is_relayed = !self.suspended.names_call(state)
                && self.gateway().is_stateless_tool(&params.name, reply.conn);
            if !is_relayed {
                return self.retry_call(reply, &params.name, claim, &retry);
            }
        }
        let admitted = self.admit(&reply, &params, claim).and_then(|admitted| {
            let key = params.meta.map_or(Ok(None), |m| read_key(m.idempotency_key));
            Ok((admitted, key.map_err(NotAdmitted::Error)?))
        });
        match admitted {
            Ok((admitted, None)) => self.accept(reply, admitted),
            Ok((admitted, Some(key))) => {
                self.accept_once(reply, admitted, key, params.whole, granted.take());
            }
            Err(NotAdmitted::Error(error)) => self.outbox.fail(reply, &error),
            Err(NotAdmitted::Correctable(error)) => {
                let answer = correctable(error, reply.dialect);
                self.upstreams.answer_with(&mut self.outbox, reply, answer);
            }
        }
    }

    /// A server asks for a service of ours; with `tasks` it may be as a task (TSK-44).
    pub(crate) fn call_service(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
        tasks: bool,
    ) {
        match self.admit_service(&reply, method, params, tasks) {
            Ok(admitted) => self.accept(reply, admitted),
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    /// A request that reaches one upstream: a job whose tool is the method.
    /// Its params are given as the server gets them, without the members of the client's hop.
    pub(crate) fn call_upstream_with(
        &mut self,
        reply: Reply,
        tool: Tool,
        params: Option<&Params<'_>>,
        passed: &str,
    ) {
        let read = params::members(params).and_then(|read| {
            params::check_meta(params)?;
            Ok(read)
        });
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let terms = match request_meta::of(params) {
            Some(Ok(claim)) => RequestContext::Request(claim),
            Some(Err(_)) | None => RequestContext::Session(reply.dialect),
        };
        let name = tool.route.as_ref().filter(|route| &*route.method == "prompts/get");
        let name = name.map(|route| &*route.name);
        let whole = params_for_other_hop(passed, name, false);
        let admitted = Admitted {
            arguments: Json::from_checked(Cow::Owned(whole)),
            task: None,
            progress_token: progress_token(read.meta.as_ref()),
            terms,
            tool: Arc::new(tool),
            responses: None,
            trace: trace_of(read.meta.as_ref()),
        };
        self.accept(reply, admitted);
    }

    /// A request for an offer of the host: a job of the offer's work.
    pub(crate) fn call_offer(
        &mut self,
        reply: Reply,
        tool: Arc<Tool>,
        params: Option<&Params<'_>>,
        arguments: String,
    ) {
        let read = params::members(params).and_then(|read| {
            params::check_meta(params)?;
            Ok(read)
        });
        let read = match read {
            Ok(read) => read,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let arguments = match checked(&tool, &arguments) {
            Ok(arguments) => Json::from_checked(Cow::Owned(String::from(arguments.get()))),
            Err(why) => return self.outbox.fail(reply, &ErrorObject::invalid_params(why)),
        };
        let claim = request_meta::of(params).and_then(Result::ok);
        let admitted = Admitted {
            arguments,
            task: None,
            progress_token: progress_token(read.meta.as_ref()),
            terms: terms_of(&reply, claim.as_ref()),
            tool,
            responses: claim.and(read.input_responses),
            trace: trace_of(read.meta.as_ref()),
        };
        self.accept(reply, admitted);
    }

    /// A request of an ACP peer: its params are the arguments.
    pub(crate) fn serve(&mut self, reply: Reply, service: Arc<Tool>, params: Option<&Params<'_>>) {
        let arguments = params.map_or("{}", Params::get);
        let checked = match arguments.starts_with('{') {
            true => checked(&service, arguments),
            false => Err("params must be an object".into()),
        };
        let arguments = match checked {
            Ok(arguments) => arguments,
            Err(message) => return self.outbox.fail(reply, &ErrorObject::invalid_params(message)),
        };
        let admitted = Admitted {
            tool: service,
            arguments,
            task: None,
            progress_token: None,
            terms: RequestContext::Session(reply.dialect),
            responses: None,
            trace: trace_of(params::any_members(params).meta.as_ref()),
        };
        self.accept(reply, admitted);
    }

    /// Makes a job of a call, if there is room for one.
    fn accept(&mut self, mut reply: Reply, admitted: Admitted<'_>) {
        if let Some(error) = self.no_further_work() {
            return self.outbox.fail(reply, &error);
        }
        let limits = self.settings.limits;
        let pools = self.jobs.pools();
        let (places, begun) = pools.begun(&admitted.tool);
        let waiting = begun + pools.waiting() + self.jobs.held();
        if waiting >= places.saturating_add(limits.queued_max) {
            return self.outbox.refuse(
                reply,
                "queue",
                limits.queued_max,
                "that many calls wait already: try again later",
            );
        }
        let Some(owner) = self.outbox.identity(reply.conn).cloned() else {
            return self.outbox.forget(reply);
        };
        let share = limits.queued_per_identity_max;
        let can_start = pools.room_for(&admitted.tool, &owner);
        let own = self.jobs.waiting_of(&owner);
        if own >= share.saturating_add(can_start) {
            let what = "calls of yours wait already: try again later";
            return self.outbox.refuse(reply, "queue_per_identity", share, what);
        }
        // The span is that of the job.
        reply.traced = None;
        match admitted.task {
            None => self.call_plainly(reply, owner, admitted),
            Some(ttl) => self.create_task(reply, owner, admitted, ttl),
        }
    }

    /// As [`Engine::accept`], unless the same was asked for before.
    #[inline(never)]
    fn accept_once(
        &mut self,
        reply: Reply,
        admitted: Admitted<'_>,
        key: Box<str>,
        params: &str,
        granted: Option<ClaimedKey>,
    ) {
        let request = KeyedRequest {
            key,
            wish: CallContent {
                tool: admitted.tool.name.clone(),
                arguments: admitted.arguments.clone(),
                as_task: admitted.task.is_some(),
                claims: matches!(admitted.terms, RequestContext::Request(_)),
            },
        };
        let reply = match granted {
            Some(_) => reply,
            None => {
                let Some(reply) = self.lookup(reply, &request) else { return };
                if self.tasks.is_shared() {
                    let owner = self.outbox.identity_of(reply.conn);
                    let of = (owner, request.key, request.wish.text());
                    let (outbox, tasks) = (&mut self.outbox, &mut self.tasks);
                    return self.lookups.claim(outbox, tasks, reply, params, of);
                }
                reply
            }
        };
        let job = self.jobs.next_id();
        self.accept(reply, admitted);
        // If `accept` refused the call, there is no such job and the key is free.
        self.keyed.remember(&mut self.timers, &self.jobs, job, request, granted);
    }

    /// Everything a call can be refused for before it takes up room.
    fn admit<'a>(
        &self,
        reply: &Reply,
        params: &CallParams<'a>,
        claim: Option<&RequestMeta>,
    ) -> Result<Admitted<'a>, NotAdmitted> {
        // TSK-39, AUTH-03: a tool that a peer may not use does not exist for it.
        let caller = self.outbox.caller(reply.conn);
        let own = caller.tool(&self.settings.catalog, &params.name).cloned();
        let relayed =
            || self.upstreams.tool(&params.name, &caller, era_of(&self.outbox, reply.conn));
        let Some(tool) = own.or_else(relayed) else {
            let name = self.outbox.clean(&params.name);
            let found = self.settings.catalog.get(&params.name);
            if found.is_some_and(|tool| caller.lacks_user(Item::Tool(tool))) {
                let message = alloc::format!(
                    "not run: the tool {name:?} has no user to run as for this caller; see `run_as`"
                );
                return Err(ErrorObject::new(code::FORBIDDEN, message).into());
            }
            let message = alloc::format!("there is no tool {name:?}");
            return Err(ErrorObject::invalid_params(message).into());
        };
        if let Some(error) = self.upstreams.unapproved(&self.outbox, reply.conn, &tool) {
            return Err(error.into());
        }
        let task = match reply.dialect.tasks {
            // TSK-03: where there are no tasks, the field means nothing and every tool is plain.
            TaskRules::None => None,
            TaskRules::Core => as_requested(&tool, params.task)?,
            TaskRules::Extension => as_we_like(&tool, claim.is_some_and(|claim| claim.tasks))?,
        };
        let arguments = params.arguments.map_or("{}", Raw::get);
        if !arguments.starts_with('{') {
            let message = "params.arguments must be an object";
            return Err(ErrorObject::invalid_params(message).into());
        }
        if let Some(route) = &tool.route {
            let whole = params_for_other_hop(params.whole, Some(&route.name), true);
            return Ok(Admitted {
                arguments: Json::from_checked(Cow::Owned(whole)),
                task,
                progress_token: progress_token(params.meta),
                terms: terms_of(reply, claim),
                tool,
                responses: None,
                trace: trace_of(params.meta),
            });
        }
        let arguments = checked(&tool, arguments).map_err(|why| {
            let error = ErrorObject::invalid_params(why);
            // TOOL-01: a requestor that asked for a task waits for one, and takes no other result.
            match (reply.dialect.tasks, task) {
                (TaskRules::Core, Some(_)) => NotAdmitted::Error(error),
                (TaskRules::None | TaskRules::Core | TaskRules::Extension, _) => {
                    NotAdmitted::Correctable(error)
                }
            }
        })?;
        Ok(Admitted {
            tool,
            arguments,
            task,
            progress_token: progress_token(params.meta),
            terms: terms_of(reply, claim),
            responses: claim.and(params.input_responses),
            trace: trace_of(params.meta),
        })
    }

    /// As [`Engine::admit`], for a service.
    fn admit_service<'a>(
        &self,
        reply: &Reply,
        method: &str,
        params: Option<&Params<'a>>,
        tasks: bool,
    ) -> Result<Admitted<'a>, ErrorObject> {
        match self.settings.services.get(method) {
            Some(service) => admit_params(reply, service, method, params, tasks),
            None => {
                // It was declared, and a reload took it away. Its params are checked first.
                params::members(params)?.once(params::ALL)?;
                params::check_meta(params)?;
                let message = alloc::format!("there is no method {method:?}");
                Err(ErrorObject::new(code::METHOD_NOT_FOUND, message))
            }
        }
    }

    /// A user of this machine asks for a command of its own, which the host runs as that user.
    pub(crate) fn run_command(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let refused = |why: &'static str| Err(ErrorObject::new(code::FORBIDDEN, why));
        let admitted = match (&self.settings.run, self.outbox.identity(reply.conn)) {
            (None, _) => refused(
                "this daemon runs no commands of callers; `allow_run = true` in [daemon] permits it",
            ),
            (Some(run), Some(Identity::User(_))) => {
                let tasks = reply.dialect.tasks == TaskRules::Core;
                admit_params(&reply, run, "ceased/run", params, tasks)
            }
            (
                Some(_),
                Some(Identity::Token(_) | Identity::Subject(_) | Identity::Anonymous) | None,
            ) => refused("ceased/run is for users of this machine, over a Unix socket"),
        };
        match admitted {
            Ok(admitted) => self.accept(reply, admitted),
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    fn call_plainly(&mut self, reply: Reply, owner: Identity, admitted: Admitted<'_>) {
        if self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        let (id, conn) = (reply.id.clone(), reply.conn);
        let job = self.jobs.next_id();
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        connection.requests.open(reply, RequestWork::Job(job));
        self.enqueue(conn, owner, Purpose::Answer(id), None, admitted);
    }

    fn create_task(
        &mut self,
        reply: Reply,
        owner: Identity,
        mut admitted: Admitted<'_>,
        ttl: RequestedTtl,
    ) {
        let Some(reply) = rated(&mut self.task_ops, &mut self.outbox, reply, None) else { return };
        if let Some((limit, max)) = self.tasks.full(&owner, &self.settings.limits) {
            // TSK-36
            let what = "tasks of yours exist already: let some finish or expire";
            return self.outbox.refuse(reply, limit, max, what);
        }
        if let Some(error) = self.tasks.no_creation() {
            self.outbox.counters_mut().refused += 1;
            return self.outbox.fail(reply, &error);
        }
        if self.tasks.writes().is_on() && self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        let Some(id) = self.fresh_task_id() else {
            let message = "no free task id could be generated";
            return self.outbox.fail(reply, &ErrorObject::new(code::INTERNAL_ERROR, message));
        };
        let conn = reply.conn;
        let creator = match &mut admitted.terms {
            RequestContext::Session(_) => Some(conn),
            RequestContext::Request(claim) => {
                // EXT-02: with the handle the request is over; tasks tell nothing by themselves.
                claim.log_level = None;
                admitted.progress_token = None;
                None
            }
        };
        let ttl = self.grant_ttl(&owner, ttl);
        let tool = admitted.tool.name.clone();
        let hand_over = match self.begins_early(&admitted.tool) {
            true => HandOver::WithItsEnd,
            false => HandOver::Now,
        };
        let job = self.enqueue(conn, owner.clone(), Purpose::Task, Some(id), admitted);
        self.tasks.insert(id, &owner, self.now, ttl, (job, tool), creator);
        self.task_machine().store_creation(id, hand_over);
        // TSK-07. Answered before the job can start, so that nothing of the task comes earlier; or
        // messages of the job are kept until then.
        self.task_machine().respond_with_task(reply, id, TaskView::Handle);
    }

    /// TSK-08: an id the generator gives twice is noticed, not used twice.
    pub(crate) fn fresh_task_id(&mut self) -> Option<TaskId> {
        for _ in 0..4 {
            let id = TaskId::new(self.id_source.uuid());
            if !self.tasks.contains(id) && !self.tasks.writes().owes(id) {
                return Some(id);
            }
            self.outbox.counters_mut().id_collisions += 1;
        }
        None
    }

    /// The ttl a task gets (TSK-11, TSK-34, TSK-40).
    pub(crate) fn default_grant(&self, owner: &Identity) -> Duration {
        self.grant_ttl(owner, RequestedTtl::Default)
    }

    fn grant_ttl(&self, owner: &Identity, requested: RequestedTtl) -> Duration {
        let policy = &self.settings.tasks;
        let (default, max) = match owner {
            Identity::User(_) | Identity::Token(_) | Identity::Subject(_) => {
                (policy.default_ttl, policy.max_ttl)
            }
            Identity::Anonymous => (policy.anonymous_ttl, policy.anonymous_ttl),
        };
        match requested {
            RequestedTtl::Default => default,
            RequestedTtl::Millis(millis) => Duration::from_millis(millis).min(max),
        }
    }

    fn enqueue(
        &mut self,
        conn: ConnId,
        owner: Identity,
        purpose: Purpose,
        task: Option<TaskId>,
        admitted: Admitted<'_>,
    ) -> JobId {
        let id = self.jobs.next_id();
        let state = if task.is_some() && !self.begins_early(&admitted.tool) {
            JobState::Held(admitted.arguments)
        } else {
            JobState::Queued(admitted.arguments)
        };
        let Admitted { tool, terms, progress_token, responses, trace, .. } = admitted;
        let mut job = Job::new(id, tool, owner, (conn, terms), self.now.at, (purpose, state));
        job.task = task;
        if let Some(span) = self.span_of(trace) {
            job.progress.trace = Some(span);
        }
        if let Some(responses) = responses {
            job.progress.given = Some(responses.get().into());
        }
        job.progress.tell(progress_token.map(|token| token.get().into()));
        job.charge_to(&self.accounts.of(&job.owner));
        let id = self.jobs.insert(job);
        self.jobs.arm_heartbeat(&mut self.timers, self.now.at, id);
        id
    }

    /// The context of a new job: with a span of this hop, where the host records spans (OBS-01).
    fn span_of(&mut self, sent: Option<Box<TraceContext>>) -> Option<Arc<TraceContext>> {
        if !self.settings.own_spans {
            return sent.map(Arc::from);
        }
        let sent = sent.map_or_else(TraceContext::default, |sent| *sent);
        Some(Arc::new(sent.with_own_span(|| self.id_source.uuid())))
    }

    /// Whether the job of a task may begin before that is on disk. It may have run then for one
    /// that was refused: that comes to nothing where nothing is changed.
    fn begins_early(&self, tool: &Tool) -> bool {
        tool.read_only && self.tasks.writes().is_on()
    }
}

/// The terms of a request with or without a claim.
fn terms_of(reply: &Reply, claim: Option<&RequestMeta>) -> RequestContext {
    claim.map_or(RequestContext::Session(reply.dialect), |claim| RequestContext::Request(*claim))
}

/// A request whose params are the arguments of a tool.
fn admit_params<'a>(
    reply: &Reply,
    tool: &Arc<Tool>,
    method: &str,
    params: Option<&Params<'a>>,
    tasks: bool,
) -> Result<Admitted<'a>, ErrorObject> {
    let read = params::members(params)?;
    read.once(params::ALL)?;
    params::check_meta(params)?;
    let task = match (tasks, tool.task_support, read.task) {
        // TSK-03
        (false, ..) | (true, TaskSupport::Forbidden, _) => None,
        (true, TaskSupport::Optional, None) => None,
        (true, TaskSupport::Optional | TaskSupport::Required, Some(task)) => Some(read_ttl(task)?),
        (true, TaskSupport::Required, None) => {
            // TSK-06
            let message = alloc::format!("{method:?} runs as a task only: params.task is required");
            return Err(ErrorObject::new(code::INVALID_REQUEST, message));
        }
    };
    let arguments =
        checked(tool, params.map_or("{}", Params::get)).map_err(ErrorObject::invalid_params)?;
    Ok(Admitted {
        tool: Arc::clone(tool),
        arguments,
        task,
        progress_token: progress_token(read.meta.as_ref()),
        terms: RequestContext::Session(reply.dialect),
        responses: None,
        trace: trace_of(read.meta.as_ref()),
    })
}

/// The arguments that a tool is given, once its check has passed.
fn checked(tool: &Tool, arguments: &str) -> Result<Json, String> {
    match &tool.check {
        Some(check) => check.check(arguments).map(Json::from_checked),
        None => Ok(Json::from_checked(Cow::Borrowed(arguments))),
    }
}

/// Whether a call becomes a task where its sender decides, and with which ttl (TSK-05, TSK-06).
fn as_requested(tool: &Tool, task: Option<Raw<'_>>) -> Result<Option<RequestedTtl>, ErrorObject> {
    let ttl = task.map(read_ttl).transpose()?;
    let misuse = match (tool.task_support, ttl) {
        (TaskSupport::Forbidden, Some(_)) => "does not run as a task",
        (TaskSupport::Required, None) => "runs as a task only",
        (TaskSupport::Forbidden | TaskSupport::Optional, None) => return Ok(None),
        (TaskSupport::Optional | TaskSupport::Required, Some(ttl)) => return Ok(Some(ttl)),
    };
    let message = alloc::format!("the tool {:?} {misuse}", tool.name);
    Err(ErrorObject::new(code::METHOD_NOT_FOUND, message))
}

/// Whether a call becomes a task where we decide: whenever it may (EXT-01, see [`TaskSupport`]).
fn as_we_like(tool: &Tool, declared: bool) -> Result<Option<RequestedTtl>, ErrorObject> {
    match (tool.task_support, declared) {
        (TaskSupport::Forbidden, _) | (TaskSupport::Optional, false) => Ok(None),
        (TaskSupport::Optional | TaskSupport::Required, true) if tool.asks_first => Ok(None),
        (TaskSupport::Optional | TaskSupport::Required, true) => Ok(Some(RequestedTtl::Default)),
        (TaskSupport::Required, false) => {
            Err(missing_tasks(&alloc::format!("the tool {:?}", tool.name)))
        }
    }
}

/// Reads the `task` member (TSK-11).
fn read_ttl(task: Raw<'_>) -> Result<RequestedTtl, ErrorObject> {
    let odd = |what: &str| ErrorObject::invalid_params(alloc::format!("params.task{what}"));
    let FoundMembers { members: [ttl], twice } =
        task.members(["ttl"]).ok_or_else(|| odd(" must be an object"))?;
    if twice.is_some() {
        return Err(odd(".ttl is there twice"));
    }
    let Some(ttl) = ttl else { return Ok(RequestedTtl::Default) };
    // A value that does not fit is larger than every maximum and is shortened to it anyway.
    let usual = ttl.get().parse().ok();
    let millis = usual.or_else(|| WholeNumber::read(ttl.get())?.to_u64_saturating());
    millis
        .filter(|millis| *millis > 0)
        .map(RequestedTtl::Millis)
        .ok_or_else(|| odd(".ttl must be a positive integer of milliseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-11: every form of a ttl.
    #[test]
    fn ttls() {
        let read = |text: &str| read_ttl(Raw::checked(text)).ok();
        assert_eq!(read("{}"), Some(RequestedTtl::Default));
        assert_eq!(read(r#"{"ttl":1}"#), Some(RequestedTtl::Millis(1)));
        assert_eq!(
            read(r#"{"ttl":99999999999999999999999}"#),
            Some(RequestedTtl::Millis(u64::MAX))
        );
        for odd in [r#"{ "ttl" : 7 }"#, r#"{"ttl":7,"x":1}"#, r#"{"\u0074tl":7}"#] {
            assert_eq!(read(odd), Some(RequestedTtl::Millis(7)), "{odd}");
        }
        assert_eq!(read(r#"{"ttl":null}"#), Some(RequestedTtl::Default));
        for whole in ["60000.0", "6e4", "600000e-1"] {
            let asked = alloc::format!("{{\"ttl\":{whole}}}");
            assert_eq!(read(&asked), Some(RequestedTtl::Millis(60_000)), "{whole}");
        }
        assert_eq!(read(r#"{"ttl":1e99}"#), Some(RequestedTtl::Millis(u64::MAX)));
        for bad in ["0", "0.0", "-1", "-1e99", "1.5", "1e-3", "\"1\"", "true", "{}", "[]"] {
            assert_eq!(read(&alloc::format!("{{\"ttl\":{bad}}}")), None, "{bad}");
        }
        assert_eq!(read(r#"{"ttl":1,"ttl":1}"#), None);
        for bad in ["[]", "7", "\"\"", "true"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
