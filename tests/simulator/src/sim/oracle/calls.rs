//! Requests of ours on the wire: sent, answered, overdue, cancelled.

use ceased_core::outgoing::call::AnswerTimeout;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::asks::{Asker, name};
use super::{Oracle, nanos};
use crate::sim::mark::Mark;
use crate::slow::{self, Id};

/// A request of ours without an answer.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Out {
    /// Its place among all there ever were.
    pub(super) number: u64,
    /// Its name at its sender, or the request that created its task.
    pub(super) call: u64,
    /// As it is heard.
    pub(super) label: String,
    /// Its id on the wire, once it was heard.
    pub(super) wire: Option<u64>,
    pub(super) kind: Kind,
    pub(super) method: String,
    pub(super) with_task: bool,
    /// Whether it is an `initialize` of ACP by which we declare that we cancel.
    pub(super) declares: bool,
    pub(super) wanted: Wanted,
    pub(super) timer: Option<u64>,
    /// The timeout that progress starts anew, and the end whatever progress there is.
    extends: Option<(u64, u64)>,
}

/// Whether the answer to a request of ours is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Wanted {
    Yes,
    /// It was cancelled, and is answered nevertheless (ACP-03).
    Cancelled,
    /// It was not answered in time, was cancelled, and is answered nevertheless.
    Overdue,
}

/// Receiver of the answer to a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Kind {
    /// The asker.
    For(Asker),
    /// No receiver: the task that it creates is cancelled as soon as it has an id (CAN-05).
    Nobody,
    /// The engine, about the task this request created.
    Poll(u64),
    /// The engine, for the result of the task this request created.
    Fetch(u64),
    /// No receiver: a cancel has done its work by being sent.
    Cancel,
}

impl Kind {
    /// Distinguishes the requests of one call.
    const fn number(self) -> u64 {
        match self {
            Self::For(_) | Self::Nobody => 0,
            Self::Poll(_) => 1,
            Self::Fetch(_) => 2,
            Self::Cancel => 3,
        }
    }
}

/// Answer of a peer.
pub(super) struct Body {
    pub(super) good: bool,
    pub(super) text: String,
}

impl Body {
    pub(super) fn read(text: &str, good: bool) -> Self {
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

impl Oracle {
    /// Sends a request of ours that may be sent; its number.
    #[allow(clippy::too_many_arguments, reason = "all there is to a request")]
    pub(super) fn place(
        &mut self,
        conn: u64,
        kind: Kind,
        call: u64,
        method: &str,
        label: String,
        answer_timeout: Option<&AnswerTimeout>,
        with_task: bool,
    ) -> u64 {
        let now = self.now;
        let number = self.next_out;
        self.next_out += 1;
        let spans = answer_timeout.map(|p| (nanos(p.timeout), now.saturating_add(nanos(p.cap))));
        let extends = spans.filter(|_| answer_timeout.is_some_and(|p| p.extend_on_progress));
        let out = Out {
            number,
            call,
            label: label.clone(),
            wire: None,
            kind,
            method: method.to_owned(),
            with_task,
            declares: false,
            wanted: Wanted::Yes,
            timer: spans.map(|(timeout, cap)| now.saturating_add(timeout).min(cap)),
            extends,
        };
        self.conns.get_mut(&conn).expect("it was there").calls.push(out);
        self.tell(conn, label);
        number
    }

    /// A request of ours was heard, with this id. Returns its name at its sender.
    pub fn heard_ask(&mut self, conn: u64, label: &str, wire: u64) -> Option<u64> {
        let calls = &mut self.conns.get_mut(&conn)?.calls;
        let out = calls.iter_mut().find(|out| out.wire.is_none() && out.label == label)?;
        out.wire = Some(wire);
        Some(out.call * 4 + out.kind.number())
    }

    fn take_out(&mut self, conn: u64, number: u64) -> Option<Out> {
        let calls = &mut self.conns.get_mut(&conn)?.calls;
        let at = calls.iter().position(|out| out.number == number)?;
        Some(calls.remove(at))
    }

    /// The answer has no receiver now: the peer is told (CAN-01), or will be when there is a task
    /// to cancel (CAN-05).
    pub(super) fn cancel_out(&mut self, conn: u64, number: u64) {
        if self.give_up_remote(conn, number) {
            return;
        }
        let calls = self.conns.get_mut(&conn).map(|entry| &mut entry.calls);
        let out = calls.and_then(|calls| calls.iter_mut().find(|out| out.number == number));
        if let Some(out) = out.filter(|out| out.with_task) {
            (out.kind, out.timer) = (Kind::Nobody, None);
            return;
        }
        let Some(out) = self.take_out(conn, number) else { return };
        let how = match self.party(conn) {
            None => Some("cancel"),
            Some(party) => party.may_cancel().then(|| party.spelling()),
        };
        // CAN-04, ACP-04
        let how = how.filter(|_| out.wanted == Wanted::Yes && out.method != "initialize");
        if let Some(how) = how {
            self.mark(Mark::AskCancelled);
            self.tell(conn, format!("{how} {}", out.call));
        }
    }

    pub(super) fn response(&mut self, conn: u64, id: Option<Id>, good: bool, text: &str) {
        let wire = match id {
            Some(Id::Number(number)) => u64::try_from(number).ok(),
            Some(Id::Text(_) | Id::Canonical(_) | Id::Null) | None => None,
        };
        let calls = &self.conns[&conn].calls;
        let named = |out: &&Out| wire.is_some() && out.wire == wire;
        let Some(number) = calls.iter().find(named).map(|out| out.number) else {
            // CAN-10
            return self.mark(Mark::UnaskedResponse);
        };
        let out = self.take_out(conn, number).expect("it was found");
        self.mark(Mark::AskAnswered);
        let body = Body::read(text, good);
        if out.with_task {
            return self.task_call_answered(conn, out, &body);
        }
        match out.kind {
            Kind::Poll(number) => self.polled(conn, number, &body),
            Kind::Fetch(number) => self.fetched(conn, number, &body),
            Kind::Nobody | Kind::Cancel => {}
            Kind::For(asker) if self.party(conn).is_some() => {
                if good && out.method == "initialize" {
                    self.initialized_acp(conn, out.declares, &body.text, false);
                }
                self.end_ask(asker, out.call, &body.gist());
            }
            Kind::For(_) if out.method == "initialize" => self.initialized(conn, out.call, &body),
            Kind::For(asker) => {
                if out.method == "tools/list" {
                    self.learn_tools(conn, &body);
                }
                self.end_ask(asker, out.call, &body.gist());
            }
        }
    }

    /// A peer is still busy. The token of a call that became a task stays good until its end.
    pub(super) fn peer_progress(&mut self, conn: u64, params: Option<&str>) {
        let token = params.and_then(|text| slow::member(text, "progressToken"));
        let wire = match token.and_then(|token| slow::read_id(&token)) {
            Some(Id::Number(number)) => u64::try_from(number).ok(),
            Some(Id::Text(_) | Id::Canonical(_) | Id::Null) | None => None,
        };
        let now = self.now;
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        let remote = entry.remote.iter_mut().map(|remote| &mut remote.out);
        let named = |out: &&mut Out| wire.is_some() && out.wire == wire;
        let Some(out) = entry.calls.iter_mut().chain(remote).find(named) else { return };
        let Kind::For(asker) = out.kind else { return };
        if let Some((timeout, cap)) = out.extends {
            out.timer = Some(now.saturating_add(timeout).min(cap));
        }
        let busy = format!("busy {} {}", name(asker, out.call), params.unwrap_or_default());
        self.mark(Mark::AskExtended);
        self.order(busy);
    }

    pub(super) fn call_is_overdue(&mut self, conn: u64, number: u64) {
        let entry = &self.conns[&conn];
        let remote = entry.remote.iter().map(|remote| &remote.out);
        let out = entry.calls.iter().chain(remote).find(|out| out.number == number);
        let out = out.expect("its timer was due").clone();
        self.mark(Mark::AskTimedOut);
        if self.await_cancelled(conn, number, Wanted::Overdue) {
            return;
        }
        self.cancel_out(conn, number);
        if let Kind::For(asker) = out.kind {
            let cancelled = out.wanted == Wanted::Cancelled;
            self.end_ask(asker, out.call, if cancelled { "cancelled" } else { "timed out" });
        }
        if out.method == "initialize" && self.party(conn).is_none() {
            self.no_session(conn);
        }
    }
}
