//! Calls whose requestor may come back: the idempotency key, with which a call asked for twice
//! runs once, and what becomes of a plain call whose peer is gone.
//!
//! ```text
//!   Answer ──peer gone: on_disconnect─┬─ cancel ─► Nobody (stopped)
//!     ▲  ▲                            ├─ grace ──► Orphan ──time over──► Nobody (stopped)
//!     │  └──another waits for it──────┤              │
//!     └───────the same key again──────┼──────────────┘
//!                                     └─ detach ─► Task
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::Engine;
use super::creation::HandOver;
use crate::action::Why;
use crate::call::Answer;
use crate::claim::Terms;
use crate::connection::{Form, Pending, Reply, Work};
use crate::durable::TaskOutcome;
use crate::event::Identity;
use crate::id::{ConnId, JobId, RequestId, TaskId};
use crate::idempotency::{KEY_BYTES_MAX, Keyed, KeyedId, Progress, Waiter, Wish};
use crate::job::{JobState, Purpose};
use crate::json::Raw;
use crate::message::ErrorObject;
use crate::timer::Timer;
use crate::tool::OnDisconnect;

/// What a request with a key asks for, and how it is to be answered.
pub(super) struct Request {
    pub(super) key: Box<str>,
    pub(super) wish: Wish,
    pub(super) waiter: Waiter,
}

/// What a key says about a request.
pub(super) enum Known {
    /// Nothing yet: it is to be carried out.
    New(Reply),
    /// It was answered, or waits for the job of the first.
    Dealt,
}

/// Reads the key of a request.
///
/// # Errors
/// When it cannot be one.
pub(super) fn read_key(given: Option<Raw<'_>>) -> Result<Option<Box<str>>, ErrorObject> {
    let Some(raw) = given else { return Ok(None) };
    let key = raw.string().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let wrong = || {
        let message = alloc::format!(
            "params._meta[\"ceased/idempotencyKey\"] must be a string of 1 to {KEY_BYTES_MAX} bytes"
        );
        ErrorObject::invalid_params(message)
    };
    key.map(|key| Some(key.into_owned().into())).ok_or_else(wrong)
}

impl Engine {
    /// Looks for the call that a request repeats, and deals with it if there is one.
    pub(super) fn look_for_first(&mut self, reply: Reply, request: &mut Request) -> Known {
        let owner = self.identity_of(reply.conn);
        if owner == Identity::Anonymous {
            let message = "an idempotency key is for peers with an identity";
            self.fail(reply, &ErrorObject::invalid_params(message));
            return Known::Dealt;
        }
        let Some(id) = self.keyed.find(&owner, &request.key) else {
            return self.room_for_key(reply, &owner);
        };
        let Some(first) = self.keyed.get(id) else { return Known::New(reply) };
        if !first.wish.is(&request.wish) {
            let message = "this idempotency key was used for another call: take a new one";
            self.fail(reply, &ErrorObject::invalid_params(message));
            return Known::Dealt;
        }
        match &first.progress {
            Progress::Done(outcome) => {
                let outcome = outcome.clone();
                self.answer_with(reply, outcome);
            }
            Progress::Task(task) => {
                let task = *task;
                self.reveal(reply, task, Form::Handle);
            }
            Progress::Running(job) | Progress::Ending { job, .. } => {
                let job = *job;
                self.join(reply, id, job, request);
            }
        }
        Known::Dealt
    }

    fn room_for_key(&mut self, reply: Reply, owner: &Identity) -> Known {
        let limits = self.settings.limits;
        let (count, bytes) = self.keyed.held_by(owner);
        if count >= limits.keys_max {
            let what = "calls with a key of yours are remembered: wait until some are forgotten";
            self.refuse(reply, "idempotency_keys_per_identity", limits.keys_max, what);
        } else if bytes >= limits.stored_bytes_max {
            let what = "bytes of answers to calls with a key are remembered: wait until some are \
                        forgotten";
            self.refuse(reply, "stored_bytes_per_identity", limits.stored_bytes_max, what);
        } else {
            return Known::New(reply);
        }
        Known::Dealt
    }

    /// Remembers a call that was made just now as this job.
    pub(super) fn remember(&mut self, id: JobId, request: Request) {
        let Some(job) = self.jobs.get(&id) else { return };
        let progress = job.task.map_or(Progress::Running(id), Progress::Task);
        let (owner, waiters) = (job.owner.clone(), BTreeMap::new());
        let Request { key, wish, .. } = request;
        self.keyed.insert(Keyed { owner, key, wish, progress, waiters, timer: None });
    }

    /// A request asks for what runs already: waits for it, or is what it runs for from now on.
    fn join(&mut self, reply: Reply, id: KeyedId, job: JobId, request: &mut Request) {
        if self.is_full(reply.conn) {
            return self.refuse_inflight(reply);
        }
        let Some(connection) = self.connections.get_mut(&reply.conn) else { return };
        let (terms, token) = (request.waiter.terms, request.waiter.token.take());
        let waiter = Waiter { terms, token };
        let (conn, name) = (reply.conn, reply.id.clone());
        match self.jobs.get(&job).map(|job| job.purpose.clone()) {
            Some(Purpose::Answer(_) | Purpose::Task) | None => {
                let work = Work::Repeat(job);
                connection.requests.insert(name.clone(), Pending { reply, work });
                if let Some(first) = self.keyed.get_mut(id) {
                    first.waiters.insert((conn, name), waiter);
                }
                self.put_questions(job, Answer::Refused);
            }
            Some(purpose @ (Purpose::Orphan | Purpose::Retry(_))) => {
                let work = Work::Job(job);
                connection.requests.insert(name.clone(), Pending { reply, work });
                if let Purpose::Retry(state) = purpose {
                    self.unpark(state);
                }
                self.work_for(job, conn, name, waiter);
            }
            Some(Purpose::Nobody) => unreachable!("what is remembered is wanted"),
        }
    }

    /// A job works for this request from now on.
    fn work_for(&mut self, id: JobId, conn: ConnId, request: RequestId, waiter: Waiter) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(before) = self.connections.get_mut(&job.conn) {
            before.held_progress.remove(&id);
        }
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        // Whoever wished it to stop did so for the own request only.
        job.forget_cancel();
        job.conn = conn;
        job.purpose = Purpose::Answer(request);
        job.terms = waiter.terms;
        job.progress.tell(waiter.token);
        job.progress.forget_held();
        self.put_questions(id, Answer::Refused);
    }

    /// Nobody wants a job for its own request any more: it goes on for another that waits for it.
    pub(super) fn adopt(&mut self, id: JobId) -> bool {
        let Some(keyed) = self.keyed.of_job(id) else { return false };
        let first = self.keyed.get_mut(keyed).and_then(|call| call.waiters.pop_first());
        let Some(((conn, request), waiter)) = first else {
            // It will be stopped, and nobody is given what comes of that.
            self.keyed.remove(keyed);
            return false;
        };
        let pending = self.connections.get_mut(&conn).and_then(|c| c.requests.get_mut(&request));
        if let Some(pending) = pending {
            pending.work = Work::Job(id);
        }
        self.work_for(id, conn, request, waiter);
        true
    }

    /// A request waits for another's job no longer.
    pub(super) fn stop_waiting(&mut self, conn: ConnId, request: &RequestId, job: JobId) {
        if let Some(id) = self.keyed.of_job(job)
            && let Some(call) = self.keyed.get_mut(id)
        {
            call.waiters.remove(&(conn, request.clone()));
        }
    }

    /// A job has ended with this: whoever else waits for it is told, and who asks again will be; of
    /// what became a task once that is on disk. What was cancelled is forgotten, so that who asks
    /// again starts anew.
    pub(super) fn remember_outcome(
        &mut self,
        id: JobId,
        task: Option<TaskId>,
        why: Option<Why>,
        outcome: impl FnOnce() -> TaskOutcome,
    ) {
        let Some(keyed) = self.keyed.of_job(id) else { return };
        let outcome = outcome();
        let cancelled = why.is_some_and(|why| why != Why::TimedOut && !why.is_no_cancel());
        if cancelled {
            return self.forget_and_tell(keyed, &outcome);
        }
        match task.filter(|_| self.journal.is_on()) {
            None => self.finish_call(keyed, outcome),
            Some(task) => self.keyed.advance(keyed, Progress::Ending { job: id, task, outcome }),
        }
    }

    fn finish_call(&mut self, id: KeyedId, outcome: TaskOutcome) {
        let at = self.now.at + self.settings.limits.keys_for;
        let Some(call) = self.keyed.get_mut(id) else { return };
        let waiters = mem::take(&mut call.waiters);
        self.timers.arm(&mut call.timer, Timer::Keyed(id), at);
        self.keyed.advance(id, Progress::Done(outcome.clone()));
        self.tell_repeats(waiters, |engine, reply| engine.answer_with(reply, outcome.clone()));
    }

    /// How a task ended may be told: so may what came of the call that it was.
    pub(super) fn finish_call_of(&mut self, task: TaskId) {
        let Some(id) = self.keyed.of_task(task) else { return };
        let Some(Progress::Ending { outcome, .. }) = self.keyed.get(id).map(|call| &call.progress)
        else {
            return;
        };
        let outcome = outcome.clone();
        self.finish_call(id, outcome);
    }

    /// A task is gone, and its id may come again (TSK-08): its call is forgotten, unless the task
    /// had ended and nobody was told; now it can say nothing else.
    pub(super) fn leave_task(&mut self, task: TaskId) {
        self.finish_call_of(task);
        if let Some(id) = self.keyed.of_task(task) {
            self.keyed.remove(id);
        }
    }

    /// The task that a job works for was cancelled: the work is to stop, whoever else waits for it,
    /// and they are told so as soon as that is on disk (DUR-01).
    pub(super) fn end_repeats(&mut self, job: JobId, task: TaskId) {
        let call = self.keyed.of_job(job).and_then(|keyed| self.keyed.remove(keyed));
        if let Some(call) = call {
            self.tell_repeats(call.waiters, |engine, reply| {
                engine.reveal(reply, task, Form::Repeat);
            });
        }
    }

    /// The task that a job works for is gone: the work is to stop, whoever else waits for it, and
    /// they are told so.
    pub(super) fn end_waiting(&mut self, job: JobId, error: &ErrorObject) {
        if let Some(keyed) = self.keyed.of_job(job) {
            self.forget_and_tell(keyed, &Err(error.clone()));
        }
    }

    fn forget_and_tell(&mut self, id: KeyedId, outcome: &TaskOutcome) {
        if let Some(call) = self.keyed.remove(id) {
            self.tell_repeats(call.waiters, |engine, reply| {
                engine.answer_with(reply, outcome.clone());
            });
        }
    }

    fn tell_repeats(
        &mut self,
        waiters: BTreeMap<(ConnId, RequestId), Waiter>,
        mut tell: impl FnMut(&mut Self, Reply),
    ) {
        for (conn, request) in waiters.into_keys() {
            let connection = self.connections.get_mut(&conn);
            let pending = connection.and_then(|c| c.requests.remove(&request));
            if let Some(Pending { reply, .. }) = pending {
                tell(self, reply);
                self.close_if_finished(conn);
            }
        }
    }

    /// What came of a call was remembered long enough.
    pub(super) fn on_keyed_timer(&mut self, id: KeyedId) {
        if let Some(call) = self.keyed.get_mut(id) {
            call.timer = None;
        }
        self.keyed.remove(id);
    }

    /// Nobody will ask again: the daemon shuts down.
    pub(super) fn forget_keys(&mut self) {
        let ids: Vec<KeyedId> = self.keyed.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut call) = self.keyed.remove(id) {
                self.timers.disarm(&mut call.timer, Timer::Keyed(id));
            }
        }
    }

    /// The connection a plain call came by is gone.
    pub(super) fn requestor_gone(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let waits = self.keyed.of_job(id).and_then(|keyed| self.keyed.get(keyed));
        let has_heir = waits.is_some_and(|call| !call.waiters.is_empty());
        let is_stopping = matches!(job.state, JobState::Stopping { .. });
        let policy = job.tool.on_disconnect;
        match policy {
            OnDisconnect::Grace(time) if !has_heir && !is_stopping => self.orphan(id, time),
            OnDisconnect::Detach if !has_heir && !is_stopping && self.detach(id) => {}
            OnDisconnect::Cancel | OnDisconnect::Grace(_) | OnDisconnect::Detach => {
                self.disown(id, Why::Disconnected);
            }
        }
    }

    fn orphan(&mut self, id: JobId, time: Duration) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.purpose = Purpose::Orphan;
        job.progress.tell(None);
        job.progress.forget_held();
        self.timers.arm(&mut job.orphan_timer, Timer::Orphan(id), self.now.at + time);
    }

    /// Nobody came back in time.
    pub(super) fn on_orphan_timer(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.orphan_timer = None;
        }
        self.disown(id, Why::Disconnected);
    }

    /// Makes a task of a call; false where there is no room for one, or nobody to own it. It goes
    /// on meanwhile: what only may come to be is known to nobody until it is on disk (DUR-01).
    fn detach(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let (owner, tool) = (job.owner.clone(), job.tool.name.clone());
        if owner == Identity::Anonymous
            || self.tasks.full(&owner, &self.settings.limits).is_some()
            || self.no_creation().is_some()
        {
            return false;
        }
        let Some(task) = self.fresh_task_id() else { return false };
        self.tasks.insert(
            task,
            &owner,
            self.now,
            self.settings.tasks.default_ttl,
            (id, tool),
            None,
        );
        if let Some(job) = self.jobs.get_mut(&id) {
            job.task = Some(task);
            job.purpose = Purpose::Task;
            job.progress.tell(None);
            job.progress.forget_held();
            if let Terms::Claim(claim) = &mut job.terms {
                claim.log_level = None;
            }
        }
        // It may have long to go.
        self.store_creation(task, HandOver::Now);
        true
    }
}

/// Every keyed call is what its job says, and the other way round.
///
/// # Panics
/// When one is not.
pub(super) fn check(engine: &Engine) {
    engine.keyed.check();
    for (_, call) in engine.keyed.iter() {
        assert_ne!(call.owner, Identity::Anonymous, "nobody in particular has keys");
        let waits_for = |id: JobId| {
            for (conn, request) in call.waiters.keys() {
                let pending = engine.connections.get(conn).and_then(|c| c.requests.get(request));
                let waits = pending.map(|p| &p.work) == Some(&Work::Repeat(id));
                assert!(waits, "a waiter waits");
            }
        };
        match call.progress {
            Progress::Running(id) => {
                let job = engine.jobs.get(&id).expect("a keyed call that runs has a job");
                assert_eq!(job.owner, call.owner, "who asked may ask again (TSK-39)");
                assert_ne!(job.purpose, Purpose::Nobody, "{id} is remembered and not wanted");
                assert_eq!(call.timer, None);
                waits_for(id);
            }
            Progress::Ending { job, task, .. } => {
                let ended = engine.tasks.get(task).is_some_and(|task| task.status.is_terminal());
                assert!(ended && !engine.is_settled(task), "{task} keeps somebody waiting");
                assert_eq!(call.timer, None);
                waits_for(job);
            }
            Progress::Task(task) => {
                assert!(engine.tasks.contains(task), "a key is forgotten with its task");
                assert!(call.waiters.is_empty() && call.timer.is_none());
            }
            Progress::Done(_) => {
                assert!(call.waiters.is_empty(), "what is over is answered (RPC-03)");
                assert!(call.timer.is_some(), "an answer is remembered for ever");
            }
        }
    }
    for (conn, connection) in &engine.connections {
        for (request, pending) in &connection.requests {
            if let Work::Repeat(job) = &pending.work {
                let call = engine.keyed.of_job(*job).and_then(|id| engine.keyed.get(id));
                let call = call.expect("what is waited for is remembered");
                assert!(call.waiters.contains_key(&(*conn, request.clone())));
                assert_eq!(connection.identity, call.owner, "who waits may know (TSK-39)");
            }
        }
    }
    for (id, job) in &engine.jobs {
        let is_orphan = job.purpose == Purpose::Orphan;
        assert_eq!(job.orphan_timer.is_some(), is_orphan, "{id} runs on for a time only");
    }
}

/// How many timers are armed here.
pub(super) fn armed(engine: &Engine) -> usize {
    engine.keyed.iter().filter(|(_, call)| call.timer.is_some()).count()
        + engine.jobs.values().filter(|job| job.orphan_timer.is_some()).count()
}
