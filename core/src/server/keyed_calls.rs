//! Calls by idempotency key, with the state of each.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use serde_json::Value;

use crate::collections::timer_queue::Armed;
use crate::identity::Identity;
use crate::ids::{JobId, KeyedId, TaskId};
use crate::json::raw::Json;
use crate::tasks::durable::{ClaimedKey, KeyChange, Seq, TaskOutcome};

/// Integers up to here are exact as floating-point numbers.
pub(crate) const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// The content of a call: the same key must not mean another call.
#[derive(Debug)]
pub(crate) struct CallContent {
    pub(crate) tool: Arc<str>,
    /// JSON text of an object.
    pub(crate) arguments: Json,
    pub(crate) as_task: bool,
    /// Whether it makes a claim, or belongs to a session.
    pub(crate) claims: bool,
}

impl CallContent {
    /// All of it as text, the same for all calls that are the same.
    pub(crate) fn text(&self) -> Box<str> {
        let arguments = value(&self.arguments).map(|value| alloc::format!("{value}"));
        let arguments = arguments.as_deref().unwrap_or(self.arguments.get());
        let Self { tool, as_task, claims, .. } = self;
        alloc::format!("{tool:?} {as_task} {claims} {arguments}").into()
    }

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

/// Digest of arguments; `None` where they contain more than can be compared.
pub(crate) fn value(raw: &Json) -> Option<Value> {
    let value = serde_json::from_str(raw.get()).ok()?;
    is_exact(&value).then_some(value)
}

/// Whether no two integers that differ are the same here.
pub(crate) fn is_exact(value: &Value) -> bool {
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
pub(crate) enum KeyedProgress {
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

impl KeyedProgress {
    /// The job and the task it is found by.
    pub(crate) const fn names(&self) -> (Option<JobId>, Option<TaskId>) {
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
    pub(crate) wish: CallContent,
    pub(crate) progress: KeyedProgress,
    /// Time when its outcome is forgotten.
    pub(crate) timer: Option<Armed>,
    /// The write that claimed the key, where several engines share a table.
    pub(crate) claim: Option<Seq>,
}

impl Keyed {
    /// Its key in a table that several engines share.
    fn claimed(&self) -> Option<ClaimedKey> {
        let (owner, key) = (self.owner.clone(), self.key.clone());
        self.claim.map(|claim| ClaimedKey { owner, key, claim })
    }

    pub(crate) fn bytes(&self) -> usize {
        let outcome = match &self.progress {
            KeyedProgress::Running(_) | KeyedProgress::Task(_) => None,
            KeyedProgress::Ending { outcome, .. } | KeyedProgress::Done(outcome) => Some(outcome),
        };
        let bytes = match outcome {
            None => 0,
            Some(Ok(result)) => result.get().len(),
            Some(Err(error)) => error.message.len(),
        };
        bytes + self.key.len() + self.wish.arguments.get().len()
    }
}

/// The keyed calls of all identities.
#[derive(Debug, Default)]
pub(crate) struct KeyedCalls {
    calls: BTreeMap<KeyedId, Keyed>,
    by_key: BTreeMap<Identity, BTreeMap<Box<str>, KeyedId>>,
    by_job: BTreeMap<JobId, KeyedId>,
    by_task: BTreeMap<TaskId, KeyedId>,
    next: u64,
    /// Changes of claimed keys that the table is to be told of.
    news: Vec<(ClaimedKey, KeyChange)>,
}

impl KeyedCalls {
    /// The call an identity gave this key.
    pub(crate) fn find(&self, owner: &Identity, key: &str) -> Option<KeyedId> {
        self.by_key.get(owner)?.get(key).copied()
    }

    /// The call of a running job, or of an ended one whose outcome waits for the disk.
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
    pub(crate) fn advance(&mut self, id: KeyedId, progress: KeyedProgress) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let before = mem::replace(&mut call.progress, progress);
        let found = call.progress.names();
        if let (Some(claimed), KeyedProgress::Done(outcome)) = (call.claimed(), &call.progress) {
            self.news.push((claimed, KeyChange::Over(outcome.clone())));
        }
        self.unfile(before.names());
        self.file(id, found);
    }

    /// Whether the table is to be told of changes.
    pub(crate) const fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes out the changes of claimed keys.
    pub(crate) fn take_news(&mut self) -> Vec<(ClaimedKey, KeyChange)> {
        mem::take(&mut self.news)
    }

    /// A task exists: its key names it for all engines from now on. Before, its creation may yet fail here
    /// after the table has it, and no other engine may tell of it (FLT-01).
    pub(crate) fn note_life(&mut self, task: TaskId) {
        let call = self.of_task(task).and_then(|id| self.get(id));
        if let Some(claimed) = call.and_then(Keyed::claimed) {
            self.news.push((claimed, KeyChange::Task(task)));
        }
    }

    /// The key of a call is free again.
    pub(crate) fn free(&mut self, id: KeyedId) {
        let claimed = self.remove(id).and_then(|call| call.claimed());
        self.give_back(claimed);
    }

    /// A claimed key that no call has after all is free again.
    pub(crate) fn give_back(&mut self, claimed: Option<ClaimedKey>) {
        self.news.extend(claimed.map(|claimed| (claimed, KeyChange::Forgotten)));
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
    pub(crate) fn check(&self) {
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
