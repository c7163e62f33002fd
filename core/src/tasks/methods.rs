//! `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`, and transitions of a task by time.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::action::{AuditEvent, Cancel};
use crate::collections::timer_queue::Timer;
use crate::identity::Identity;
use crate::ids::{ConnId, TaskId};
use crate::json::raw::Raw;
use crate::limits::OnTtl;
use crate::outbox::requests::{LookupRequest, Reply, RequestWork, TaskMethod, TaskView};
use crate::policy::abuse::AbusePattern;
use crate::protocol::capabilities::PeerCapabilities;
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::inputs;
use crate::tasks::audit_events::note_job_cancelled;
use crate::tasks::durable::{StoreWrite, TaskOutcome, Unstored};
use crate::tasks::machine::TaskMachine;
use crate::tasks::persistence::untold;
use crate::tasks::task::{Aside, Change, Task};

/// Error that a cancelled task has instead of a result (TSK-14, TSK-24).
pub(crate) fn task_cancelled() -> ErrorObject {
    ErrorObject::new(code::TASK_CANCELLED, "the task was cancelled")
}

/// Error for a request that waits for a task whose ttl ends first (TSK-35).
pub(super) fn expired() -> ErrorObject {
    let message = "the task expired before it ended: its ttl is over";
    ErrorObject::new(code::TASK_EXPIRED, message)
}

impl TaskMachine<'_> {
    /// The task a request names, if its sender may know of it (TSK-27, TSK-39): another's task is
    /// unknown in the same words.
    pub(crate) fn named_task(
        &mut self,
        conn: ConnId,
        params: Option<&Params<'_>>,
    ) -> Result<(TaskId, Option<Box<str>>), ErrorObject> {
        // The id alone decides: whatever else is there twice or cannot be read is dropped. TSK-31:
        // related-task in `_meta` is not even looked at.
        let members = params::members(params)?;
        members.once(params::TASK_ID)?;
        let task = params::text("taskId", members.task_id)?;
        let viewer = self.outbox.identity(conn);
        let id = TaskId::parse(&task)
            .filter(|id| viewer.is_some_and(|viewer| self.tasks.visible(*id, viewer).is_some()));
        let Some(id) = id else {
            self.outbox.suspect(conn, AbusePattern::UnknownTasks);
            let named = self.outbox.clean(&task);
            let message =
                alloc::format!("there is no task {named:?}; it is unknown or has expired");
            return Err(ErrorObject::invalid_params(message));
        };
        let reason =
            members.meta.as_ref().and_then(|meta| meta.reason).and_then(Raw::cleaned_string);
        Ok((id, reason.map(|reason| self.outbox.clean(&reason).into())))
    }

    /// Answers a request about tasks. Of a table that several engines share, its records are here.
    pub(crate) fn answer_about_tasks(
        &mut self,
        reply: Reply,
        method: TaskMethod,
        params: Option<&Params<'_>>,
    ) {
        match method {
            TaskMethod::Get => self.get_task(reply, params),
            TaskMethod::Result => self.await_task(reply, params),
            TaskMethod::List => self.list_tasks(reply, params),
            TaskMethod::Cancel => self.cancel_task(reply, params),
            TaskMethod::Detailed(peer) => self.get_detailed_task(reply, params, peer),
            TaskMethod::Update => self.update_task(reply, params),
            TaskMethod::Handle => self.show_handle_of(reply, params),
            // Handed to the subscriptions, or to the tools, before.
            TaskMethod::Listen | TaskMethod::Call => self.outbox.forget(reply),
        }
    }

    /// TSK-12
    fn get_task(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match params::check_meta(params).and_then(|()| self.named_task(reply.conn, params)) {
            Err(error) => self.outbox.fail(reply, &error),
            Ok((id, _)) => {
                self.tasks.note_poll(self.outbox, reply.conn, id);
                self.respond_with_task(reply, id, TaskView::State);
            }
        }
    }

    /// The task that an idempotency key names.
    fn show_handle_of(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match self.named_task(reply.conn, params) {
            Err(error) => self.outbox.fail(reply, &error),
            Ok((id, _)) => self.respond_with_task(reply, id, TaskView::Handle),
        }
    }

    /// TSK-14, TSK-15
    fn await_task(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match params::check_meta(params).and_then(|()| self.named_task(reply.conn, params)) {
            Err(error) => self.outbox.fail(reply, &error),
            Ok((id, _)) => self.respond_with_task(reply, id, TaskView::Outcome),
        }
    }

    /// TSK-19, TSK-20, TSK-21
    fn list_tasks(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let cursor = match params::find(params, ["cursor"])
            .and_then(|[cursor]| cursor.map(|c| params::text("cursor", Some(c))).transpose())
        {
            Ok(cursor) => cursor,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(viewer) = self.outbox.identity(reply.conn) else {
            return self.outbox.forget(reply);
        };
        if *viewer == Identity::Anonymous {
            // TSK-40: it was not declared either.
            let message = "tasks/list is for peers with an identity";
            return self.outbox.fail(reply, &ErrorObject::new(code::METHOD_NOT_FOUND, message));
        }
        let size = self.settings.tasks.page_size.max(1);
        let page = match self.lookups.take_page() {
            Some(page) => Some(page),
            None => self.tasks.page(viewer, cursor.as_deref(), size),
        };
        let Some(page) = page else {
            let message = "invalid cursor: start again without one";
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        };
        let mut list = Vec::new();
        for id in page.tasks {
            if !list.is_empty() {
                list.push(b',');
            }
            self.tasks.write_object(self.outbox, self.jobs, id, &mut list);
        }
        self.upstreams.answer(self.outbox, reply, |json| {
            json.raw("{\"tasks\":[").bytes(&list).raw("]");
            if let Some(next) = &page.next {
                json.raw(",").member("nextCursor", next);
            }
            json.raw("}");
        });
    }

    /// EXT-02
    fn get_detailed_task(
        &mut self,
        reply: Reply,
        params: Option<&Params<'_>>,
        peer: PeerCapabilities,
    ) {
        let id = match self.named_task(reply.conn, params) {
            Ok((id, _)) => id,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        self.tasks.note_poll(self.outbox, reply.conn, id);
        self.respond_with_task(reply, id, TaskView::Detailed(peer));
    }

    /// EXT-05: answers to open questions are taken; others are acknowledged all the same.
    fn update_task(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let id = match self.named_task(reply.conn, params) {
            Ok((id, _)) => id,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let visits =
            self.tasks.get(id).is_some_and(|it| it.is_visiting() && !it.status().is_terminal());
        let job = self.tasks.get(id).and_then(|task| task.job);
        let open = self.jobs.open_questions(job);
        let given = params::any_members(params).input_responses;
        let responses = params::required("inputResponses", given)
            .and_then(|given| inputs::read(Some(given), &open));
        match responses {
            Err(error) => self.outbox.fail(reply, &error),
            Ok(_) if visits => self.send_inputs(reply, id, given),
            Ok(responses) => {
                if let Some(job) = job {
                    self.outgoing().take_responses(job, &responses);
                }
                self.upstreams.answer(self.outbox, reply, |json| _ = json.raw("{}"));
            }
        }
    }

    /// TSK-23, TSK-24, TSK-25
    fn cancel_task(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let (id, reason) = match self.named_task(reply.conn, params) {
            Ok(named) => named,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(task) = self.tasks.get(id) else { return self.outbox.forget(reply) };
        if task.status().is_terminal() {
            return self.respond_with_task(reply, id, TaskView::TooLate);
        }
        if task.is_visiting() && self.tasks.writes().is_shut() {
            // FLT-05: nothing was stopped.
            return self.outbox.fail(reply, &untold(Unstored::Broken));
        }
        self.cancel_live_task(reply.conn, id, "tasks/cancel", reason);
        self.respond_with_task(reply, id, TaskView::Cancelled);
    }

    /// Cancels a task that has not ended, on behalf of a peer that may see it.
    pub(crate) fn cancel_live_task(
        &mut self,
        conn: ConnId,
        id: TaskId,
        method: &'static str,
        reason: Option<Box<str>>,
    ) {
        let Some(task) = self.tasks.get(id) else { return };
        let (job, tool) = (task.job, task.tool.clone());
        let whom = if Some(self.tasks.owner(task)) == self.outbox.identity(conn) {
            "the requestor"
        } else {
            "an operator"
        };
        let said = match &reason {
            None => alloc::format!("cancelled by {whom}"),
            Some(reason) => self.outbox.clean(&alloc::format!("cancelled by {whom}: {reason}")),
        };
        if let Some(identity) = self.outbox.identity(conn).cloned() {
            if let Some(job) = job.and_then(|job| self.jobs.get_mut(job)) {
                let (by, reason) = (identity.clone(), reason.clone());
                job.note_cancel(Cancel { by, conn, request: None, reason });
            }
            match job.filter(|_| !self.tasks.is_visible(id)) {
                // There may never be such a task (TSK-41).
                Some(job) => note_job_cancelled(self.outbox, self.jobs, conn, job),
                None => {
                    let task = id;
                    let note = AuditEvent::TaskCancelled {
                        conn,
                        identity,
                        task,
                        job,
                        tool,
                        method,
                        reason,
                    };
                    self.outbox.note(note);
                }
            }
        }
        // The status notification and the waiters' answers go out with the change, the answer to
        // the cancel comes last: no other status can be seen after it.
        self.end_task(id, Change::Cancel, Some(said.into()), Err(task_cancelled()));
        if let Some(job) = job {
            self.job_machine().release_job_claim(job, StopReason::Requested);
        }
    }

    /// Ends a task: status, notification, waiters, remaining lifetime. Does nothing when it
    /// had ended before (TSK-26).
    pub(crate) fn end_task(
        &mut self,
        id: TaskId,
        change: Change,
        message: Option<Box<str>>,
        outcome: TaskOutcome,
    ) {
        let ended = self.tasks.end(id, change, self.now.wall, message, outcome);
        let Some((task, before)) = ended else {
            self.outbox.counters_mut().late_reports += 1;
            return;
        };
        if task.overdue {
            // TSK-35: it could finish, and its result is kept for the requests that waited for it.
            let end = self.now.at + self.settings.tasks.late_result;
            self.timers.arm(&mut task.timer, Timer::Task(id), end);
        }
        self.store_end(id, before);
    }

    /// EXT-05: answers for a task that another engine runs are acknowledged once the table has them.
    fn send_inputs(&mut self, reply: Reply, id: TaskId, given: Option<Raw<'_>>) {
        if self.tasks.writes().is_shut() {
            return self.outbox.fail(reply, &untold(Unstored::Broken));
        }
        let Some(owner) = self.tasks.get(id).map(|task| self.tasks.owner(task).clone()) else {
            return self.outbox.forget(reply);
        };
        let responses: Box<str> = given.map_or("{}", Raw::get).into();
        let Some(connection) = self.outbox.connection_mut(reply.conn) else { return };
        let lookup = self.lookups.number((reply.conn, reply.id.clone()));
        let asked = LookupRequest { lookup, method: TaskMethod::Update, params: None };
        connection.requests.open(reply, RequestWork::Lookup(Box::new(asked)));
        let seq = self.tasks.writes_mut().number(None);
        self.lookups.await_write(seq, lookup);
        self.outbox.store(seq, StoreWrite::Input { task: id, owner, responses });
    }

    /// The ttl of a task is over (TSK-35).
    pub(crate) fn on_task_timer(&mut self, id: TaskId) {
        let policy = self.settings.tasks;
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.timer = None;
        let lives = !task.status().is_terminal();
        let end = task.created_at + policy.max_ttl;
        match policy.on_ttl {
            OnTtl::Finish if lives && !task.overdue && end > self.now.at => {
                task.overdue = true;
                self.timers.arm(&mut task.timer, Timer::Task(id), end);
            }
            OnTtl::Finish | OnTtl::Stop => self.expire(id),
        }
    }

    fn expire(&mut self, id: TaskId) {
        let Some(task) = self.tasks.remove(id) else { return };
        let (key, status) = (task.0.record_key(), task.0.status());
        let (Task { job, mut aside, tool, .. }, owner) = task;
        let Aside { waiters, listeners, .. } = aside.take();
        self.outbox.counters_mut().tasks_expired += 1;
        self.keyed.leave_task(self.timers, self.outbox.keys_until(), id);
        self.outbox.note(AuditEvent::TaskExpired { identity: owner, task: id, tool, status });
        self.outbox.forget_topic(id, listeners);
        if let Some(job) = job {
            self.job_machine().release_job_claim(job, StopReason::Expired);
        }
        self.store_removal(key);
        self.fail_waiters(id, waiters, &expired());
    }
}
