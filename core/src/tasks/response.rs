//! Answers about tasks: every one comes through here, and waits here until the state that it
//! tells is on disk (DUR-01).

use alloc::vec::Vec;

use crate::action::AuditEvent;
use crate::collections::small_set::SmallSet;
use crate::ids::{ConnId, RequestId, TaskId};
use crate::json::meta::{RELATED_TASK, related_task, write_with_meta};
use crate::json::writer::Writer;
use crate::outbox::requests::{Reply, RequestWork, Settled, TaskView};
use crate::outbox::typed_result::ResultType;
use crate::protocol::revision::TaskRules;
use crate::rpc::error::{ErrorObject, code};
use crate::tasks::durable::{RecordedOutcome, Unstored};
use crate::tasks::extension;
use crate::tasks::machine::TaskMachine;
use crate::tasks::persistence::{DiskState, untold};
use crate::tasks::status::Status;

/// When something may be said of a task.
enum When {
    Now,
    Later,
    /// The store has not taken it: the requestor asks again.
    NotYet(Unstored),
}

impl TaskMachine<'_> {
    /// Answers a request about a task that its peer may see, as soon as that may be said.
    pub(crate) fn respond_with_task(&mut self, reply: Reply, id: TaskId, form: TaskView) {
        match self.when(id, form, reply.dialect.tasks) {
            When::Now => self.show(reply, id, form),
            When::Later => self.wait_for_task(reply, id, form),
            When::NotYet(why) => self.outbox.fail(reply, &untold(why)),
        }
    }

    fn when(&self, id: TaskId, form: TaskView, rules: TaskRules) -> When {
        let Some(task) = self.tasks.get(id) else { return When::Now };
        let open = !task.status().is_terminal();
        let elsewhere = matches!(task.outcome(), RecordedOutcome::Stored { .. });
        match (task.disk(), form) {
            (DiskState::Fresh | DiskState::Creating(..), _) => When::Later,
            // That it is there may be told, and how it was before.
            (DiskState::Ending(..) | DiskState::Owed(_), TaskView::Handle) => When::Now,
            (DiskState::Ending(..), _) => When::Later,
            (DiskState::Owed(_), _) => {
                When::NotYet(self.tasks.writes().outage().unwrap_or(Unstored::Broken))
            }
            (DiskState::Settled, TaskView::Outcome) if open || elsewhere => When::Later,
            (DiskState::Settled, TaskView::Detailed(_)) if elsewhere => When::Later,
            // The form of a failure there depends on the outcome (EXT-03).
            (DiskState::Settled, TaskView::Handle)
                if elsewhere
                    && rules == TaskRules::Extension
                    && task.status() == Status::Failed =>
            {
                When::Later
            }
            (
                DiskState::Settled,
                TaskView::Handle
                | TaskView::Outcome
                | TaskView::State
                | TaskView::Detailed(_)
                | TaskView::Cancelled
                | TaskView::TooLate,
            ) => When::Now,
        }
    }

    fn wait_for_task(&mut self, reply: Reply, id: TaskId, form: TaskView) {
        // A cancel that has taken effect is not refused afterwards.
        if self.outbox.is_full(reply.conn) && form != TaskView::Cancelled {
            return self.outbox.refuse_inflight(reply);
        }
        let Some(connection) = self.outbox.connection_mut(reply.conn) else { return };
        let (conn, request) = (reply.conn, reply.id.clone());
        connection.requests.open(reply, RequestWork::Task(id, form));
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.aside.waiters.insert((conn, request));
        self.outgoing().offer_inputs(id);
        self.tasks.load(self.outbox, id);
    }

    /// Answers every request that waits for a visible state of a task. The answer that it was
    /// cancelled comes last: no other status can be seen after it (TSK-24).
    pub(crate) fn tell_waiters(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        if task.aside.waiters.is_empty() {
            return;
        }
        let mut waiting: Vec<(ConnId, RequestId, TaskView, TaskRules)> = Vec::new();
        for (conn, request) in task.aside.waiters.iter() {
            let pending = self.outbox.connection(*conn).and_then(|c| c.requests.get(request));
            if let Some((reply, RequestWork::Task(_, form))) = pending {
                waiting.push((*conn, request.clone(), *form, reply.dialect.tasks));
            }
        }
        waiting.sort_by_key(|(_, _, form, _)| *form == TaskView::Cancelled);
        for (conn, request, form, rules) in waiting {
            if matches!(self.when(id, form, rules), When::Later) {
                continue;
            }
            let reply = self.take_waiter(id, conn, &request);
            if let Some(task) = self.tasks.get_mut(id) {
                task.aside.forget_waiter(&(conn, request));
            }
            if let Some(reply) = reply {
                self.respond_with_task(reply, id, form);
                self.outbox.close_if_finished(conn);
            }
        }
    }

    /// Answers the requests that wait for a task with an error.
    pub(crate) fn fail_waiters(
        &mut self,
        id: TaskId,
        waiters: SmallSet<(ConnId, RequestId)>,
        error: &ErrorObject,
    ) {
        for (conn, request) in waiters.into_entries() {
            if let Some(reply) = self.take_waiter(id, conn, &request) {
                self.outbox.fail(reply, error);
                self.outbox.close_if_finished(conn);
            }
        }
    }

    fn take_waiter(&mut self, id: TaskId, conn: ConnId, request: &RequestId) -> Option<Reply> {
        self.outbox.connection_mut(conn)?.requests.settle(request, Settled::Task(id))
    }

    /// A task has ended, and perhaps its end is on disk: sends pending answers and notifications.
    pub(crate) fn publish_end(&mut self, id: TaskId) {
        self.tasks.recount(id);
        if let Some(task) = self.tasks.get(id).filter(|task| task.is_settled()) {
            let creator = task.creator;
            let (identity, tool) = (self.tasks.owner(task).clone(), task.tool.clone());
            let status = task.status();
            if !task.is_visiting() {
                self.outbox.note(AuditEvent::TaskEnded { identity, task: id, tool, status });
            }
            self.news().announce(creator, id);
            self.keyed.finish_task(self.timers, self.outbox.keys_until(), id);
        }
        self.tell_waiters(id);
        self.tasks.drop_copy(self.outbox, id);
        if self.tasks.is_shared() {
            self.part(id);
        }
    }

    fn show(&mut self, reply: Reply, id: TaskId, form: TaskView) {
        // Another engine was quicker than the cancel.
        let ended = self.tasks.get(id).map(|task| task.view().status);
        let form = match (form, ended) {
            (TaskView::Cancelled, Some(Status::Completed | Status::Failed)) => TaskView::TooLate,
            _ => form,
        };
        match (form, reply.dialect.tasks) {
            (TaskView::Handle, rules) => self.show_handle(reply, id, rules),
            (TaskView::Outcome, _) => {
                self.tasks.note_retrieval(self.outbox, reply.conn, id, "tasks/result");
                self.show_outcome(reply, id);
            }
            (TaskView::Detailed(peer), _) => {
                self.tasks.note_retrieval(self.outbox, reply.conn, id, "tasks/get");
                let mut detailed = Vec::new();
                self.tasks.write_detailed(
                    self.outbox,
                    self.jobs,
                    &mut Writer::new(&mut detailed),
                    id,
                    &peer,
                );
                let work = self.tasks.get(id).and_then(extension::work);
                let kind = work.map_or(ResultType::Complete, ResultType::Work);
                let us = self.upstreams.name_for(self.outbox, &reply);
                self.outbox.answer_as(kind, reply, us, |json| {
                    json.raw("{").bytes(&detailed).raw("}");
                });
            }
            (TaskView::Cancelled | TaskView::TooLate, TaskRules::Extension) => {
                self.upstreams.answer(self.outbox, reply, |json| _ = json.raw("{}"));
            }
            (TaskView::TooLate, TaskRules::None | TaskRules::Core) => {
                let status = self.tasks.get(id).map_or("gone", |task| task.view().status.as_str());
                let message =
                    alloc::format!("the task is {status} already: nothing is left to cancel");
                self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            }
            (TaskView::State, _) | (TaskView::Cancelled, TaskRules::None | TaskRules::Core) => {
                let object = self.tasks.answer(self.outbox, self.jobs, id);
                self.upstreams.answer(self.outbox, reply, |json| {
                    json.bytes(&object);
                });
                self.outbox.keep_scratch(object);
            }
        }
    }

    /// TSK-07, EXT-02
    fn show_handle(&mut self, reply: Reply, id: TaskId, rules: TaskRules) {
        match rules {
            TaskRules::None | TaskRules::Core => {
                let object = self.tasks.object(self.outbox, self.jobs, id);
                self.upstreams.answer(self.outbox, reply, |json| {
                    json.raw("{\"task\":").bytes(&object).raw("}");
                });
                self.outbox.keep_scratch(object);
            }
            TaskRules::Extension => {
                let mut members = Vec::new();
                let poll_interval = self.settings.tasks.poll_interval;
                let Some(task) = self.tasks.get(id) else {
                    let error = ErrorObject::new(code::INTERNAL_ERROR, "no task");
                    return self.outbox.fail(reply, &error);
                };
                let json = &mut Writer::new(&mut members);
                let place = self.jobs.place_of_task(self.outbox, task);
                extension::write_members(json, id, (task, place.as_deref()), poll_interval);
                let key = task.record_key();
                self.upstreams.answer_as(self.outbox, ResultType::Task(key), reply, |json| {
                    json.raw("{").bytes(&members).raw("}");
                });
            }
        }
    }

    /// TSK-14
    fn show_outcome(&mut self, reply: Reply, id: TaskId) {
        let mut result = self.outbox.take_scratch();
        let error = match self.tasks.get(id).map(|task| task.outcome()) {
            Some(RecordedOutcome::Here(Ok(value))) => {
                let related = related_task(id);
                let json = &mut Writer::new(&mut result);
                write_with_meta(json, value.get(), &[(RELATED_TASK, &related)]);
                None
            }
            Some(RecordedOutcome::Here(Err(error))) => Some(error.clone()),
            Some(RecordedOutcome::Open | RecordedOutcome::Stored { .. }) | None => {
                Some(ErrorObject::new(code::INTERNAL_ERROR, "no outcome"))
            }
        };
        match error {
            None => self.upstreams.answer(self.outbox, reply, |json| {
                json.bytes(&result);
            }),
            Some(error) => self.outbox.fail(reply, &error),
        }
        self.outbox.keep_scratch(result);
    }
}
