//! `ceased/status`: what the daemon is doing, for the one who asks.

use alloc::vec::Vec;

use super::Engine;
use crate::connection::Reply;
use crate::event::Identity;
use crate::id::JobId;
use crate::job::{Job, JobState, Purpose};
use crate::task::{Status, Task};
use crate::write::Writer;

impl Engine {
    /// Numbers are of the whole daemon; jobs are one's own (TSK-39).
    pub(super) fn report_status(&mut self, reply: Reply) {
        let Some(connection) = self.connections.get(&reply.conn) else { return self.forget(reply) };
        let viewer = connection.identity.clone();
        let mut bytes = Vec::new();
        let mut json = Writer::new(&mut bytes);
        json.raw("{").member("server", &self.settings.server.name).raw(",");
        json.member("version", &self.settings.server.version);
        json.raw(",").member("identity", &alloc::format!("{viewer}"));
        json.raw(",\"connection\":").display(reply.conn.get());
        json.raw(",\"draining\":").display(self.drain.is_some());
        json.raw(",\"connections\":").display(self.connections.len());
        self.write_job_counts(&mut json);
        self.write_jobs(&mut json, &viewer);
        self.write_task_counts(&mut json);
        self.write_limits(&mut json);
        json.raw(",\"counters\":{");
        for (position, (name, count)) in self.counters.named().into_iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).string(name).raw(":").display(count);
        }
        json.raw("}}");
        self.answer(reply, |json| {
            json.bytes(&bytes);
        });
    }

    fn write_job_counts(&self, json: &mut Writer<'_>) {
        let stopping = |job: &&Job| matches!(job.state, JobState::Stopping { .. });
        let cancelling = self.jobs.values().filter(stopping).count();
        json.raw(",\"running\":").display(self.running - cancelling);
        json.raw(",\"queued\":").display(self.queue.len());
        json.raw(",\"cancelling\":").display(cancelling);
    }

    fn write_jobs(&self, json: &mut Writer<'_>, viewer: &Identity) {
        json.raw(",\"jobs\":[");
        let mut first = true;
        for (id, job) in &self.jobs {
            // Nobody may know of a task that is only being created (DUR-01).
            if job.owner == *viewer && !matches!(job.state, JobState::Held(_)) {
                json.raw(if first { "" } else { "," });
                first = false;
                self.write_job(json, *id, job);
            }
        }
        json.raw("]");
    }

    fn write_job(&self, json: &mut Writer<'_>, id: JobId, job: &Job) {
        json.raw("{\"job\":").display(id.get()).raw(",").member("tool", &job.tool.name);
        json.raw(",\"connection\":").display(job.conn.get());
        match &job.state {
            JobState::Held(_) | JobState::Queued(_) => json.raw(",\"state\":\"queued\""),
            JobState::Running | JobState::Lingering => json.raw(",\"state\":\"running\""),
            // CAN-13
            JobState::Stopping { step, why, since } => {
                json.raw(",\"state\":\"cancelling\",").member("reason", why.as_str());
                json.raw(",\"step\":").string(match step {
                    crate::tool::Step::Flag => "flag",
                    crate::tool::Step::Terminate => "SIGTERM",
                    crate::tool::Step::Kill => "SIGKILL",
                    crate::tool::Step::Abandon => "abandoned",
                });
                json.raw(",\"cancellingMs\":").display((self.now.at - *since).as_millis())
            }
        };
        json.raw(",\"elapsedMs\":").display((self.now.at - job.since).as_millis());
        match &job.purpose {
            Purpose::Answer(request) => json.raw(",\"requestId\":").id(request, None),
            Purpose::Task | Purpose::Retry(_) | Purpose::Orphan | Purpose::Nobody => &mut *json,
        };
        if let Some(task) = job.task {
            json.raw(",\"task\":\"").display(task).raw("\"");
        }
        json.raw("}");
    }

    fn write_task_counts(&self, json: &mut Writer<'_>) {
        json.raw(",\"tasks\":{\"total\":").display(self.tasks.len());
        for status in Status::ALL {
            let shown = |task: &Task| task.view().status == status;
            let count = self.tasks.iter().filter(|(_, task)| shown(task)).count();
            json.raw(",").string(status.as_str()).raw(":").display(count);
        }
        json.raw("}");
    }

    fn write_limits(&self, json: &mut Writer<'_>) {
        let limits = &self.settings.limits;
        json.raw(",\"limits\":{\"connections\":").display(limits.connections_max);
        for (name, value) in [
            ("workers", limits.running_max),
            ("queue", limits.queued_max),
            ("inflight_per_connection", limits.inflight_max),
            ("tasks_per_identity", limits.live_tasks_max),
            ("stored_tasks_per_identity", limits.stored_tasks_max),
            ("stored_bytes_per_identity", limits.stored_bytes_max),
            ("message_bytes", limits.frames.frame_bytes_max),
            ("write_buffer_bytes", limits.write_buffer_bytes),
        ] {
            json.raw(",").string(name).raw(":").display(value);
        }
        json.raw("}");
    }
}
