//! `ceased/status`: the activity of the daemon, as far as the requestor may see it.

use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::action::Action;
use crate::connection::Connection;
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{ConnId, JobId, StatusId, TaskId};
use crate::jobs::job::{Job, JobState, Purpose};
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::requests::{Reply, RequestWork};
use crate::rpc::error::ErrorObject;
use crate::rpc::params::{self, Params};
use crate::server::cancel::may_see;
use crate::server::host_request::{HostForm, HostRequest};
use crate::tasks::status::Status;
use crate::tasks::task::Task;

/// Connections and tasks that are listed at most; all of them are counted.
const LISTED_MAX: usize = 200;

/// Numbers of jobs by their state.
#[derive(Default)]
struct JobTotals {
    running: usize,
    /// Of the running ones, requests at servers, which use no worker.
    relayed: usize,
    /// Those that wait for an answer of their requestor.
    asking: usize,
    queued: usize,
    /// Those that are being stopped.
    cancelling: usize,
}

impl Engine {
    /// Numbers, jobs, and with `detail` connections and tasks, are the viewer's own, or those of
    /// all for an operator (TSK-39). With `detail` the host adds its data, with `ended` also the calls
    /// that have ended.
    pub(crate) fn report_status(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let flags = match params::find(params, ["detail", "ended"]) {
            Ok(flags) => flags.map(|flag| flag.map_or(Some(false), Raw::flag)),
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let [Some(detail), Some(ended)] = flags else {
            let name = if flags[0].is_none() { "detail" } else { "ended" };
            let message = alloc::format!("params.{name} must be true or false");
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        };
        if detail {
            return self.survey(reply, ended);
        }
        let mut bytes = Vec::new();
        self.write_status(&mut Writer::new(&mut bytes), reply.conn);
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{").bytes(&bytes).raw("}");
        });
    }

    /// Asks the host for its part of a detailed status.
    fn survey(&mut self, reply: Reply, ended: bool) {
        if self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        let (conn, request) = (reply.conn, reply.id.clone());
        let survey = StatusId::new(self.next_survey);
        let seen = self.jobs.iter().filter(|(_, job)| may_see(&self.outbox, conn, job));
        let jobs = seen.map(|(id, _)| *id).collect();
        let mut instances = self.upstreams.visible_instances(&self.outbox, &self.jobs, conn);
        instances.extend(self.agents.visible_agents(&self.outbox, conn));
        let viewer = self.outbox.identity(conn).filter(|_| !self.outbox.is_operator(conn)).cloned();
        let Some(connection) = self.outbox.connection_mut(conn) else {
            return self.outbox.forget(reply);
        };
        self.next_survey += 1;
        connection.requests.open(reply, RequestWork::Survey(survey));
        self.surveys.insert(survey, HostRequest { conn, request, form: HostForm::Status });
        self.outbox.push(Action::CollectHostStatus { survey, jobs, instances, viewer, ended });
    }

    /// The host has answered: answers the requestor, if that is still wanted.
    pub(crate) fn on_surveyed(&mut self, survey: StatusId, host: &RawValue) {
        let Some((reply, _)) = self.take_host_request(survey) else { return };
        let conn = reply.conn;
        let mut bytes = Vec::new();
        let mut json = Writer::new(&mut bytes);
        self.write_status(&mut json, conn);
        self.write_peers(&mut json, conn);
        self.write_tasks(&mut json, conn);
        self.upstreams.write_servers(&mut json, &self.outbox, &self.jobs, conn);
        json.raw(",\"host\":").raw(host.get());
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{").bytes(&bytes).raw("}");
        });
        self.outbox.close_if_finished(conn);
    }

    fn write_status(&self, json: &mut Writer<'_>, conn: ConnId) {
        let viewer = self.outbox.identity(conn).cloned().unwrap_or(Identity::Anonymous);
        json.member("server", &self.settings.server.name).raw(",");
        json.member("version", &self.settings.server.version);
        json.raw(",").member("identity", &alloc::format!("{viewer}"));
        json.raw(",\"operator\":").display(self.outbox.is_operator(conn));
        // As the log names it.
        json.raw(",\"connection\":\"").display(conn).raw("\"");
        json.raw(",\"draining\":").display(self.drain.is_some() || self.retires);
        self.write_totals(json, conn, &viewer);
        self.write_jobs(json, conn);
        self.agents.write_agents(json, &self.outbox, conn);
        self.write_limits(json);
        json.raw(",\"counters\":{");
        let counters = self.outbox.is_operator(conn).then(|| self.outbox.counters().named());
        for (position, (name, count)) in counters.into_iter().flatten().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).string(name).raw(":").display(count);
        }
        json.raw("}");
    }

    /// Numbers of the things that the viewer may see (TSK-39): they show nothing of the activity of
    /// other identities. Anonymous peers are not told of tasks (TSK-40).
    fn write_totals(&self, json: &mut Writer<'_>, conn: ConnId, viewer: &Identity) {
        let is_operator = self.outbox.is_operator(conn);
        let connections = match viewer {
            // Those to servers are no peers.
            _ if is_operator => self.outbox.peers(),
            // It is there itself.
            Identity::Anonymous => 1,
            Identity::User(_) | Identity::Token(_) | Identity::Subject(_) => {
                self.outbox.connections().sum(|peer| usize::from(peer.identity == *viewer))
            }
        };
        json.raw(",\"connections\":").display(connections);
        let JobTotals { running, relayed, asking, queued, cancelling } =
            if is_operator { self.all_jobs() } else { self.jobs_seen_by(conn) };
        json.raw(",\"running\":").display(running);
        json.raw(",\"relayed\":").display(relayed);
        json.raw(",\"inputRequired\":").display(asking);
        json.raw(",\"queued\":").display(queued);
        json.raw(",\"cancelling\":").display(cancelling);
        let total = json.raw(",\"tasks\":{\"total\":");
        if is_operator {
            write_task_counts(total, self.tasks.counts());
        } else if *viewer == Identity::Anonymous {
            write_task_counts(total, Status::ALL.into_iter().map(|status| (status, 0)));
        } else {
            write_task_counts(total, self.tasks.counts_of(viewer));
        }
    }

    fn all_jobs(&self) -> JobTotals {
        let (cancelling, queued) = (self.cancelling(), self.jobs.pools().waiting());
        let running = self.jobs.pools().running() - cancelling;
        let relayed = self.jobs.sum(|job| usize::from(job.is_at_server()));
        JobTotals { running, relayed, asking: self.jobs.pools().asking(), queued, cancelling }
    }

    /// As [`Engine::all_jobs`], of those that the peer of a connection may know of.
    fn jobs_seen_by(&self, conn: ConnId) -> JobTotals {
        let mut totals = JobTotals::default();
        for (_, job) in self.jobs.iter().filter(|(_, job)| may_see(&self.outbox, conn, job)) {
            *match job.state() {
                JobState::Held(_) | JobState::Queued(_) => &mut totals.queued,
                JobState::Running | JobState::Lingering if job.is_asking() => &mut totals.asking,
                JobState::Running | JobState::Lingering => &mut totals.running,
                JobState::Stopping { .. } => &mut totals.cancelling,
            } += 1;
            totals.relayed += usize::from(job.is_at_server());
        }
        totals
    }

    /// The connections the viewer may know of: its own, or for an operator the oldest of all.
    fn write_peers(&self, json: &mut Writer<'_>, viewer: ConnId) {
        let everybody = self.outbox.is_operator(viewer);
        let identity = self.outbox.identity(viewer).filter(|own| **own != Identity::Anonymous);
        let is_own = |conn: &ConnId, peer: &Connection| {
            *conn == viewer || identity.is_some_and(|own| peer.identity == *own)
        };
        json.raw(",\"peers\":[");
        let seen = self.outbox.connections().iter().filter(|(conn, peer)| {
            !peer.counterpart().is_behind() && (everybody || is_own(conn, peer))
        });
        for (position, (conn, peer)) in seen.take(LISTED_MAX).enumerate() {
            json.raw(if position == 0 { "{" } else { ",{" });
            json.raw("\"connection\":\"").display(conn).raw("\",");
            json.member("identity", &alloc::format!("{}", peer.identity));
            let is_of_agent = self.agents.clients.contains_key(conn);
            let protocol = if is_of_agent { "ACP" } else { peer.dialect.revision };
            json.raw(",").member("protocol", protocol);
            json.raw(",\"elapsedMs\":").display((self.now.at - peer.since).as_millis());
            json.raw(",\"requests\":").display(peer.requests_made);
            json.raw(",\"inFlight\":").display(self.agents.waiting_requests(&self.outbox, *conn));
            json.raw(",\"unsentBytes\":").display(peer.send_queue.len()).raw("}");
        }
        json.raw("]");
    }

    /// The newest tasks the viewer may know of. Anonymous ones are guarded by their ids alone, so
    /// that they are not listed here (TSK-40).
    fn write_tasks(&self, json: &mut Writer<'_>, viewer: ConnId) {
        let identity = self.outbox.identity(viewer);
        let tasks = match identity {
            _ if self.outbox.is_operator(viewer) => self.tasks.newest(None, LISTED_MAX),
            None | Some(Identity::Anonymous) => Vec::new(),
            own @ Some(Identity::User(_) | Identity::Token(_) | Identity::Subject(_)) => {
                self.tasks.newest(own, LISTED_MAX)
            }
        };
        json.raw(",\"taskList\":[");
        for (position, id) in tasks.into_iter().enumerate() {
            let Some(task) = self.tasks.get(id) else { continue };
            json.raw(if position == 0 { "" } else { "," });
            self.write_task_view(json, id, task);
        }
        json.raw("]");
    }

    fn write_task_view(&self, json: &mut Writer<'_>, id: TaskId, task: &Task) {
        let view = task.view();
        json.raw("{\"task\":\"").display(id).raw("\",").member("tool", &task.tool);
        json.raw(",").member("identity", &alloc::format!("{}", self.tasks.owner(task)));
        json.raw(",").member("status", view.status.as_str());
        let place = self.jobs.place_of_task(&self.outbox, task);
        if let Some(message) = place.as_deref().or(view.status_message) {
            json.raw(",").member("statusMessage", message);
        }
        // One from before a restart is older than our clock, and the wall's may have been set back.
        let age = self.now.wall.since(task.created).max(self.now.at - task.created_at);
        json.raw(",\"ageMs\":").display(age.as_millis());
        if let Some(end) = task.timer {
            json.raw(",\"ttlLeftMs\":").display((self.timers.due(end) - self.now.at).as_millis());
        }
        if let Some(job) = task.job {
            json.raw(",\"job\":").display(job.get());
        }
        json.raw("}");
    }

    fn write_jobs(&self, json: &mut Writer<'_>, viewer: ConnId) {
        json.raw(",\"jobs\":[");
        let mut first = true;
        for (id, job) in self.jobs.iter() {
            if may_see(&self.outbox, viewer, job) {
                json.raw(if first { "" } else { "," });
                first = false;
                self.write_job(json, *id, job);
            }
        }
        json.raw("]");
    }

    fn write_job(&self, json: &mut Writer<'_>, id: JobId, job: &Job) {
        json.raw("{\"job\":").display(id.get()).raw(",").member("tool", &job.tool.name);
        json.raw(",").member("identity", &alloc::format!("{}", job.owner));
        json.raw(",\"connection\":\"").display(job.conn).raw("\"");
        match job.state() {
            JobState::Held(_) | JobState::Queued(_) => json
                .raw(",\"state\":\"queued\",")
                .member("waiting", &self.jobs.place(&self.outbox, job)),
            JobState::Running | JobState::Lingering if job.is_asking() => {
                json.raw(",\"state\":\"input_required\"")
            }
            JobState::Running | JobState::Lingering => json.raw(",\"state\":\"running\""),
            // CAN-13
            JobState::Stopping { step, why, since } => {
                json.raw(",\"state\":\"cancelling\",").member("reason", why.as_str());
                json.raw(",").member("step", step.as_str());
                if let Some(cancel) = job.cancel() {
                    json.raw(",").member("by", &alloc::format!("{}", cancel.by));
                    if let Some(said) = &cancel.reason {
                        json.raw(",").member("said", said);
                    }
                }
                json.raw(",\"cancellingMs\":").display((self.now.at - *since).as_millis())
            }
        };
        json.raw(",\"elapsedMs\":").display((self.now.at - job.since).as_millis());
        match job.purpose() {
            Purpose::Answer(request) => json.raw(",\"requestId\":").id(request, None),
            Purpose::Task | Purpose::Retry(_) | Purpose::Orphan | Purpose::NoReceiver => &mut *json,
        };
        if let Some((progress, total, message)) = &job.progress.latest {
            json.raw(",\"progress\":").display(progress);
            if let Some(total) = total {
                json.raw(",\"total\":").display(total);
            }
            if let Some(message) = message {
                json.raw(",").member("message", &self.outbox.clean(message));
            }
        }
        if let Some(task) = job.task.filter(|task| self.tasks.is_visible(*task)) {
            json.raw(",\"task\":\"").display(task).raw("\"");
        }
        if let Some(span) = job.trace().and_then(|trace| trace.span.as_ref()) {
            json.raw(",").member("traceId", &span.trace_hex());
            json.raw(",").member("spanId", &span.id_hex());
        }
        json.raw("}");
    }

    fn write_limits(&self, json: &mut Writer<'_>) {
        let limits = &self.settings.limits;
        json.raw(",\"limits\":{\"connections\":").display(limits.connections_max);
        for (name, value) in [
            (
                "connections_per_identity",
                limits.connections_per_identity_max.min(limits.connections_max),
            ),
            ("workers", limits.running_max),
            ("workers_per_identity", limits.running_per_identity_max.min(limits.running_max)),
            ("queue", limits.queued_max),
            ("inflight_per_connection", limits.inflight_max),
            ("tasks_per_identity", limits.live_tasks_max),
            ("stored_tasks_per_identity", limits.stored_tasks_max),
            ("stored_bytes_per_identity", limits.stored_bytes_max),
            ("message_bytes", limits.frames.frame_bytes_max),
            ("held_bytes", limits.held_bytes_max),
            (
                "held_bytes_per_identity",
                limits.held_bytes_per_identity_max.min(limits.held_bytes_max),
            ),
            ("write_buffer_bytes", limits.write_buffer_bytes),
        ] {
            json.raw(",").string(name).raw(":").display(value);
        }
        json.raw("}");
    }
}

/// The rest of an object that begins with the total of these.
fn write_task_counts(json: &mut Writer<'_>, counts: impl Iterator<Item = (Status, usize)>) {
    let counts: Vec<(Status, usize)> = counts.collect();
    json.display(counts.iter().map(|(_, count)| count).sum::<usize>());
    for (status, count) in counts {
        json.raw(",").string(status.as_str()).raw(":").display(count);
    }
    json.raw("}");
}
