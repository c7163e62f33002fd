//! Requests of ours: those of jobs and the host to peers, and the one end of each.

use std::collections::BTreeMap;

use ceased_core::outgoing::call::{AnswerTimeout, Caller, OutgoingRequest};
use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::{Kind, Out, Wanted};
use super::{Ended, For, Job, Oracle, Stage};
use crate::sim::mark::Mark;

/// Where a question of a job is.
#[derive(Debug, Clone)]
pub(in crate::sim) enum Place {
    /// With one peer, as the request with this number.
    Sent(u64, u64),
    /// Not sent to any peer yet (TSK-30, MOD-07).
    Waiting(OutgoingRequest),
    /// At one of the peers that want the outcome of its job (TSK-30).
    Offered(u64, u64, OutgoingRequest),
}

/// Maker of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Asker {
    /// A job, by its number.
    Job(u64),
    /// The host.
    Host,
}

impl Job {
    /// Its unanswered questions to any viewer.
    pub(super) fn questions(&self) -> impl Iterator<Item = (u64, &OutgoingRequest)> {
        self.asks.iter().filter_map(|(call, place)| match place {
            Place::Waiting(ask) | Place::Offered(_, _, ask) => Some((*call, ask)),
            Place::Sent(..) => None,
        })
    }

    pub(super) fn needs_input(&self) -> bool {
        self.questions().next().is_some()
    }
}

/// A request of ours as it is heard.
fn label(call: u64, ask: &OutgoingRequest, task: Option<u64>) -> String {
    let mut text = format!("ask {call} {}", ask.method);
    if let Some(wish) = &ask.task {
        let ttl = wish.ttl.map_or_else(|| "-".to_owned(), |ttl| ttl.as_millis().to_string());
        text.push_str(&format!(" task {ttl}"));
    }
    if ask.answer_timeout.is_some_and(|answer_timeout| answer_timeout.extend_on_progress) {
        text.push_str(" progress");
    }
    if let Some(task) = task {
        // TSK-29
        text.push_str(&format!(" #{task}"));
    }
    text
}

impl Oracle {
    pub(super) fn ask(&mut self, nonce: u64, call: u64, to: Option<u64>, ask: &OutgoingRequest) {
        let asker = Asker::Job(nonce);
        let max = self.settings.limits.asks_max;
        let Some(job) = self.job(nonce) else { return self.refuse_ask(asker, call, "NoJob") };
        let works = matches!(job.stage, Stage::Running | Stage::Lingering);
        let by_claim = to.is_none() && job.claim.is_some();
        let by_answer = by_claim && !job.of_task;
        let (owner, waits) = (job.owner.clone(), job.waits());
        let asking = self.jobs.iter().filter(|job| job.waits() && job.owner == owner).count();
        let limits = &self.settings.limits;
        let (parked_max, parked_for) = (limits.parked_max, limits.parked_for);
        let job = self.job(nonce).expect("it asks");
        let is_one_too_many = to.is_none() && !by_answer && !waits && asking >= parked_max;
        let refusal = if !works || matches!(job.whose, For::Nobody | For::Orphan) {
            Some("NoJob")
        } else if job.asks.len() >= max || is_one_too_many {
            Some("TooMany")
        } else {
            (by_claim && ask.task.is_some()).then_some("NoTasks")
        };
        if let Some(refusal) = refusal {
            return self.refuse_ask(asker, call, refusal);
        }
        let (of_task, claim) = (job.of_task, job.claim.clone());
        match (to, of_task, claim) {
            (None, true, _) => {
                job.asks.insert(call, Place::Waiting(ask.clone()));
                if self.change_task(nonce, "working", "input_required") {
                    self.mark(Mark::InputRequired);
                } else if let Some(at) = self.tasks.iter().position(|task| task.nonce == nonce) {
                    self.tell_of_task(at);
                }
                self.put_questions(nonce, None);
            }
            (None, false, Some(claim)) => self.ask_by_answer(nonce, call, ask, &claim),
            (None, false, None) => {
                let mut ask = ask.clone();
                let (timeout, cap) = (parked_for, parked_for);
                ask.answer_timeout.get_or_insert(AnswerTimeout {
                    timeout,
                    extend_on_progress: false,
                    cap,
                });
                job.asks.insert(call, Place::Waiting(ask));
                self.put_questions(nonce, None);
            }
            (Some(conn), ..) => match self.send_ask(conn, asker, call, ask, None) {
                Err(refusal) => self.refuse_ask(asker, call, refusal),
                Ok(number) => {
                    let job = self.job(nonce).expect("it asks");
                    job.asks.insert(call, Place::Sent(conn, number));
                }
            },
        }
    }

    pub(super) fn host_asks(&mut self, conn: u64, call: u64, ask: &OutgoingRequest) {
        match self.send_ask(conn, Asker::Host, call, ask, None) {
            Err(refusal) => self.refuse_ask(Asker::Host, call, refusal),
            Ok(_) => {
                self.host_calls.insert(call, conn);
            }
        }
    }

    pub(super) fn refuse_ask(&mut self, asker: Asker, call: u64, refusal: &str) {
        self.mark(Mark::AskRefused);
        self.order(format!("tell {} refused {refusal}", name(asker, call)));
    }

    /// Sends a request of ours if the rules allow it; else why not.
    fn send_ask(
        &mut self,
        conn: u64,
        asker: Asker,
        call: u64,
        ask: &OutgoingRequest,
        task: Option<u64>,
    ) -> Result<u64, &'static str> {
        let max = self.settings.limits.calls_max;
        let entry = self.conns.get(&conn).ok_or("NoConnection")?;
        if entry.ended != Ended::No {
            return Err("NoConnection");
        }
        if entry.rules.is_none() {
            return Err("NotInitialized");
        }
        if entry.acp.is_some() {
            return self.send_acp(conn, asker, call, ask);
        }
        if !entry.able.answers(&ask.method) {
            return Err("NotDeclared");
        }
        let augments = entry.able.augments(&ask.method);
        if ask.task.is_some() && !augments {
            return Err("NoTasks");
        }
        let remote_max = self.settings.limits.remote_tasks_max;
        // A request for a task may have one already, unless it has no receiver any more.
        let asked = |out: &&Out| out.with_task && out.kind != Kind::Nobody;
        let tasks = entry.remote.len() + entry.calls.iter().filter(asked).count();
        let full = entry.calls.len() >= max || (ask.task.is_some() && tasks >= remote_max);
        if &*ask.method == "tools/call" && augments {
            let params = ask.params.as_ref().map(|params| params.get()).unwrap_or_default();
            let params: Value = serde_json::from_str(params).unwrap_or(Value::Null);
            let misuse = self.misuse(conn, params["name"].as_str(), ask.task.is_some());
            if let Some(refusal) = misuse {
                return Err(refusal);
            }
        }
        if full {
            return Err("TooMany");
        }
        self.mark(Mark::Asked);
        let (kind, label, answer_timeout) =
            (Kind::For(asker), label(call, ask, task), &ask.answer_timeout);
        let with_task = ask.task.is_some();
        Ok(self.place(conn, kind, call, &ask.method, label, answer_timeout.as_ref(), with_task))
    }

    /// As above, of an ACP peer: it may be asked anything.
    fn send_acp(
        &mut self,
        conn: u64,
        asker: Asker,
        call: u64,
        ask: &OutgoingRequest,
    ) -> Result<u64, &'static str> {
        if ask.task.is_some() {
            return Err("NoTasks");
        }
        if self.conns[&conn].calls.len() >= self.settings.limits.calls_max {
            return Err("TooMany");
        }
        self.mark(Mark::Asked);
        let (kind, text) = (Kind::For(asker), format!("ask {call} {}", ask.method));
        let number =
            self.place(conn, kind, call, &ask.method, text, ask.answer_timeout.as_ref(), false);
        let calls = self.conns.get_mut(&conn).map(|entry| &mut entry.calls);
        if let Some(out) = calls.and_then(|calls| calls.iter_mut().find(|o| o.number == number)) {
            out.declares = Self::we_declare(ask.params.as_deref().map(RawValue::get));
        }
        Ok(number)
    }

    /// Connections that want a job's result and can be asked: the one that called, or waits for its
    /// task.
    pub(super) fn listeners(&self, job: &Job) -> Vec<u64> {
        let task = self.tasks.iter().find(|task| task.nonce == job.nonce).filter(|_| job.of_task);
        match (task, &job.whose) {
            (Some(task), _) => task.waiters.iter().map(|(conn, _)| *conn).collect(),
            (None, For::Request(_)) => vec![job.conn],
            (None, For::Task | For::Orphan | For::Retry | For::Nobody) => Vec::new(),
        }
    }

    /// TSK-30, ACP-05: a question of a job is at the first peer that can answer it. Without
    /// one a task waits, and a call is told the reason for the first, or this.
    pub(super) fn put_questions(&mut self, nonce: u64, to_nobody: Option<&str>) {
        let Some(job) = self.jobs.iter().find(|job| job.nonce == nonce) else { return };
        let listeners = self.listeners(job);
        let open: Vec<(u64, OutgoingRequest)> =
            job.questions().map(|(c, ask)| (c, ask.clone())).collect();
        for (call, ask) in open {
            let before = match &self.job(nonce).expect("it asks").asks[&call] {
                Place::Offered(conn, number, _) => Some((*conn, *number)),
                Place::Waiting(_) | Place::Sent(..) => None,
            };
            if let Some((conn, number)) = before {
                let entry = self.conns.get(&conn);
                let out = entry.and_then(|e| e.calls.iter().find(|out| out.number == number));
                let given_up = out.is_some_and(|out| out.wanted != Wanted::Yes);
                if listeners.contains(&conn) || given_up {
                    continue;
                }
            }
            self.put_question(nonce, call, &ask, &listeners, before, to_nobody);
        }
    }

    fn put_question(
        &mut self,
        nonce: u64,
        call: u64,
        ask: &OutgoingRequest,
        listeners: &[u64],
        before: Option<(u64, u64)>,
        to_nobody: Option<&str>,
    ) {
        let of_task = self.job(nonce).expect("it asks").of_task;
        let mut refusals = Vec::new();
        for conn in listeners {
            let sent = self.send_ask(*conn, Asker::Job(nonce), call, ask, of_task.then_some(nonce));
            match sent {
                Err(refusal) => refusals.push(refusal),
                Ok(number) => {
                    if of_task {
                        self.mark(Mark::InputOffered);
                    }
                    let place = Place::Offered(*conn, number, ask.clone());
                    self.job(nonce).expect("it asks").asks.insert(call, place);
                    if let Some((conn, number)) = before {
                        self.mark(Mark::QuestionMoved);
                        self.cancel_out(conn, number);
                    }
                    return;
                }
            }
        }
        if of_task {
            return;
        }
        if let Some((conn, number)) = before {
            self.mark(Mark::QuestionOfNobody);
            self.cancel_out(conn, number);
        }
        let refusal = refusals.first().copied().unwrap_or("NoConnection");
        let refused = format!("refused {refusal}");
        if to_nobody.is_some() {
            self.mark(Mark::AskLost);
        } else {
            self.mark(Mark::AskRefused);
        }
        self.end_ask(Asker::Job(nonce), call, to_nobody.unwrap_or(&refused));
    }

    /// A call has ended.
    pub(super) fn end_ask(&mut self, asker: Asker, call: u64, how: &str) {
        let mut told_all = None;
        match asker {
            Asker::Host => {
                let _ = self.host_calls.remove(&call);
            }
            Asker::Job(nonce) => {
                let Some(job) = self.job(nonce) else { return };
                let needed = job.needs_input();
                job.asks.remove(&call);
                told_all = (needed && !job.needs_input() && job.of_task).then_some(nonce);
            }
        }
        self.order(format!("tell {} {how}", name(asker, call)));
        if let Some(nonce) = told_all {
            self.change_task(nonce, "input_required", "working");
        }
    }

    /// Where a call of the host is.
    fn place_of(&self, call: u64) -> Option<Place> {
        let conn = *self.host_calls.get(&call)?;
        let entry = self.conns.get(&conn)?;
        let remote = entry.remote.iter().map(|remote| &remote.out);
        let named = |out: &&Out| out.kind == Kind::For(Asker::Host) && out.call == call;
        let out = entry.calls.iter().chain(remote).find(named)?;
        Some(Place::Sent(conn, out.number))
    }

    /// Why a call cannot be cancelled.
    fn uncancellable(&self, conn: u64, number: u64) -> Option<&'static str> {
        let entry = self.conns.get(&conn)?;
        let followed = entry.remote.iter().any(|remote| remote.out.number == number);
        let out = entry.calls.iter().find(|out| out.number == number);
        if out.is_some_and(|out| out.wanted != Wanted::Yes) {
            return Some("NotInProgress");
        }
        // CAN-04, ACP-04
        if out.is_some_and(|out| out.method == "initialize") {
            return Some("Protected");
        }
        // ACP-03
        if let Some(party) = entry.acp {
            return (!party.may_cancel()).then_some("CancelNotDeclared");
        }
        // CAN-05, TSK-02
        let with_task = followed || out.is_some_and(|out| out.with_task);
        (with_task && !entry.able.cancel).then_some("NotDeclared")
    }

    /// The asker withdraws its question (CAN-02, CAN-03).
    pub(super) fn unask(&mut self, caller: Caller) {
        let (asker, call, place) = match caller {
            Caller::Host(ask) => (Asker::Host, ask.get(), self.place_of(ask.get())),
            Caller::Job { job, ask } => {
                let (nonce, call) = (job.get(), ask.get());
                let place = self.job(nonce).and_then(|job| job.asks.get(&call).cloned());
                (Asker::Job(nonce), call, place)
            }
        };
        match place {
            None => self.order(format!("keep {} NotInProgress", name(asker, call))),
            Some(Place::Waiting(_)) => self.end_ask(asker, call, "cancelled"),
            Some(Place::Sent(conn, number) | Place::Offered(conn, number, _)) => {
                if let Some(refusal) = self.uncancellable(conn, number) {
                    self.mark(Mark::CancelRefused);
                    return self.order(format!("keep {} {refusal}", name(asker, call)));
                }
                if !self.await_cancelled(conn, number, Wanted::Cancelled) {
                    self.cancel_out(conn, number);
                    self.end_ask(asker, call, "cancelled");
                }
            }
        }
    }

    /// A job is stopped, and with it its requests (ACP-05). Where that is answered, the job
    /// is told the answer.
    pub(super) fn cancel_asks(&mut self, nonce: u64) {
        let Some(job) = self.job(nonce) else { return };
        let sent: Vec<(u64, u64, u64)> = job
            .asks
            .iter()
            .filter_map(|(call, place)| match place {
                Place::Sent(conn, number) | Place::Offered(conn, number, _) => {
                    Some((*call, *conn, *number))
                }
                Place::Waiting(_) => None,
            })
            .collect();
        let mut kept = Vec::new();
        for (call, conn, number) in sent {
            self.await_cancelled(conn, number, Wanted::Cancelled);
            let entry = self.conns.get(&conn);
            let out = entry.and_then(|entry| entry.calls.iter().find(|out| out.number == number));
            if out.is_some_and(|out| out.wanted != Wanted::Yes) {
                kept.push(call);
            }
        }
        self.drop_asks(nonce, &kept);
    }

    /// The requests of a job end with it (ACP-05).
    pub(super) fn drop_asks(&mut self, nonce: u64, kept: &[u64]) {
        let Some(job) = self.job(nonce) else { return };
        let needed = job.needs_input() && job.of_task;
        let asks: BTreeMap<u64, Place> = std::mem::take(&mut job.asks);
        for (call, place) in asks {
            if kept.contains(&call) {
                self.job(nonce).expect("it was there").asks.insert(call, place);
                continue;
            }
            match place {
                Place::Waiting(_) => {}
                Place::Sent(conn, number) | Place::Offered(conn, number, _) => {
                    self.cancel_out(conn, number);
                }
            }
            self.order(format!("tell {} cancelled", name(Asker::Job(nonce), call)));
        }
        if needed {
            self.change_task(nonce, "input_required", "working");
        }
    }

    /// A connection is gone: the answers that were to come on it will not. A question to a receiver
    /// of the outcome goes to the next receiver (TSK-30).
    pub(super) fn lose_calls(&mut self, calls: Vec<Out>) {
        for out in calls {
            let nonce = match out.kind {
                Kind::For(Asker::Job(nonce)) => nonce,
                Kind::For(Asker::Host) => {
                    self.mark(Mark::AskLost);
                    self.end_ask(Asker::Host, out.call, "lost");
                    continue;
                }
                Kind::Nobody | Kind::Poll(_) | Kind::Fetch(_) | Kind::Cancel => continue,
            };
            let Some(job) = self.job(nonce) else { continue };
            match job.asks.get(&out.call).cloned() {
                None => {}
                Some(Place::Offered(_, number, ask)) if number == out.number => {
                    if job.of_task {
                        self.mark(Mark::InputOfferedAgain);
                    }
                    let job = self.job(nonce).expect("it was there");
                    job.asks.insert(out.call, Place::Waiting(ask));
                    self.put_questions(nonce, Some("lost"));
                }
                Some(Place::Sent(..)) => {
                    self.mark(Mark::AskLost);
                    self.end_ask(Asker::Job(nonce), out.call, "lost");
                }
                // At another peer by now.
                Some(Place::Offered(..) | Place::Waiting(_)) => {}
            }
        }
    }
}

/// Name of a call.
pub(super) fn name(asker: Asker, call: u64) -> String {
    match asker {
        Asker::Job(nonce) => format!("j{nonce}.{call}"),
        Asker::Host => format!("h{call}"),
    }
}
