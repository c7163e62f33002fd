//! Tasks: created, looked at, waited for, listed, cancelled, expired.

use ceased_core::limits::OnTtl;
use ceased_core::time::Wall;
use serde_json::Value;

use super::requests::Asked;
use super::{For, Job, Oracle, Task, What, nanos};
use crate::sim::mark::Mark;
use crate::slow::Id;

impl Task {
    /// The task as its owner is told of it (TSK-12, TSK-34).
    pub(super) fn shown(&self, poll: u64) -> String {
        let Self { nonce, status, message, ttl, .. } = self;
        let stamp = |wall: u64| Wall::from_millis(wall).to_iso8601();
        let (created, updated) = (stamp(self.created), stamp(self.updated));
        format!("#{nonce} {status} {message:?} {created} {updated} {} {poll}", ttl / 1_000_000)
    }

    /// Whether nothing changes it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !matches!(self.status, "working" | "input_required")
    }
}

impl Oracle {
    pub(super) fn show(&self, at: usize) -> String {
        let poll = u64::try_from(self.settings.tasks.poll_interval.as_millis()).unwrap_or(0);
        let task = &self.tasks[at];
        let waits = |job: &&Job| job.nonce == task.nonce && !job.runs() && job.whose == For::Task;
        let place = self.jobs.iter().find(waits).map(|job| self.waiting_text(job));
        match place.filter(|_| task.message == "queued") {
            Some(message) => Task { message, ..task.clone() }.shown(poll),
            None => task.shown(poll),
        }
    }

    pub(super) fn create(&mut self, asked: &Asked, mut job: Job, ttl: Option<u64>) {
        let owner = self.conns[&asked.conn].identity.clone();
        if self.is_too_often(asked) {
            return;
        }
        if let Some(limit) = self.too_many_tasks(&owner) {
            self.mark(Mark::TooManyTasks);
            return self.answer(asked, &format!("E -31003 {limit}"));
        }
        let policy = &self.settings.tasks;
        let (usual, most) = if owner == "anonymous" {
            // TSK-40
            (nanos(policy.anonymous_ttl), nanos(policy.anonymous_ttl))
        } else {
            (nanos(policy.default_ttl), nanos(policy.max_ttl))
        };
        let ttl = ttl.map_or(usual, |ttl| ttl.saturating_mul(1_000_000).min(most));
        let crowded = self.is_crowded(&owner) || self.would_wait_at_gate(&job);
        let creator = (!asked.modern).then_some(asked.conn);
        if let Some(claim) = &mut job.claim {
            // EXT-02: tasks tell nothing by themselves.
            (claim.log, job.token) = (None, None);
        }
        job.nonce = self.name_run(job.nonce);
        self.add_task(job.nonce, owner, ttl, crowded, creator);
        let nonce = job.nonce;
        self.jobs.push(job);
        self.arm_beat(nonce);
        self.mark(Mark::TaskCreated);
        let handle = self.handle(self.tasks.len() - 1, asked.modern);
        self.answer(asked, &handle);
    }

    /// The form of a task in an answer.
    pub(super) fn handle(&self, at: usize, modern: bool) -> String {
        let shown = self.show(at);
        if !modern {
            return format!("T {shown}");
        }
        // EXT-03
        let outcome = self.tasks[at].outcome.as_deref().unwrap_or_default();
        let said = self.tasks[at].status == "failed" && outcome.starts_with("R ");
        let shown = if said { shown.replacen(" failed ", " completed ", 1) } else { shown };
        format!("task {shown}")
    }

    /// TSK-36: which limit lets an identity have no further task.
    pub(super) fn too_many_tasks(&self, owner: &str) -> Option<&'static str> {
        let limits = &self.settings.limits;
        let live = self.tasks.iter().filter(|t| t.owner == owner && !t.is_over()).count();
        let stored = self.tasks.iter().filter(|t| t.owner == owner && t.is_over()).count();
        if live >= limits.live_tasks_max {
            Some("tasks_per_identity")
        } else if stored >= limits.stored_tasks_max {
            Some("stored_tasks_per_identity")
        } else {
            (stored > 0 && limits.stored_bytes_max == 1).then_some("stored_bytes_per_identity")
        }
    }

    pub(super) fn add_task(
        &mut self,
        nonce: u64,
        owner: String,
        ttl: u64,
        queued: bool,
        creator: Option<u64>,
    ) {
        let armed = self.arm();
        self.tasks.push(Task {
            nonce,
            owner,
            // TSK-09
            status: "working",
            message: if queued { "queued".to_owned() } else { String::new() },
            created: self.wall,
            updated: self.wall,
            created_at: self.now,
            ttl,
            timer: (self.now.saturating_add(ttl), armed),
            overdue: false,
            creator,
            listeners: Vec::new(),
            place: self.next_place,
            waiters: Vec::new(),
            outcome: None,
        });
        self.next_place += 1;
    }

    /// The task named by `params`, if the requestor may know of it (TSK-27, TSK-39).
    pub(super) fn named(&mut self, asked: &Asked, params: &Value) -> Option<usize> {
        let id = params["taskId"].as_str();
        let viewer = &self.conns[&asked.conn].identity;
        let named =
            |task: &Task| id.is_some() && self.names.get(&task.nonce).map(String::as_str) == id;
        let at = self.tasks.iter().position(named);
        let foreign = at.is_some_and(|at| self.tasks[at].owner != *viewer);
        if foreign {
            self.mark(Mark::ForeignTask);
        }
        let at = at.filter(|_| !foreign);
        if at.is_none() {
            self.answer(asked, "E -32602");
        }
        at
    }

    pub(super) fn get_task(&mut self, asked: &Asked, params: &Value) {
        if let Some(at) = self.named(asked, params) {
            let shown = self.show(at);
            self.answer(asked, &format!("G {shown}"));
        }
    }

    /// TSK-14, TSK-15
    pub(super) fn await_task(&mut self, asked: Asked, params: &Value) {
        let Some(at) = self.named(&asked, params) else { return };
        if let Some(outcome) = self.tasks[at].outcome.clone() {
            self.mark(Mark::ResultAtOnce);
            return self.answer(&asked, &outcome);
        }
        if self.is_full(&asked) {
            return;
        }
        self.tasks[at].waiters.push((asked.conn, asked.id.clone()));
        self.tasks[at].waiters.sort();
        let nonce = self.tasks[at].nonce;
        self.wait_for(asked, What::Task(nonce));
        self.put_questions(nonce, None);
    }

    /// TSK-19 to TSK-22: oldest first, the part after the cursor.
    pub(super) fn list_tasks(&mut self, asked: &Asked, params: &Value) {
        let viewer = self.conns[&asked.conn].identity.clone();
        if viewer == "anonymous" {
            return self.answer(asked, "E -32601");
        }
        let after = match params.get("cursor") {
            None => Some(0),
            Some(cursor) => {
                let known = cursor.as_str().and_then(|cursor| self.cursors.get(cursor));
                known.filter(|(owner, _)| *owner == viewer).map(|(_, place)| *place)
            }
        };
        let Some(after) = after else {
            self.mark(Mark::BadCursor);
            return self.answer(asked, "E -32602");
        };
        let left: Vec<usize> = (0..self.tasks.len())
            .filter(|at| self.tasks[*at].owner == viewer && self.tasks[*at].place > after)
            .collect();
        let size = self.settings.tasks.page_size;
        let page: Vec<String> = left.iter().take(size).map(|at| self.show(*at)).collect();
        let more = left.len() > size;
        if more {
            self.mark(Mark::SecondPage);
        }
        self.answer(asked, &format!("P {} {}", page.join("; "), if more { "more" } else { "end" }));
    }

    /// TSK-23, TSK-24
    pub(super) fn cancel_task(&mut self, asked: &Asked, params: &Value) {
        let Some(at) = self.named(asked, params) else { return };
        if self.tasks[at].is_over() {
            self.mark(Mark::CancelOfEnded);
            return self.answer(asked, "E -32602");
        }
        self.cancel_live_task(self.tasks[at].nonce);
        let shown = self.show(at);
        self.answer(asked, &format!("G {shown}"));
    }

    pub(super) fn cancel_live_task(&mut self, nonce: u64) {
        self.mark(Mark::TaskCancelled);
        self.end_task(nonce, "cancelled", "cancelled".to_owned(), "E -31001".to_owned());
        self.disown(nonce, "Requested");
    }

    pub(super) fn forget_waiter(&mut self, nonce: u64, conn: u64, id: &Id) {
        if let Some(task) = self.tasks.iter_mut().find(|task| task.nonce == nonce) {
            task.waiters.retain(|(waits, request)| (waits, request) != (&conn, id));
        }
    }

    /// TSK-10: nothing changes an ended task. TSK-17, TSK-18
    pub(super) fn end_task(
        &mut self,
        nonce: u64,
        status: &'static str,
        message: String,
        outcome: String,
    ) {
        let Some(at) = self.tasks.iter().position(|task| task.nonce == nonce) else { return };
        let late = nanos(self.settings.tasks.late_result);
        let task = &mut self.tasks[at];
        if task.is_over() {
            return;
        }
        task.status = status;
        task.message = message;
        task.updated = task.updated.max(self.wall);
        task.outcome = Some(outcome.clone());
        if task.overdue {
            self.armed += 1;
            task.timer = (self.now.saturating_add(late), self.armed);
            self.marks.insert(Mark::LateResult);
        }
        let waiters = std::mem::take(&mut task.waiters);
        self.announce(at);
        self.answer_waiters(waiters, &outcome);
    }

    /// TSK-18, MOD-08
    pub(super) fn announce(&mut self, at: usize) {
        if let Some(creator) = self.tasks[at].creator
            && self.settings.tasks.status_notifications
        {
            let shown = self.show(at);
            self.tell(creator, format!("status {shown}"));
        }
        self.tell_of_task(at);
    }

    /// TSK-28: between working and waiting for input; whether that changed anything.
    pub(super) fn change_task(&mut self, nonce: u64, from: &str, to: &'static str) -> bool {
        let wanted = |task: &Task| task.nonce == nonce && task.status == from;
        let Some(at) = self.tasks.iter().position(wanted) else { return false };
        let task = &mut self.tasks[at];
        task.status = to;
        task.updated = task.updated.max(self.wall);
        self.announce(at);
        true
    }

    fn answer_waiters(&mut self, mut waiters: Vec<(u64, Id)>, outcome: &str) {
        waiters.sort();
        for (conn, id) in waiters {
            let asked = self.take_pending(conn, &id).expect("a waiter waits (TSK-15)");
            self.mark(Mark::WaiterAnswered);
            self.answer(&asked, outcome);
            self.close_if_finished(conn);
        }
    }

    /// TSK-35
    pub(super) fn ttl_is_over(&mut self, nonce: u64) {
        let Some(at) = self.tasks.iter().position(|task| task.nonce == nonce) else { return };
        let policy = &self.settings.tasks;
        let task = &mut self.tasks[at];
        let last = task.created_at.saturating_add(nanos(policy.max_ttl));
        let may_finish = policy.on_ttl == OnTtl::Finish;
        if may_finish && !task.is_over() && !task.overdue && last > self.now {
            task.overdue = true;
            self.armed += 1;
            task.timer = (last, self.armed);
            return self.mark(Mark::Overdue);
        }
        let task = self.tasks.remove(at);
        self.forget_topic(nonce, &task.listeners);
        if !task.is_over() {
            self.mark(Mark::ExpiredWorking);
            self.disown(nonce, "Expired");
        }
        self.mark(Mark::Expired);
        self.answer_waiters(task.waiters, "E -31002");
    }

    /// Everything under way is cut off (RPC-03).
    pub(super) fn interrupt(&mut self) {
        let live: Vec<u64> =
            self.tasks.iter().filter(|task| !task.is_over()).map(|task| task.nonce).collect();
        for nonce in live {
            self.end_task(nonce, "failed", "shutdown".to_owned(), "E -31005".to_owned());
        }
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        for conn in conns {
            self.end_subscriptions(conn);
            let waiting: Vec<Id> =
                self.conns[&conn].pending.iter().map(|pending| pending.id.clone()).collect();
            for id in waiting {
                let asked = self.take_pending(conn, &id).expect("it waits");
                let cut_off = self.party(conn).map(|party| party.cancelled("Shutdown"));
                self.answer(&asked, cut_off.as_deref().unwrap_or("E -31005"));
            }
        }
        self.keyed.clear();
        let jobs: Vec<u64> = self.jobs.iter().map(|job| job.nonce).collect();
        for nonce in jobs {
            self.disown(nonce, "Shutdown");
        }
        self.parked.clear();
    }
}
