//! Tasks at peers: followed from the answer that creates one to the answer it ends with (TSK-13).

use serde_json::Value;

use super::asks::Asker;
use super::calls::{Body, Kind, Out};
use super::{Ended, Oracle};
use crate::sim::mark::Mark;

/// Between two questions: when the peer does not say, and at least and at most.
const POLL: (u64, u64, u64) = (1_000_000_000, 50_000_000, 24 * 3600 * 1_000_000_000);

/// A task at a peer.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Remote {
    /// The request that created it; its timer goes on.
    pub(super) out: Out,
    pub(super) asker: Asker,
    id: String,
    status: String,
    /// How long between two questions, as the peer said last.
    interval: u64,
    /// When it is asked about next.
    pub(super) poll_timer: Option<u64>,
    /// The question and the wait for the result that have no answer.
    poll: Option<u64>,
    fetch: Option<u64>,
}

/// The state of a task as told by a peer.
struct Report {
    id: String,
    status: String,
    interval: u64,
}

impl Report {
    fn read(task: &Value) -> Option<Self> {
        let known = ["working", "input_required", "completed", "failed", "cancelled"];
        let id = task.get("taskId")?.as_str()?.to_owned();
        let status = task.get("status")?.as_str().filter(|status| known.contains(status))?;
        let (usual, least, most) = POLL;
        let interval = match task.get("pollInterval").map(Value::as_u64) {
            Some(Some(millis)) => millis.saturating_mul(1_000_000).clamp(least, most),
            Some(None) | None => usual,
        };
        Some(Self { id, status: status.to_owned(), interval })
    }
}

impl Oracle {
    fn remote(&mut self, conn: u64, number: u64) -> Option<&mut Remote> {
        let remote = &mut self.conns.get_mut(&conn)?.remote;
        remote.iter_mut().find(|remote| remote.out.number == number)
    }

    /// A request that asked for a task is answered.
    pub(super) fn task_call_answered(&mut self, conn: u64, out: Out, body: &Body) {
        let value: Value = serde_json::from_str(&body.text).unwrap_or(Value::Null);
        let answer = match value.get("task") {
            _ if !body.good => body.gist(),
            _ if !value.is_object() => "unusable".to_owned(),
            None => body.gist(),
            Some(task) => match (Report::read(task), out.kind) {
                (None, _) => "unusable".to_owned(),
                (Some(report), Kind::For(asker)) => return self.follow(conn, out, asker, report),
                (Some(report), Kind::Nobody | Kind::Poll(_) | Kind::Fetch(_) | Kind::Cancel) => {
                    // CAN-05: it was cancelled before it had an id.
                    self.mark(Mark::RemoteCancelledLate);
                    return self.cancel_remote(conn, &out, &report.id);
                }
            },
        };
        if let Kind::For(asker) = out.kind {
            self.end_ask(asker, out.call, &answer);
        }
    }

    fn follow(&mut self, conn: u64, out: Out, asker: Asker, report: Report) {
        self.mark(Mark::RemoteFollowed);
        let number = out.number;
        let Report { id, status, interval } = report;
        let (poll_timer, poll, fetch) = (None, None, None);
        let remote = Remote { out, asker, id, status, interval, poll_timer, poll, fetch };
        let Some(entry) = self.conns.get_mut(&conn) else { return };
        entry.remote.push(remote);
        entry.remote.sort_by_key(|remote| remote.out.number);
        self.proceed(conn, number, interval);
    }

    /// The result where there is one or something is wanted of us; else a question in a while.
    fn proceed(&mut self, conn: u64, number: u64, interval: u64) {
        let next = self.now.saturating_add(interval);
        let Some(remote) = self.remote(conn, number) else { return };
        if remote.fetch.is_some() {
            return;
        }
        if remote.status == "working" {
            remote.poll_timer = Some(next);
        } else {
            self.fetch(conn, number);
        }
    }

    fn fetch(&mut self, conn: u64, number: u64) {
        let fetch = self.ask_about(conn, number, Kind::Fetch(number), "tasks/result");
        if let Some(remote) = self.remote(conn, number) {
            (remote.fetch, remote.poll_timer) = (fetch, None);
        }
    }

    fn ask_about(&mut self, conn: u64, number: u64, kind: Kind, method: &str) -> Option<u64> {
        let remote = self.remote(conn, number)?;
        let (call, id) = (remote.out.call, remote.id.clone());
        let open = self.conns.get(&conn).is_some_and(|entry| entry.ended == Ended::No);
        open.then(|| {
            self.place(conn, kind, call, method, format!("ask {method} {id}"), None, false)
        })
    }

    pub(super) fn poll_is_due(&mut self, conn: u64, number: u64) {
        self.remote(conn, number).expect("its timer was due").poll_timer = None;
        self.mark(Mark::RemotePolled);
        let poll = self.ask_about(conn, number, Kind::Poll(number), "tasks/get");
        self.remote(conn, number).expect("its timer was due").poll = poll;
    }

    pub(super) fn polled(&mut self, conn: u64, number: u64, body: &Body) {
        let now = self.now;
        let Some(remote) = self.remote(conn, number) else { return };
        remote.poll = None;
        let fetching = remote.fetch.is_some();
        let value: Value = serde_json::from_str(&body.text).unwrap_or(Value::Null);
        let answer = match Report::read(&value).filter(|_| body.good) {
            Some(report) if report.id == remote.id => {
                (remote.status, remote.interval) = (report.status, report.interval);
                return self.proceed(conn, number, report.interval);
            }
            _ if !body.good && value["code"] == -32602 => body.gist(),
            _ if !body.good => {
                // An error about the question, not about the task.
                let wait = value.pointer("/data/retryAfterMs").and_then(Value::as_u64);
                let wait = wait.map_or(0, |millis| millis.saturating_mul(1_000_000).min(POLL.2));
                let next = now.saturating_add(remote.interval.max(wait));
                if !fetching {
                    remote.poll_timer = Some(next);
                }
                return self.mark(Mark::RemotePutOff);
            }
            _ => "unusable".to_owned(),
        };
        if !fetching {
            self.mark(Mark::RemoteUnknown);
            let left = self.remote(conn, number).map(|r| (r.out.clone(), r.id.clone()));
            self.end_remote(conn, number, &answer);
            // A task unknown to it need not be cancelled there.
            if let Some((out, id)) = left.filter(|_| body.good) {
                self.cancel_remote(conn, &out, &id);
            }
        }
    }

    pub(super) fn fetched(&mut self, conn: u64, number: u64, body: &Body) {
        let now = self.now;
        if let Some(remote) = self.remote(conn, number) {
            remote.fetch = None;
            let value: Value = serde_json::from_str(&body.text).unwrap_or(Value::Null);
            let wait = value.pointer("/data/retryAfterMs").and_then(Value::as_u64);
            if let Some(wait) = wait.filter(|_| !body.good && value["code"] == -31003) {
                let wait = wait.saturating_mul(1_000_000).clamp(POLL.1, POLL.2);
                let next = now.saturating_add(remote.interval.max(wait));
                remote.poll_timer = remote.poll.is_none().then_some(next);
                return self.mark(Mark::RemoteTooEarly);
            }
            self.mark(Mark::RemoteAnswered);
            self.end_remote(conn, number, &body.gist());
        }
    }

    /// TSK-18: a hint decides nothing, but an available result is fetched.
    pub(super) fn hinted(&mut self, conn: u64, params: Option<&str>) {
        let value = params.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let report = value.as_ref().and_then(Report::read);
        let Some(report) = report.filter(|report| report.status != "working") else { return };
        let Some(entry) = self.conns.get(&conn) else { return };
        let named = entry.remote.iter().find(|remote| remote.id == report.id);
        if let Some(Remote { fetch: None, out, .. }) = named {
            let number = out.number;
            self.mark(Mark::RemoteHinted);
            self.fetch(conn, number);
        }
    }

    fn end_remote(&mut self, conn: u64, number: u64, how: &str) {
        if let Some(remote) = self.take_remote(conn, number) {
            self.end_ask(remote.asker, remote.out.call, how);
        }
    }

    fn take_remote(&mut self, conn: u64, number: u64) -> Option<Remote> {
        let entry = self.conns.get_mut(&conn)?;
        let at = entry.remote.iter().position(|remote| remote.out.number == number)?;
        let remote = entry.remote.remove(at);
        let open = [remote.poll, remote.fetch];
        entry.calls.retain(|out| !open.contains(&Some(out.number)));
        Some(remote)
    }

    /// Gives up a remote task: it is cancelled as tasks are (CAN-05); whether there was one.
    pub(super) fn give_up_remote(&mut self, conn: u64, number: u64) -> bool {
        let Some(remote) = self.take_remote(conn, number) else { return false };
        self.mark(Mark::RemoteCancelled);
        self.cancel_remote(conn, &remote.out, &remote.id);
        true
    }

    fn cancel_remote(&mut self, conn: u64, out: &Out, id: &str) {
        let Some(entry) = self.conns.get(&conn) else { return };
        // TSK-02
        if entry.able.cancel && entry.ended == Ended::No {
            let label = format!("ask tasks/cancel {id}");
            self.place(conn, Kind::Cancel, out.call, "tasks/cancel", label, None, false);
        }
    }
}
