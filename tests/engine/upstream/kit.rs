//! An engine with upstreams, and scripted servers and clients around it.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{AuditEvent, OperatorOrder};
use ceased_core::ids::{CheckId, InstanceId};
use ceased_core::time::Wall;
use ceased_core::upstream::interface::{ProcessEvidence, UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{Action, ConnId, Engine, Event, Identity, Instant, Now, Rights, Role, Settings};
use ceased_simulator::frames;
use ceased_simulator::world::Rigged;
use serde_json::{Value, json};

pub(super) const USER: Identity = Identity::User(1000);

pub(super) struct Kit {
    pub(super) engine: Engine,
    now: Now,
    next: u64,
    /// Actions about upstreams that no test has taken.
    pub(super) wanted: Vec<UpstreamAction>,
    pub(super) notes: Vec<AuditEvent>,
    pub(super) exits: usize,
    /// Orders of operators.
    pub(super) orders: Vec<OperatorOrder>,
    /// Requests that arrived during a handshake.
    pub(super) early: Vec<Value>,
}

impl Kit {
    pub(super) fn new(servers: Vec<UpstreamServer>) -> Self {
        let servers = servers.into_iter().map(Arc::new).collect();
        Self::with(Settings { servers, start_at_once: 4, ..Settings::default() })
    }

    pub(super) fn with(settings: Settings) -> Self {
        let engine = Engine::new(Arc::new(settings), Box::new(Rigged::new([])));
        let now = Now { at: Instant::ZERO, wall: Wall::from_millis(0) };
        let (wanted, notes) = (Vec::new(), Vec::new());
        let (orders, early) = (Vec::new(), Vec::new());
        Self { engine, now, next: 0, wanted, notes, exits: 0, orders, early }
    }

    pub(super) fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.handle(self.now, Event::Turn, &mut actions);
        self.engine.check();
        for action in actions {
            match action {
                Action::Upstream(action) => self.wanted.push(action),
                Action::Audit(note) => self.notes.push(note),
                Action::Exit => self.exits += 1,
                Action::Operate { order, .. } => self.orders.push(order),
                Action::Flush { .. } => {}
                Action::Start { .. }
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
                | Action::ReadOutput(_) => panic!("no host is asked for this: {action:?}"),
            }
        }
    }

    pub(super) fn conn(&mut self) -> ConnId {
        self.next += 1;
        ConnId::new(self.next)
    }

    /// A client whose session is not initialized.
    pub(super) fn connect(&mut self) -> ConnId {
        let conn = self.conn();
        self.feed(Event::Opened { conn, identity: USER, rights: Rights::Full, role: Role::Server });
        conn
    }

    /// A client with a session.
    pub(super) fn open(&mut self) -> ConnId {
        let conn = self.connect();
        self.send(conn, &initialize("2025-11-25"));
        self.initialized(conn);
        self.read(conn);
        conn
    }

    /// A client has taken the answer to its `initialize`.
    pub(super) fn initialized(&mut self, conn: ConnId) {
        self.send(conn, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub(super) fn send(&mut self, conn: ConnId, message: &Value) {
        self.line(conn, &message.to_string());
    }

    pub(super) fn line(&mut self, conn: ConnId, line: &str) {
        self.feed(Event::Frame { conn, frame: line.as_bytes() });
    }

    /// The lines that wait for a peer, as text.
    pub(super) fn lines(&mut self, conn: ConnId) -> Vec<String> {
        let text = frames::taken(&mut self.engine, conn);
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn read(&mut self, conn: ConnId) -> Vec<Value> {
        let lines = self.lines(conn);
        lines.iter().map(|line| serde_json::from_str(line).expect("frames are JSON")).collect()
    }

    /// The only message that waits for a peer.
    pub(super) fn one(&mut self, conn: ConnId) -> Value {
        let mut all = self.read(conn);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub(super) fn silent(&mut self, conn: ConnId) {
        assert_eq!(self.lines(conn), [""; 0]);
    }

    /// Passes time up to and with every deadline in it.
    pub(super) fn pass(&mut self, millis: u64) {
        let end = self.now.at + Duration::from_millis(millis);
        while let Some((at, _)) = self.engine.deadline().filter(|(at, _)| *at <= end) {
            self.now.at = at.max(self.now.at);
            self.feed(Event::Tick);
        }
        self.now.at = end;
    }

    /// The next action about upstreams.
    pub(super) fn want(&mut self) -> UpstreamAction {
        assert!(!self.wanted.is_empty(), "the engine wants something of the host");
        self.wanted.remove(0)
    }

    /// Instances that the engine wants started.
    pub(super) fn starts(&mut self) -> Vec<InstanceId> {
        let mut started = Vec::new();
        self.wanted.retain(|action| {
            if let UpstreamAction::Start { instance, .. } = action {
                started.push(*instance);
                return false;
            }
            true
        });
        started
    }

    pub(super) fn started(&mut self, instance: InstanceId) -> ConnId {
        let conn = self.conn();
        self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
        conn
    }

    pub(super) fn ended(&mut self, instance: InstanceId, status: &str, stderr: &str) {
        self.feed(Event::Upstream(UpstreamEvent::Ended { instance, status, stderr }));
    }

    pub(super) fn examined(&mut self, instance: InstanceId, check: CheckId, born: u32, cpu: u64) {
        let cpu = Some(Duration::from_millis(cpu));
        let processes = ProcessEvidence { born: Some(born), cpu, waited: None };
        self.feed(Event::Upstream(UpstreamEvent::Examined { instance, check, processes }));
    }

    pub(super) fn strays_ended(&mut self, instance: InstanceId, check: CheckId, ended: u32) {
        self.feed(Event::Upstream(UpstreamEvent::StraysEnded { instance, check, ended, left: 0 }));
    }

    /// Answers a request with this result.
    pub(super) fn answer(&mut self, conn: ConnId, request: &Value, result: &Value) {
        self.send(conn, &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Answers pings; other messages are returned.
    pub(super) fn pong(&mut self, conn: ConnId) -> Vec<Value> {
        let all = self.read(conn);
        let (pings, others): (Vec<Value>, Vec<Value>) =
            all.into_iter().partition(|message| message["method"] == "ping");
        for ping in pings {
            self.answer(conn, &ping, &json!({}));
        }
        others
    }

    /// Runs the handshake of a server of the session revisions that has these tools.
    pub(super) fn handshake(&mut self, conn: ConnId, tools: &[Value]) {
        let mut first = self.one(conn);
        if first["method"] == "server/discover" {
            let error = json!({"code": -32601, "message": "unknown"});
            self.send(conn, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
            first = self.one(conn);
        }
        assert_eq!(first["method"], "initialize");
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "scripted", "version": "7"}, "instructions": "Use it."});
        self.answer(conn, &first, &result);
        let mut rest = self.read(conn);
        assert_eq!(rest.remove(0)["method"], "notifications/initialized");
        // That of the engine itself, and where the server shows through, those of clients.
        let lists: Vec<&Value> =
            rest.iter().filter(|message| message["method"] == "tools/list").collect();
        assert!(!lists.is_empty(), "the tools are listed");
        for list in lists {
            self.answer(conn, list, &json!({"tools": tools}));
        }
        // Requests that waited are for the test to read again.
        for request in rest.iter().filter(|message| message["method"] != "tools/list") {
            self.early.push(request.clone());
        }
    }

    /// A client with a session that declares these capabilities.
    pub(super) fn open_with(&mut self, capabilities: &Value) -> ConnId {
        let conn = self.connect();
        let mut request = initialize("2025-11-25");
        request["params"]["capabilities"] = capabilities.clone();
        self.send(conn, &request);
        self.initialized(conn);
        self.read(conn);
        conn
    }

    /// Runs the handshake of a server with this answer to `initialize` or `server/discover`; its
    /// lists are empty but for these tools. Returns the capabilities that it was told of.
    pub(super) fn settle(&mut self, conn: ConnId, identity: &Value, tools: &[Value]) -> Value {
        let mut first = self.one(conn);
        let is_modern = identity.get("supportedVersions").is_some();
        if first["method"] == "server/discover" && !is_modern {
            let error = json!({"code": -32601, "message": "unknown"});
            self.send(conn, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
            first = self.one(conn);
        }
        let declared = first["params"]["capabilities"].clone();
        if first["method"] == "initialize" && is_modern {
            let error = json!({"code": -32601, "message": "no sessions"});
            self.send(conn, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
            first = self.one(conn);
            assert_eq!(first["method"], "server/discover");
        }
        self.answer(conn, &first, identity);
        self.lists(conn, tools);
        declared
    }

    /// Answers the lists that an instance is asked for; other requests are kept as early ones.
    pub(super) fn lists(&mut self, conn: ConnId, tools: &[Value]) {
        loop {
            let all = self.read(conn);
            if all.is_empty() {
                return;
            }
            for message in all {
                let result = match message["method"].as_str() {
                    Some("tools/list") => json!({"tools": tools}),
                    Some("prompts/list") => json!({"prompts": [{"name": "ask"}]}),
                    Some("resources/list") => {
                        json!({"resources": [{"uri": "x://a", "name": "a"}]})
                    }
                    Some("resources/templates/list") => json!({"resourceTemplates": []}),
                    Some("notifications/initialized") => continue,
                    _ => {
                        self.early.push(message);
                        continue;
                    }
                };
                self.answer(conn, &message, &result);
            }
        }
    }

    /// The receipt of the last job that was told to stop and has ended.
    pub(super) fn proof(&self) -> Option<&'static str> {
        self.notes.iter().rev().find_map(|note| {
            let AuditEvent::Ceased(receipt) = note else { return None };
            receipt.upstream.as_ref().map(|upstream| upstream.proof.as_str())
        })
    }
}

pub(super) fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}})
}

pub(super) fn call(id: &Value, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": tool, "arguments": {}}})
}

pub(super) fn cancel(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": id, "reason": "enough"}})
}

pub(super) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "x-odd": [1.50]})
}
