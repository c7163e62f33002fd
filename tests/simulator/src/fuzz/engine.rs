//! Sequences of events, made of bytes, to an engine: no order of events breaks an invariant.
//!
//! Each line of the input is one event: its first byte is the kind, the rest is a peer's text or
//! the number of a job.

use ceased_core::acp::protocol::{AcpForm, AcpRole, HostStopReason, Speaker};
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Event, Outcome};
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{AskId, ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::log_level::LogLevel;
use ceased_core::outgoing::call::{AnswerTimeout, AskTask, Caller, OutgoingRequest};
use ceased_core::protocol::role::{AsClient, Offers, Role};
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use std::sync::Arc;
use std::time::Duration;

use crate::tools;
use crate::world::{Rigged, raw_json};

/// An engine and its host's state.
struct Host {
    engine: Engine,
    now: Now,
    conns: Vec<ConnId>,
    opened: u64,
    jobs: Vec<JobId>,
    /// Number of questions and calls so far; each gets its own id.
    asks: u64,
}

/// Methods of requests to peers.
const METHODS: [&str; 6] = [
    "elicitation/create",
    "sampling/createMessage",
    "roots/list",
    "tools/call",
    "initialize",
    "session/request_permission",
];

fn settings(running_max: usize) -> Arc<Settings> {
    let limits = Limits {
        running_max,
        queued_max: 3,
        inflight_max: 4,
        connections_max: 4,
        live_tasks_max: 3,
        asks_max: 2,
        calls_max: 3,
        remote_tasks_max: 2,
        parked_max: 2,
        subscriptions_max: 2,
        write_buffer_bytes: 2000,
        depth_max: 20,
        ..Limits::default()
    };
    tools::settings(limits, TaskPolicy { page_size: 2, ..TaskPolicy::default() })
}

/// Runs the events in the bytes.
///
/// # Panics
/// When an invariant breaks.
pub fn check(data: &[u8]) {
    let engine = Engine::new(settings(2), Box::new(Rigged::default()));
    let (conns, jobs, now) = (Vec::new(), Vec::new(), Now::default());
    let mut host = Host { engine, now, conns, opened: 0, jobs, asks: 0 };
    for line in data.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else { continue };
        host.step(*kind, rest);
    }
    host.end();
}

impl Host {
    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.check();
        for action in actions {
            match action {
                Action::Start { job, .. } => self.jobs.push(job),
                Action::Flush { conn } => {
                    assert!(
                        self.engine.send_queue(conn).is_some(),
                        "flush of the closed connection {conn}"
                    );
                }
                Action::Stop { .. }
                | Action::Tell { .. }
                | Action::TellProgress { .. }
                | Action::Notified { .. }
                | Action::RefuseCancel { .. }
                | Action::CollectHostStatus { .. }
                | Action::ReadOutput(_)
                | Action::Operate { .. }
                | Action::Store { .. }
                | Action::Load { .. }
                | Action::LookUp(_)
                | Action::Close { .. }
                | Action::Upstream(_)
                | Action::Audit(_)
                | Action::Exit => {}
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now.at = self.now.at + Duration::from_millis(millis);
        self.now.wall = Wall::from_millis(self.now.wall.as_millis() ^ millis);
    }

    /// A new connection and its identity.
    fn meet(&mut self, number: usize) -> (ConnId, Identity) {
        self.opened += 1;
        let conn = ConnId::new(self.opened);
        self.conns.push(conn);
        let user = u32::try_from(number).unwrap_or(0);
        let anonymous = user.is_multiple_of(3);
        (conn, if anonymous { Identity::Anonymous } else { Identity::User(user) })
    }

    fn fresh_ask(&mut self) -> AskId {
        self.asks += 1;
        AskId::new(self.asks)
    }

    /// A peer connects: a client, a server, or an ACP peer on either side.
    fn open(&mut self, kind: u8, number: usize) {
        let (conn, identity) = self.meet(number);
        if kind == b'o' {
            return self.feed(Event::Opened {
                conn,
                identity,
                rights: Rights::Full,
                role: Role::Server,
            });
        }
        if kind == b'C' {
            let offers =
                Offers { sampling: true, elicitation: number.is_multiple_of(2), roots: true };
            let role =
                AsClient { ask: self.fresh_ask(), offers, answer_timeout: answer_timeout(number) };
            return self.feed(Event::Opened {
                conn,
                identity,
                rights: Rights::Full,
                role: Role::Client(role),
            });
        }
        let form = if number.is_multiple_of(2) { AcpForm::Published } else { AcpForm::Proposed };
        let side = if number % 4 < 2 { AcpRole::Agent } else { AcpRole::Client };
        self.feed(Event::OpenedAcp { conn, identity, form, side });
    }

    /// Requests and notifications of the host and its jobs.
    fn speak(&mut self, kind: u8, number: usize, text: &[u8]) {
        let conn = number.checked_rem(self.conns.len()).map(|at| self.conns[at]);
        let job = number.checked_rem(self.jobs.len()).map(|at| self.jobs[at]);
        match (kind, conn, job) {
            (b'q', conn, Some(job)) => {
                let (ask, request) = (self.fresh_ask(), question(text));
                let conn = conn.filter(|_| text.last() == Some(&b'!'));
                self.feed(Event::Asked { job, ask, conn, request });
            }
            (b'h', Some(conn), _) => {
                let (ask, request) = (self.fresh_ask(), question(text));
                self.feed(Event::Call { conn, ask, request });
            }
            (b'x', ..) => {
                let ask = AskId::new(u64::try_from(number).unwrap_or(0));
                let caller = match job.filter(|_| text.is_empty()) {
                    Some(job) => Caller::Job { job, ask },
                    None => Caller::Host(ask),
                };
                self.feed(Event::CancelCall { caller, reason: Some("x") });
            }
            (b'k', _, Some(job)) => {
                let cause = [HostStopReason::Feature, HostStopReason::Limit, HostStopReason::Host]
                    [text.len() % 3];
                self.feed(Event::CancelJob { job, cause });
            }
            (b'n', Some(conn), job) => {
                let from = job.filter(|_| text.is_empty());
                let from = from.map_or(Speaker::Host(conn), Speaker::Job);
                self.feed(Event::Notify { from, method: "session/update", params: None });
            }
            (b'u', ..) => self.feed(Event::Configured { settings: settings(1 + number % 3) }),
            _ => self.feed(Event::Turn),
        }
    }

    /// One event; the first byte of `rest` picks the connection or the job.
    fn step(&mut self, kind: u8, rest: &[u8]) {
        let number = usize::from(rest.first().copied().unwrap_or(0));
        let text = rest.get(1..).unwrap_or_default();
        let conn = number.checked_rem(self.conns.len()).map(|at| self.conns[at]);
        let job = number.checked_rem(self.jobs.len()).map(|at| self.jobs[at]);
        let level = LogLevel::ALL[number % LogLevel::ALL.len()];
        match (kind, conn, job) {
            (b'o' | b'A' | b'C', ..) => self.open(kind, number),
            (b'<', Some(conn), _) => self.feed(Event::Frame { conn, frame: text }),
            (b'l', Some(conn), _) => {
                let skeleton = &String::from_utf8_lossy(text);
                self.feed(Event::TooLong { conn, skeleton });
            }
            (b'a', Some(conn), _) => self.feed(Event::NotJsonRpc { conn, bytes: text }),
            (b'f', Some(conn), _) => {
                let then = match text.len() % 3 {
                    0 => AfterInput::Answer,
                    1 => AfterInput::AnswerAndProbe(Duration::from_secs(1)),
                    _ => AfterInput::AnswerWithin(Duration::from_secs(1)),
                };
                self.feed(Event::Finished { conn, then });
            }
            (b'c', Some(conn), _) => {
                self.conns.retain(|other| *other != conn);
                self.feed(Event::Closed { conn });
            }
            (b'b', Some(conn), _) => self.feed(Event::Blocked { conn }),
            (b'r', Some(conn), _) => {
                if let Some(queue) = self.engine.send_queue(conn) {
                    queue.advance(queue.len());
                }
                self.feed(Event::Drained { conn });
            }
            (b'p', _, Some(job)) => {
                let progress = text.iter().fold(0.0, |sum, byte| sum * 10.0 + f64::from(*byte));
                self.feed(Event::Progress { job, progress, total: None, message: Some("m") });
            }
            (b'g', _, Some(job)) => self.feed(Event::Log { job, level, data: &raw_json("[1]") }),
            (b'i', _, Some(job)) => self.feed(Event::Lingering { job }),
            (b'K', _, Some(job)) => {
                self.feed(Event::Outlasted { job, outcome: Outcome::Stopped });
            }
            (b'd', _, Some(job)) => {
                let said = std::str::from_utf8(text).ok();
                let said =
                    said.filter(|text| serde_json::from_str::<serde_json::Value>(text).is_ok());
                let outcome = said
                    .map_or(Outcome::Stopped, |text| Outcome::Result(raw_json(text.trim()).into()));
                self.feed(Event::Done { job, outcome });
            }
            (b't', ..) => {
                self.pass(u64::try_from(number * number).unwrap_or(0));
                self.feed(Event::Tick);
            }
            (b's', ..) => self.feed(Event::Drain { by: self.now.at + Duration::from_secs(1) }),
            _ => self.speak(kind, number, text),
        }
    }

    /// Closes all connections and ends all jobs: only tasks may be left, until their ttl.
    fn end(mut self) {
        for conn in std::mem::take(&mut self.conns) {
            self.feed(Event::Closed { conn });
        }
        while let Some(job) = self.jobs.pop() {
            self.feed(Event::Done { job, outcome: Outcome::Stopped });
            self.feed(Event::Turn);
        }
        for _ in 0..100 {
            let Some((due, _)) = self.engine.deadline() else { break };
            self.now.at = Instant::max(self.now.at, due);
            self.feed(Event::Tick);
        }
        let sizes = self.engine.sizes();
        assert_eq!((sizes.jobs, sizes.tasks, sizes.timers), (0, 0, 0), "a table is not empty");
    }
}

/// Time limit of an answer, if any.
fn answer_timeout(number: usize) -> Option<AnswerTimeout> {
    let seconds = u64::try_from(number % 4).ok().filter(|seconds| *seconds > 0)?;
    let (timeout, cap) = (Duration::from_secs(seconds), Duration::from_secs(3));
    Some(AnswerTimeout { timeout, extend_on_progress: seconds == 2, cap })
}

/// A question made of bytes: its kind, its time limit, and whether to request a task.
fn question(text: &[u8]) -> OutgoingRequest {
    let (first, second) = (text.first().copied().unwrap_or(0), text.get(1).copied().unwrap_or(0));
    let method = METHODS[usize::from(first) % METHODS.len()];
    let params = (method == "tools/call").then(|| raw_json(r#"{"name":"sleep"}"#));
    let task = (second % 5 == 4).then_some(AskTask { ttl: None });
    OutgoingRequest {
        key: None,
        method: method.into(),
        params,
        answer_timeout: answer_timeout(usize::from(second)),
        task,
    }
}
