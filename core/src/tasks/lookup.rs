//! Requests about tasks that wait for the table which several engines share, and news of that table.
//!
//! An answer about a task is made of a look at the table that began after its request arrived, also
//! where the task runs here (FLT-02). Without such a table requests are answered in the same call.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::collections::timer_queue::Timer;
use crate::identity::Identity;
use crate::ids::{ConnId, TaskId};
use crate::json::raw::Raw;
use crate::outbox::requests::{LookupRequest, Reply, TaskMethod};
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code, limit_error};
use crate::rpc::params::{self, Members, Params};
use crate::server::idempotency;
use crate::server::inputs;
use crate::tasks::creation::not_created;
use crate::tasks::durable::{Seq, StoreWrite, TaskRecord, Unstored};
use crate::tasks::lookups::Resumed;
use crate::tasks::machine::TaskMachine;
use crate::tasks::methods::expired;
use crate::tasks::persistence::untold;
use crate::tasks::questions;
use crate::tasks::shared::{
    Found, KeyVerdict, LookupId, SharedEvent, SharedLimit, Verdict, Wanted,
};
use crate::tasks::status::{Change, Status};
use crate::tasks::task::{Task, TaskPage};
use crate::time::Instant;

/// Status message of a task whose engine was cut off from the table.
const LAPSED: &str = "interrupted: its node could not reach the database of the fleet";

impl TaskMachine<'_> {
    /// Answers a request about tasks, once the table was asked where several engines share one.
    pub(crate) fn about_tasks(
        &mut self,
        reply: Reply,
        method: TaskMethod,
        params: Option<&Params<'_>>,
    ) {
        if self.tasks.is_shared()
            && let Some(wanted) = self.wanted(&reply, method, params)
        {
            return self.lookups.ask(self.outbox, reply, method, params, wanted);
        }
        self.answer_about_tasks(reply, method, params);
    }

    /// The records that a request needs; `None` for one that is refused without them.
    fn wanted(
        &self,
        reply: &Reply,
        method: TaskMethod,
        params: Option<&Params<'_>>,
    ) -> Option<Wanted> {
        if method != TaskMethod::List {
            let members = params::members(params).ok()?;
            let task = params::text("taskId", members.task_id).ok()?;
            let whole = method.needs_outcome();
            return Some(Wanted::Task { task: TaskId::parse(&task)?, whole });
        }
        let viewer = self.outbox.identity(reply.conn)?;
        let [cursor] = params::find(params, ["cursor"]).ok()?;
        let cursor = cursor.map(|cursor| params::text("cursor", Some(cursor))).transpose().ok()?;
        let after = match cursor {
            None => 0,
            Some(cursor) => self.tasks.read_cursor(viewer, &cursor)?,
        };
        // One more tells whether there is a next page.
        let size = self.settings.tasks.page_size.max(1) + 1;
        (*viewer != Identity::Anonymous).then_some(Wanted::Page { after, size })
    }

    /// News of the table. Returns a request that may be carried out now, and [`TaskMachine::end_answer`]
    /// follows.
    pub(crate) fn on_shared(&mut self, event: SharedEvent) -> Option<Resumed> {
        match event {
            SharedEvent::Joined { cursor_key } => {
                self.tasks.seal_cursors_with(cursor_key);
                self.watch_again();
            }
            SharedEvent::Renewed { until } => self.renew(until),
            SharedEvent::Fenced => self.lose_tasks(),
            SharedEvent::Verdict { seq, verdict: Verdict::Key(key) } => {
                return self.on_key(seq, key);
            }
            SharedEvent::Verdict { seq, verdict } => self.on_verdict(seq, verdict),
            SharedEvent::Found { lookup, found } => return self.on_found(lookup, found),
            SharedEvent::Input { number, task, responses } => {
                self.on_input(number, task, &responses);
            }
            SharedEvent::Unusable { number } => self.tell_table(StoreWrite::Taken(number)),
            SharedEvent::Removed { task } => {
                if self.tasks.get(task).is_some_and(Task::is_visiting) {
                    self.lose(task, &expired());
                }
            }
            SharedEvent::Changed { record } => {
                let id = record.id;
                if self.tasks.contains(id) {
                    self.meet(*record);
                    self.part(id);
                }
            }
        }
        None
    }

    fn on_found(&mut self, lookup: LookupId, found: Found) -> Option<Resumed> {
        let (reply, asked) = self.lookups.take_request(self.outbox, lookup)?;
        let LookupRequest { method, params, .. } = asked;
        let conn = reply.conn;
        match found {
            // FLT-05: nothing is told from memory.
            Found::Unreachable => self.outbox.fail(reply, &untold(Unstored::Broken)),
            Found::Records(records) => {
                let page = (method == TaskMethod::List).then(|| self.page_of(conn, &records));
                self.lookups.held = records.iter().map(|record| record.id).collect();
                for record in records {
                    self.meet(record);
                }
                self.lookups.page = page;
                let mut members = Members::default();
                let params = params.as_deref().map(|text| {
                    members.read(text, 0, self.settings.limits.depth_max);
                    Params::seen(Raw::checked(text), &members)
                });
                self.lookups.is_answering = true;
                match method {
                    TaskMethod::Listen => {
                        let params = params.as_ref().map_or("{}", Params::get).into();
                        return Some(Resumed { reply, method, params, granted: None });
                    }
                    TaskMethod::Get
                    | TaskMethod::Result
                    | TaskMethod::List
                    | TaskMethod::Cancel
                    | TaskMethod::Detailed(_)
                    | TaskMethod::Call
                    | TaskMethod::Handle
                    | TaskMethod::Update => self.answer_about_tasks(reply, method, params.as_ref()),
                }
            }
        }
        self.end_answer(conn);
        None
    }

    /// A request was answered with the records that it needs, which may go.
    pub(crate) fn end_answer(&mut self, conn: ConnId) {
        self.lookups.is_answering = false;
        for id in core::mem::take(&mut self.lookups.held) {
            self.part(id);
        }
        self.outbox.close_if_finished(conn);
    }

    /// The table has judged the idempotency key of a call that waits for it.
    fn on_key(&mut self, seq: Seq, verdict: KeyVerdict) -> Option<Resumed> {
        let (lookup, claimed) = self.lookups.take_claim(seq)?;
        let Some((reply, asked)) = self.lookups.take_request(self.outbox, lookup) else {
            // Nothing was done.
            let granted = matches!(verdict, KeyVerdict::Granted);
            self.keyed.give_back(granted.then_some(claimed));
            return None;
        };
        let conn = reply.conn;
        if let KeyVerdict::Granted = verdict {
            let params = asked.params.unwrap_or_else(|| "{}".into());
            let granted = Some(claimed);
            return Some(Resumed { reply, method: asked.method, params, granted });
        }
        self.answer_repeated(reply, &claimed.key, verdict);
        self.outbox.close_if_finished(conn);
        None
    }

    /// Answers a call whose key the table knows.
    fn answer_repeated(&mut self, reply: Reply, key: &str, verdict: KeyVerdict) {
        let error = match verdict {
            KeyVerdict::Granted => return self.outbox.forget(reply),
            KeyVerdict::Another => idempotency::another(),
            KeyVerdict::UnderWay => idempotency::under_way(key),
            KeyVerdict::Lost => {
                let message = "the call with this idempotency key was under way at a node that was lost: it \
                               may have had an effect; take a new key to call again";
                ErrorObject::new(code::INTERRUPTED, message)
            }
            KeyVerdict::Over(outcome) => {
                return self.upstreams.answer_with(self.outbox, reply, outcome);
            }
            KeyVerdict::Full { bytes } => {
                return idempotency::refuse_key(self.outbox, reply, bytes);
            }
            KeyVerdict::Task(task) => {
                let text = alloc::format!("{{\"taskId\":\"{task}\"}}");
                let mut members = Members::default();
                members.read(&text, 0, self.settings.limits.depth_max);
                let params = Params::seen(Raw::checked(&text), &members);
                let wanted = Wanted::Task { task, whole: true };
                let (method, params) = (TaskMethod::Handle, Some(&params));
                return self.lookups.ask(self.outbox, reply, method, params, wanted);
            }
        };
        self.outbox.fail(reply, &error);
    }

    /// Takes answers that a peer of another engine gave.
    fn on_input(&mut self, number: i64, id: TaskId, responses: &str) {
        self.tell_table(StoreWrite::Taken(number));
        let job = self.tasks.get(id).filter(|task| !task.is_visiting()).and_then(|task| task.job);
        let open = self.jobs.open_questions(job);
        if let (Some(job), Ok(responses)) =
            (job, inputs::read(Some(Raw::checked(responses)), &open))
        {
            self.outgoing().take_responses(job, &responses);
        }
    }

    fn page_of(&self, conn: ConnId, records: &[TaskRecord]) -> TaskPage {
        let size = self.settings.tasks.page_size.max(1);
        let last = records.get(size - 1).filter(|_| records.len() > size);
        let viewer = self.outbox.identity_of(conn);
        TaskPage {
            tasks: records.iter().take(size).map(|record| record.id).collect(),
            next: last.map(|last| self.tasks.write_cursor(&viewer, last.position)),
        }
    }

    /// Takes note of the state of a task in the table.
    fn meet(&mut self, record: TaskRecord) {
        let id = record.id;
        let Some(task) = self.tasks.get(id) else { return self.tasks.visit(record, self.now) };
        if task.is_being_created() {
            return;
        }
        if !record.status.is_terminal() {
            self.tasks.meet_own(&record);
            if self.tasks.visit_again(record) {
                self.news().announce(None, id);
                questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, id);
            }
        } else if task.status().is_terminal() && task.is_settled() {
            // Its end may have been seen first by a look that had no need of its outcome.
            if self.tasks.take_outcome(record) {
                self.news().tell_of_task(id);
            }
            self.tell_waiters(id);
        } else {
            self.adopt_end(record);
        }
    }

    /// A task has this end in the table, by whichever engine. The job behind it stops.
    fn adopt_end(&mut self, record: TaskRecord) {
        let id = record.id;
        let why = match record.status {
            Status::Cancelled => StopReason::Requested,
            Status::Working | Status::InputRequired | Status::Completed | Status::Failed => {
                StopReason::Lapsed
            }
        };
        let is_own = self.tasks.get(id).is_some_and(|task| !task.is_visiting());
        let Some(job) = self.tasks.adopt(record) else { return };
        if is_own && job.is_none() {
            // Its own end came too late, and nothing of its work is left.
            let receipt = "{}".into();
            self.tell_table(StoreWrite::Receipt { task: id, receipt });
        }
        questions::offer(self.outbox, (self.outgoing, self.timers), self.tasks, id);
        self.publish_end(id);
        if self.tasks.get(id).is_some_and(|task| !task.aside.waiters.is_empty()) {
            // The look had no need of the outcome; these requests have.
            self.tasks.load(self.outbox, id);
        }
        if let Some(job) = job {
            self.job_machine().release_job_claim(job, why);
        }
        self.part(id);
    }

    fn on_verdict(&mut self, seq: Seq, verdict: Verdict) {
        if matches!(verdict, Verdict::Gone) {
            // A message that no engine gets is not acknowledged.
            self.answer_written(seq, Some(Unstored::Broken));
        }
        let Some(task) = self.tasks.awaiting(seq) else { return };
        let (id, creates, visits) = (task.id(), task.is_being_created(), task.is_visiting());
        match verdict {
            Verdict::Stored { stamp } => self.tasks.stamp(id, stamp, creates),
            Verdict::Overtaken(record) => self.adopt_end(*record),
            Verdict::Gone if visits => self.lose(id, &untold(Unstored::Broken)),
            // It was deleted by another hand: its end is told all the same.
            Verdict::Gone => {}
            Verdict::Full(limit) => self.refuse_creation(id, limit),
            // That of a claim is about no task.
            Verdict::Key(_) => {}
        }
    }

    /// FLT-06: the owner of a new task has no room in the table.
    fn refuse_creation(&mut self, id: TaskId, limit: SharedLimit) {
        let limits = self.settings.limits;
        let (name, max) = match limit {
            SharedLimit::Live => ("tasks_per_identity", limits.live_tasks_max),
            SharedLimit::Stored => ("stored_tasks_per_identity", limits.stored_tasks_max),
            SharedLimit::Bytes => ("stored_bytes_per_identity", limits.stored_bytes_max),
        };
        self.outbox.counters_mut().refused += 1;
        let what = "tasks of yours exist already: let some finish or expire";
        let message = alloc::format!("limit reached: {name} = {max}: {what}");
        self.abandon_creation(id, &limit_error(name, max, message), StopReason::Unstored);
    }

    /// The membership lasts until this time, and tasks go that no request waits for any more.
    fn renew(&mut self, until: Option<Instant>) {
        self.timers.disarm(&mut self.lookups.lease, Timer::Lease);
        if let Some(until) = until {
            self.timers.arm(&mut self.lookups.lease, Timer::Lease, until.max(self.now.at));
        }
        let awaited: Vec<TaskId> = self.lookups.awaited.keys().copied().collect();
        awaited.into_iter().for_each(|id| self.part(id));
        let gone = |id: &TaskId| !self.tasks.contains(*id);
        let gone: BTreeSet<TaskId> = self.lookups.awaited.keys().copied().filter(gone).collect();
        self.lookups.awaited.retain(|id, _| !gone.contains(id));
    }

    /// FLT-04: others may call the tasks of this engine lost from now on, so that their jobs stop. Their
    /// ends are owed to the table.
    pub(crate) fn on_lease_timer(&mut self) {
        self.lookups.lease = None;
        self.abandon_lapsed();
        for id in self.own_tasks() {
            let job = self.tasks.get(id).filter(|it| !it.status().is_terminal()).map(|it| it.job);
            let Some(job) = job else { continue };
            let error = ErrorObject::new(code::INTERRUPTED, LAPSED);
            self.end_task(id, Change::Fail, Some(LAPSED.into()), Err(error));
            if let Some(job) = job {
                self.job_machine().release_job_claim(job, StopReason::Lapsed);
            }
        }
    }

    /// Tasks that are being created do not come to be.
    fn abandon_lapsed(&mut self) {
        let creating = |(_, task): &(&TaskId, &Task)| task.is_being_created();
        let ids: Vec<TaskId> = self.tasks.iter().filter(creating).map(|(id, _)| *id).collect();
        for id in ids {
            self.abandon_creation(id, &not_created(Unstored::Broken), StopReason::Lapsed);
        }
    }

    /// The tasks that were created here, in the order of their ids.
    fn own_tasks(&self) -> BTreeSet<TaskId> {
        self.tasks.iter().filter(|(_, task)| !task.is_visiting()).map(|(id, _)| *id).collect()
    }

    /// Others have ended the tasks of this engine: the table tells how.
    fn lose_tasks(&mut self) {
        self.timers.disarm(&mut self.lookups.lease, Timer::Lease);
        self.abandon_lapsed();
        for id in self.own_tasks() {
            self.lose(id, &untold(Unstored::Broken));
        }
    }
}
