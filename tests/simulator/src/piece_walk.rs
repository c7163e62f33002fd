//! Random walks over ACP version 2: tool calls and terminals that are cancelled by themselves, background
//! work, cancelled turns and closed sessions, before agents that obey, ignore and end (SUP-05, SUP-06).
//!
//! The host knows the owner of each process. One that is ended although its piece of work was not cancelled, a
//! piece or turn whose cancel has no end, an answer too many or too few, and a message of the supervisor
//! that is not valid in version 2 or tells of other background work than the agent, end the walk with a panic.

mod agent;
mod client;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::births::Births;
use ceased_core::ids::{CheckId, InstanceId};
use ceased_core::time::Wall;
use ceased_core::upstream::interface::{ProcessEvidence, Proof, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{Action, ConnId, Engine, Event, Identity, Instant, Now, Rights, Role, Settings};
use serde_json::Value;

use self::agent::Agent;
use self::client::Client;
use crate::frames;
use crate::rng::Rng;
use crate::world::Rigged;

/// Events of a walk, for a test that all of them happen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Walked {
    /// Turns that ended after their cancel.
    pub turns: usize,
    /// Pieces that their agent ended after their cancel.
    pub obeyed: usize,
    /// Receipts of pieces whose processes were ended.
    pub enforced: usize,
    /// Processes in the background while others were ended.
    pub spared: usize,
    /// Sessions that were closed.
    pub closed: usize,
    /// Background work that was lost with its agent.
    pub lost: usize,
}

impl Walked {
    /// The sum of two walks.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            turns: self.turns + other.turns,
            obeyed: self.obeyed + other.obeyed,
            enforced: self.enforced + other.enforced,
            spared: self.spared + other.spared,
            closed: self.closed + other.closed,
            lost: self.lost + other.lost,
        }
    }
}

/// A process of the agent.
#[derive(Debug)]
struct Process {
    born: Instant,
    /// Id of its tool call or terminal.
    piece: String,
    /// Whether its work was cancelled, or its session closed.
    is_doomed: bool,
    is_background: bool,
}

/// Something that the host still has to do.
#[derive(Debug)]
enum Duty {
    Start(InstanceId),
    Examine(InstanceId, CheckId, Births),
    /// Of processes that were born until then.
    EndStrays(InstanceId, CheckId, Births, Instant),
    End(InstanceId),
}

struct Walk {
    rng: Rng,
    engine: Engine,
    now: Now,
    next_conn: u64,
    client: Client,
    agent: Option<(InstanceId, Agent)>,
    processes: Vec<Process>,
    duties: Vec<Duty>,
    walked: Walked,
    exits: usize,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let agent = UpstreamServer {
            start_timeout: Duration::from_secs(5),
            cancel_grace: Duration::from_secs(1),
            drain: Duration::from_secs(6),
            ..UpstreamServer::new("bot")
        };
        let settings =
            Settings { agents: vec![Arc::new(agent)], agent_only: true, ..Settings::default() };
        Self {
            rng: Rng::new(seed),
            engine: Engine::new(Arc::new(settings), Box::new(Rigged::new([]))),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(0) },
            next_conn: 1,
            client: Client::new(ConnId::new(1)),
            agent: None,
            processes: Vec::new(),
            duties: Vec::new(),
            walked: Walked::default(),
            exits: 0,
        }
    }

    fn begin(&mut self) {
        let conn = self.client.conn;
        let (identity, role) = (Identity::User(1000), Role::Server);
        self.feed(Event::Opened { conn, identity, rights: Rights::Full, role });
        self.greet();
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..2 => self.open_session(),
            2..8 => self.prompt(),
            8..11 => self.cancel_turn(),
            11..15 => self.cancel_piece(),
            15 => self.close_session(),
            16..26 => self.agent_works(),
            26..34 => self.do_a_duty(),
            34 if self.rng.once_in(20) => self.agent_dies(),
            _ => {
                let millis = 20 + self.rng.below(900) as u64;
                self.pass(Duration::from_millis(millis));
            }
        }
        // Each announcement has a time of its own, so that a birth is of one work alone.
        self.pass(Duration::from_millis(20));
    }

    // ----------------------------------------------------------------------- engine

    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        if self.rng.once_in(2) || self.engine.wants_turn() {
            self.engine.handle(self.now, Event::Turn, &mut actions);
        }
        self.engine.check();
        for action in actions {
            match action {
                Action::Upstream(action) => self.take_action(action),
                Action::Audit(note) => self.take_note(&note),
                Action::Exit => self.exits += 1,
                Action::Flush { .. } => {}
                Action::Close { conn, .. } => {
                    assert!(self.client.open.is_empty(), "unanswered: {:?}", self.client.open);
                    self.client.is_closed = true;
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
        for message in self.take_frames(self.client.conn) {
            self.client_hears(&message);
        }
        if let Some((_, agent)) = &self.agent {
            let frames = self.take_frames(agent.conn);
            self.agent_reads(frames);
        }
    }

    fn take_frames(&mut self, conn: ConnId) -> Vec<Value> {
        let text = frames::taken(&mut self.engine, conn);
        text.lines().map(|line| serde_json::from_str(line).expect("frames are JSON")).collect()
    }

    fn send(&mut self, conn: ConnId, message: &Value) {
        self.feed(Event::Frame { conn, frame: message.to_string().as_bytes() });
    }

    fn take_action(&mut self, action: UpstreamAction) {
        let duty = match action {
            UpstreamAction::Start { instance, .. } => Duty::Start(instance),
            UpstreamAction::Examine { instance, check, births } => {
                Duty::Examine(instance, check, births)
            }
            UpstreamAction::EndStrays { instance, check, births, .. } => {
                Duty::EndStrays(instance, check, births, self.now.at)
            }
            UpstreamAction::End { instance, .. } => Duty::End(instance),
            UpstreamAction::SaveManifest { .. }
            | UpstreamAction::ToolsDiffer { .. }
            | UpstreamAction::SaveApproval { .. }
            | UpstreamAction::Warn { .. }
            | UpstreamAction::Forget { .. } => panic!("agents have no lists and no URL"),
        };
        self.duties.push(duty);
    }

    /// SUP-06: a receipt names its tool call or terminal.
    fn take_note(&mut self, note: &AuditEvent) {
        let AuditEvent::Ceased(receipt) = note else { return };
        let upstream = receipt.upstream.as_ref().expect("it is about an agent");
        if upstream.object.is_some() {
            self.walked.enforced += usize::from(matches!(upstream.proof, Proof::ChildrenEnded(_)));
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

    fn runs(&self, instance: InstanceId) -> bool {
        self.agent.as_ref().is_some_and(|(id, _)| *id == instance)
    }

    fn carry_out(&mut self, duty: Duty) {
        match duty {
            Duty::Start(instance) => {
                self.next_conn += 1;
                let conn = ConnId::new(self.next_conn);
                self.agent = Some((instance, Agent::new(conn, &mut self.rng)));
                self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
            }
            Duty::Examine(instance, check, births) if self.runs(instance) => {
                let born = self.processes.iter().filter(|it| is_meant(&births, it.born)).count();
                let born = Some(u32::try_from(born).expect("few"));
                let processes = ProcessEvidence { born, cpu: None, waited: None };
                self.feed(Event::Upstream(UpstreamEvent::Examined { instance, check, processes }));
            }
            Duty::EndStrays(instance, check, births, until) if self.runs(instance) => {
                let ended = self.end_strays(&births, until);
                let event = UpstreamEvent::StraysEnded { instance, check, ended, left: 0 };
                self.feed(Event::Upstream(event));
            }
            Duty::End(instance) => self.end_agent(instance, "signal 15"),
            Duty::Examine(..) | Duty::EndStrays(..) => {}
        }
    }

    /// Ends the processes of these births: each belongs to work that was cancelled.
    fn end_strays(&mut self, births: &Births, until: Instant) -> u32 {
        let meant = |process: &Process| process.born <= until && is_meant(births, process.born);
        for process in self.processes.iter().filter(|it| meant(it)) {
            assert!(process.is_doomed, "SUP-05, SUP-06: not cancelled: {process:?} by {births:?}");
        }
        let before = self.processes.len();
        self.processes.retain(|process| !meant(process));
        self.walked.spared += self.processes.iter().filter(|it| it.is_background).count();
        u32::try_from(before - self.processes.len()).expect("few")
    }

    fn end_agent(&mut self, instance: InstanceId, status: &str) {
        if self.runs(instance) {
            self.agent = None;
            self.processes.clear();
        }
        let of = |duty: &Duty| match duty {
            Duty::Start(of) | Duty::Examine(of, ..) | Duty::EndStrays(of, ..) | Duty::End(of) => {
                *of == instance
            }
        };
        self.duties.retain(|duty| !of(duty));
        self.client.agent_is_gone();
        self.feed(Event::Upstream(UpstreamEvent::Ended { instance, status, stderr: "last words" }));
    }

    fn agent_dies(&mut self) {
        if let Some((instance, _)) = &self.agent {
            self.end_agent(*instance, "signal 9");
        }
    }

    // ----------------------------------------------------------------------- end

    /// The host does everything and the agent nothing more: every cancel ends, and then everything.
    fn shut_down(mut self) -> Walked {
        for _ in 0..60 {
            while let Some(duty) = self.duties.pop() {
                self.carry_out(duty);
            }
            self.pass(Duration::from_secs(1));
        }
        let doomed: Vec<_> = self.processes.iter().filter(|it| it.is_doomed).collect();
        assert!(doomed.is_empty(), "cancelled, and alive: {doomed:?}");
        self.client.assert_settled();
        let by = self.now.at + Duration::from_secs(60);
        self.feed(Event::Drain { by });
        for _ in 0..70 {
            while let Some(duty) = self.duties.pop() {
                self.carry_out(duty);
            }
            self.pass(Duration::from_secs(1));
        }
        assert_eq!(self.exits, 1, "a shutdown ends");
        assert!(self.agent.is_none(), "an agent outlives the daemon");
        assert!(self.client.open.is_empty(), "without an answer: {:?}", self.client.open);
        assert_eq!(self.engine.sizes().timers, 0, "nothing is left behind");
        self.walked
    }
}

/// Whether a process born then is of the works that are meant, as the supervisor decides it.
fn is_meant(births: &Births, born: Instant) -> bool {
    if born < births.since {
        return false;
    }
    let other = births.other.map(|at| (at, true));
    let distance = |at: Instant| at.max(born) - at.min(born);
    let all = births.works.iter().copied().chain(other);
    let closest = all.min_by_key(|(at, is_meant)| (distance(*at), *is_meant));
    closest.is_none_or(|(_, is_meant)| is_meant)
}

/// Pieces of work by their ids.
type Pieces = BTreeMap<String, agent::Piece>;

/// Runs a walk; a broken rule is a panic.
#[must_use]
pub fn walk(seed: u64, steps: usize) -> Walked {
    let mut walk = Walk::new(seed);
    walk.begin();
    for _ in 0..steps {
        walk.step();
    }
    walk.shut_down()
}
