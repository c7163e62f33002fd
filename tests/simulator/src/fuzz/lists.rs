//! Answers of a server to requests for its lists, made of bytes: clients get each list once, without
//! doubles and within its bounds, and no list is waited for past its deadline.
//!
//! Each line of the input is the server's next answer, as the text of a result. A line that begins
//! with `!` tells of a change first, one with `~` comes after the deadline, and one with `-` never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::Event;
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, InstanceId};
use ceased_core::limits::{FrameLimits, Limits};
use ceased_core::protocol::role::Role;
use ceased_core::settings::Settings;
use ceased_core::time::Now;
use ceased_core::upstream::interface::{UpstreamAction, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use serde_json::{Value, json};

use crate::frames;
use crate::slow::member;
use crate::world::Rigged;

/// Small, so that a fuzzer exceeds them.
const ELEMENTS_MAX: usize = 6;
const BYTES_MAX: usize = 2000;
/// Longer than a list is waited for.
const DEADLINE: Duration = Duration::from_secs(30);
/// Lists by their method: the member of the result, and that which tells elements apart.
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];
const CHANGES: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];
const CLIENT: ConnId = ConnId::new(1);

/// A frame. Of one with a number or a text that a value cannot hold, the members that are needed.
fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| {
        let of =
            |name| member(line, name).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        json!({"id": of("id"), "method": of("method"), "error": {}})
    })
}

struct Host<'a> {
    engine: Engine,
    now: Now,
    next_conn: u64,
    servers: BTreeMap<InstanceId, ConnId>,
    script: VecDeque<&'a [u8]>,
    /// Requests of the client without an answer: the positions of their lists.
    open: BTreeMap<u64, usize>,
    next_id: u64,
}

/// Runs the answers.
///
/// # Panics
/// When a list has doubles or passes a bound, or a client has no answer or two.
pub fn check(data: &[u8]) {
    let limits = Limits {
        remote_list_max: ELEMENTS_MAX,
        frames: FrameLimits { frame_bytes_max: BYTES_MAX },
        ..Limits::default()
    };
    let server =
        UpstreamServer { start_timeout: Duration::from_secs(5), ..UpstreamServer::new("s") };
    let servers = [Arc::new(server)].into();
    let settings = Arc::new(Settings { limits, servers, ..Settings::default() });
    let mut host = Host {
        engine: Engine::new(settings, Box::new(Rigged::default())),
        now: Now::default(),
        next_conn: 1,
        servers: BTreeMap::new(),
        script: data.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect(),
        open: BTreeMap::new(),
        next_id: 0,
    };
    host.connect();
    // The second round asks again after the changes of the first.
    for _ in 0..2 {
        for at in 0..LISTS.len() {
            host.ask(at);
        }
        host.pass(DEADLINE);
        assert!(host.open.is_empty(), "lists without an answer: {:?}", host.open);
    }
    host.shut_down();
}

impl Host<'_> {
    fn feed(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.engine.handle(self.now, event, &mut actions);
        self.engine.handle(self.now, Event::Turn, &mut actions);
        self.engine.check();
        let mut ended = Vec::new();
        for action in actions {
            match action {
                Action::Upstream(UpstreamAction::Start { instance, .. }) => {
                    self.next_conn += 1;
                    self.servers.insert(instance, ConnId::new(self.next_conn));
                }
                Action::Upstream(UpstreamAction::End { instance, .. }) => ended.push(instance),
                Action::Upstream(
                    UpstreamAction::Examine { .. }
                    | UpstreamAction::EndStrays { .. }
                    | UpstreamAction::Forget { .. }
                    | UpstreamAction::SaveManifest { .. }
                    | UpstreamAction::SaveApproval { .. }
                    | UpstreamAction::ToolsDiffer { .. }
                    | UpstreamAction::Warn { .. },
                )
                | Action::Start { .. }
                | Action::Stop { .. }
                | Action::Tell { .. }
                | Action::TellProgress { .. }
                | Action::Notified { .. }
                | Action::RefuseCancel { .. }
                | Action::Store { .. }
                | Action::Load { .. }
                | Action::LookUp(_)
                | Action::Close { .. }
                | Action::Flush { .. }
                | Action::CollectHostStatus { .. }
                | Action::ReadOutput(_)
                | Action::Operate { .. }
                | Action::Audit(_)
                | Action::Exit => {}
            }
        }
        for instance in ended {
            self.servers.remove(&instance);
            let event = UpstreamEvent::Ended { instance, status: "exit 0", stderr: "" };
            self.feed(Event::Upstream(event));
        }
    }

    fn connect(&mut self) {
        self.feed(Event::Opened {
            conn: CLIENT,
            identity: Identity::User(1),
            rights: Rights::Full,
            role: Role::Server,
        });
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"}});
        self.say(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params}));
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn say(&mut self, message: &Value) {
        self.feed(Event::Frame { conn: CLIENT, frame: message.to_string().as_bytes() });
    }

    /// The client asks for a list, and the servers answer until they wait.
    fn ask(&mut self, at: usize) {
        self.next_id += 1;
        self.open.insert(self.next_id, at);
        self.say(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": LISTS[at].0}));
        self.work();
    }

    /// Time passes, and whatever is due happens.
    fn pass(&mut self, span: Duration) {
        let end = self.now.at + span;
        while let Some((at, _)) = self.engine.deadline().filter(|(at, _)| *at <= end) {
            self.now.at = at.max(self.now.at);
            self.feed(Event::Tick);
            self.work();
        }
        self.now.at = end;
    }

    /// Starts servers, and has them answer until nothing is left to read.
    fn work(&mut self) {
        loop {
            let known: Vec<_> = self.servers.iter().map(|(id, conn)| (*id, *conn)).collect();
            let mut has_read = false;
            for (instance, conn) in known {
                if self.engine.send_queue(conn).is_none() && self.servers.contains_key(&instance) {
                    self.feed(Event::Upstream(UpstreamEvent::Started { instance, conn }));
                }
                for message in self.lines(conn) {
                    has_read = true;
                    self.answer(conn, &message);
                }
            }
            self.read();
            if !has_read {
                return;
            }
        }
    }

    fn lines(&mut self, conn: ConnId) -> Vec<Value> {
        let text = frames::taken(&mut self.engine, conn);
        text.lines().map(parsed).collect()
    }

    /// A server answers a request.
    fn answer(&mut self, conn: ConnId, message: &Value) {
        let id = &message["id"];
        let method = message["method"].as_str().unwrap_or_default();
        let capabilities = json!({"tools": {}, "prompts": {}, "resources": {"listChanged": true}});
        let info = json!({"name": "s", "version": "1"});
        let initialized = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": info});
        let frame = match method {
            _ if id.is_null() => return,
            "initialize" => json!({"jsonrpc": "2.0", "id": id, "result": initialized}).to_string(),
            _ if LISTS.iter().any(|(list, ..)| *list == method) => {
                return self.answer_list(conn, id);
            }
            _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
                .to_string(),
        };
        self.feed(Event::Frame { conn, frame: frame.as_bytes() });
    }

    fn answer_list(&mut self, conn: ConnId, id: &Value) {
        let mut line = self.script.pop_front().unwrap_or(b"{}");
        if let Some(rest) = line.strip_prefix(b"!") {
            line = rest;
            let method = CHANGES[line.len() % CHANGES.len()];
            let told = json!({"jsonrpc": "2.0", "method": method}).to_string();
            self.feed(Event::Frame { conn, frame: told.as_bytes() });
        }
        if line.first() == Some(&b'-') {
            return;
        }
        if let Some(rest) = line.strip_prefix(b"~") {
            line = rest;
            let until = self.now.at + DEADLINE;
            while let Some((at, _)) = self.engine.deadline().filter(|(at, _)| *at <= until) {
                self.now.at = at.max(self.now.at);
                self.feed(Event::Tick);
            }
        }
        let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
        let frame = [head.as_bytes(), line, b"}"].concat();
        match frame.len() > BYTES_MAX {
            true => self.feed(Event::TooLong { conn, skeleton: "" }),
            false => self.feed(Event::Frame { conn, frame: &frame }),
        }
    }

    /// The client reads its answers.
    fn read(&mut self) {
        for message in self.lines(CLIENT) {
            let Some(at) = message["id"].as_u64().and_then(|id| self.open.remove(&id)) else {
                assert!(!message["id"].is_u64(), "an answer too many: {message}");
                continue;
            };
            let (_, name, key) = LISTS[at];
            let Some(elements) = message["result"][name].as_array() else {
                assert!(message["error"].is_object(), "no list: {message}");
                continue;
            };
            let keys: BTreeSet<&str> = elements.iter().filter_map(|it| it[key].as_str()).collect();
            assert_eq!(keys.len(), elements.len(), "doubles: {message}");
            assert!(keys.len() <= ELEMENTS_MAX, "{} elements: {message}", keys.len());
        }
        self.feed(Event::Drained { conn: CLIENT });
    }

    /// The client goes, and nothing of it is left.
    fn shut_down(mut self) {
        self.feed(Event::Closed { conn: CLIENT });
        self.feed(Event::Drain { by: self.now.at + DEADLINE });
        self.pass(DEADLINE * 2);
        let sizes = self.engine.sizes();
        assert_eq!((sizes.jobs, sizes.timers), (0, 0), "a table is not empty");
    }
}
