//! Messages of jobs: progress and logs, to the peers that still want them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::collections::timer_queue::TimerQueue;
use crate::ids::{ConnId, JobId, RequestId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::{Job, Own, Purpose};
use crate::json::meta::{RELATED_TASK, related_task, write_with_meta};
use crate::json::writer::Writer;
use crate::log_level::LogLevel;
use crate::outbox::Outbox;
use crate::protocol::request_meta::RequestContext;
use crate::protocol::revision::{AfterCancel, Methods};
use crate::protocol::role::Side;
use crate::rpc::send_queue::Tag;
use crate::tasks::task::Tasks;

/// Address of the messages of a job: the peers that still want them.
pub(super) struct MessageReceivers {
    conn: ConnId,
    pub(super) task: Option<TaskId>,
    /// The request that the messages belong to.
    request: Option<RequestId>,
    /// Whether the cancel of that request recalls them (MOD-04).
    recall: bool,
}

/// Progress, as a job reports it.
pub(crate) struct ProgressReport<'a> {
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: Option<&'a str>,
}

impl Jobs {
    /// A job reports progress.
    pub(crate) fn on_progress(
        &mut self,
        timers: &mut TimerQueue,
        (outbox, tasks): (&mut Outbox, &mut Tasks),
        id: JobId,
        ProgressReport { progress, total, message }: ProgressReport<'_>,
    ) {
        let room = outbox.settings().limits.write_buffer_bytes;
        let Some(job) = self.get_mut(id) else {
            outbox.counters_mut().late_reports += 1;
            return;
        };
        let total = total.filter(|total| total.is_finite());
        let told = &mut *job.progress;
        if progress.is_finite() {
            told.latest = Some((progress, total, message.map(Into::into)));
        }
        if told.token.is_none() || !progress.is_finite() {
            outbox.counters_mut().progress_dropped += 1;
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
        self.arm_heartbeat(timers, outbox.now(), id);
        let Some(job) = self.get_mut(id) else { return };
        let told = &mut *job.progress;
        let Some(connection) = outbox.connection_mut(job.conn) else { return };
        if connection.send_queue.len() >= room {
            // The peer does not read: only the latest value waits for it.
            connection.held_progress.insert(id);
            told.held = Some((progress, total, message.map(Into::into)));
            return;
        }
        job.progress.forget_held();
        let Some(job) = self.get(id) else { return };
        let message = progress_message(outbox, job, progress, total, message);
        write_progress(outbox, tasks, message);
    }

    /// The peer reads again: shows it the latest of everything held back.
    pub(crate) fn show_all_held_progress(
        &mut self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        conn: ConnId,
    ) {
        let Some(connection) = outbox.connection_mut(conn) else { return };
        for id in core::mem::take(&mut connection.held_progress) {
            self.show_held_progress_of(outbox, tasks, id);
        }
    }

    /// Writes the held messages of a job of the table.
    pub(crate) fn show_held_progress_of(
        &mut self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        id: JobId,
    ) {
        let held = self.get(id).and_then(|job| held_progress(outbox, job));
        if let Some(held) = held {
            write_progress(outbox, tasks, held);
        }
        let Some(job) = self.get_mut(id) else { return };
        job.progress.forget_held();
        if let Some(connection) = outbox.connection_mut(job.conn) {
            connection.held_progress.remove(&id);
        }
    }

    /// A job logs.
    pub(crate) fn on_log(
        &self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        id: JobId,
        (level, data): (LogLevel, &RawValue),
    ) {
        if !self.contains(id) {
            outbox.counters_mut().late_reports += 1;
            return;
        }
        let Some(audience) = self.log_audience(outbox, id, level) else { return };
        let Some(tool) = self.get(id).map(|job| alloc::sync::Arc::clone(&job.tool)) else {
            return;
        };
        say(outbox, tasks, &audience, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{");
            write_related_task(json, audience.task);
            json.member("level", level.as_str()).raw(",").member("logger", &tool.name);
            json.raw(",\"data\":").raw(data.get()).raw("}}");
        });
    }

    /// A log message of an upstream about a relayed job, with the params that it wrote.
    pub(crate) fn relay_message(
        &self,
        outbox: &mut Outbox,
        tasks: &mut Tasks,
        id: JobId,
        (level, params): (LogLevel, &str),
    ) {
        let Some(audience) = self.log_audience(outbox, id, level) else { return };
        let related = audience.task.map(related_task);
        let related = related.as_ref().map(|value| (RELATED_TASK, value.as_slice()));
        let meta: Vec<(&str, &[u8])> = related.into_iter().collect();
        say(outbox, tasks, &audience, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":");
            write_with_meta(json, params, &meta);
            json.raw("}");
        });
    }

    /// Receivers of a log message of a job, if they want it and read.
    fn log_audience(
        &self,
        outbox: &Outbox,
        id: JobId,
        level: LogLevel,
    ) -> Option<MessageReceivers> {
        let job = self.get(id)?;
        let audience = audience(job)?;
        let connection = outbox.connection(audience.conn)?;
        if connection.dialect.methods == Methods::Services {
            return None;
        }
        let crowded = connection.send_queue.len() >= outbox.settings().limits.write_buffer_bytes;
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

/// Receivers of a job's messages: none if its request was cancelled or its task ended (TSK-33),
/// since both leave it without a purpose.
pub(super) fn audience(job: &Job) -> Option<MessageReceivers> {
    match job.purpose() {
        Purpose::NoReceiver | Purpose::Orphan | Purpose::Retry(_) => None,
        Purpose::Task => {
            Some(MessageReceivers { conn: job.conn, task: job.task, request: None, recall: false })
        }
        Purpose::Answer(request) => {
            let recall = match job.terms.dialect().after_cancel {
                AfterCancel::Silence | AfterCancel::Answer { .. } => false,
                AfterCancel::Recall => true,
            };
            let request = Some(request.clone());
            Some(MessageReceivers { conn: job.conn, task: None, request, recall })
        }
    }
}

/// The message of some progress of a job.
pub(super) fn progress_message(
    outbox: &Outbox,
    job: &Job,
    progress: f64,
    total: Option<f64>,
    message: Option<&str>,
) -> ProgressMessage {
    // The first revision has no `message`.
    let message = message.filter(|_| job.terms.dialect().progress_message);
    ProgressMessage {
        token: job.progress.token.clone(),
        audience: audience(job),
        progress,
        total,
        message: message.map(|text| outbox.clean(text)),
    }
}

/// The message of the progress that was held back for a job.
fn held_progress(outbox: &Outbox, job: &Job) -> Option<ProgressMessage> {
    let (progress, total, message) = job.progress.held.as_ref()?;
    Some(progress_message(outbox, job, *progress, *total, message.as_deref()))
}

/// Writes the held messages of a job that was taken out of the table, before its answer.
pub(super) fn show_held_progress(outbox: &mut Outbox, tasks: &mut Tasks, id: JobId, job: &Job) {
    forget_held_progress(outbox, id, job);
    if let Some(held) = held_progress(outbox, job) {
        write_progress(outbox, tasks, held);
    }
}

/// Its connection need not show the held messages of a job.
pub(super) fn forget_held_progress(outbox: &mut Outbox, id: JobId, job: &Job) {
    // Of a job that has told nothing there is nothing to hold back.
    if job.progress.latest.is_some()
        && let Some(connection) = outbox.connection_mut(job.conn)
    {
        connection.held_progress.remove(&id);
    }
}

/// Sends a message of progress.
pub(super) fn write_progress(outbox: &mut Outbox, tasks: &mut Tasks, message: ProgressMessage) {
    let (Some(token), Some(audience)) = (&message.token, &message.audience) else {
        outbox.counters_mut().progress_dropped += 1;
        return;
    };
    say(outbox, tasks, audience, |json| {
        json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{");
        write_related_task(json, audience.task);
        json.raw("\"progressToken\":").raw(token);
        message.write(json);
        json.raw("}}");
    });
}

/// Sends a message of a job, when it may be sent: after the answer that names its task.
fn say(
    outbox: &mut Outbox,
    tasks: &mut Tasks,
    audience: &MessageReceivers,
    write: impl FnOnce(&mut Writer<'_>),
) {
    let unknown = audience.task.filter(|task| !tasks.is_visible(*task));
    let Some(task) = unknown.and_then(|task| tasks.get_mut(task)) else {
        let MessageReceivers { conn, request, recall, .. } = audience;
        let tag = Tag { request: request.as_ref(), recall: *recall, handle: None };
        return outbox.send_for(*conn, tag, write);
    };
    let mut message = Vec::new();
    write(&mut Writer::new(&mut message));
    task.aside.keep_said(&message);
}

/// How far a job is, as its peer is told.
pub(super) struct ProgressMessage {
    token: Option<Box<str>>,
    audience: Option<MessageReceivers>,
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
