//! Random walks over relayed servers: many clients and servers that obey, ignore, answer late, ask,
//! die, hang in the handshake, print garbage, change their lists and are replaced (UPS-01 to UPS-12).
//!
//! The oracle knows each call by a marker in its arguments. A marker that reaches the wrong client,
//! reaches a server twice or is cancelled without reason ends the walk with a panic.

mod actor;
mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::AuditEvent;
use ceased_core::ids::{CheckId, InstanceId};
use ceased_core::limits::ServerPlaces;
use ceased_core::time::Wall;
use ceased_core::upstream::interface::{Proof, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::{Share, UpstreamServer};
use ceased_core::{Action, ConnId, Engine, Event, Identity, Instant, Now, Rights, Role, Settings};
use serde_json::{Value, json};

use self::actor::{Actor, Temper};
use self::client::Client;
use crate::frames;
use crate::rng::Rng;
use crate::world::Rigged;

/// Names of the servers, which are their prefixes as well.
const SERVERS: [&str; 2] = ["a", "b"];

/// Events of a walk, for a test that all of them happen.
#[derive(Debug, Default, Clone, Copy)]
pub struct Walked {
    /// Calls that had a result.
    pub results: usize,
    /// Calls that had an error.
    pub errors: usize,
    /// Calls that their client cancelled.
    pub cancels: usize,
    /// Cancelled calls that no server had seen.
    pub unsent: usize,
    /// Requests of servers that a client answered.
    pub questions: usize,
    /// Requests of servers that were refused.
    pub refused: usize,
    /// Instances that were ended.
    pub ended: usize,
    /// Instances that were replaced or ended because of a cancel.
    pub replaced: usize,
    /// Progress that clients got.
    pub progress: usize,
    /// Calls that a server made tasks of.
    pub tasks: usize,
}

impl Walked {
    /// The sum of two walks.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            results: self.results + other.results,
            errors: self.errors + other.errors,
            cancels: self.cancels + other.cancels,
            unsent: self.unsent + other.unsent,
            questions: self.questions + other.questions,
            refused: self.refused + other.refused,
            ended: self.ended + other.ended,
            replaced: self.replaced + other.replaced,
            progress: self.progress + other.progress,
            tasks: self.tasks + other.tasks,
        }
    }
}

/// Something that the host still has to do.
#[derive(Debug)]
enum Duty {
    /// With the name of its server, and its only client.
    Start(InstanceId, Box<str>, Option<ConnId>),
    Examine(InstanceId, CheckId),
    EndStrays(InstanceId, CheckId),
    End(InstanceId),
}

/// State of the oracle.
#[derive(Debug, Default)]
struct Oracle {
    /// The client of each call.
    owner: BTreeMap<String, ConnId>,
    /// Calls that were cancelled, or whose client is gone.
    over: BTreeSet<String>,
    /// Calls that a server has seen.
    seen: BTreeSet<String>,
    next: u64,
}

struct Walk {
    rng: Rng,
    engine: Engine,
    now: Now,
    next_conn: u64,
    clients: BTreeMap<ConnId, Client>,
    actors: BTreeMap<InstanceId, Actor>,
    /// Servers that speak the revision without sessions.
    modern: BTreeSet<&'static str>,
    duties: Vec<Duty>,
    ending: BTreeSet<InstanceId>,
    oracle: Oracle,
    walked: Walked,
    exits: usize,
}

fn settings(rng: &mut Rng) -> Settings {
    let servers = SERVERS.map(|name| {
        Arc::new(UpstreamServer {
            prefix: format!("{name}_").into(),
            share: *rng.pick(&[Share::Connection, Share::Identity, Share::Identity, Share::Call]),
            warm: rng.below(2),
            places: ServerPlaces {
                max: *rng.pick(&[None, Some(3)]),
                per_identity: *rng.pick(&[None, Some(2)]),
            },
            max_calls: *rng.pick(&[None, None, Some(1), Some(2)]),
            idle_exit: *rng.pick(&[None, Some(Duration::from_secs(20))]),
            start_timeout: Duration::from_secs(5),
            timeout: None,
            cancel_grace: Duration::from_secs(1),
            drain: Duration::from_secs(6),
            ..UpstreamServer::new(name)
        })
    });
    Settings { servers: servers.into(), start_at_once: 1 + rng.below(3), ..Settings::default() }
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let settings = Arc::new(settings(&mut rng));
        let modern = SERVERS.into_iter().filter(|_| rng.once_in(4)).collect();
        Self {
            rng,
            engine: Engine::new(settings, Box::new(Rigged::new([]))),
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(0) },
            next_conn: 0,
            clients: BTreeMap::new(),
            actors: BTreeMap::new(),
            modern,
            duties: Vec::new(),
            ending: BTreeSet::new(),
            oracle: Oracle::default(),
            walked: Walked::default(),
            exits: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..2 => self.connect(),
            2 => {
                if self.rng.once_in(4) {
                    self.disconnect();
                }
            }
            3..18 => self.call(),
            18..23 => self.cancel(),
            23 => self.list(),
            24..48 => self.actor_reads(),
            48..84 => self.actor_works(),
            84..97 => self.do_a_duty(),
            _ => {
                let millis = 1 + self.rng.below(1000) as u64;
                self.pass(Duration::from_millis(millis));
            }
        }
    }

    // ----------------------------------------------------------------------- engine

    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.handle(self.now, Event::Turn, &mut actions);
        self.engine.check();
        for action in actions {
            match action {
                Action::Upstream(action) => self.take_action(action),
                Action::Audit(note) => self.check_note(&note),
                Action::Exit => self.exits += 1,
                Action::Flush { .. } => {}
                other @ (Action::Start { .. }
                | Action::Stop { .. }
                | Action::Tell { .. }
                | Action::TellProgress { .. }
                | Action::Notified { .. }
                | Action::RefuseCancel { .. }
                | Action::Store { .. }
                | Action::Load { .. }
                | Action::LookUp(_)
                | Action::Close { .. }
                | Action::CollectHostStatus { .. }
                | Action::ReadOutput(_)
                | Action::Operate { .. }) => panic!("no host is asked for this: {other:?}"),
            }
        }
        self.clients_read();
    }

    fn send(&mut self, conn: ConnId, message: &Value) {
        self.feed(Event::Frame { conn, frame: message.to_string().as_bytes() });
    }

    fn take_action(&mut self, action: UpstreamAction) {
        let duty = match action {
            UpstreamAction::Start { instance, server, client, .. } => {
                Duty::Start(instance, server.name.clone(), client)
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
            | UpstreamAction::Forget { .. } => return,
        };
        self.duties.push(duty);
    }

    /// UPS-16: a receipt that says that an instance has ended comes after its end.
    fn check_note(&mut self, note: &AuditEvent) {
        let AuditEvent::Ceased(receipt) = note else { return };
        let Some(upstream) = &receipt.upstream else { return };
        match upstream.proof {
            Proof::Replaced | Proof::Ended => {
                let instance = upstream.instance.expect("it was sent to an instance");
                assert!(!self.actors.contains_key(&instance), "{instance} has not ended");
                self.walked.replaced += 1;
            }
            Proof::Unsent => self.walked.unsent += 1,
            Proof::Told | Proof::Answered | Proof::Quiet | Proof::ChildrenEnded(_) => {}
            other @ (Proof::StreamClosed | Proof::SessionEnded | Proof::Unknown) => {
                panic!("{other:?} of a server with processes")
            }
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

    fn lines(&mut self, conn: ConnId) -> Vec<Value> {
        let text = frames::taken(&mut self.engine, conn);
        text.lines().map(|line| serde_json::from_str(line).expect("frames are JSON")).collect()
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
            Duty::Start(instance, ..) if self.rng.once_in(12) => {
                self.end_actor(instance, "cannot be started");
            }
            Duty::Start(instance, server, client) => {
                let conn = self.fresh_conn();
                let temper = *self.rng.pick(&Temper::ALL);
                let is_modern = self.modern.contains(&*server);
                self.actors.insert(instance, Actor::new((conn, client), temper, is_modern));
                self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
            }
            Duty::Examine(instance, check) => {
                let Some(actor) = self.actors.get_mut(&instance) else { return };
                let processes = actor.evidence();
                self.feed(Event::Upstream(UpstreamEvent::Examined { instance, check, processes }));
            }
            Duty::EndStrays(instance, check) => {
                let Some(actor) = self.actors.get_mut(&instance) else { return };
                let ended = std::mem::take(&mut actor.strays);
                let left = u32::from(self.rng.once_in(6));
                let event = UpstreamEvent::StraysEnded { instance, check, ended, left };
                self.feed(Event::Upstream(event));
            }
            Duty::End(instance) => self.end_actor(instance, "signal 15"),
        }
    }

    /// An instance ends, asked for or not.
    fn end_actor(&mut self, instance: InstanceId, status: &str) {
        let was_there = self.actors.remove(&instance).is_some();
        let of = |duty: &Duty| match duty {
            Duty::Start(of, ..) | Duty::Examine(of, _) | Duty::EndStrays(of, _) | Duty::End(of) => {
                *of == instance
            }
        };
        self.duties.retain(|duty| !of(duty));
        self.walked.ended += usize::from(was_there);
        self.feed(Event::Upstream(UpstreamEvent::Ended { instance, status, stderr: "last words" }));
    }

    fn fresh_conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId::new(self.next_conn)
    }

    // ----------------------------------------------------------------------- end

    /// The daemon shuts down: everything ends, and every request is answered.
    fn shut_down(mut self) -> Walked {
        // Servers that are left alone rest, so that nothing but warm ones is left.
        for _ in 0..40 {
            self.pass(Duration::from_secs(1));
            while let Some(duty) = self.duties.pop() {
                self.carry_out(duty);
            }
        }
        self.check_rest();
        let by = self.now.at + Duration::from_secs(60);
        self.feed(Event::Drain { by });
        for _ in 0..8 {
            while let Some(duty) = self.duties.pop() {
                self.carry_out(duty);
            }
        }
        assert_eq!(self.exits, 1, "a shutdown ends: {:?}", self.actors.keys());
        assert!(self.actors.is_empty(), "UPS-07: {:?}", self.actors.keys());
        for client in self.clients.values() {
            let open: Vec<_> = client.open.iter().filter(|(_, call)| !call.is_cancelled).collect();
            assert!(open.is_empty(), "RPC-03: requests without an answer: {open:?}");
        }
        let sizes = self.engine.sizes();
        assert_eq!((sizes.jobs, sizes.timers), (0, 0), "nothing is left behind");
        self.walked
    }

    /// After a while without anything new, no cancelled work goes on, and no instance of a client
    /// that is gone is there.
    fn check_rest(&self) {
        let calls = self.clients.values().flat_map(|client| client.open.values());
        let wanted = calls.filter(|call| !call.marker.is_empty()).count();
        assert_eq!(self.engine.sizes().jobs, wanted, "UPS-05, UPS-06: cancelled work goes on");
        for (instance, actor) in &self.actors {
            let is_gone = actor.client.is_some_and(|client| !self.clients.contains_key(&client));
            assert!(!is_gone, "UPS-07: the client of {instance} is gone");
        }
    }

    fn connect(&mut self) {
        if self.clients.len() >= 4 {
            return;
        }
        let conn = self.fresh_conn();
        let user = 1000 + self.rng.below(2) as u32;
        self.feed(Event::Opened {
            conn,
            identity: Identity::User(user),
            rights: Rights::Full,
            role: Role::Server,
        });
        self.clients.insert(conn, Client::default());
        let request = json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"}}});
        self.send(conn, &request);
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
