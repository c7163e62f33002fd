//! The tasks extension: the same tasks as everywhere, in the form of
//! `io.modelcontextprotocol/tasks` (EXT-02, EXT-07).

use core::time::Duration;

use crate::ids::TaskId;
use crate::jobs::Jobs;
use crate::json::writer::Writer;
use crate::outbox::{Outbox, typed_result};
use crate::protocol::capabilities::PeerCapabilities;
use crate::server::inputs;
use crate::tasks::durable::{RecordedOutcome, Work};
use crate::tasks::questions;
use crate::tasks::status::Status;
use crate::tasks::task::{Task, Tasks};

impl Tasks {
    /// The members of a task with all details, in the answer to `tasks/get` and in
    /// `notifications/tasks`.
    pub(crate) fn write_detailed(
        &self,
        outbox: &Outbox,
        jobs: &Jobs,
        json: &mut Writer<'_>,
        id: TaskId,
        peer: &PeerCapabilities,
    ) {
        let Some(task) = self.get(id) else { return };
        let place = jobs.place_of_task(outbox, task);
        write_members(json, id, (task, place.as_deref()), outbox.settings().tasks.poll_interval);
        match (task.view().status, task.outcome()) {
            (Status::InputRequired, _) => {
                json.raw(",\"inputRequests\":");
                match task.job.and_then(|job| jobs.get(job)) {
                    Some(job) => inputs::write(json, job, peer),
                    None => write_recorded(json, task.recorded_asks(), peer),
                }
                json
            }
            (Status::Working | Status::Cancelled, _)
            | (_, RecordedOutcome::Open | RecordedOutcome::Stored { .. }) => json,
            (_, RecordedOutcome::Here(Ok(result))) => {
                // As the call would have been answered, its type among it.
                json.raw(",\"result\":");
                typed_result::write_tools(json, result, &outbox.server_info());
                json
            }
            (_, RecordedOutcome::Here(Err(error))) => json.raw(",\"error\":").error(error),
        };
    }
}

/// The members of a task that every form of it has, flat. A message of its place replaces that of a
/// task that waits.
pub(crate) fn write_members(
    json: &mut Writer<'_>,
    id: TaskId,
    (task, place): (&Task, Option<&str>),
    poll_interval: Duration,
) {
    json.raw("\"taskId\":\"").uuid(id.uuid()).raw("\",").member("status", status(task).as_str());
    let view = task.view();
    if let Some(message) = place.or(view.status_message) {
        json.raw(",").member("statusMessage", message);
    }
    task.write_stamps(&view, json.raw(","));
    json.raw(",\"ttlMs\":").millis(task.ttl());
    json.raw(",\"pollIntervalMs\":").millis(poll_interval);
}

/// Where a task stands as the extension sees it: a tool that reported an error has completed, and
/// only a JSON-RPC error is a failure (EXT-03).
fn status(task: &Task) -> Status {
    match (task.view().status, task.outcome()) {
        (Status::Failed, RecordedOutcome::Here(Ok(_))) => Status::Completed,
        (status, _) => status,
    }
}

/// How far the work of a task is that was cancelled or has failed, as the extension sees it.
pub(super) fn work(task: &Task) -> Option<Work> {
    task.work().filter(|_| status(task) != Status::Completed)
}

/// Writes an object of the questions in a record that the client can answer.
fn write_recorded(json: &mut Writer<'_>, asks: Option<&str>, peer: &PeerCapabilities) {
    let asks = questions::read(asks);
    json.raw("{");
    let answerable = asks.iter().filter(|(_, question)| peer.answers(&question.method));
    for (position, (key, question)) in answerable.enumerate() {
        json.raw(if position == 0 { "" } else { "," }).string(key).raw(":{");
        json.member("method", &question.method);
        if let Some(params) = &question.params {
            json.raw(",\"params\":").raw(params.get());
        }
        json.raw("}");
    }
    json.raw("}");
}
