//! Sequences of events, made of bytes, to an engine: no order of anything breaks an invariant.
//!
//! A line of the input is one event: its first byte says which, the rest is what a peer says or
//! which job it is about.

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Event, Identity, LogLevel, Outcome};
use ceased_core::id::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::role::Role;
use ceased_core::time::{Instant, Now, Wall};
use std::sync::Arc;
use std::time::Duration;

use crate::tools;
use crate::world::{Rigged, raw_json};

/// An engine and what its host knows of it.
struct Host {
    engine: Engine,
    now: Now,
    conns: Vec<ConnId>,
    opened: u64,
    jobs: Vec<JobId>,
}

/// Does what the bytes say.
///
/// # Panics
/// When an invariant breaks.
pub fn check(data: &[u8]) {
    let limits = Limits {
        running_max: 2,
        queued_max: 3,
        inflight_max: 4,
        connections_max: 3,
        live_tasks_max: 3,
        write_buffer_bytes: 2000,
        depth_max: 20,
        ..Limits::default()
    };
    let settings = tools::settings(limits, TaskPolicy { page_size: 2, ..TaskPolicy::default() });
    let engine = Engine::new(Arc::clone(&settings), Box::new(Rigged::default()));
    let mut host =
        Host { engine, now: Now::default(), conns: Vec::new(), opened: 0, jobs: Vec::new() };
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
                    assert!(self.engine.outbox(conn).is_some(), "{conn} is flushed and gone");
                }
                Action::Stop { .. }
                | Action::Tell { .. }
                | Action::TellProgress { .. }
                | Action::Notified { .. }
                | Action::RefuseCancel { .. }
                | Action::Store { .. }
                | Action::Load { .. }
                | Action::Close { .. }
                | Action::Note(_)
                | Action::Exit => {}
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now.at = self.now.at + Duration::from_millis(millis);
        self.now.wall = Wall::from_millis(self.now.wall.as_millis() ^ millis);
    }

    fn open(&mut self, user: u32) {
        self.opened += 1;
        let conn = ConnId::new(self.opened);
        self.conns.push(conn);
        let identity =
            if user.is_multiple_of(3) { Identity::Anonymous } else { Identity::User(user) };
        self.feed(Event::Opened { conn, identity, role: Role::Server });
    }

    /// One event; the first byte of `rest` picks the connection or the job.
    fn step(&mut self, kind: u8, rest: &[u8]) {
        let number = usize::from(rest.first().copied().unwrap_or(0));
        let text = rest.get(1..).unwrap_or_default();
        let conn = number.checked_rem(self.conns.len()).map(|at| self.conns[at]);
        let job = number.checked_rem(self.jobs.len()).map(|at| self.jobs[at]);
        let level = LogLevel::ALL[number % LogLevel::ALL.len()];
        match (kind, conn, job) {
            (b'o', ..) => self.open(u32::try_from(number).unwrap_or(0)),
            (b'<', Some(conn), _) => self.feed(Event::Frame { conn, frame: text }),
            (b'l', Some(conn), _) => self.feed(Event::Overlong { conn }),
            (b'a', Some(conn), _) => self.feed(Event::Alien { conn, bytes: text }),
            (b'f', Some(conn), _) => {
                let then = match text.len() % 3 {
                    0 => AfterInput::Answer,
                    1 => AfterInput::AnswerAndProbe(Duration::from_secs(1)),
                    _ => AfterInput::AnswerUntil(self.now.at + Duration::from_secs(1)),
                };
                self.feed(Event::Finished { conn, then });
            }
            (b'c', Some(conn), _) => {
                self.conns.retain(|other| *other != conn);
                self.feed(Event::Closed { conn });
            }
            (b'b', Some(conn), _) => self.feed(Event::Blocked { conn }),
            (b'r', Some(conn), _) => {
                if let Some(outbox) = self.engine.outbox(conn) {
                    outbox.advance(outbox.len());
                }
                self.feed(Event::Drained { conn });
            }
            (b'p', _, Some(job)) => {
                let progress = text.iter().fold(0.0, |sum, byte| sum * 10.0 + f64::from(*byte));
                self.feed(Event::Progress { job, progress, total: None, message: Some("m") });
            }
            (b'g', _, Some(job)) => self.feed(Event::Log { job, level, data: &raw_json("[1]") }),
            (b'i', _, Some(job)) => self.feed(Event::Lingering { job }),
            (b'd', _, Some(job)) => {
                let said = std::str::from_utf8(text).ok();
                let said =
                    said.filter(|text| serde_json::from_str::<serde_json::Value>(text).is_ok());
                let outcome =
                    said.map_or(Outcome::Stopped, |text| Outcome::Result(raw_json(text.trim())));
                self.feed(Event::Done { job, outcome });
            }
            (b't', ..) => {
                self.pass(u64::try_from(number * number).unwrap_or(0));
                self.feed(Event::Tick);
            }
            (b's', ..) => self.feed(Event::Drain { by: self.now.at + Duration::from_secs(1) }),
            _ => self.feed(Event::Turn),
        }
    }

    /// Everybody leaves, every job ends: nothing may be left but tasks, and time ends those.
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
        assert_eq!((sizes.jobs, sizes.tasks, sizes.timers), (0, 0, 0), "something is left");
    }
}
