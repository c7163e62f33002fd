//! Calls whose requestor comes back: by an idempotency key, or because their connection is gone and
//! they are not stopped for that.

use ceased_core::tool::{OnDisconnect, Tool};
use serde_json::Value;

use super::asks::Place;
use super::modern::Claim;
use super::requests::Asked;
use super::{For, Oracle, nanos};
use crate::sim::mark::Mark;

/// Distinguishes the runs of a call with the same arguments: its second run has the number
/// of the call and this on top, and so on.
pub(in crate::sim) const RUN: u64 = 1 << 24;

/// The longest key.
const KEY_MAX: usize = 128;

/// The content of a call; the same key must not mean another one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wish {
    tool: String,
    arguments: Value,
    as_task: bool,
    speaks_for_itself: bool,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Far {
    /// Its job runs, or waits.
    Job(u64),
    /// It is a task.
    Task(u64),
    /// This came of it, and is remembered until then.
    Over(String, u64),
}

/// A call with a key.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Keyed {
    /// Its place among all there ever were.
    pub(super) place: u64,
    pub(super) far: Far,
    owner: String,
    key: String,
    wish: Wish,
}

impl Keyed {
    /// When it is forgotten.
    pub(super) const fn timer(&self) -> Option<u64> {
        match self.far {
            Far::Over(_, at) => Some(at),
            Far::Job(_) | Far::Task(_) => None,
        }
    }
}

impl Oracle {
    /// A `tools/call` of a tool that may be called like this: runs, unless its key says that the
    /// same was asked for before.
    pub(super) fn call_once(
        &mut self,
        asked: Asked,
        tool: &Tool,
        params: &Value,
        ttl: Option<Option<u64>>,
        claim: Option<Claim>,
    ) {
        let (arguments, meta) = (&params["arguments"], &params["_meta"]);
        let Some(key) = meta.get("ceased/idempotencyKey") else {
            return self.admit(asked, tool, arguments, meta, ttl, claim);
        };
        if tool.check.is_some() && !arguments["text"].is_string() {
            return self.wrong_arguments(&asked, ttl.is_some());
        }
        let owner = self.conns[&asked.conn].identity.clone();
        let key = key.as_str().filter(|key| (1..=KEY_MAX).contains(&key.len()));
        let Some(key) = key.filter(|_| owner != "anonymous") else {
            self.mark(Mark::KeyUnusable);
            return self.answer(&asked, "E -32602");
        };
        let wish = Wish {
            tool: tool.name.to_string(),
            arguments: arguments.clone(),
            as_task: ttl.is_some(),
            speaks_for_itself: claim.is_some(),
        };
        self.forget_tasks_gone();
        let found = self.keyed.iter().position(|call| call.owner == owner && call.key == key);
        if let Some(at) = found {
            return self.repeat(&asked, at, &wish);
        }
        let own = self.keyed.iter().filter(|call| call.owner == owner).count();
        let limits = &self.settings.limits;
        // The worlds know two bounds of bytes: none, and one that anything passes.
        let full = if own >= limits.keys_max {
            Some("idempotency_keys_per_identity")
        } else {
            (own > 0 && limits.stored_bytes_max == 1).then_some("stored_bytes_per_identity")
        };
        if let Some(limit) = full {
            self.mark(Mark::KeysFull);
            return self.answer(&asked, &format!("E -31003 {limit}"));
        }
        if self.keyed.iter().any(|call| call.key == key) {
            self.mark(Mark::KeyOfAnother);
        }
        let before = self.next_run;
        self.admit(asked, tool, arguments, meta, ttl, claim);
        if self.next_run == before {
            return;
        }
        let nonce = self.jobs.last().expect("it was admitted").nonce;
        let far = if ttl.is_some() { Far::Task(nonce) } else { Far::Job(nonce) };
        let (place, key) = (self.next_run, key.to_owned());
        self.keyed.push(Keyed { place, far, owner, key, wish });
    }

    /// The number of the next run of the call with this number in its arguments.
    pub(super) fn name_run(&mut self, number: u64) -> u64 {
        self.next_run += 1;
        let runs = self.runs.entry(number).or_default();
        let nonce = number + *runs * RUN;
        *runs += 1;
        if *runs > 1 {
            self.mark(Mark::RunAgain);
        }
        nonce
    }

    /// The job that is started next of those whose arguments have this number.
    #[must_use]
    pub fn waiting_run(&self, number: u64) -> Option<u64> {
        let mut runs = self.jobs.iter().filter(|job| !job.runs() && job.nonce % RUN == number);
        runs.next().map(|job| job.nonce)
    }

    /// Whether a run of the call with this number has not ended.
    #[must_use]
    pub fn runs(&self, number: u64) -> bool {
        self.jobs.iter().any(|job| job.nonce % RUN == number && job.whose != For::Nobody)
    }

    /// Whether a run of the call with this number goes on without its connection.
    #[must_use]
    pub fn misses(&self, number: u64) -> bool {
        let alone = |whose: &For| matches!(whose, For::Orphan | For::Task);
        self.jobs.iter().any(|job| job.nonce % RUN == number && alone(&job.whose))
    }

    /// Whether a run of the call with this number asks something.
    #[must_use]
    pub fn asks(&self, number: u64) -> bool {
        self.jobs.iter().any(|job| job.nonce % RUN == number && job.needs_input())
    }

    /// Whether something that this identity called with a key asks something.
    #[must_use]
    pub fn asks_for(&self, identity: &str) -> bool {
        let own = self.keyed.iter().filter(|call| call.owner == identity);
        own.filter_map(|call| match call.far {
            Far::Job(nonce) => Some(nonce),
            Far::Task(_) | Far::Over(..) => None,
        })
        .any(|nonce| self.jobs.iter().any(|job| job.nonce == nonce && job.needs_input()))
    }

    /// Whether something that a peer was asked could be put to another.
    #[must_use]
    pub fn may_pass_on(&self, conn: u64) -> bool {
        self.jobs.iter().any(|job| {
            let offered = |place: &Place| matches!(place, Place::Offered(at, ..) if *at == conn);
            job.asks.values().any(offered) && self.listeners(job).iter().any(|at| *at != conn)
        })
    }

    /// Whether something of this identity goes on without its connection, and can be asked for
    /// again.
    #[must_use]
    pub fn is_missed(&self, identity: &str) -> bool {
        let alone = |nonce: u64| {
            let job = self.jobs.iter().find(|job| job.nonce == nonce);
            job.is_some_and(|job| matches!(job.whose, For::Orphan | For::Task))
        };
        let missed = |call: &&Keyed| matches!(call.far, Far::Job(nonce) if alone(nonce));
        self.keyed.iter().filter(missed).any(|call| call.owner == identity)
    }

    /// The call of a task is forgotten with it.
    fn forget_tasks_gone(&mut self) {
        let tasks = &self.tasks;
        self.keyed.retain(|call| match call.far {
            Far::Task(nonce) => tasks.iter().any(|task| task.nonce == nonce),
            Far::Job(_) | Far::Over(..) => true,
        });
    }

    /// A key that is known.
    fn repeat(&mut self, asked: &Asked, at: usize, wish: &Wish) {
        if self.keyed[at].wish != *wish {
            self.mark(Mark::KeyMisused);
            return self.answer(asked, "E -32602");
        }
        match self.keyed[at].far.clone() {
            Far::Over(answer, _) => {
                self.mark(Mark::AnsweredAgain);
                self.answer(asked, &answer);
            }
            Far::Task(nonce) => {
                self.mark(Mark::SameTaskAgain);
                let at = self.tasks.iter().position(|task| task.nonce == nonce);
                let handle = self.handle(at.expect("others are forgotten"), asked.modern);
                self.answer(asked, &handle);
            }
            Far::Job(nonce) => {
                let job = self.job(nonce).expect("what is remembered as running runs");
                let mark = match job.whose {
                    For::Request(_) | For::Task => Mark::UnderWay,
                    For::Orphan | For::Retry => Mark::UnderWayUnawaited,
                    For::Nobody => unreachable!("what nobody wants is forgotten"),
                };
                self.mark(mark);
                self.answer(asked, "E -31008");
            }
        }
    }

    /// Whether a repeated request is given this task.
    pub(super) fn has_key(&self, task: u64) -> bool {
        self.keyed.iter().any(|call| call.far == Far::Task(task))
    }

    /// A job is to stop: its call is forgotten.
    pub(super) fn forget_key_of(&mut self, nonce: u64) {
        self.keyed.retain(|call| call.far != Far::Job(nonce));
    }

    /// A job has ended: its outcome answers a repeated request. A cancelled call is forgotten.
    pub(super) fn remember(&mut self, nonce: u64, answer: &str, cancelled: bool) {
        let Some(at) = self.keyed.iter().position(|call| call.far == Far::Job(nonce)) else {
            return;
        };
        let until = self.now.saturating_add(nanos(self.settings.limits.keys_for));
        self.keyed[at].far = Far::Over(answer.to_owned(), until);
        if cancelled {
            self.mark(Mark::KeyOfCancelled);
            self.keyed.remove(at);
        }
    }

    pub(super) fn forget_key(&mut self, place: u64) {
        self.mark(Mark::KeyForgotten);
        self.keyed.retain(|call| call.place != place);
    }

    /// The connection a plain call came by is gone.
    pub(super) fn requestor_gone(&mut self, nonce: u64) {
        let Some(job) = self.job(nonce) else { return };
        if job.is_stopping() {
            return self.disown(nonce, "Disconnected");
        }
        match job.on_disconnect {
            OnDisconnect::Cancel => {
                self.mark(Mark::DisconnectStopsCall);
                self.disown(nonce, "Disconnected");
            }
            OnDisconnect::Grace(grace) => {
                self.mark(Mark::Orphaned);
                let until = self.now.saturating_add(nanos(grace));
                let job = self.job(nonce).expect("it was there");
                (job.whose, job.orphan) = (For::Orphan, Some(until));
                (job.token, job.held) = (None, None);
            }
            OnDisconnect::Detach => self.detach(nonce),
        }
    }

    pub(super) fn no_retry_came(&mut self, nonce: u64) {
        self.mark(Mark::OrphanStopped);
        self.job(nonce).expect("its timer was due").orphan = None;
        self.disown(nonce, "Disconnected");
    }

    /// A call becomes a task of its owner, if there is room for one.
    fn detach(&mut self, nonce: u64) {
        let job = self.job(nonce).expect("it was there");
        let (owner, queued) = (job.owner.clone(), !job.runs());
        if owner == "anonymous" || self.too_many_tasks(&owner).is_some() {
            self.mark(Mark::NotDetached);
            return self.disown(nonce, "Disconnected");
        }
        self.mark(Mark::Detached);
        let job = self.job(nonce).expect("it was there");
        (job.whose, job.of_task) = (For::Task, true);
        (job.token, job.held) = (None, None);
        if let Some(claim) = &mut job.claim {
            claim.log = None;
        }
        let needs_input = job.needs_input();
        let ttl = nanos(self.settings.tasks.default_ttl);
        self.add_task(nonce, owner, ttl, queued, None);
        self.expected.detached.push(nonce);
        if needs_input {
            self.change_task(nonce, "working", "input_required");
        }
    }
}
