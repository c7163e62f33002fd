//! Requests of ours: what jobs and the host ask of peers, and how each of these ends, once.

use std::collections::BTreeMap;

use ceased_core::call::{Ask, Caller};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Ended, For, Job, Oracle, Stage, nanos};
use crate::sim::mark::Mark;
use crate::slow::Id;

/// What a peer said it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Able {
    elicitation: bool,
    sampling: bool,
    roots: bool,
    /// TSK-02: as a task, too.
    elicitation_task: bool,
    sampling_task: bool,
    /// Its tasks can be cancelled.
    pub(super) cancel: bool,
}

impl Able {
    /// Reads the capabilities of a client.
    pub(super) fn of(said: &Value, tasks: bool) -> Self {
        let has = |at: &str| said.pointer(at).is_some_and(|value| !value.is_null());
        let task = |at: &str| tasks && has(at);
        Self {
            // Nothing in it means forms.
            elicitation: has("/elicitation") && (has("/elicitation/form") || !has("/elicitation/url")),
            sampling: has("/sampling"),
            roots: has("/roots"),
            elicitation_task: task("/tasks/requests/elicitation/create"),
            sampling_task: task("/tasks/requests/sampling/createMessage"),
            cancel: task("/tasks/cancel"),
        }
    }

    pub(super) fn answers(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.elicitation,
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            method => method == "ping",
        }
    }

    pub(super) fn augments(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.elicitation_task,
            method => method == "sampling/createMessage" && self.sampling_task,
        }
    }
}

/// Where a question of a job is.
#[derive(Debug, Clone)]
pub enum Place {
    /// With one peer, as the request with this number.
    Sent(u64, u64),
    /// With nobody yet (TSK-30, MOD-07).
    Waiting(Ask),
    /// With one of those who wait for the result of its task (TSK-30).
    Offered(u64, u64, Ask),
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A job, by its number.
    Job(u64),
    /// The host.
    Host,
}

/// A request of ours without an answer.
#[derive(Debug, Clone)]
pub struct Out {
    /// Its place among all there ever were.
    pub(super) number: u64,
    /// What its asker calls it.
    pub(super) call: u64,
    /// As it is heard.
    pub(super) label: String,
    /// Its id on the wire, once it was heard.
    pub(super) wire: Option<u64>,
    pub(super) asker: Asker,
    pub(super) method: String,
    pub(super) timer: Option<u64>,
    /// The timeout that progress starts anew, and the end whatever progress there is.
    extends: Option<(u64, u64)>,
}

/// What a peer answered.
pub(super) struct Body {
    pub(super) good: bool,
    pub(super) text: String,
}

impl Body {
    fn read(text: &str, good: bool) -> Self {
        #[derive(Deserialize)]
        struct Parts<'a> {
            #[serde(borrow, default)]
            result: Option<&'a RawValue>,
            #[serde(borrow, default)]
            error: Option<&'a RawValue>,
        }
        let parts: Option<Parts<'_>> = serde_json::from_str(text).ok();
        let body = parts.and_then(|parts| if good { parts.result } else { parts.error });
        Self { good, text: body.map_or("null", RawValue::get).to_owned() }
    }

    pub(super) fn gist(&self) -> String {
        format!("{} {}", if self.good { "R" } else { "E" }, self.text)
    }
}

impl Job {
    /// What it asks of whoever looks, and was not told.
    pub(super) fn questions(&self) -> impl Iterator<Item = (u64, &Ask)> {
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
fn label(call: u64, ask: &Ask, task: Option<u64>) -> String {
    let mut text = format!("ask {call} {}", ask.method);
    if let Some(wish) = &ask.task {
        let ttl = wish.ttl.map_or_else(|| "-".to_owned(), |ttl| ttl.as_millis().to_string());
        text.push_str(&format!(" task {ttl}"));
    }
    if ask.patience.is_some_and(|patience| patience.extend_on_progress) {
        text.push_str(" progress");
    }
    if let Some(task) = task {
        // TSK-29
        text.push_str(&format!(" #{task}"));
    }
    text
}

impl Oracle {
    pub(super) fn ask(&mut self, nonce: u64, call: u64, to: Option<u64>, ask: &Ask) {
        let asker = Asker::Job(nonce);
        let max = self.settings.limits.asks_max;
        let Some(job) = self.job(nonce) else { return self.refuse_ask(asker, call, "NoJob") };
        let works = matches!(job.stage, Stage::Running | Stage::Lingering);
        let by_claim = to.is_none() && job.claim.is_some();
        let refusal = if !works || job.whose == For::Nobody {
            Some("NoJob")
        } else if job.asks.len() >= max {
            Some("TooMany")
        } else {
            (by_claim && ask.task.is_some()).then_some("NoTasks")
        };
        if let Some(refusal) = refusal {
            return self.refuse_ask(asker, call, refusal);
        }
        let (conn, of_task, claim) = (job.conn, job.of_task, job.claim.clone());
        match (to, of_task, claim) {
            (None, true, _) => {
                job.asks.insert(call, Place::Waiting(ask.clone()));
                if self.change_task(nonce, "working", "input_required") {
                    self.mark(Mark::InputRequired);
                } else if let Some(at) = self.tasks.iter().position(|task| task.nonce == nonce) {
                    self.tell_of_task(at);
                }
                self.offer_inputs(nonce);
            }
            (None, false, Some(claim)) => self.ask_by_answer(nonce, call, ask, &claim),
            (Some(_), ..) | (None, false, None) => {
                let conn = to.unwrap_or(conn);
                match self.send_ask(conn, asker, call, ask, None) {
                    Err(refusal) => self.refuse_ask(asker, call, refusal),
                    Ok(number) => {
                        let job = self.job(nonce).expect("it asks");
                        job.asks.insert(call, Place::Sent(conn, number));
                    }
                }
            }
        }
    }

    pub(super) fn host_asks(&mut self, conn: u64, call: u64, ask: &Ask) {
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
        ask: &Ask,
        task: Option<u64>,
    ) -> Result<u64, &'static str> {
        let max = self.settings.limits.calls_max;
        let entry = self.conns.get(&conn).ok_or("NoConnection")?;
        if entry.ended != Ended::No {
            return Err("NoConnection");
        }
        let Some(rules) = entry.rules else { return Err("NotInitialized") };
        if !entry.able.answers(&ask.method) {
            return Err("NotDeclared");
        }
        if ask.task.is_some() && !(rules.tasks && entry.able.augments(&ask.method)) {
            return Err("NoTasks");
        }
        if entry.calls.len() >= max {
            return Err("TooMany");
        }
        self.mark(Mark::Asked);
        let now = self.now;
        let (number, label) = (self.next_out, label(call, ask, task));
        self.next_out += 1;
        let patience = ask.patience.map(|p| (nanos(p.timeout), now.saturating_add(nanos(p.cap))));
        let extends = patience.filter(|_| ask.patience.is_some_and(|p| p.extend_on_progress));
        let out = Out {
            number,
            call,
            label: label.clone(),
            wire: None,
            asker,
            method: ask.method.to_string(),
            timer: patience.map(|(timeout, cap)| now.saturating_add(timeout).min(cap)),
            extends,
        };
        self.conns.get_mut(&conn).expect("it was there").calls.push(out);
        self.tell(conn, label);
        Ok(number)
    }

    /// A request of ours was heard: what its id is.
    pub fn heard_ask(&mut self, conn: u64, label: &str, wire: u64) {
        let calls = self.conns.get_mut(&conn).map(|conn| &mut conn.calls);
        let mut calls = calls.into_iter().flatten();
        if let Some(out) = calls.find(|out| out.wire.is_none() && out.label == label) {
            out.wire = Some(wire);
        }
    }

    /// TSK-30: what a task asks goes to the first of those who wait for its result and can answer.
    pub(super) fn offer_inputs(&mut self, nonce: u64) {
        let Some(task) = self.tasks.iter().find(|task| task.nonce == nonce) else { return };
        let waiters: Vec<u64> = task.waiters.iter().map(|(conn, _)| *conn).collect();
        let Some(job) = self.jobs.iter().find(|job| job.nonce == nonce) else { return };
        let waiting: Vec<(u64, Ask)> = job
            .asks
            .iter()
            .filter_map(|(call, place)| match place {
                Place::Waiting(ask) => Some((*call, ask.clone())),
                Place::Sent(..) | Place::Offered(..) => None,
            })
            .collect();
        for (call, ask) in waiting {
            for conn in &waiters {
                let sent = self.send_ask(*conn, Asker::Job(nonce), call, &ask, Some(nonce));
                if let Ok(number) = sent {
                    self.mark(Mark::InputOffered);
                    let job = self.job(nonce).expect("it asks");
                    job.asks.insert(call, Place::Offered(*conn, number, ask.clone()));
                    break;
                }
            }
        }
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

    fn take_out(&mut self, conn: u64, number: u64) -> Option<Out> {
        let calls = &mut self.conns.get_mut(&conn)?.calls;
        let at = calls.iter().position(|out| out.number == number)?;
        Some(calls.remove(at))
    }

    /// Nobody wants the answer any more: the peer is told (CAN-01).
    pub(super) fn cancel_out(&mut self, conn: u64, number: u64) {
        if let Some(out) = self.take_out(conn, number) {
            self.mark(Mark::AskCancelled);
            self.tell(conn, format!("cancel {}", out.call));
        }
    }

    pub(super) fn response(&mut self, conn: u64, id: Option<Id>, good: bool, text: &str) {
        let wire = match id {
            Some(Id::Number(number)) => u64::try_from(number).ok(),
            Some(Id::Text(_) | Id::Null) | None => None,
        };
        let calls = &self.conns[&conn].calls;
        let named = |out: &&Out| wire.is_some() && out.wire == wire;
        let Some(number) = calls.iter().find(named).map(|out| out.number) else {
            // CAN-10
            return self.mark(Mark::UnaskedResponse);
        };
        let out = self.take_out(conn, number).expect("it was found");
        self.mark(Mark::AskAnswered);
        self.end_ask(out.asker, out.call, &Body::read(text, good).gist());
    }

    /// A peer is still busy.
    pub(super) fn peer_progress(&mut self, conn: u64, params: Option<&str>) {
        let value = params.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let wire = value.as_ref().and_then(|value| value["progressToken"].as_u64());
        let now = self.now;
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let named = |out: &&mut Out| wire.is_some() && out.wire == wire;
        let Some(out) = entry.calls.iter_mut().find(named) else { return };
        if let Some((timeout, cap)) = out.extends {
            out.timer = Some(now.saturating_add(timeout).min(cap));
        }
        let busy = format!("busy {} {}", name(out.asker, out.call), params.unwrap_or_default());
        self.mark(Mark::AskExtended);
        self.order(busy);
    }

    pub(super) fn call_is_overdue(&mut self, conn: u64, number: u64) {
        let out = self.conns[&conn].calls.iter().find(|out| out.number == number);
        let out = out.expect("its timer was due").clone();
        self.mark(Mark::AskTimedOut);
        self.cancel_out(conn, number);
        self.end_ask(out.asker, out.call, "timed out");
    }

    /// Whoever asked does not want to know any more (CAN-02, CAN-03).
    pub(super) fn unask(&mut self, caller: Caller) {
        let (asker, call, place) = match caller {
            Caller::Host(ask) => {
                let call = ask.get();
                let conn = self.host_calls.get(&call).copied();
                let of_conn = conn.and_then(|conn| self.conns.get(&conn).map(|entry| (conn, entry)));
                let at = of_conn.and_then(|(conn, entry)| {
                    let named = |out: &&Out| out.asker == Asker::Host && out.call == call;
                    Some((conn, entry.calls.iter().find(named)?.number))
                });
                (Asker::Host, call, at.map(|(conn, number)| Place::Sent(conn, number)))
            }
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
                self.cancel_out(conn, number);
                self.end_ask(asker, call, "cancelled");
            }
        }
    }

    /// What a job asked ends with it (ACP-05).
    pub(super) fn drop_asks(&mut self, nonce: u64) {
        let Some(job) = self.job(nonce) else { return };
        let needed = job.needs_input() && job.of_task;
        let asks: BTreeMap<u64, Place> = std::mem::take(&mut job.asks);
        for (call, place) in asks {
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

    /// A connection is gone: the answers that were to come on it will not. What a task asked goes
    /// to the next who waits (TSK-30).
    pub(super) fn lose_calls(&mut self, calls: Vec<Out>) {
        for out in calls {
            let Asker::Job(nonce) = out.asker else {
                self.mark(Mark::AskLost);
                self.end_ask(out.asker, out.call, "lost");
                continue;
            };
            let Some(job) = self.job(nonce) else { continue };
            match job.asks.get(&out.call).cloned() {
                None => {}
                Some(Place::Offered(_, _, ask)) => {
                    job.asks.insert(out.call, Place::Waiting(ask));
                    self.mark(Mark::InputOfferedAgain);
                    self.offer_inputs(nonce);
                }
                Some(Place::Sent(..) | Place::Waiting(_)) => {
                    self.mark(Mark::AskLost);
                    self.end_ask(out.asker, out.call, "lost");
                }
            }
        }
    }
}

/// What a call is called.
fn name(asker: Asker, call: u64) -> String {
    match asker {
        Asker::Job(nonce) => format!("j{nonce}.{call}"),
        Asker::Host => format!("h{call}"),
    }
}
