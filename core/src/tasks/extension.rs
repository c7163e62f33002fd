//! The tasks extension: the same tasks as everywhere, in the form of
//! `io.modelcontextprotocol/tasks` (EXT-02, EXT-07).

use core::time::Duration;

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::jobs::Jobs;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, TaskView};
use crate::outbox::typed_result;
use crate::protocol::capabilities::PeerCapabilities;
use crate::protocol::request_meta::RequestMeta;
use crate::rpc::params::{self, Params};
use crate::server::inputs;
use crate::tasks::durable::RecordedOutcome;
use crate::tasks::status::Status;
use crate::tasks::task::{Task, Tasks};

impl Engine {
    /// EXT-02
    pub(crate) fn get_detailed_task(
        &mut self,
        reply: Reply,
        params: Option<&Params<'_>>,
        claim: &RequestMeta,
    ) {
        let id = match self.named_task(reply.conn, params) {
            Ok((id, _)) => id,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        self.tasks.note_poll(&mut self.outbox, reply.conn, id);
        self.respond_with_task(reply, id, TaskView::Detailed(claim.peer));
    }

    /// EXT-05: answers to open questions are taken; others are acknowledged all the same.
    pub(crate) fn update_task(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let id = match self.named_task(reply.conn, params) {
            Ok((id, _)) => id,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let job = self.tasks.get(id).and_then(|task| task.job);
        let open = self.jobs.open_questions(job);
        let given = params::any_members(params).input_responses;
        let responses = params::required("inputResponses", given)
            .and_then(|given| inputs::read(Some(given), &open));
        match responses {
            Err(error) => self.outbox.fail(reply, &error),
            Ok(responses) => {
                if let Some(job) = job {
                    self.take_responses(job, &responses);
                }
                self.upstreams.answer(&mut self.outbox, reply, |json| _ = json.raw("{}"));
            }
        }
    }
}

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
                if let Some(job) = task.job.and_then(|job| jobs.get(job)) {
                    inputs::write(json, job, peer);
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
