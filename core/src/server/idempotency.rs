//! Idempotency keys: a key names a task, or the one call under way and its answer.
//!
//! ```text
//!   no entry ──call──► Running ──ended──────────────► Done ──idempotency_ttl──► no entry
//!      │                  │ └──ended as a task──► Ending ──stored──┘
//!      │                  └──cancelled, or connection gone──► no entry
//!      └──call as a task──► Task ──the task is deleted──► no entry
//!
//!   the same call again   Running, Ending   CALL_UNDER_WAY: retry later
//!                         Task              the handle of the task
//!                         Done              the stored answer
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::collections::timer_queue::{Timer, TimerQueue};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::{JobId, KeyedId, TaskId};
use crate::jobs::Jobs;
use crate::jobs::job::Purpose;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::{Reply, TaskView};
use crate::reason::StopReason;
use crate::rpc::error::{ErrorObject, code};
use crate::server::keyed_calls::{CallContent, Keyed, KeyedCalls, KeyedProgress};
use crate::tasks::durable::{ClaimedKey, TaskOutcome};
use crate::time::Instant;

/// Longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 128;

/// A request with a key, and the content of its call.
pub(crate) struct KeyedRequest {
    pub(crate) key: Box<str>,
    pub(crate) wish: CallContent,
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

impl Engine {
    /// Answers a request that repeats a call; returns the reply of one that is to be carried out.
    pub(crate) fn lookup(&mut self, reply: Reply, request: &KeyedRequest) -> Option<Reply> {
        let owner = self.outbox.identity_of(reply.conn);
        if owner == Identity::Anonymous {
            let message = "an idempotency key is for peers with an identity";
            self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            return None;
        }
        let Some(id) = self.keyed.find(&owner, &request.key) else {
            return self.room_for_key(reply, &owner);
        };
        let Some(first) = self.keyed.get(id) else { return Some(reply) };
        if !first.wish.is(&request.wish) {
            self.outbox.fail(reply, &another());
            return None;
        }
        match &first.progress {
            KeyedProgress::Done(outcome) => {
                let outcome = outcome.clone();
                self.upstreams.answer_with(&mut self.outbox, reply, outcome);
            }
            // The table tells it, and how the task is.
            KeyedProgress::Task(_) if self.tasks.is_shared() => return Some(reply),
            KeyedProgress::Task(task) => {
                let task = *task;
                self.task_machine().respond_with_task(reply, task, TaskView::Handle);
            }
            KeyedProgress::Running(_) | KeyedProgress::Ending { .. } => {
                self.outbox.fail(reply, &under_way(&request.key));
            }
        }
        None
    }

    fn room_for_key(&mut self, reply: Reply, owner: &Identity) -> Option<Reply> {
        let limits = self.settings.limits;
        let (count, bytes) = self.keyed.held_by(owner);
        // A table that several engines share judges itself.
        let full = count >= limits.keys_max || bytes >= limits.stored_bytes_max;
        if self.tasks.is_shared() || !full {
            return Some(reply);
        }
        refuse_key(&mut self.outbox, reply, count < limits.keys_max);
        None
    }
}

/// The refusal of a key that was used for another call.
pub(crate) fn another() -> ErrorObject {
    let message = "this idempotency key was used for another call: take a new one";
    ErrorObject::invalid_params(message)
}

/// The refusal of a key for which there is no room: too many, or their answers are too large.
pub(crate) fn refuse_key(outbox: &mut Outbox, reply: Reply, bytes: bool) {
    let limits = outbox.settings().limits;
    if bytes {
        let what =
            "bytes of answers to calls with a key are remembered: wait until some are forgotten";
        outbox.refuse(reply, "stored_bytes_per_identity", limits.stored_bytes_max, what);
    } else {
        let what = "calls with a key of yours are remembered: wait until some are forgotten";
        outbox.refuse(reply, "idempotency_keys_per_identity", limits.keys_max, what);
    }
}

/// The refusal of a call whose key names one that runs, or whose end is being stored.
pub(crate) fn under_way(key: &str) -> ErrorObject {
    let message = "the call with this idempotency key is still under way: try again later";
    let mut data = Vec::new();
    Writer::new(&mut data).raw("{").member("idempotencyKey", key).raw("}");
    let data = alloc::string::String::from_utf8(data).unwrap_or_default();
    ErrorObject::new(code::CALL_UNDER_WAY, message).with_data(data)
}

impl KeyedCalls {
    /// Remembers a call that was made just now as this job.
    pub(crate) fn remember(
        &mut self,
        timers: &mut TimerQueue,
        jobs: &Jobs,
        id: JobId,
        request: KeyedRequest,
        claimed: Option<ClaimedKey>,
    ) {
        let Some(job) = jobs.get(id) else { return self.give_back(claimed) };
        // The table knows better: this one was granted anew.
        if let Some(before) = self.find(&job.owner, &request.key) {
            self.forget(timers, before);
        }
        let progress = job.task.map_or(KeyedProgress::Running(id), KeyedProgress::Task);
        let KeyedRequest { key, wish } = request;
        let (owner, claim) = (job.owner.clone(), claimed.map(|claimed| claimed.claim));
        self.insert(Keyed { owner, key, wish, progress, timer: None, claim });
    }

    /// A job is to stop: its outcome is no answer, and the same key starts anew.
    pub(crate) fn forget_job(&mut self, job: JobId) {
        if let Some(id) = self.of_job(job) {
            self.free(id);
        }
    }

    /// A job has ended: the outcome answers the same call again, for a call that became a
    /// task once that is on disk (DUR-01). A cancelled call is forgotten.
    pub(crate) fn remember_outcome(
        &mut self,
        timers: &mut TimerQueue,
        until: Instant,
        (id, stored): (JobId, Option<TaskId>),
        why: Option<StopReason>,
        outcome: impl FnOnce() -> TaskOutcome,
    ) {
        let Some(keyed) = self.of_job(id) else { return };
        let cancelled = why.is_some_and(|why| why != StopReason::TimedOut && !why.is_no_cancel());
        if cancelled {
            return self.free(keyed);
        }
        let outcome = outcome();
        match stored {
            None => self.finish(timers, until, keyed, outcome),
            Some(task) => self.advance(keyed, KeyedProgress::Ending { job: id, task, outcome }),
        }
    }

    fn finish(
        &mut self,
        timers: &mut TimerQueue,
        until: Instant,
        id: KeyedId,
        outcome: TaskOutcome,
    ) {
        let Some(call) = self.get_mut(id) else { return };
        timers.arm(&mut call.timer, Timer::Keyed(id), until);
        self.advance(id, KeyedProgress::Done(outcome));
    }

    /// The end of a task may be told, and so may the outcome of its call.
    pub(crate) fn finish_task(&mut self, timers: &mut TimerQueue, until: Instant, task: TaskId) {
        let Some(id) = self.of_task(task) else { return };
        let Some(KeyedProgress::Ending { outcome, .. }) = self.get(id).map(|call| &call.progress)
        else {
            return;
        };
        let outcome = outcome.clone();
        self.finish(timers, until, id, outcome);
    }

    /// A task is gone, and its id may come again (TSK-08): its call is forgotten, unless the task
    /// had ended untold; now no other answer is possible.
    pub(crate) fn leave_task(&mut self, timers: &mut TimerQueue, until: Instant, task: TaskId) {
        self.finish_task(timers, until, task);
        if let Some(id) = self.of_task(task) {
            self.free(id);
        }
    }

    /// The table has the task of a key, and is asked for it.
    pub(crate) fn part_with_task(&mut self, task: TaskId) {
        if let Some(id) = self.of_task(task) {
            self.remove(id);
        }
    }

    /// Forgets a call before its time.
    fn forget(&mut self, timers: &mut TimerQueue, id: KeyedId) {
        if let Some(mut call) = self.remove(id) {
            timers.disarm(&mut call.timer, Timer::Keyed(id));
        }
    }

    /// The outcome of a call was kept long enough.
    pub(crate) fn on_timer(&mut self, id: KeyedId) {
        if let Some(call) = self.get_mut(id) {
            call.timer = None;
        }
        self.remove(id);
    }

    /// Forgets all keys: the daemon shuts down.
    pub(crate) fn forget_all(&mut self, timers: &mut TimerQueue) {
        let ids: Vec<KeyedId> = self.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.forget(timers, id));
    }
}

/// Every keyed call agrees with its job or its task.
///
/// # Panics
/// When one is not.
pub(crate) fn check(engine: &Engine) {
    engine.keyed.check();
    for (_, call) in engine.keyed.iter() {
        assert_ne!(call.owner, Identity::Anonymous, "nobody in particular has keys");
        let is_done = matches!(call.progress, KeyedProgress::Done(_));
        assert_eq!(call.timer.is_some(), is_done, "an answer, and nothing else, is forgotten");
        match call.progress {
            KeyedProgress::Running(id) => {
                let job = engine.jobs.get(id).expect("a keyed call that runs has a job");
                assert_eq!(job.owner, call.owner, "the owner may ask again (TSK-39)");
                assert_ne!(
                    *job.purpose(),
                    Purpose::NoReceiver,
                    "{id} is remembered and not wanted"
                );
            }
            KeyedProgress::Ending { task, .. } => {
                let ended = engine.tasks.get(task).is_some_and(|task| task.status().is_terminal());
                assert!(ended && !engine.tasks.is_settled(task), "{task} is stored and not told");
            }
            KeyedProgress::Task(task) => {
                assert!(engine.tasks.contains(task), "a key is forgotten with its task");
            }
            KeyedProgress::Done(_) => {}
        }
    }
}

/// How many timers are armed here.
pub(crate) fn armed(engine: &Engine) -> usize {
    engine.keyed.iter().filter(|(_, call)| call.timer.is_some()).count()
}
