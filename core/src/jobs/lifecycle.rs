//! Jobs: starting, hearing from, stopping and ending them.

use core::time::Duration;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::action::{Action, AuditEvent, Receipt};
use crate::collections::timer_queue::Timer;
use crate::connection::Ending;
use crate::engine::Engine;
use crate::event::Outcome;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, RequestId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, JobEffect, JobInput, JobState, Own, Purpose};
use crate::jobs::result::into_answer;
use crate::json::meta::{RELATED_TASK, related_task, write_with_meta};
use crate::json::raw::Json;
use crate::json::writer::Writer;
use crate::limits::Limits;
use crate::log_level::LogLevel;
use crate::outbox::requests::Settled;
use crate::protocol::request_meta::RequestContext;
use crate::protocol::revision::{AfterCancel, Methods, Results};
use crate::protocol::role::Side;
use crate::reason::StopReason;
use crate::rpc::send_queue::Tag;
use crate::tasks::durable::TaskOutcome;
use crate::tasks::task::Change;
use crate::time::Instant;
use crate::tool::StopStep;
use crate::upstream::rewrite::{member, with_member};

/// How long the rest of a job may outlive its first process before it is stopped.
const LINGER: Duration = Duration::from_millis(100);

/// Address of the messages of a job: the peers that still want them.
pub(super) struct Audience {
    conn: ConnId,
    pub(super) task: Option<TaskId>,
    /// The request that the messages belong to.
    request: Option<RequestId>,
    /// Whether the cancel of that request recalls them (MOD-04).
    recall: bool,
}

impl Engine {
    /// Everything of this turn was handed in: starts as many jobs as there is room for.
    pub(crate) fn on_turn(&mut self) {
        if self.upstreams.starts_eager {
            self.with_gateway(|it| it.start_eager());
        }
        self.supervisor().flush();
        self.suspend_asking_calls();
        self.hand_over_begun();
        let share = self.settings.limits.running_per_identity_max;
        while self.jobs.has_room(&self.settings.limits) {
            let Some(id) = self.jobs.take_turn(share) else { break };
            self.advance_job(id, JobInput::Turn);
        }
        self.hand_over_waiting();
    }

    /// Applies an input to a job and carries out the consequence; false if it has no meaning for
    /// the job or its state.
    pub(crate) fn advance_job(&mut self, id: JobId, input: JobInput) -> bool {
        let Some(effect) = self.jobs.advance(id, input, self.now.at) else { return false };
        match effect {
            JobEffect::Ignored => return false,
            JobEffect::Enqueue => {}
            JobEffect::Run(arguments) => self.run(id, arguments),
            JobEffect::Linger => {
                if let Some(job) = self.jobs.get_mut(id) {
                    self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + LINGER);
                }
            }
            JobEffect::Drop => self.outbox.counters_mut().jobs_never_started += 1,
            JobEffect::Step { step, why, is_first: true } => {
                self.cancel_asks(id);
                self.take_step(id, step, why);
            }
            JobEffect::Step { step, why, is_first: false } => {
                self.end_grace(id, why);
                self.take_step(id, step, why);
            }
        }
        true
    }

    /// Has the host run a job, which is noted as running.
    fn run(&mut self, id: JobId, arguments: Json) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if let Some(timeout) = job.tool.timeout {
            self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + timeout);
        }
        let task = job.task;
        let tool = alloc::sync::Arc::clone(&job.tool);
        self.outbox.counters_mut().jobs_started += 1;
        // It runs now: the message of a task that had to wait says so no longer.
        if let Some(task) = task.and_then(|task| self.tasks.get_mut(task)) {
            task.queued = false;
        }
        if tool.route.is_some() {
            return self.with_gateway(|it| it.begin_relayed(id, &arguments));
        }
        // A read-only tool has no side effect that could leak the id of a task that is not durable.
        let task = task.filter(|task| tool.read_only || self.tasks.is_visible(*task));
        self.outbox.push(Action::Start { job: id, tool, arguments, task });
    }

    /// Tells a job to stop; one that has not begun is removed.
    pub(crate) fn stop(&mut self, id: JobId, why: StopReason) {
        let begun = self.jobs.get(id).is_some_and(Job::has_begun);
        if self.advance_job(id, JobInput::Stop(why))
            && !begun
            && let Some(job) = self.remove_job(id)
        {
            self.outbox.note(AuditEvent::Ceased(receipt(id, &job, why, None, self.now.at)));
        }
    }

    fn take_step(&mut self, id: JobId, step: StopStep, why: StopReason) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.tool.route.is_some() {
            self.timers.disarm(&mut job.timer, Timer::Job(id));
            return self.with_gateway(|it| it.stop_relayed(id, why));
        }
        self.outbox.push(Action::Stop { job: id, step, why });
        match job.tool.stop_policy.after(step) {
            Some((wait, _)) => {
                self.timers.arm(&mut job.timer, Timer::Job(id), self.now.at + wait);
            }
            None => self.timers.disarm(&mut job.timer, Timer::Job(id)),
        }
    }

    /// The timer of a job is due: its timeout, or the next step of its stop policy.
    pub(crate) fn on_job_timer(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.timer = None;
        self.advance_job(id, JobInput::TimerDue);
        let step = self.jobs.get(id).map(Job::state);
        if matches!(step, Some(JobState::Stopping { step: StopStep::Abandon, .. })) {
            self.abandon(id);
        }
    }

    fn abandon(&mut self, id: JobId) {
        self.outbox.counters_mut().jobs_abandoned += 1;
        if let Some(job) = self.jobs.get(id) {
            self.outbox.note(AuditEvent::Abandoned { job: id, tool: job.tool.name.clone() });
        }
        self.on_done(id, Outcome::Stopped);
    }

    /// The first process of a job is gone and others are not. They may be about to go as well, as
    /// the rest of a pipeline does; if not, they are stopped: they have no business left.
    pub(crate) fn on_lingering(&mut self, id: JobId) {
        if !self.advance_job(id, JobInput::MainExited) {
            self.outbox.counters_mut().late_reports += 1;
        }
    }

    pub(crate) fn on_done(&mut self, id: JobId, outcome: Outcome) {
        let removed = self.remove_job(id);
        let Some(job) = &removed else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        let why = match job.state() {
            JobState::Held(_) | JobState::Queued(_) => {
                panic!("{id} ended before it was started")
            }
            JobState::Running | JobState::Lingering => None,
            &JobState::Stopping { step, why, since } => {
                // A thread that was given up goes on: it has not ceased.
                if step != StopStep::Abandon {
                    let mut receipt = receipt(id, job, why, Some(step), since);
                    receipt.upstream = self.upstreams.receipts.remove(&id).map(Box::new);
                    self.outbox.note(AuditEvent::Ceased(receipt));
                }
                Some(why)
            }
        };
        if job.outlasts() {
            return;
        }
        self.deliver_outcome(id, job, outcome, why);
    }

    /// Gives the outcome of a job to its receivers.
    pub(crate) fn deliver_outcome(
        &mut self,
        id: JobId,
        job: &Job,
        outcome: Outcome,
        why: Option<StopReason>,
    ) {
        self.remember_outcome(id, job.task, why, || {
            into_answer(outcome.clone(), why, job.tool.timeout, job.terms.dialect())
        });
        match job.purpose() {
            // TSK-26: dropped; that it stopped is all that was wanted of it.
            Purpose::Orphan => {}
            Purpose::NoReceiver => match outcome {
                Outcome::Result(_) | Outcome::Error(_) | Outcome::Refused(_) => {
                    self.outbox.counters_mut().late_reports += 1;
                }
                Outcome::Stopped => {}
            },
            Purpose::Answer(request) => {
                let Some(connection) = self.outbox.connection_mut(job.conn) else { return };
                let ends = connection.ending != Ending::Open;
                if let Some(reply) = connection.requests.settle(request, Settled::Job(id)) {
                    self.show_held_progress(id, job);
                    let answer = match reply.dialect.after_cancel {
                        AfterCancel::Silence | AfterCancel::Recall => with_hints(
                            job,
                            into_answer(outcome, why, job.tool.timeout, job.terms.dialect()),
                        ),
                        AfterCancel::Answer { .. } => self.answer_of_service(job, outcome, why),
                    };
                    match (&job.tool.route, answer) {
                        (Some(_), Ok(result)) => {
                            self.upstreams.answer_with_relayed(&mut self.outbox, reply, result);
                        }
                        (_, answer) => self.upstreams.answer_with(&mut self.outbox, reply, answer),
                    }
                    if ends {
                        self.outbox.close_if_finished(job.conn);
                    }
                }
            }
            Purpose::Task => self.end_task_of(id, job, outcome, why),
            Purpose::Retry(state) => {
                let answer = into_answer(outcome, why, job.tool.timeout, job.terms.dialect());
                self.keep_outcome(*state, with_hints(job, answer).map(Json::kept));
            }
        }
    }

    fn end_task_of(&mut self, id: JobId, job: &Job, outcome: Outcome, why: Option<StopReason>) {
        let Some(task) = job.task else { return };
        self.show_held_progress(id, job);
        let outcome = into_answer(outcome, why, job.tool.timeout, job.terms.dialect());
        let outcome = outcome.map(Json::kept);
        let failure = crate::jobs::result::failure(&outcome).map(|text| self.outbox.clean(&text));
        let (change, message) = match failure {
            None => (Change::Complete, None),
            Some(text) => (Change::Fail, Some(text.into_boxed_str())),
        };
        self.end_task(task, change, message, outcome);
    }

    /// Forgets a job: its place, its timer, its room.
    pub(crate) fn remove_job(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.get_mut(id)?;
        if !job.asks.is_empty() {
            self.drop_asks(id);
            return self.remove_job(id);
        }
        self.timers.disarm(&mut job.timer, Timer::Job(id));
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        if let Some(progress) = job.progress.some() {
            self.timers.disarm(&mut progress.heartbeat, Timer::Heartbeat(id));
        }
        // Of a job that has told nothing there is nothing to hold back.
        if job.progress.latest.is_some()
            && let Some(connection) = self.outbox.connection_mut(job.conn)
        {
            connection.held_progress.remove(&id);
        }
        let (task, conn) = (job.task, job.conn);
        self.free_task(task, id, conn);
        // Last, so that it is moved but once.
        self.jobs.remove(id)
    }

    /// A task has no job any more.
    pub(crate) fn free_task(&mut self, task: Option<TaskId>, id: JobId, conn: ConnId) {
        // TSK-08: a generator may give the id of a task that expired while its job was stopping.
        if let Some(task) = task.and_then(|task| self.tasks.get_mut(task))
            && task.job == Some(id)
        {
            task.job = None;
            task.aside.forget_line();
            if task.is_being_created() {
                task.aside.maker = Some((id, conn));
            }
        }
    }

    /// Receivers of a job's messages: none if its request was cancelled or its task ended (TSK-33),
    /// since both leave it without a purpose.
    pub(super) fn audience(&self, job: &Job) -> Option<Audience> {
        match job.purpose() {
            Purpose::NoReceiver | Purpose::Orphan | Purpose::Retry(_) => None,
            Purpose::Task => {
                Some(Audience { conn: job.conn, task: job.task, request: None, recall: false })
            }
            Purpose::Answer(request) => {
                let recall = match job.terms.dialect().after_cancel {
                    AfterCancel::Silence | AfterCancel::Answer { .. } => false,
                    AfterCancel::Recall => true,
                };
                let request = Some(request.clone());
                Some(Audience { conn: job.conn, task: None, request, recall })
            }
        }
    }

    pub(crate) fn on_progress(
        &mut self,
        id: JobId,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) {
        let room = self.settings.limits.write_buffer_bytes;
        let Some(job) = self.jobs.get_mut(id) else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        let total = total.filter(|total| total.is_finite());
        let told = &mut *job.progress;
        if progress.is_finite() {
            told.latest = Some((progress, total, message.map(Into::into)));
        }
        if told.token.is_none() || !progress.is_finite() {
            self.outbox.counters_mut().progress_dropped += 1;
            return;
        }
        // TSK-33: a value that stands or falls is a sign of life, told by one that grows.
        let (progress, total) = match told.last.is_none_or(|last| progress > last) {
            true => {
                told.last = Some(progress);
                told.own = Own { value: progress, total, beats: 0 };
                (progress, total)
            }
            false => {
                told.own.total = total;
                told.step()
            }
        };
        self.jobs.arm_heartbeat(&mut self.timers, self.now.at, id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        let told = &mut *job.progress;
        let Some(connection) = self.outbox.connection_mut(job.conn) else { return };
        if connection.send_queue.len() >= room {
            // The peer does not read: only the latest value waits for it.
            connection.held_progress.insert(id);
            told.held = Some((progress, total, message.map(Into::into)));
            return;
        }
        job.progress.forget_held();
        let Some(job) = self.jobs.get(id) else { return };
        let message = self.progress_message(job, progress, total, message);
        self.write_progress(message);
    }

    /// Writes the held messages of a job that was taken out of the table, before its answer.
    pub(crate) fn show_held_progress(&mut self, id: JobId, job: &Job) {
        self.forget_held_progress(id, job);
        if let Some(held) = self.held_progress(job) {
            self.write_progress(held);
        }
    }

    /// The message of the progress that was held back for a job.
    fn held_progress(&self, job: &Job) -> Option<ProgressMessage> {
        let (progress, total, message) = job.progress.held.as_ref()?;
        Some(self.progress_message(job, *progress, *total, message.as_deref()))
    }

    pub(super) fn progress_message(
        &self,
        job: &Job,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) -> ProgressMessage {
        // The first revision has no `message`.
        let message = message.filter(|_| job.terms.dialect().progress_message);
        ProgressMessage {
            token: job.progress.token.clone(),
            audience: self.audience(job),
            progress,
            total,
            message: message.map(|text| self.outbox.clean(text)),
        }
    }

    /// Its connection need not show the held messages of a job.
    fn forget_held_progress(&mut self, id: JobId, job: &Job) {
        // Of a job that has told nothing there is nothing to hold back.
        if job.progress.latest.is_some()
            && let Some(connection) = self.outbox.connection_mut(job.conn)
        {
            connection.held_progress.remove(&id);
        }
    }

    /// The peer reads again: shows it the latest of everything held back.
    pub(crate) fn show_all_held_progress(&mut self, conn: ConnId) {
        let Some(connection) = self.outbox.connection_mut(conn) else { return };
        for id in core::mem::take(&mut connection.held_progress) {
            self.show_held_progress_of(id);
        }
    }

    /// Writes the held messages of a job of the table.
    pub(crate) fn show_held_progress_of(&mut self, id: JobId) {
        let held = self.jobs.get(id).and_then(|job| self.held_progress(job));
        if let Some(held) = held {
            self.write_progress(held);
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.progress.forget_held();
        if let Some(connection) = self.outbox.connection_mut(job.conn) {
            connection.held_progress.remove(&id);
        }
    }

    pub(super) fn write_progress(&mut self, message: ProgressMessage) {
        let (Some(token), Some(audience)) = (&message.token, &message.audience) else {
            self.outbox.counters_mut().progress_dropped += 1;
            return;
        };
        self.say(audience, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{");
            write_related_task(json, audience.task);
            json.raw("\"progressToken\":").raw(token);
            message.write(json);
            json.raw("}}");
        });
    }

    /// Sends a message of a job, when it may be sent: after the answer that names its task.
    fn say(&mut self, audience: &Audience, write: impl FnOnce(&mut Writer<'_>)) {
        let unknown = audience.task.filter(|task| !self.tasks.is_visible(*task));
        let Some(task) = unknown.and_then(|task| self.tasks.get_mut(task)) else {
            let Audience { conn, request, recall, .. } = audience;
            let tag = Tag { request: request.as_ref(), recall: *recall, handle: None };
            return self.outbox.send_for(*conn, tag, write);
        };
        let mut message = Vec::new();
        write(&mut Writer::new(&mut message));
        task.aside.keep_said(&message);
    }

    pub(crate) fn on_log(&mut self, id: JobId, level: LogLevel, data: &RawValue) {
        if !self.jobs.contains(id) {
            self.outbox.counters_mut().late_reports += 1;
            return;
        }
        let Some(audience) = self.log_audience(id, level) else { return };
        let Some(tool) = self.jobs.get(id).map(|job| alloc::sync::Arc::clone(&job.tool)) else {
            return;
        };
        self.say(&audience, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{");
            write_related_task(json, audience.task);
            json.member("level", level.as_str()).raw(",").member("logger", &tool.name);
            json.raw(",\"data\":").raw(data.get()).raw("}}");
        });
    }

    /// A log message of an upstream about a relayed job, with the params that it wrote.
    pub(crate) fn relay_message(&mut self, id: JobId, level: LogLevel, params: &str) {
        let Some(audience) = self.log_audience(id, level) else { return };
        let related = audience.task.map(related_task);
        let related = related.as_ref().map(|value| (RELATED_TASK, value.as_slice()));
        let meta: Vec<(&str, &[u8])> = related.into_iter().collect();
        self.say(&audience, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":");
            write_with_meta(json, params, &meta);
            json.raw("}");
        });
    }

    /// Receivers of a log message of a job, if they want it and read.
    fn log_audience(&self, id: JobId, level: LogLevel) -> Option<Audience> {
        let job = self.jobs.get(id)?;
        let audience = self.audience(job)?;
        let connection = self.outbox.connection(audience.conn)?;
        if connection.dialect.methods == Methods::Services {
            return None;
        }
        let crowded = connection.send_queue.len() >= self.settings.limits.write_buffer_bytes;
        let least = match (&connection.side, &job.terms) {
            // Servers log to clients, never the other way.
            (Side::Client(_), _) => None,
            (Side::Server, RequestContext::Session(_)) => Some(connection.log_level),
            (Side::Server, RequestContext::Request(claim)) => claim.log_level,
        };
        let is_wanted = least.is_some_and(|least| level >= least);
        (is_wanted && !crowded).then_some(audience)
    }
}

impl Jobs {
    /// Whether one more job may run.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        self.running() < limits.running_max
    }

    /// Whether one more job of an identity would have to wait.
    pub(crate) fn is_crowded(&self, limits: &Limits, owner: &Identity) -> bool {
        let share = limits.running_per_identity_max;
        let queue = self.queue();
        let own = queue.running_of(owner) + queue.len_of(owner);
        own >= share || self.running() + queue.startable(share) >= limits.running_max
    }
}

/// The receipt of a job that was told to stop.
pub(crate) fn receipt(
    id: JobId,
    job: &Job,
    why: StopReason,
    stage: Option<StopStep>,
    since: Instant,
) -> Box<Receipt> {
    Box::new(Receipt {
        job: id,
        tool: job.tool.name.clone(),
        owner: job.owner.clone(),
        conn: job.conn,
        task: job.task,
        why,
        cancel: job.cancel(),
        stage,
        since,
        upstream: None,
    })
}

/// How far a job is, as its peer is told.
pub(super) struct ProgressMessage {
    token: Option<Box<str>>,
    audience: Option<Audience>,
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl ProgressMessage {
    fn write(&self, json: &mut Writer<'_>) {
        json.raw(",\"progress\":").display(self.progress);
        if let Some(total) = self.total {
            json.raw(",\"total\":").display(total);
        }
        if let Some(message) = &self.message {
            json.raw(",").member("message", message);
        }
    }
}

/// TSK-29: a message of a task names the task.
fn write_related_task(json: &mut Writer<'_>, task: Option<TaskId>) {
    if let Some(task) = task {
        json.raw("\"_meta\":{\"io.modelcontextprotocol/related-task\":{\"taskId\":\"");
        json.uuid(task.uuid()).raw("\"}},");
    }
}

/// The answer of a job, with members about caching where a revision has them for its method
/// (`resources/read`) and the answer says nothing about that: no client may keep it.
fn with_hints(job: &Job, answer: TaskOutcome) -> TaskOutcome {
    let method = job.tool.route.as_ref().map_or(&*job.tool.name, |route| &route.method);
    let is_due = method == "resources/read" && job.terms.dialect().results == Results::Typed;
    match answer {
        Ok(result) if is_due && member(result.get(), "contents").is_some() => {
            let (is_bare, mut hinted) = (result.is_bare(), String::from(result.get()));
            for (name, value) in [("ttlMs", "0"), ("cacheScope", "\"private\"")] {
                if member(&hinted, name).is_none() {
                    hinted = with_member(&hinted, name, value);
                }
            }
            Ok(Json::of_result(hinted.into(), is_bare))
        }
        answer => answer,
    }
}
