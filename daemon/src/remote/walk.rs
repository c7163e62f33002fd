//! Random walks over servers by URL: an engine, instances of this folder, and scripted servers over
//! HTTP of both eras that obey, ignore, forget their sessions, cut streams, answer late, redirect
//! and refuse tokens.
//!
//! The oracle knows each call by a marker in its arguments. A marker that reaches a server twice
//! without a reason, goes with the token of another identity, or is cancelled while it is wanted
//! ends the walk with a panic. Bytes arrive in random pieces.

mod serving;
mod site;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ceased_client::proxy::Route;
use ceased_core::action::AuditEvent;
use ceased_core::ids::{ConnId, IdSource, InstanceId};
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::upstream::interface::{Proof, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::{OnIgnoredCancel, Share, UpstreamServer};
use ceased_core::{Action, Engine, Event, Identity, Rights, Role, Settings};
use ceased_transports::http::client::Url;
use serde_json::{Value, json};
use uuid::Uuid;

use self::site::{Place, Site, Wire, owner_text};
use super::bearer::Bearer;
use super::endpoint::{Bearers, Endpoint, Protocol};
use super::{Effect, Outgoing, Remote};
use crate::credentials::source::Credentials;

use crate::server_token::{Lack, Token};

/// How often each of these happens in all walks together at least.
const SEEN_MIN: usize = 5;
/// Events of walks.
const EVENTS: [&str; 16] = [
    "result",
    "error",
    "told",
    "answered",
    "stream_closed",
    "session_ended",
    "unsent",
    "not connected",
    "forgotten",
    "cut",
    "resumed",
    "redirected",
    "redirected away",
    "token refused",
    "repeated",
    "late",
];

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) >> 33).unwrap() % end
    }

    fn once_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

struct Numbers(u128);

impl IdSource for Numbers {
    fn uuid(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u128((0xced0_0000_0000_4000_8000 << 48) | self.0)
    }
}

/// An instance as the event loop has it.
struct Machine {
    conn: ConnId,
    server: usize,
    /// The identity that it works for.
    owner: Option<Identity>,
    remote: Remote,
    /// Whether the engine has ended it, or its session was lost.
    is_ending: bool,
}

/// A client with a session.
#[derive(Default)]
struct Client {
    user: u32,
    /// Markers of calls that wait, by the id.
    open: BTreeMap<u64, String>,
}

/// Something that the host still has to do.
enum Duty {
    Start(InstanceId, usize, Option<Identity>),
    Token(Bearer, Option<Identity>),
}

#[derive(Default)]
struct Oracle {
    /// User of the client of each call.
    users: BTreeMap<String, u32>,
    /// Calls that were cancelled, or whose client is gone.
    over: BTreeSet<String>,
    /// How often a server has begun each call.
    begun: BTreeMap<String, usize>,
    /// Cancels and ends of sessions that servers have accepted.
    told: usize,
    ended: usize,
}

/// Events of walks, for a test that all of them happen.
#[derive(Debug, Default)]
struct Walked {
    seen: BTreeMap<&'static str, usize>,
}

impl Walked {
    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

struct Walk {
    rng: Rng,
    engine: Engine,
    now: Now,
    next: u64,
    clients: BTreeMap<ConnId, Client>,
    machines: BTreeMap<InstanceId, Machine>,
    wires: BTreeMap<Place, Wire>,
    sites: Vec<Site>,
    duties: Vec<Duty>,
    /// Decisions of the engine that are not carried out yet.
    actions: VecDeque<Action>,
    oracle: Oracle,
    walked: Walked,
    /// Servers do nothing wrong from then on.
    is_calm: bool,
}

fn endpoint(has_source: bool) -> Endpoint {
    let url = Url::parse("http://site.test/mcp").unwrap();
    Endpoint {
        route: Route::to(&Url::parse("unix:/none").unwrap()),
        url,
        headers: Vec::new(),
        protocol: Protocol::Auto,
        connect_timeout: Duration::from_secs(10),
        read_timeout: Duration::from_secs(20),
        max_connections: 4,
        allow_private: false,
        tls: None,
        credentials: has_source.then(|| Credentials::File(PathBuf::from("/none"))),
        bearers: Bearers::default(),
    }
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let sites: Vec<Site> = (0..2).map(|_| Site::new(rng.once_in(2), rng.once_in(2))).collect();
        let server = |(at, site): (usize, &Site)| {
            let name = ["a", "b"][at];
            Arc::new(UpstreamServer {
                prefix: format!("{name}_").into(),
                is_remote: true,
                share: *rng.pick(&[Share::Connection, Share::Identity]),
                on_ignored_cancel: *rng.pick(&[OnIgnoredCancel::Leave, OnIgnoredCancel::Replace]),
                start_timeout: Duration::from_secs(30),
                idle_exit: Some(Duration::from_secs(60)),
                timeout: None,
                cancel_grace: Duration::from_secs(3),
                drain: Duration::from_secs(6),
                payload: endpoint(site.has_tokens).into_payload(),
                ..UpstreamServer::new(name)
            })
        };
        let servers = sites.iter().enumerate().map(server).collect();
        let settings = Settings { servers, start_at_once: 4, ..Settings::default() };
        Self {
            engine: Engine::new(Arc::new(settings), Box::new(Numbers(u128::from(seed) << 32))),
            rng,
            now: Now { at: Instant::ZERO, wall: Wall::from_millis(0) },
            next: 0,
            clients: BTreeMap::new(),
            machines: BTreeMap::new(),
            wires: BTreeMap::new(),
            sites,
            duties: Vec::new(),
            actions: VecDeque::new(),
            oracle: Oracle::default(),
            walked: Walked::default(),
            is_calm: false,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn step(&mut self) {
        self.choose();
        self.settle();
    }

    fn choose(&mut self) {
        match self.rng.below(100) {
            0..2 => self.connect(),
            2 if self.rng.once_in(5) => self.disconnect(),
            3..7 => self.call(),
            7..9 => self.cancel(),
            9..14 => self.do_a_duty(),
            14..62 => self.move_bytes(),
            62..94 => self.site_works(),
            94..99 => self.pass(Duration::from_millis(60)),
            _ => {
                let millis = 1 + self.rng.below(1500) as u64;
                self.pass(Duration::from_millis(millis));
            }
        }
    }

    // ---------------------------------------------------------------------------- engine

    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.handle(self.now, Event::Turn, &mut actions);
        self.actions.extend(actions);
    }

    /// Carries out the decisions of the engine, as the event loop does after each of its events.
    fn settle(&mut self) {
        loop {
            while let Some(action) = self.actions.pop_front() {
                match action {
                    Action::Upstream(action) => self.take_action(action),
                    Action::Audit(AuditEvent::Ceased(receipt)) => {
                        if let Some(upstream) = receipt.upstream {
                            self.check_proof(upstream.proof);
                        }
                    }
                    Action::Flush { .. } | Action::Audit(_) | Action::Exit => {}
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
            self.send_to_servers();
            self.clients_read();
            if self.actions.is_empty() {
                return;
            }
        }
    }

    /// REM-03: a receipt says no more than the servers know.
    fn check_proof(&mut self, proof: Proof) {
        self.walked.note(proof.as_str());
        let count = self.walked.seen[proof.as_str()];
        match proof {
            Proof::Told => assert!(count <= self.oracle.told, "REM-03: no server was told"),
            // One end of a session is that of all its calls.
            Proof::SessionEnded => assert!(self.oracle.ended > 0, "REM-03: no session ended"),
            Proof::StreamClosed => assert!(self.sites.iter().any(|site| site.is_modern), "REM-03"),
            Proof::Unsent | Proof::Answered | Proof::Unknown => {}
            Proof::Quiet | Proof::ChildrenEnded(_) | Proof::Replaced | Proof::Ended => {
                panic!("REM-03: {proof:?} of a server by URL")
            }
        }
    }

    fn take_action(&mut self, action: UpstreamAction) {
        match action {
            UpstreamAction::Start { instance, server, owner, .. } => {
                let at = usize::from(&*server.name == "b");
                self.duties.push(Duty::Start(instance, at, owner));
            }
            UpstreamAction::End { instance, .. } => {
                let now = self.now.at;
                if let Some(machine) = self.machines.get_mut(&instance) {
                    machine.is_ending = true;
                }
                if !self.drive(instance, |remote| remote.end(now)) {
                    let is_of =
                        |duty: &Duty| matches!(duty, Duty::Start(of, ..) if *of == instance);
                    self.duties.retain(|duty| !is_of(duty));
                    self.ended(instance);
                }
            }
            UpstreamAction::Forget { instance, call } => {
                let now = self.now.at;
                self.drive(instance, |remote| remote.forget(call.get(), now));
            }
            UpstreamAction::Warn { .. }
            | UpstreamAction::ToolsDiffer { .. }
            | UpstreamAction::SaveApproval { .. }
            | UpstreamAction::SaveManifest { .. } => {}
            UpstreamAction::Examine { .. } | UpstreamAction::EndStrays { .. } => {
                panic!("no process is there")
            }
        }
    }

    fn ended(&mut self, instance: InstanceId) {
        self.feed(Event::Upstream(UpstreamEvent::Ended { instance, status: "", stderr: "" }));
    }

    fn lines(&mut self, conn: ConnId) -> Vec<Vec<u8>> {
        let Some(queue) = self.engine.send_queue(conn) else { return Vec::new() };
        let lines = queue.frames().map(|(_, frame)| frame.to_vec()).collect();
        let all = queue.len();
        queue.advance(all);
        lines
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.at + span;
        loop {
            let engine = self.engine.deadline().map(|(at, _)| at);
            let due = |(id, it): (&InstanceId, &Machine)| Some((it.remote.deadline()?, *id));
            let remote = self.machines.iter().filter_map(due).min();
            let next = engine.into_iter().chain(remote.map(|(at, _)| at)).min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now.at = at.max(self.now.at);
            match remote.filter(|(due, _)| *due <= at) {
                Some((_, id)) => {
                    let now = self.now.at;
                    self.drive(id, |remote| remote.tick(now));
                }
                None => self.feed(Event::Tick),
            }
            self.settle();
        }
        self.now.at = end;
    }

    // ---------------------------------------------------------------------------- event loop

    fn drive(&mut self, id: InstanceId, input: impl FnOnce(&mut Remote)) -> bool {
        let Some(machine) = self.machines.get_mut(&id) else { return false };
        input(&mut machine.remote);
        while let Some(machine) = self.machines.get_mut(&id) {
            let (conn, effects) = (machine.conn, machine.remote.take_effects());
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out(id, conn, effect);
            }
        }
        true
    }

    fn carry_out(&mut self, id: InstanceId, conn: ConnId, effect: Effect) {
        match effect {
            Effect::Open(slot) => drop(self.wires.insert((id, slot), Wire::default())),
            Effect::Write(_) => {}
            Effect::Close(slot) => self.client_closes((id, slot)),
            Effect::Frame(frame) => self.feed(Event::Frame { conn, frame: &frame }),
            Effect::News(news) => {
                use ceased_core::upstream::interface::RemoteNews;
                if let (RemoteNews::SessionLost, Some(machine)) =
                    (&news, self.machines.get_mut(&id))
                {
                    machine.is_ending = true;
                }
                self.feed(Event::Upstream(UpstreamEvent::Remote { instance: id, news }));
            }
            Effect::AskForToken => {
                let machine = &self.machines[&id];
                let (bearer, owner) = (machine.remote.bearer().clone(), machine.owner.clone());
                if bearer.begin(self.now.at).is_some() {
                    self.duties.push(Duty::Token(bearer, owner));
                }
            }
            Effect::Over => {
                self.machines.remove(&id);
                assert!(self.wires.keys().all(|(of, _)| *of != id), "connections are left");
                self.ended(id);
            }
        }
    }

    fn send_to_servers(&mut self) {
        let conns: Vec<_> = self.machines.iter().map(|(id, it)| (*id, it.conn)).collect();
        let now = self.now.at;
        for (id, conn) in conns {
            for frame in self.lines(conn) {
                let Some(message) = Outgoing::read(&frame) else { continue };
                self.drive(id, |remote| remote.send(message, now));
            }
        }
    }

    fn do_a_duty(&mut self) {
        if self.duties.is_empty() {
            return;
        }
        let at = self.rng.below(self.duties.len());
        match self.duties.remove(at) {
            Duty::Start(instance, server, owner) => {
                let conn = ConnId::new(self.number());
                let settings = Arc::clone(self.engine.upstreams().nth(server).unwrap());
                let endpoint = Endpoint::of(&settings).unwrap();
                let bearer = endpoint.bearer(owner.as_ref());
                let remote = Remote::new(endpoint, bearer, 1 << 20);
                let machine = Machine { conn, server, owner, remote, is_ending: false };
                self.machines.insert(instance, machine);
                self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
            }
            Duty::Token(bearer, owner) => {
                let number = self.number();
                let answer = match self.rng.once_in(10) && !self.is_calm {
                    true => Err(Lack { why: "no token".into(), needs_login: false }),
                    false => {
                        let text = format!("{number}.{}", owner_text(owner.as_ref()));
                        Ok(Token { text, expires_in: None })
                    }
                };
                bearer.take(answer, self.now.at);
                let uses = |(_, it): &(&InstanceId, &Machine)| it.remote.uses(&bearer);
                let all: Vec<_> = self.machines.iter().filter(uses).map(|(id, _)| *id).collect();
                let now = self.now.at;
                for id in all {
                    self.drive(id, |remote| remote.take_token(now));
                }
            }
        }
    }

    /// Some bytes go one way on one connection.
    fn move_bytes(&mut self) {
        let places: Vec<Place> = self.wires.keys().copied().collect();
        if places.is_empty() {
            return;
        }
        let place = *self.rng.pick(&places);
        let (id, slot) = place;
        let now = self.now.at;
        let wire = self.wires.get_mut(&place).unwrap();
        if !wire.is_connected {
            if self.rng.once_in(20) && !self.is_calm {
                self.walked.note("not connected");
                self.drive(id, |remote| remote.closed(slot, Some("refused"), now));
            } else {
                wire.is_connected = true;
            }
            return;
        }
        if !wire.to_client.is_empty() && self.rng.once_in(2) {
            let count = 1 + self.rng.below(wire.to_client.len());
            let bytes: Vec<u8> = wire.to_client.drain(..count).collect();
            self.drive(id, |remote| remote.receive(slot, &bytes, now));
            return;
        }
        if wire.to_client.is_empty() && wire.is_cut {
            self.drive(id, |remote| remote.closed(slot, None, now));
            return;
        }
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let Some(output) = machine.remote.output(slot) else { return };
        let (pending, is_cut) = (output.pending().to_vec(), wire.is_cut);
        if pending.is_empty() || is_cut {
            return;
        }
        let count =
            if self.rng.once_in(3) { 1 + self.rng.below(pending.len()) } else { pending.len() };
        output.advance(count);
        wire.to_site.extend_from_slice(&pending[..count]);
        self.drive(id, |remote| remote.note_sent(slot, now));
        self.site_reads(place);
    }

    // ---------------------------------------------------------------------------- clients

    fn connect(&mut self) {
        if self.clients.len() >= 4 {
            return;
        }
        let conn = ConnId::new(self.number());
        let user = 1000 + self.rng.below(2) as u32;
        let identity = Identity::User(user);
        self.feed(Event::Opened { conn, identity, rights: Rights::Full, role: Role::Server });
        self.clients.insert(conn, Client { user, open: BTreeMap::new() });
        let version = *self.rng.pick(&["2025-06-18", "2025-11-25"]);
        self.say(
            conn,
            &json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}}}),
        );
        self.say(conn, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn say(&mut self, conn: ConnId, message: &Value) {
        self.feed(Event::Frame { conn, frame: message.to_string().as_bytes() });
    }

    fn some_client(&mut self) -> Option<ConnId> {
        let all: Vec<ConnId> = self.clients.keys().copied().collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn disconnect(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let client = self.clients.remove(&conn).unwrap();
        self.oracle.over.extend(client.open.into_values());
        self.feed(Event::Closed { conn });
    }

    fn call(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let id = 500_000 + self.number();
        let marker = format!("m{id}");
        let tool = *self.rng.pick(&["a_work", "b_work", "a_again", "b_again"]);
        let client = self.clients.get_mut(&conn).unwrap();
        client.open.insert(id, marker.clone());
        self.oracle.users.insert(marker.clone(), client.user);
        self.say(
            conn,
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": {"m": marker}}}),
        );
    }

    fn cancel(&mut self) {
        let Some(conn) = self.some_client() else { return };
        let ids: Vec<u64> = self.clients[&conn].open.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        // Most cancels are for calls that a server works on.
        let is_begun = |id: &u64| self.oracle.begun.contains_key(&self.clients[&conn].open[id]);
        let begun: Vec<u64> = ids.iter().copied().filter(is_begun).collect();
        let is_any = begun.is_empty() || self.rng.once_in(4);
        let id = *self.rng.pick(if is_any { &ids } else { &begun });
        let marker = self.clients.get_mut(&conn).unwrap().open.remove(&id).unwrap();
        self.oracle.over.insert(marker);
        self.say(
            conn,
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id}}),
        );
    }

    fn clients_read(&mut self) {
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        for conn in conns {
            for line in self.lines(conn) {
                let message: Value = serde_json::from_slice(&line).unwrap();
                let Some(id) = message["id"].as_u64().filter(|_| message["method"].is_null())
                else {
                    continue;
                };
                let marker = self.clients.get_mut(&conn).unwrap().open.remove(&id);
                let marker = marker.unwrap_or_else(|| panic!("CAN-08: {message}"));
                match message["error"].is_object() {
                    true => self.walked.note("error"),
                    false => {
                        assert_eq!(message["result"]["content"][0]["text"], *marker, "UPS-02");
                        self.walked.note("result");
                    }
                }
            }
        }
    }

    /// Servers do nothing wrong any more: every request is answered, and nothing is left behind.
    fn shut_down(mut self) -> Walked {
        self.is_calm = true;
        for round in 0..6000 {
            self.do_a_duty();
            self.move_bytes();
            self.site_works();
            self.settle();
            if round % 10 == 0 {
                self.pass(Duration::from_millis(100));
            }
        }
        for client in self.clients.values() {
            assert!(client.open.is_empty(), "RPC-03: without an answer: {:?}", client.open);
        }
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        self.clients.clear();
        conns.into_iter().for_each(|conn| self.feed(Event::Closed { conn }));
        self.settle();
        for _ in 0..60 {
            self.pass(Duration::from_secs(2));
            while !self.duties.is_empty() {
                self.do_a_duty();
                self.settle();
            }
        }
        assert!(self.machines.is_empty() && self.wires.is_empty(), "nothing is left behind");
        self.walked
    }
}

fn walk(seed: u64, steps: usize) -> Walked {
    let mut walk = Walk::new(seed);
    (0..steps).for_each(|_| walk.step());
    walk.shut_down()
}

/// REM-02, REM-03, REM-04, REM-05: whatever the servers do, a call is made, cancelled and answered
/// as often as it may be, by its own identity.
#[test]
fn calls_over_http_are_kept_apart() {
    let seeds = std::env::var("CEASED_WALK_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut all = Walked::default();
    for seed in 0..seeds.unwrap_or(60) {
        let walked = std::panic::catch_unwind(|| walk(seed, 1500));
        let walked = walked.unwrap_or_else(|_| panic!("seed {seed}"));
        walked
            .seen
            .into_iter()
            .for_each(|(what, count)| *all.seen.entry(what).or_default() += count);
    }
    println!("{:?}", all.seen);
    for what in EVENTS {
        let count = all.seen.get(what).copied().unwrap_or_default();
        assert!(count >= SEEN_MIN, "too few walks have {what:?}: {:?}", all.seen);
    }
}
