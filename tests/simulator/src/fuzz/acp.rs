//! Frames of an ACP peer, made of bytes, to an engine: each request is answered at most once, and
//! no answer belongs to a request that was not sent.
//!
//! The first byte picks the form of cancels and the side; each further line is a frame. After a line
//! with an odd number of bytes, the oldest job ends.

use std::collections::BTreeMap;

use ceased_core::acp::protocol::{AcpForm, AcpRole};
use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{AfterInput, Event, Outcome};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::time::{Instant, Now};

use crate::slow::{Id, Said, classify, classify_one, read_id};
use crate::tools;
use crate::world::{Rigged, raw_json};

const DEPTH_MAX: usize = 20;

/// One connection, and the requests and answers on it.
struct Peer {
    engine: Engine,
    now: Now,
    conn: ConnId,
    jobs: Vec<JobId>,
    is_open: bool,
    /// Requests less answers, by id.
    owed: BTreeMap<Id, i64>,
}

/// Runs the frames.
///
/// # Panics
/// When an invariant breaks.
pub fn check(data: &[u8]) {
    let Some((first, stream)) = data.split_first() else { return };
    let limits = Limits {
        running_max: 2,
        queued_max: 3,
        inflight_max: 4,
        depth_max: DEPTH_MAX,
        ..Limits::default()
    };
    let settings = tools::settings(limits, TaskPolicy::default());
    let engine = Engine::new(settings, Box::new(Rigged::default()));
    let (conn, now, owed) = (ConnId::new(1), Now::default(), BTreeMap::new());
    let mut peer = Peer { engine, now, conn, jobs: Vec::new(), is_open: true, owed };
    let form = if first & 1 == 0 { AcpForm::Published } else { AcpForm::Proposed };
    let side = if first & 2 == 0 { AcpRole::Agent } else { AcpRole::Client };
    peer.feed(Event::OpenedAcp { conn, identity: Identity::Anonymous, form, side });
    for line in stream.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        if line.is_empty() || !peer.is_open {
            continue;
        }
        peer.note(line);
        peer.feed(Event::Frame { conn, frame: line });
        peer.feed(Event::Turn);
        if line.len() % 2 == 1 {
            peer.end_job();
        }
        peer.read();
    }
    peer.finish();
}

impl Peer {
    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.check();
        for action in actions {
            if let Action::Start { job, .. } = action {
                self.jobs.push(job);
            } else if let Action::Close { .. } = action {
                self.is_open = false;
            }
        }
    }

    /// Counts the requests of a frame.
    fn note(&mut self, frame: &[u8]) {
        match classify(frame, DEPTH_MAX) {
            Said::Request { id, .. } => *self.owed.entry(id).or_default() += 1,
            Said::Batch(messages) => {
                for message in messages {
                    self.note_one(&message);
                }
            }
            Said::Invalid { token, .. } => self.note_invalid(token.as_deref()),
            Said::Notification { .. } | Said::Response { .. } => {}
        }
    }

    fn note_one(&mut self, message: &str) {
        match classify_one(message) {
            Said::Request { id, .. } => *self.owed.entry(id).or_default() += 1,
            Said::Invalid { token, .. } => self.note_invalid(token.as_deref()),
            Said::Batch(_) | Said::Notification { .. } | Said::Response { .. } => {}
        }
    }

    /// A frame that is no message may be answered, with its id or with null.
    fn note_invalid(&mut self, token: Option<&str>) {
        if let Some(id) = token.and_then(read_id) {
            *self.owed.entry(id).or_default() += 1;
        }
    }

    fn end_job(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let job = self.jobs.remove(0);
        let outcome = Outcome::Result(raw_json(r#"{"stopReason":"end_turn"}"#).into());
        self.feed(Event::Done { job, outcome });
        self.feed(Event::Turn);
    }

    /// Takes the answers that were sent.
    fn read(&mut self) {
        let Some(queue) = self.engine.send_queue(self.conn) else { return };
        let sent = String::from_utf8(queue.pending().to_vec()).expect("the output is UTF-8");
        let length = queue.len();
        queue.advance(length);
        for line in sent.lines() {
            let said = classify(line.as_bytes(), DEPTH_MAX);
            match said {
                Said::Response { id: Some(Id::Null) | None, .. } => {}
                Said::Response { id: Some(id), .. } => {
                    let owed = self.owed.entry(id).or_default();
                    *owed -= 1;
                    assert!(*owed >= 0, "an answer too many: {line}");
                }
                Said::Request { .. } | Said::Notification { .. } => {}
                Said::Batch(_) => {}
                Said::Invalid { .. } => panic!("the engine sends {line:?}"),
            }
        }
        let conn = self.conn;
        self.feed(Event::Drained { conn });
    }

    /// The peer ends its input, and all jobs end: every table is empty.
    fn finish(mut self) {
        let conn = self.conn;
        if self.is_open {
            self.feed(Event::Finished { conn, then: AfterInput::Answer });
        }
        while !self.jobs.is_empty() {
            self.end_job();
        }
        self.read();
        self.feed(Event::Closed { conn });
        for _ in 0..100 {
            let Some((due, _)) = self.engine.deadline() else { break };
            self.now.at = Instant::max(self.now.at, due);
            self.feed(Event::Tick);
        }
        let sizes = self.engine.sizes();
        assert_eq!((sizes.jobs, sizes.timers), (0, 0), "a table is not empty");
    }
}
