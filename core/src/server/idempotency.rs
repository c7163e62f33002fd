//! Idempotency keys: a key names a task, or the one call under way and its answer.
//!
//! ```text
//!   no entry ──call──► Running ──ended──────────────► Done ──idempotency_ttl──► no entry
//!      │                  │ └──ended as a task──► Ending ──stored──┘
//!      │                  └──cancelled, or connection gone──► no entry
//!      └──call as a task──► Task ──the task is deleted──► no entry
//!
//!   the same call again   Running, its request waits     CALL_UNDER_WAY: retry later
//!                         Running, no request waits      takes the job over
//!                         Ending                         CALL_UNDER_WAY
//!                         Task                           the handle of the task
//!                         Done                           the stored answer
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use serde_json::Value;

use crate::action::StopReason;
use crate::collections::timer_queue::{Armed, Timer};
use crate::connection::{Pending, Reply, TaskView, Work};
use crate::engine::Engine;
use crate::event::Identity;
use crate::ids::{JobId, KeyedId, TaskId};
use crate::jobs::job::Purpose;
use crate::json::raw::{Json, Raw};
use crate::json::writer::Writer;
use crate::outgoing::call::Answer;
use crate::protocol::request_meta::RequestContext;
use crate::rpc::message::{ErrorObject, code};
use crate::tasks::durable::TaskOutcome;

/// Integers to here are what they are as a floating-point number.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 128;

/// A request with a key: what it asks for, and how it is to be answered.
pub(crate) struct Request {
    pub(crate) key: Box<str>,
    pub(crate) wish: Wish,
    pub(crate) terms: RequestContext,
    /// The token for its progress, as JSON.
    pub(crate) token: Option<Box<str>>,
}

/// What a key says about a request.
pub(crate) enum Lookup {
    /// Nothing yet: it is to be carried out.
    New(Reply),
    /// It was answered, or has taken the job of the first over.
    Handled,
}

/// Reads the key of a request.
///
/// # Errors
/// When it cannot be one.
pub(crate) fn read_key(given: Option<Raw<'_>>) -> Result<Option<Box<str>>, ErrorObject> {
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

/// What a call asks for: the same key must not mean another thing.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) tool: Arc<str>,
    /// JSON text of an object.
    pub(crate) arguments: Json,
    pub(crate) as_task: bool,
    /// Whether it makes a claim, or belongs to a session.
    pub(crate) claims: bool,
}

impl Wish {
    /// Whether both ask for the same; members may be in another order.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.tool == other.tool
            && self.as_task == other.as_task
            && self.claims == other.claims
            && (self.arguments.get() == other.arguments.get()
                || matches!((value(&self.arguments), value(&other.arguments)),
                    (Some(one), Some(other)) if one == other))
    }
}

/// What arguments say; `None` where they say more than we could compare.
fn value(raw: &Json) -> Option<Value> {
    let value = serde_json::from_str(raw.get()).ok()?;
    is_exact(&value).then_some(value)
}

/// Whether no two integers that differ are the same here.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => {
            let exact = (-EXACT_MAX..=EXACT_MAX).contains(&number.as_f64().unwrap_or_default());
            number.is_i64() || number.is_u64() || exact
        }
        Value::Array(values) => values.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
    }
}

/// How far a keyed call is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Its job is not gone yet.
    Running(JobId),
    /// It is a task, which has a life of its own.
    Task(TaskId),
    /// Its job is gone, and this came of it, which is told once the task it became says the same on
    /// disk (DUR-01).
    Ending { job: JobId, task: TaskId, outcome: TaskOutcome },
    /// It is over, and this came of it.
    Done(TaskOutcome),
}

impl Progress {
    /// The job and the task it is found by.
    const fn names(&self) -> (Option<JobId>, Option<TaskId>) {
        match self {
            Self::Running(job) => (Some(*job), None),
            Self::Task(task) => (None, Some(*task)),
            Self::Ending { job, task, .. } => (Some(*job), Some(*task)),
            Self::Done(_) => (None, None),
        }
    }
}

/// One keyed call.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) owner: Identity,
    pub(crate) key: Box<str>,
    pub(crate) wish: Wish,
    pub(crate) progress: Progress,
    /// When what came of it is forgotten.
    pub(crate) timer: Option<Armed>,
}

impl Keyed {
    fn bytes(&self) -> usize {
        let outcome = match &self.progress {
            Progress::Running(_) | Progress::Task(_) => None,
            Progress::Ending { outcome, .. } | Progress::Done(outcome) => Some(outcome),
        };
        let bytes = match outcome {
            None => 0,
            Some(Ok(result)) => result.get().len(),
            Some(Err(error)) => error.message.len(),
        };
        bytes + self.key.len() + self.wish.arguments.get().len()
    }
}

/// The keyed calls of everybody.
#[derive(Debug, Default)]
pub(crate) struct KeyedCalls {
    calls: BTreeMap<KeyedId, Keyed>,
    by_key: BTreeMap<Identity, BTreeMap<Box<str>, KeyedId>>,
    by_job: BTreeMap<JobId, KeyedId>,
    by_task: BTreeMap<TaskId, KeyedId>,
    next: u64,
}

impl KeyedCalls {
    /// The call an identity gave this key.
    pub(crate) fn find(&self, owner: &Identity, key: &str) -> Option<KeyedId> {
        self.by_key.get(owner)?.get(key).copied()
    }

    /// The call a job runs for, or ran for while what came of that waits for the disk.
    pub(crate) fn of_job(&self, job: JobId) -> Option<KeyedId> {
        self.by_job.get(&job).copied()
    }

    pub(crate) fn get(&self, id: KeyedId) -> Option<&Keyed> {
        self.calls.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: KeyedId) -> Option<&mut Keyed> {
        self.calls.get_mut(&id)
    }

    /// How many calls an identity has here, and how many bytes they take.
    pub(crate) fn held_by(&self, owner: &Identity) -> (usize, usize) {
        let ids = self.by_key.get(owner).into_iter().flat_map(BTreeMap::values);
        let calls = ids.filter_map(|id| self.calls.get(id));
        calls.fold((0, 0), |(count, bytes), call| (count + 1, bytes + call.bytes()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyedId, &Keyed)> {
        self.calls.iter().map(|(id, call)| (*id, call))
    }

    /// Takes in a call whose key is free.
    pub(crate) fn insert(&mut self, call: Keyed) {
        let id = KeyedId::new(self.next);
        self.next += 1;
        self.file(id, call.progress.names());
        self.by_key.entry(call.owner.clone()).or_default().insert(call.key.clone(), id);
        self.calls.insert(id, call);
    }

    /// A call has come so far.
    pub(crate) fn advance(&mut self, id: KeyedId, progress: Progress) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let before = mem::replace(&mut call.progress, progress);
        let found = call.progress.names();
        self.unfile(before.names());
        self.file(id, found);
    }

    fn file(&mut self, id: KeyedId, (job, task): (Option<JobId>, Option<TaskId>)) {
        self.by_job.extend(job.map(|job| (job, id)));
        self.by_task.extend(task.map(|task| (task, id)));
    }

    fn unfile(&mut self, (job, task): (Option<JobId>, Option<TaskId>)) {
        job.map(|job| self.by_job.remove(&job));
        task.map(|task| self.by_task.remove(&task));
    }

    /// Forgets a call; its timer is the caller's to disarm.
    pub(crate) fn remove(&mut self, id: KeyedId) -> Option<Keyed> {
        let call = self.calls.remove(&id)?;
        self.unfile(call.progress.names());
        if let Some(keys) = self.by_key.get_mut(&call.owner) {
            keys.remove(&call.key);
            if keys.is_empty() {
                self.by_key.remove(&call.owner);
            }
        }
        Some(call)
    }

    /// The call that is this task, or became it and waits for its end to be on disk.
    pub(crate) fn of_task(&self, task: TaskId) -> Option<KeyedId> {
        self.by_task.get(&task).copied()
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    fn check(&self) {
        let named: usize = self.by_key.values().map(BTreeMap::len).sum();
        assert_eq!(named, self.calls.len(), "every keyed call has its key");
        for (job, id) in &self.by_job {
            let call = self.calls.get(id).expect("a job's call exists");
            assert_eq!(call.progress.names().0, Some(*job));
        }
        for (task, id) in &self.by_task {
            let call = self.calls.get(id).expect("a task's call exists");
            assert_eq!(call.progress.names().1, Some(*task));
        }
    }
}

impl Engine {
    /// Looks for the call that a request repeats, and deals with it if there is one.
    pub(crate) fn lookup(&mut self, reply: Reply, request: &Request) -> Lookup {
        let owner = self.identity_of(reply.conn);
        if owner == Identity::Anonymous {
            let message = "an idempotency key is for peers with an identity";
            self.fail(reply, &ErrorObject::invalid_params(message));
            return Lookup::Handled;
        }
        let Some(id) = self.keyed.find(&owner, &request.key) else {
            return self.room_for_key(reply, &owner);
        };
        let Some(first) = self.keyed.get(id) else { return Lookup::New(reply) };
        if !first.wish.is(&request.wish) {
            let message = "this idempotency key was used for another call: take a new one";
            self.fail(reply, &ErrorObject::invalid_params(message));
            return Lookup::Handled;
        }
        match &first.progress {
            Progress::Done(outcome) => {
                let outcome = outcome.clone();
                self.answer_with(reply, outcome);
            }
            Progress::Task(task) => {
                let task = *task;
                self.respond_with_task(reply, task, TaskView::Handle);
            }
            Progress::Running(job) => {
                let job = *job;
                self.take_over(reply, job, request);
            }
            Progress::Ending { .. } => self.fail(reply, &under_way(&request.key)),
        }
        Lookup::Handled
    }

    fn room_for_key(&mut self, reply: Reply, owner: &Identity) -> Lookup {
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
            return Lookup::New(reply);
        }
        Lookup::Handled
    }

    /// Remembers a call that was made just now as this job.
    pub(crate) fn remember(&mut self, id: JobId, request: Request) {
        let Some(job) = self.jobs.get(&id) else { return };
        let progress = job.task.map_or(Progress::Running(id), Progress::Task);
        let Request { key, wish, .. } = request;
        self.keyed.insert(Keyed { owner: job.owner.clone(), key, wish, progress, timer: None });
    }

    /// A request asks for what runs already: the job works for it from now on, unless another
    /// request waits for the job.
    fn take_over(&mut self, reply: Reply, id: JobId, request: &Request) {
        let purpose = self.jobs.get(&id).map(|job| job.purpose.clone());
        let state = match purpose {
            Some(Purpose::Orphan) => None,
            Some(Purpose::Retry(state)) => Some(state),
            Some(Purpose::Answer(_) | Purpose::Task | Purpose::Nobody) | None => {
                return self.fail(reply, &under_way(&request.key));
            }
        };
        if self.is_full(reply.conn) {
            return self.refuse_inflight(reply);
        }
        let (conn, name) = (reply.conn, reply.id.clone());
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.requests.insert(name.clone(), Pending { reply, work: Work::Job(id) });
        if let Some(state) = state {
            self.unpark(state);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(before) = self.connections.get_mut(&job.conn) {
            before.held_progress.remove(&id);
        }
        self.timers.disarm(&mut job.orphan_timer, Timer::Orphan(id));
        // A cancel was for the request before this one.
        job.forget_cancel();
        job.conn = conn;
        job.purpose = Purpose::Answer(name);
        job.terms = request.terms;
        job.progress.tell(request.token.clone());
        job.progress.forget_held();
        self.put_questions(id, Answer::Refused);
    }

    /// A job is to stop: its outcome is no answer, and the same key starts anew.
    pub(crate) fn forget_key_of(&mut self, job: JobId) {
        if let Some(id) = self.keyed.of_job(job) {
            self.keyed.remove(id);
        }
    }

    /// A job has ended: the outcome is what the same call is answered with again, of what became a
    /// task once that is on disk (DUR-01). A cancelled call is forgotten.
    pub(crate) fn remember_outcome(
        &mut self,
        id: JobId,
        task: Option<TaskId>,
        why: Option<StopReason>,
        outcome: impl FnOnce() -> TaskOutcome,
    ) {
        let Some(keyed) = self.keyed.of_job(id) else { return };
        let cancelled = why.is_some_and(|why| why != StopReason::TimedOut && !why.is_no_cancel());
        if cancelled {
            self.keyed.remove(keyed);
            return;
        }
        let outcome = outcome();
        match task.filter(|_| self.journal.is_on()) {
            None => self.finish_call(keyed, outcome),
            Some(task) => self.keyed.advance(keyed, Progress::Ending { job: id, task, outcome }),
        }
    }

    fn finish_call(&mut self, id: KeyedId, outcome: TaskOutcome) {
        let at = self.now.at + self.settings.limits.keys_for;
        let Some(call) = self.keyed.get_mut(id) else { return };
        self.timers.arm(&mut call.timer, Timer::Keyed(id), at);
        self.keyed.advance(id, Progress::Done(outcome));
    }

    /// How a task ended may be told: so may what came of the call that it was.
    pub(crate) fn finish_call_of(&mut self, task: TaskId) {
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
    pub(crate) fn leave_task(&mut self, task: TaskId) {
        self.finish_call_of(task);
        if let Some(id) = self.keyed.of_task(task) {
            self.keyed.remove(id);
        }
    }

    /// What came of a call was remembered long enough.
    pub(crate) fn on_keyed_timer(&mut self, id: KeyedId) {
        if let Some(call) = self.keyed.get_mut(id) {
            call.timer = None;
        }
        self.keyed.remove(id);
    }

    /// Forgets all keys: the daemon shuts down.
    pub(crate) fn forget_keys(&mut self) {
        let ids: Vec<KeyedId> = self.keyed.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut call) = self.keyed.remove(id) {
                self.timers.disarm(&mut call.timer, Timer::Keyed(id));
            }
        }
    }
}

/// The refusal of a call whose key names one that another request waits for, or whose end is being
/// stored.
fn under_way(key: &str) -> ErrorObject {
    let message = "the call with this idempotency key is still under way: try again later";
    let mut data = Vec::new();
    Writer::new(&mut data).raw("{").member("idempotencyKey", key).raw("}");
    let data = alloc::string::String::from_utf8(data).unwrap_or_default();
    ErrorObject::new(code::CALL_UNDER_WAY, message).with_data(data)
}

/// Every keyed call is what its job or its task says.
///
/// # Panics
/// When one is not.
pub(crate) fn check(engine: &Engine) {
    engine.keyed.check();
    for (_, call) in engine.keyed.iter() {
        assert_ne!(call.owner, Identity::Anonymous, "nobody in particular has keys");
        let is_done = matches!(call.progress, Progress::Done(_));
        assert_eq!(call.timer.is_some(), is_done, "an answer, and nothing else, is forgotten");
        match call.progress {
            Progress::Running(id) => {
                let job = engine.jobs.get(&id).expect("a keyed call that runs has a job");
                assert_eq!(job.owner, call.owner, "the owner may ask again (TSK-39)");
                assert_ne!(job.purpose, Purpose::Nobody, "{id} is remembered and not wanted");
            }
            Progress::Ending { task, .. } => {
                let ended = engine.tasks.get(task).is_some_and(|task| task.status.is_terminal());
                assert!(ended && !engine.is_settled(task), "{task} is stored and not told");
            }
            Progress::Task(task) => {
                assert!(engine.tasks.contains(task), "a key is forgotten with its task");
            }
            Progress::Done(_) => {}
        }
    }
}

/// How many timers are armed here.
pub(crate) fn armed(engine: &Engine) -> usize {
    engine.keyed.iter().filter(|(_, call)| call.timer.is_some()).count()
}
