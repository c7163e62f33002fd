//! Calls that ask by their answer, and wait for a retry (MOD-07).

use ceased_core::outgoing::call::OutgoingRequest;
use serde_json::{Map, Value};

use super::asks::Asker;
use super::modern::{Claim, questions};
use super::requests::Asked;
use super::{For, Oracle, What, nanos};
use crate::sim::mark::Mark;
use crate::slow::Id;

/// A call that waits for its retry.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Parked {
    pub(super) nonce: u64,
    /// The request that was answered with that.
    of: (u64, Id),
    /// Its name on the wire, once it was heard.
    pub(super) state: String,
    owner: String,
    tool: String,
    /// When it is due, and how many timers were armed by then.
    pub(super) timer: (u64, u64),
    /// The job, as long as there is one.
    pub(super) job: Option<u64>,
    /// Its outcome.
    outcome: Option<String>,
}

impl Oracle {
    pub(super) fn ask_by_answer(
        &mut self,
        nonce: u64,
        call: u64,
        ask: &OutgoingRequest,
        claim: &Claim,
    ) {
        let asker = Asker::Job(nonce);
        if !claim.able.answers(&ask.method) {
            return self.refuse_ask(asker, call, "NotDeclared");
        }
        let job = self.job(nonce).expect("it asks");
        let (owner, waits) = (job.owner.clone(), job.whose == For::Retry || job.asking);
        let parked = self.parked.iter().filter(|parked| parked.owner == owner).count();
        let asking = self.jobs.iter().filter(|job| job.asking && job.owner == owner).count();
        if !waits && parked + asking >= self.settings.limits.parked_max {
            return self.refuse_ask(asker, call, "TooMany");
        }
        let job = self.job(nonce).expect("it asks");
        job.asks.insert(call, super::Place::Waiting(ask.clone()));
        job.asking |= matches!(job.whose, For::Request(_));
    }

    /// The turn is over: a call whose job asked in it is answered with the questions.
    pub(super) fn park_asking_calls(&mut self) {
        let asking = self.jobs.iter_mut().filter(|job| job.asking);
        let asking: Vec<u64> = asking
            .map(|job| {
                job.asking = false;
                job.nonce
            })
            .collect();
        for nonce in asking {
            let job = self.job(nonce).expect("it asks");
            let Some(able) = job.claim.as_ref().map(|claim| claim.able.clone()) else { continue };
            let cannot = job.questions().filter(|(_, ask)| !able.answers(&ask.method));
            let cannot: Vec<u64> = cannot.map(|(call, _)| call).collect();
            for call in cannot {
                self.end_ask(Asker::Job(nonce), call, "refused NotDeclared");
            }
            let job = self.job(nonce).expect("it asks");
            if let (true, For::Request(id)) = (job.needs_input(), job.whose.clone()) {
                self.park(nonce, &id);
            }
        }
    }

    fn park(&mut self, nonce: u64, id: &Id) {
        let at = self.now.saturating_add(nanos(self.settings.limits.parked_for));
        let timer = (at, self.arm());
        let job = self.job(nonce).expect("it asks");
        job.whose = For::Retry;
        (job.token, job.last) = (None, None);
        job.beats.forget();
        let (conn, held, owner, tool) =
            (job.conn, job.held.take(), job.owner.clone(), job.tool.clone());
        let able = job.claim.as_ref().map(|claim| claim.able.clone()).unwrap_or_default();
        let text = format!("input_required #{nonce} {}", questions(job, &able));
        if let Some(held) = held {
            self.tell_for(conn, held, Some(id));
        }
        self.mark(Mark::Parked);
        let state = String::new();
        let job = Some(nonce);
        let of = (conn, id.clone());
        self.parked.push(Parked { nonce, of, state, owner, tool, timer, job, outcome: None });
        if let Some(asked) = self.take_pending(conn, id) {
            self.answer(&asked, &text);
            self.close_if_finished(conn);
        }
    }

    /// Whether the call with this number waits for its retry.
    #[must_use]
    pub fn is_parked(&self, nonce: u64) -> bool {
        self.parked.iter().any(|parked| parked.nonce == nonce)
    }

    /// Name of a parked call on the wire; the judge has read it.
    pub fn heard_state(&mut self, nonce: u64, state: &str) {
        if let Some(parked) = self.parked.iter_mut().rev().find(|parked| parked.nonce == nonce) {
            parked.state = state.to_owned();
        }
    }

    pub(super) fn retry(
        &mut self,
        asked: Asked,
        tool: &str,
        state: &Value,
        params: &Value,
        claim: Claim,
    ) {
        let viewer = self.conns[&asked.conn].identity.clone();
        let named = |parked: &Parked| {
            let known = !parked.state.is_empty() && state.as_str() == Some(&parked.state);
            known && parked.owner == viewer && parked.tool == tool
        };
        let Some(at) = self.parked.iter().position(named) else {
            self.mark(Mark::BadState);
            return self.answer(&asked, "E -32602");
        };
        let nothing = Map::new();
        let responses = match params.get("inputResponses") {
            None => Some(&nothing),
            Some(said) => said.as_object().filter(|all| all.values().all(Value::is_object)),
        };
        let Some(responses) = responses else { return self.answer(&asked, "E -32602") };
        if self.is_full(&asked) {
            return;
        }
        let Parked { job, outcome, .. } = self.parked.remove(at);
        self.mark(Mark::Retried);
        let Some(nonce) = job else {
            return self.answer(&asked, &outcome.unwrap_or_default());
        };
        let token = super::requests::token_of(&params["_meta"]);
        let job = self.job(nonce).expect("a parked call has one");
        (job.conn, job.claim, job.token) = (asked.conn, Some(claim), token);
        job.whose = For::Request(asked.id.clone());
        job.asking = true;
        self.arm_beat(nonce);
        self.wait_for(asked, What::Job(nonce));
        self.take_responses(nonce, responses);
    }

    /// The state of these calls was not sent to their connection, which is lost: no retry comes.
    pub(super) fn unpark_unknown(&mut self, conn: u64) {
        let unsent: Vec<u64> = self.unsent.iter().filter_map(|text| parked_by(text)).collect();
        let unknown = |parked: &Parked| {
            let untold = parked.state.is_empty() || unsent.contains(&parked.nonce);
            parked.of.0 == conn && untold
        };
        let lost: Vec<Parked> = self.parked.extract_if(.., |parked| unknown(parked)).collect();
        for parked in lost {
            self.mark(Mark::StateLost);
            if let Some(job) = parked.job {
                self.disown(job, "Disconnected");
            }
        }
    }

    /// An id in an answer that was removed with its request could be named by its requestor alone:
    /// its job is stopped with the request (MOD-04, CAN-06).
    pub(super) fn stop_unnamed(&mut self, conn: u64, id: &Id) -> bool {
        let mut stopped = false;
        for text in self.recalled.remove(id).unwrap_or_default() {
            if let Some(nonce) = parked_by(&text) {
                let of = (conn, id.clone());
                let told = |parked: &Parked| parked.nonce == nonce && parked.of == of;
                let Some(at) = self.parked.iter().position(told) else { continue };
                if let Some(job) = self.parked.remove(at).job {
                    self.mark(Mark::StateRecalled);
                    self.disown(job, "Requested");
                    stopped = true;
                }
            }
            let task = number_after(&text, ":task #");
            let task = self.tasks.iter().find(|t| Some(t.nonce) == task);
            if let Some(task) = task.filter(|task| !task.is_over() && task.waiters.is_empty())
                && !self.has_key(task.nonce)
            {
                let nonce = task.nonce;
                self.mark(Mark::HandleRecalled);
                self.cancel_live_task(nonce);
                stopped = true;
            }
        }
        stopped
    }

    pub(super) fn keep_outcome(&mut self, nonce: u64, outcome: String) {
        if let Some(parked) = self.parked.iter_mut().find(|parked| parked.job == Some(nonce)) {
            (parked.job, parked.outcome) = (None, Some(outcome));
        }
    }

    pub(super) fn no_parked_retry_came(&mut self, nonce: u64) {
        let due = |parked: &Parked| parked.nonce == nonce && parked.timer.0 <= self.now;
        let Some(at) = self.parked.iter().position(due) else { return };
        self.mark(Mark::NeverRetried);
        if let Some(job) = self.parked.remove(at).job {
            self.disown(job, "Unanswered");
        }
    }
}

/// The call that this answer says is parked.
fn parked_by(text: &str) -> Option<u64> {
    number_after(text, ":input_required #")
}

fn number_after(text: &str, start: &str) -> Option<u64> {
    let (_, rest) = text.split_once(start)?;
    rest.split(' ').next()?.parse().ok()
}
