//! Random walks over supervised agents: clients that prompt, cancel in every form, cancel too late
//! and leave; agents that obey, ignore one form, ignore both, block on a child, answer late, ask and
//! die (SUP-01 to SUP-04).
//!
//! The oracle knows each prompt and question by a marker. A marker that reaches the wrong side, a
//! prompt that an agent gets twice, an answer without a request, or a cancel that comes too late
//! ends the walk with a panic.

mod actor;
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::event::AfterInput;
use ceased_core::ids::{CheckId, InstanceId};
use ceased_core::time::Wall;
use ceased_core::upstream::interface::{ProcessEvidence, Proof, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{Action, ConnId, Engine, Event, Identity, Instant, Now, Rights, Role, Settings};
use serde_json::Value;

use self::actor::{Actor, Temper};
use self::client::Client;
use crate::frames;
use crate::rng::Rng;
use crate::world::Rigged;

/// Events of a walk, for a test that all of them happen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Walked {
    /// Prompts that their agent answered.
    pub answers: usize,
    /// Prompts that the supervisor answered in place of an agent.
    pub given_up: usize,
    /// Cancels that came after the answer.
    pub late: usize,
    /// Requests that failed because their agent had ended.
    pub deaths: usize,
    /// Requests in sessions that could not be opened again.
    pub lost: usize,
    /// Sessions that a fresh agent opened again.
    pub reopened: usize,
    /// Questions of agents that were answered.
    pub questions: usize,
    /// Receipts of agents that were ended because of a cancel.
    pub replaced: usize,
    /// Receipts of turns whose processes were ended.
    pub strays: usize,
    /// Modes that a fresh agent got again.
    pub modes: usize,
    /// Modes that the supervisor took back at the client.
    pub taken_back: usize,
}

impl Walked {
    /// The sum of two walks.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            answers: self.answers + other.answers,
            given_up: self.given_up + other.given_up,
            late: self.late + other.late,
            deaths: self.deaths + other.deaths,
            lost: self.lost + other.lost,
            reopened: self.reopened + other.reopened,
            questions: self.questions + other.questions,
            replaced: self.replaced + other.replaced,
            strays: self.strays + other.strays,
            modes: self.modes + other.modes,
            taken_back: self.taken_back + other.taken_back,
        }
    }
}

/// Something that the host still has to do.
#[derive(Debug)]
enum Duty {
    Start(InstanceId, ConnId),
    Examine(InstanceId, CheckId),
    EndStrays(InstanceId, CheckId),
    End(InstanceId),
}

/// Way in which the agents of a walk reopen sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reopens {
    Not,
    Loads,
    Resumes,
}

struct Walk {
    rng: Rng,
    engine: Engine,
    now: Now,
    next_conn: u64,
    next_marker: u64,
    /// Markers that an agent has seen.
    seen: BTreeSet<String>,
    clients: BTreeMap<ConnId, Client>,
    actors: BTreeMap<InstanceId, Actor>,
    duties: Vec<Duty>,
    ending: BTreeSet<InstanceId>,
    reopens: Reopens,
    walked: Walked,
    exits: usize,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let reopens = *rng.pick(&[Reopens::Not, Reopens::Loads, Reopens::Resumes]);
        let agent = UpstreamServer {
            start_timeout: Duration::from_secs(5),
            cancel_grace: Duration::from_secs(1),
            drain: Duration::from_secs(6),
            ..UpstreamServer::new("bot")
        };
        let settings =
            Settings { agents: vec![Arc::new(agent)], agent_only: true, ..Settings::default() };
        Self {
            rng,
            engine: Engine::new(Arc::new(settings), Box::new(Rigged::new([]))),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(0) },
            next_conn: 0,
            next_marker: 0,
            seen: BTreeSet::new(),
            clients: BTreeMap::new(),
            actors: BTreeMap::new(),
            duties: Vec::new(),
            ending: BTreeSet::new(),
            reopens,
            walked: Walked::default(),
            exits: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0 => self.connect(),
            1 => {
                if self.rng.once_in(6) {
                    self.disconnect();
                }
            }
            2..4 => self.open_session(),
            4 => self.choose_mode(),
            5..16 => self.prompt(),
            16..23 => self.cancel(),
            23..28 => self.answer_question(),
            28..52 => self.actor_reads(),
            52..84 => self.actor_works(),
            84..96 => self.do_a_duty(),
            _ => {
                let millis = 1 + self.rng.below(1500) as u64;
                self.pass(Duration::from_millis(millis));
            }
        }
    }

    fn marker(&mut self) -> String {
        self.next_marker += 1;
        format!("m{}", self.next_marker)
    }

    // ----------------------------------------------------------------------- engine

    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        // A cancel that is alone in its turn of the loop waits for the end of the turn.
        if self.rng.once_in(2) || self.engine.wants_turn() {
            self.engine.handle(self.now, Event::Turn, &mut actions);
        }
        self.engine.check();
        self.clients_read();
        for action in actions {
            match action {
                Action::Upstream(action) => self.take_action(action),
                Action::Audit(note) => self.check_note(&note),
                Action::Exit => self.exits += 1,
                Action::Flush { .. } => {}
                Action::Close { conn, .. } => {
                    let client = self.clients.remove(&conn).expect("it is closed once");
                    assert!(client.open.is_empty(), "SUP-03: unanswered: {:?}", client.open);
                    self.feed(Event::Closed { conn });
                }
                other @ (Action::Start { .. }
                | Action::Stop { .. }
                | Action::Tell { .. }
                | Action::TellProgress { .. }
                | Action::Notified { .. }
                | Action::RefuseCancel { .. }
                | Action::Store { .. }
                | Action::Load { .. }
                | Action::LookUp(_)
                | Action::CollectHostStatus { .. }
                | Action::ReadOutput(_)
                | Action::Operate { .. }) => panic!("no host is asked for this: {other:?}"),
            }
        }
        for actor in self.actors.values_mut() {
            let text = frames::taken(&mut self.engine, actor.conn);
            let lines = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
            actor.inbox.extend(lines);
        }
    }

    fn send(&mut self, conn: ConnId, message: &Value) {
        self.feed(Event::Frame { conn, frame: message.to_string().as_bytes() });
    }

    fn take_action(&mut self, action: UpstreamAction) {
        let duty = match action {
            UpstreamAction::Start { instance, client, .. } => {
                Duty::Start(instance, client.expect("an agent has one client"))
            }
            UpstreamAction::Examine { instance, check, .. } => Duty::Examine(instance, check),
            UpstreamAction::EndStrays { instance, check, .. } => Duty::EndStrays(instance, check),
            UpstreamAction::End { instance, .. } => {
                assert!(self.ending.insert(instance), "{instance} is ended once");
                Duty::End(instance)
            }
            UpstreamAction::SaveManifest { .. }
            | UpstreamAction::SaveApproval { .. }
            | UpstreamAction::ToolsDiffer { .. }
            | UpstreamAction::Warn { .. }
            | UpstreamAction::Forget { .. } => {
                panic!("agents have no lists and no URL")
            }
        };
        self.duties.push(duty);
    }

    /// UPS-16: a receipt that says that an agent has ended comes after its end.
    fn check_note(&mut self, note: &AuditEvent) {
        let AuditEvent::Ceased(receipt) = note else { return };
        let upstream = receipt.upstream.as_ref().expect("it is about an agent");
        match upstream.proof {
            Proof::Replaced | Proof::Ended => {
                let instance = upstream.instance.expect("an agent had it");
                assert!(!self.actors.contains_key(&instance), "{instance} has not ended");
                self.walked.replaced += 1;
            }
            Proof::ChildrenEnded(_) => self.walked.strays += 1,
            Proof::Answered => {}
            other @ (Proof::Unsent
            | Proof::Told
            | Proof::Quiet
            | Proof::StreamClosed
            | Proof::SessionEnded
            | Proof::Unknown) => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.at + span;
        while let Some((at, _)) = self.engine.deadline().filter(|(at, _)| *at <= end) {
            self.now.at = at.max(self.now.at);
            self.feed(Event::Tick);
        }
        self.now.at = end;
    }

    // ----------------------------------------------------------------------- host

    fn do_a_duty(&mut self) {
        if !self.duties.is_empty() {
            let at = self.rng.below(self.duties.len());
            let duty = self.duties.remove(at);
            self.carry_out(duty);
        }
    }

    fn carry_out(&mut self, duty: Duty) {
        match duty {
            Duty::Start(instance, _) if self.rng.once_in(16) => {
                self.end_actor(instance, "cannot be started");
            }
            Duty::Start(instance, client) => {
                let conn = self.fresh_conn();
                let temper = *self.rng.pick(&Temper::ALL);
                self.actors.insert(instance, Actor::new(conn, client, temper));
                self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
            }
            Duty::Examine(instance, check) => {
                let Some(actor) = self.actors.get(&instance) else { return };
                let processes =
                    ProcessEvidence { born: Some(actor.strays), cpu: None, waited: None };
                self.feed(Event::Upstream(UpstreamEvent::Examined { instance, check, processes }));
            }
            Duty::EndStrays(instance, check) => {
                let Some(actor) = self.actors.get_mut(&instance) else { return };
                let ended = std::mem::take(&mut actor.strays);
                let left = u32::from(self.rng.once_in(6));
                let event = UpstreamEvent::StraysEnded { instance, check, ended, left };
                self.feed(Event::Upstream(event));
            }
            Duty::End(instance) => {
                self.last_words(instance);
                self.end_actor(instance, "signal 15");
            }
        }
    }

    /// An agent ends, asked for or not.
    fn end_actor(&mut self, instance: InstanceId, status: &str) {
        self.actors.remove(&instance);
        let of = |duty: &Duty| match duty {
            Duty::Start(of, _) | Duty::Examine(of, _) | Duty::EndStrays(of, _) | Duty::End(of) => {
                *of == instance
            }
        };
        self.duties.retain(|duty| !of(duty));
        self.feed(Event::Upstream(UpstreamEvent::Ended { instance, status, stderr: "last words" }));
    }

    fn fresh_conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId::new(self.next_conn)
    }

    fn connect(&mut self) {
        if self.clients.len() >= 3 {
            return;
        }
        let conn = self.fresh_conn();
        self.clients.insert(conn, Client::default());
        self.feed(Event::Opened {
            conn,
            identity: Identity::User(1000),
            rights: Rights::Full,
            role: Role::Server,
        });
        self.hello(conn);
    }

    fn disconnect(&mut self) {
        let all: Vec<ConnId> = self.clients.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let conn = *self.rng.pick(&all);
        if self.rng.once_in(2) {
            self.clients.remove(&conn);
            self.feed(Event::Closed { conn });
        } else {
            let then = AfterInput::AnswerWithin(Duration::from_secs(1));
            self.clients.get_mut(&conn).expect("it was picked").is_finished = true;
            self.feed(Event::Finished { conn, then });
        }
    }

    // ----------------------------------------------------------------------- end

    fn do_duties(&mut self) {
        while let Some(duty) = self.duties.pop() {
            self.carry_out(duty);
        }
    }

    /// Agents that do nothing by themselves any more are enough for every cancel to end; then the
    /// daemon shuts down, and everything ends.
    fn shut_down(mut self) -> Walked {
        for _ in 0..60 {
            self.do_duties();
            let all: Vec<InstanceId> = self.actors.keys().copied().collect();
            for instance in all {
                while self.reads(instance) {}
            }
            self.pass(Duration::from_secs(1));
        }
        for client in self.clients.values() {
            let late: Vec<_> = client.open.values().filter(|open| open.is_cancelled).collect();
            assert!(late.is_empty(), "SUP-02: cancelled and unanswered: {late:?}");
        }
        for actor in self.actors.values() {
            assert!(self.clients.contains_key(&actor.client), "SUP-03: its client is gone");
        }
        let by = self.now.at + Duration::from_secs(60);
        self.feed(Event::Drain { by });
        for _ in 0..8 {
            self.do_duties();
        }
        assert_eq!(self.exits, 1, "a shutdown ends: {:?}", self.actors.keys());
        assert!(self.actors.is_empty(), "SUP-03: {:?}", self.actors.keys());
        for client in self.clients.values() {
            assert!(client.open.is_empty(), "RPC-03: without an answer: {:?}", client.open);
        }
        assert_eq!(self.engine.sizes().timers, 0, "nothing is left behind");
        self.walked
    }
}

/// Runs a walk; a broken rule is a panic.
#[must_use]
pub fn walk(seed: u64, steps: usize) -> Walked {
    let mut walk = Walk::new(seed);
    for _ in 0..steps {
        walk.step();
    }
    walk.shut_down()
}
